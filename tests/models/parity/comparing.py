"""Two models, the same numbers: logits, and the gradient of a loss with respect to the embeddings."""

import tempfile
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from headwork.hub import load_pretrained


class NothingBelowFloat64(TorchFunctionMode):
    """Hugging Face computes some parts of a float64 model in float32 (RMSNorm, rotary angles, softmax); not in here."""

    def __torch_function__(self, func: Callable, types: object, args: tuple = (), kwargs: dict | None = None) -> Any:
        func = Tensor.double if func is Tensor.float else func
        kwargs = {name: _wide(value) for name, value in (kwargs or {}).items()}
        return func(*(_wide(value) for value in args), **kwargs)


def _wide(value: object) -> object:
    return torch.float64 if value is torch.float32 else value


def in_float64(model: nn.Module) -> Callable[..., Any]:
    """Call a Hugging Face model, in float64 from end to end."""

    def call(*args: Any, **kwargs: Any) -> Any:
        with NothingBelowFloat64():
            return model(*args, **kwargs)

    return call


def loaded(theirs: Any) -> Any:
    """Our model, from the folder that theirs is saved in."""
    with tempfile.TemporaryDirectory() as folder:
        theirs.save_pretrained(folder)
        return load_pretrained(folder)


def assert_parity(
    ours: tuple[Tensor, Tensor], theirs: tuple[Tensor, Tensor], real: Tensor | None = None, tolerance: float = 1e-10
) -> None:
    """Each side is (logits, embedding table); only the `real` tokens are compared, and only they are in the loss."""
    (our_logits, our_table), (their_logits, their_table) = ours, theirs
    if real is not None:
        our_logits, their_logits = our_logits[real], their_logits[real]
    torch.testing.assert_close(our_logits, their_logits, rtol=tolerance, atol=tolerance)
    weights = torch.randn_like(their_logits)
    (our_gradient,) = torch.autograd.grad((our_logits * weights).sum(), our_table)
    (their_gradient,) = torch.autograd.grad((their_logits * weights).sum(), their_table)
    assert our_gradient.any()
    torch.testing.assert_close(our_gradient, their_gradient, rtol=tolerance, atol=tolerance)


def places(real: Tensor) -> Tensor:
    """The `position_ids` that Hugging Face must be told for a padded batch."""
    return (real.long().cumsum(1) - 1).clamp(min=0)
