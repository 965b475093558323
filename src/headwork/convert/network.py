"""Whole networks, from convolutions to attention and from attention to convolutions.

What was done is a small config, so that a converted network can be built again from data: build the model, convert it
in the same way, load its state dict. All that a converted layer needs is in there, alpha and the bounds included.
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass

from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from headwork.checks import check_positive
from headwork.convert.convolution import ConvolutionAsAttention, attention_from_convolution, check_tolerance
from headwork.convert.gaussian import convolution_from_attention
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


class AttentionAsConvolution(nn.Module):
    """The nearest convolution in the place of a layer of Gaussian heads, and how near it is.

    >>> layer = AttentionAsConvolution(GaussianAttention(d_model=4, n_heads=9), (3, 3), grid=(5, 7))
    >>> layer(torch.randn(2, 5, 7, 4)).shape, layer.single_pixel.shape
    (torch.Size([2, 5, 7, 4]), torch.Size([9]))
    """

    axes = "batch row column d_model"
    error_bound: Float[Tensor, ""]
    single_pixel: Float[Tensor, "head"]

    def __init__(self, layer: GaussianAttention, kernel_size: tuple[int, int], grid: tuple[int, int]) -> None:
        super().__init__()
        conv, error_bound, single_pixel = convolution_from_attention(layer, kernel_size, grid)
        self.conv: nn.Module = conv
        self.register_buffer("error_bound", single_pixel.new_tensor(error_bound))
        self.register_buffer("single_pixel", single_pixel)

    def forward(self, x: Float[Tensor, "batch row column d_model"]) -> Float[Tensor, "batch row column d_out"]:
        image = rearrange(x, "batch row column d -> batch d row column")
        return rearrange(self.conv(image), "batch d row column -> batch row column d")


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
