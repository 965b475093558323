"""Whole networks, from convolutions to attention and from attention to convolutions.

What was done is a small config, so that a converted network can be built again from data: build the model, convert it
in the same way, load its state dict. All that a converted layer needs is in there, alpha and the bounds included.
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass

from torch import nn

from headwork.checks import check_positive
from headwork.convert.attention_to_convolution import AttentionAsConvolution, convolution_from_attention
from headwork.convert.convolution_to_attention import (
    ConvolutionAsAttention,
    attention_from_convolution,
    check_tolerance,
)
from headwork.layers.gaussian import GaussianAttention
from headwork.serialise import Checked


@dataclass(frozen=True, kw_only=True)
class ToAttention(Checked):
    """Every nn.Conv2d becomes attention, each within the tolerance for inputs in [-1, 1]."""

    tolerance: float = 1e-6

    def __post_init__(self) -> None:
        super().__post_init__()
        check_tolerance(self.tolerance)


@dataclass(frozen=True, kw_only=True)
class ToConvolution(Checked):
    """All Gaussian heads become their nearest convolution; convolutions that `ToAttention` changed come back.

    The bounds hold for images of `grid` (rows, columns) tokens; None is the grid of the model's own config.
    """

    kernel_size: tuple[int, int] = (3, 3)
    grid: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(kernel_rows=self.kernel_size[0], kernel_columns=self.kernel_size[1])
        if self.grid is not None:
            check_positive(grid_rows=self.grid[0], grid_columns=self.grid[1])


Conversion = ToAttention | ToConvolution


def convert(model: nn.Module, how: Conversion) -> nn.Module:
    """A copy of the model with its convolutions as attention, or its Gaussian heads as convolutions.

    Every other module is copied, what was frozen stays frozen, and what stood in two places does so again.

    >>> resnet = hw.models.ResNet(hw.models.ResNetConfig(n_classes=10, n_blocks=1)).eval()
    >>> image = torch.rand(1, 3, 16, 16)
    >>> torch.allclose(convert(resnet, ToAttention())(image), resnet(image), atol=1e-4)
    True
    """
    match how:
        case ToAttention():
            wanted = "an nn.Conv2d"
            converted, n_made = _replace(model, lambda module: _as_attention(module, how))
        case ToConvolution():
            wanted = "Gaussian heads"
            grid = _grid_of(model) if how.grid is None else how.grid
            converted, n_made = _replace(model, lambda module: _as_convolution(module, how.kernel_size, grid))
    if not n_made:
        raise ValueError(f"model must have {wanted} for {type(how).__name__}, got {type(model).__name__} without any")
    converted._conversions = (*conversions_of(model), how)  # type: ignore[assignment]  # no module, only a note
    return converted


def conversions_of(model: nn.Module) -> tuple[Conversion, ...]:
    """What `convert` did to the model, in order: with its config, all that is needed to build it again.

    >>> conversions_of(convert(nn.Conv2d(1, 1, 3), ToAttention()))
    (ToAttention(tolerance=1e-06),)
    """
    return getattr(model, "_conversions", ())


def _as_attention(module: nn.Module, how: ToAttention) -> nn.Module | None:
    return attention_from_convolution(module, how.tolerance) if isinstance(module, nn.Conv2d) else None


def _as_convolution(module: nn.Module, kernel_size: tuple[int, int], grid: tuple[int, int]) -> nn.Module | None:
    match module:
        case ConvolutionAsAttention():
            return convolution_from_attention(module, grid=grid).conv
        case GaussianAttention():
            return AttentionAsConvolution(module, kernel_size, grid)
        case _:
            return None


def _replace(model: nn.Module, make: Callable[[nn.Module], nn.Module | None]) -> tuple[nn.Module, int]:
    """A copy with new modules wherever `make` answers with one, and how many there are."""
    made: dict[nn.Module, nn.Module] = {}

    def visit(module: nn.Module) -> nn.Module:
        if module not in made and (new := make(module)) is not None:
            made[module] = new.train(module.training)
        if module in made:
            return made[module]
        for name, child in module._modules.items():
            if child is not None:
                setattr(module, name, visit(child))
        return module

    return visit(deepcopy(model)), len(made)


def _grid_of(model: nn.Module) -> tuple[int, int]:
    grid = getattr(getattr(model, "config", None), "grid", None)
    if grid is None:
        raise ValueError(f"grid must be given for a model whose config names none, got {type(model).__name__}")
    return grid
