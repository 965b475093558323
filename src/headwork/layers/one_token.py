"""The fast path of generation: one new token of each row, as [batch, d_model], in evaluation and without gradients.

One token at a time, the arithmetic is small, and most of the time goes into modules, hooks, checks and reshapes. So the
layers that generation runs have, beside `forward`, a method `one_token` that returns a plain function over the same
parameters; nothing is copied. A model with a part that is not exactly of such a class is called itself.
"""

from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headwork.layers.hook_point import HookPoint, LazyHookPoint
from headwork.layers.positions import Positions, RelativeShifts

OneToken = Callable[..., Tensor]

_PLAIN = {nn.Linear, nn.Dropout, HookPoint, LazyHookPoint, RelativeShifts}
"""Modules that the layer around them reads or calls as they are, or that do nothing when nobody looks."""


def affine(linear: nn.Module) -> OneToken:
    """W x + b of an `nn.Linear`."""
    assert isinstance(linear, nn.Linear)
    return affine_map(linear.weight, linear.bias)


def affine_map(weight: Float[Tensor, "d_out d_in"], bias: Float[Tensor, "d_out"] | None) -> OneToken:
    """W x + b for one token in each row, without the detours that `F.linear` takes for more axes."""
    transposed = weight.t()
    if bias is None:
        return lambda x: torch.mm(x, transposed)
    return lambda x: torch.addmm(bias, x, transposed)


def one_token_of(module: nn.Module) -> OneToken:
    """The one-token form of a module whose class has one."""
    make = module.one_token
    assert callable(make)
    return make()


def takes_part(model: nn.Module, *parts: nn.Module) -> bool:
    """Whether the model and all that is inside these parts of it have a one-token form that says what they say.

    A class has one if it defines `one_token` itself: a subclass may have another `forward`. Position codes are asked
    the same questions on both paths, so any will do.
    """
    return _is_unchanged(model) and all(_is_unchanged(module) for part in parts for module in _inside(part))


def _is_unchanged(module: nn.Module) -> bool:
    return (
        (type(module) in _PLAIN or "one_token" in vars(type(module)))
        and "forward" not in vars(module)
        and module._compiled_call_impl is None
    )


def _inside(module: nn.Module) -> Iterator[nn.Module]:
    yield module
    for child in module.children():
        if not isinstance(child, Positions):
            yield from _inside(child)
