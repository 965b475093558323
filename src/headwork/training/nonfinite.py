"""Which layer was the first to compute what is not a number."""

import torch
from torch import Tensor, nn

from headwork.data import Batch
from headwork.tasks import AnyTask


class NonFiniteError(RuntimeError):
    """The loss or a gradient is not finite; no weight was changed by it."""

    exit_code = 3


def first_nonfinite(model: nn.Module, task: AnyTask, batch: Batch) -> str:
    """Where the trouble starts: a weight, the output of a layer, or the gradient of a weight.

    The batch is scored once more, with eyes on every layer.
    """
    for name, parameter in model.named_parameters():
        if not parameter.isfinite().all():
            return f"the weight {name}"
    found: list[str] = []

    def look(name: str, output: object) -> None:
        if not found and isinstance(output, Tensor) and output.is_floating_point() and not output.isfinite().all():
            found.append(f"the output of {name or type(model).__name__}")

    hooks = [
        module.register_forward_hook(lambda _module, _inputs, output, name=name: look(name, output))
        for name, module in model.named_modules()
    ]
    try:
        loss = task.score(model, batch)["loss"].total
    finally:
        for hook in hooks:
            hook.remove()
    if found:
        return found[0]
    if not loss.isfinite():
        return "the loss"
    model.zero_grad()
    torch.autograd.backward(loss)
    for name, parameter in model.named_parameters():
        if parameter.grad is not None and not parameter.grad.isfinite().all():
            return f"the gradient of {name}"
    return "a gradient, in a part of the step that is gone"
