"""Which layer was the first to compute what is not a number."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn


class NonFiniteError(RuntimeError):
    """A loss, a gradient or a weight is not finite; what is kept is from before it."""

    exit_code = 3


def first_nonfinite(model: nn.Module, losses: Iterable[Callable[[], Tensor]]) -> str:
    """Where the trouble starts: a weight, an input, the output of a layer, or the gradient of a weight.

    Each loss is computed once more, with eyes on every layer.

    >>> model = nn.Linear(2, 3)
    >>> first_nonfinite(model, [lambda: (0 * model(torch.ones(1, 2))).log().sum()])
    'the loss'
    """
    for name, parameter in model.named_parameters():
        if not parameter.isfinite().all():
            return f"the weight {name}"
    return next((where for loss in losses if (where := _watch(model, loss))), "the sum of the gradients")


def _watch(model: nn.Module, compute: Callable[[], Tensor]) -> str | None:
    found: list[str] = []

    def look(what: str, tensors: object) -> None:
        for tensor in tensors if isinstance(tensors, tuple) else (tensors,):
            if isinstance(tensor, Tensor) and tensor.is_floating_point() and not tensor.isfinite().all():
                found.append(what)

    hooks = [model.register_forward_pre_hook(lambda _module, inputs: look("the input", inputs))]
    for name, module in model.named_modules():
        what = f"the output of {name or type(model).__name__}"
        hooks.append(module.register_forward_hook(lambda _module, _inputs, output, what=what: look(what, output)))
    try:
        loss = compute()
    finally:
        for hook in hooks:
            hook.remove()
    look("the loss", loss)
    if not found and loss.requires_grad:
        model.zero_grad()
        torch.autograd.backward(loss)
        for name, parameter in model.named_parameters():
            look(f"the gradient of {name}", parameter.grad)
    return found[0] if found else None
