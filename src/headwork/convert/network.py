"""Whole networks, from convolutions to attention and from attention to convolutions, and a report of what changed.

A converted network is built again from data: build the model, apply its conversions in order, load its state dict.
The alphas and the error bounds are in the state dict.
"""

import math
from collections.abc import Callable
from copy import deepcopy
from dataclasses import asdict, dataclass
from functools import partial
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headwork.checks import check_positive
from headwork.convert.attention_to_convolution import AttentionAsConvolution, convolution_from_attention
from headwork.convert.convolution_to_attention import (
    ConvolutionAsAttention,
    attention_from_convolution,
    check_tolerance,
)
from headwork.convert.low_rank import LoRA
from headwork.functional.gaussian import full_precision
from headwork.functional.processor import has_numbers
from headwork.layers.gaussian import GaussianAttention
from headwork.models.model import describe
from headwork.serialise import Checked, config_to_dict

Direction = Literal["attention", "convolution"]
LARGEST_GRID = 4096
"""Rows or columns; the weights of every head from each place to each would fit in no memory."""


@dataclass(frozen=True, kw_only=True)
class ConvertedLayer:
    """One layer: what it was, what it became, and how far the new one can be from the old one."""

    name: str
    before: str
    after: str
    n_heads: int
    alpha: tuple[float, ...]
    """The precision of each head; of one that is no circle, the square root of the determinant."""
    error_bound: float
    """No output differs by more for inputs in [-1, 1], apart from rounding; for inputs in [-m, m], by m times that."""
    grid: tuple[int, int] | None
    """The (rows, columns) of the input for which the bound holds; None: any."""
    single_pixel: tuple[float, ...]
    """The largest weight of each head away from the border: 1 is a head that sees a single pixel."""

    def __str__(self) -> str:
        grid = "" if self.grid is None else f" on {self.grid[0]} x {self.grid[1]} positions"
        return (
            f"{self.name or 'the model'}: {self.before} -> {self.after}; alpha {_span(self.alpha)}; "
            f"off by at most {self.error_bound:.2g} for inputs in [-1, 1]{grid}; "
            f"largest weight of a head {_span(self.single_pixel)}"
        )


ReplacedLayer = tuple[nn.Module, ConvertedLayer]


@dataclass(frozen=True, kw_only=True)
class ToAttention(Checked):
    """The description of a call of `to_attention`, which `hw.save` keeps."""

    tolerance: float = 1e-6

    def __post_init__(self) -> None:
        super().__post_init__()
        check_tolerance(self.tolerance)

    def apply(self, model: nn.Module) -> "Converted":
        replace = partial(_as_attention, tolerance=self.tolerance)
        return _convert(model, self, "an nn.Conv2d for to_attention", replace)


@dataclass(frozen=True, kw_only=True)
class ToConvolution(Checked):
    """The description of a call of `to_convolution`, which `hw.save` keeps."""

    kernel_size: tuple[int, int] = (3, 3)
    grid: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(kernel_rows=self.kernel_size[0], kernel_columns=self.kernel_size[1])
        if self.grid is not None:
            check_positive(grid_rows=self.grid[0], grid_columns=self.grid[1])
            if max(self.grid) > LARGEST_GRID:
                raise ValueError(f"grid must be at most {LARGEST_GRID:,} rows and columns, got {self.grid}")

    def apply(self, model: nn.Module) -> "Converted":
        grid = _grid_of(model) if self.grid is None else self.grid
        replace = partial(_as_convolution, kernel_size=self.kernel_size, grid=grid)
        return _convert(model, self, "Gaussian heads for to_convolution", replace)


Conversion = ToAttention | ToConvolution | LoRA


@dataclass(frozen=True)
class Converted:
    """A converted copy of a model, and what changed: `print` it for one line per layer."""

    model: nn.Module
    conversion: Conversion
    layers: tuple[ConvertedLayer, ...]

    def to_dict(self) -> dict[str, object]:
        """The conversion and the layers as data for JSON."""
        return {"conversion": config_to_dict(self.conversion), "layers": [asdict(layer) for layer in self.layers]}

    def __str__(self) -> str:
        return "\n".join(map(str, self.layers))


def to_attention(model: nn.Module, tolerance: float = 1e-6) -> Converted:
    """A copy of the model in which every nn.Conv2d is attention, each within the tolerance for inputs in [-1, 1].

    Everything else is copied, what was frozen stays frozen, and a layer used twice is still one layer.

    >>> resnet = hw.models.ResNet(hw.models.ResNetConfig(n_classes=10, n_blocks=1)).eval()
    >>> converted = to_attention(resnet)
    >>> image = torch.rand(1, 3, 16, 16)
    >>> torch.allclose(converted.model(image), resnet(image), atol=1e-4)
    True
    >>> [layer.n_heads for layer in converted.layers]
    [9, 9, 9, 9, 9, 1, 9, 9, 1]
    """
    return ToAttention(tolerance=tolerance).apply(model)


def to_convolution(
    model: nn.Module, kernel_size: tuple[int, int] = (3, 3), grid: tuple[int, int] | None = None
) -> Converted:
    """A copy of the model in which all Gaussian heads are their nearest convolution, as far off as the report says.

    Convolutions that `to_attention` changed come back with their own kernel size. The bound of each layer holds for an
    input of `grid` (rows, columns); None is the grid of the model's description.

    >>> config = hw.models.GaussianImageEncoderConfig(n_classes=10, image=(8, 8), d_model=12, n_layers=1)
    >>> print(to_convolution(config.build().eval(), kernel_size=(3, 3)))  # doctest: +ELLIPSIS
    layers.0.attention: 9 Gaussian heads -> 3 x 3 convolution (12 to 12 channels); alpha 1.00; off by at most ...
    """
    return ToConvolution(kernel_size=kernel_size, grid=grid).apply(model)


def possible_directions(model: nn.Module) -> tuple[Direction, ...]:
    """Where a model can be converted to: its Gaussian heads to convolution, its convolutions to attention.

    >>> possible_directions(nn.Conv2d(1, 1, 3)), possible_directions(nn.Linear(1, 1))
    (('attention',), ())
    """
    kinds: dict[Direction, type[nn.Module]] = {"attention": nn.Conv2d, "convolution": GaussianAttention}
    return tuple(way for way, kind in kinds.items() if any(isinstance(module, kind) for module in model.modules()))


def conversions_of(model: nn.Module) -> tuple[Conversion, ...]:
    """What was done to the model, in order: with its config, all that is needed to build it again.

    >>> conversions_of(to_attention(nn.Conv2d(1, 1, 3)).model)
    (ToAttention(tolerance=1e-06),)
    """
    return getattr(model, "_conversions", ())


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """How far the outputs of two models are from each other."""

    n_images: int
    largest_difference: float
    largest_output: float
    """The largest absolute value of the first model's outputs, to judge the difference by."""
    same_predictions: int

    def __str__(self) -> str:
        return (
            f"the outputs differ by at most {self.largest_difference:.2g}, of up to {self.largest_output:.3g}; "
            f"{self.same_predictions} of {self.n_images} predictions are the same"
        )


@torch.no_grad()
def compare(before: nn.Module, after: nn.Module, images: Float[Tensor, "batch channel row column"]) -> Comparison:
    """How far the outputs of two models are from each other for the same images; both models in `eval` mode.

    >>> conv = nn.Sequential(nn.Conv2d(3, 5, 1), nn.Flatten()).eval()
    >>> print(compare(conv, conv, torch.ones(2, 3, 1, 1)))  # doctest: +ELLIPSIS
    the outputs differ by at most 0, of up to ...; 2 of 2 predictions are the same
    """
    if before.training or after.training:  # dropout would differ, and batch norm would change the models
        raise ValueError("both models must be in eval mode, got one in training mode: call model.eval()")
    if not len(images):
        raise ValueError("images must be 1 or more, got none")
    expected, found = before(images), after(images)
    return Comparison(
        n_images=len(images),
        largest_difference=(expected - found).abs().max().item(),
        largest_output=expected.abs().max().item(),
        same_predictions=int((expected.argmax(-1) == found.argmax(-1)).sum()),
    )


def _as_attention(name: str, module: nn.Module, tolerance: float) -> ReplacedLayer | None:
    if not isinstance(module, nn.Conv2d):
        return None
    new = attention_from_convolution(module, tolerance)
    # Seen from pixel (4, 4) of this grid, the border is 4 pixels or more away from every centre. That is as good as no
    # border: alpha is at least ln 9, and a pixel 5 away has less than 9**-25 of the weight.
    rows, columns = (offsets[-1] + 9 for offsets in new.offsets())
    largest_weight = new.attention.seen_from((rows, columns), (4, 4)).detach().flatten(1).amax(1)
    return new, _report_layer(name, module, new.attention, tolerance, largest_weight)


def _as_convolution(
    name: str, module: nn.Module, kernel_size: tuple[int, int], grid: tuple[int, int]
) -> ReplacedLayer | None:
    match module:
        case ConvolutionAsAttention():
            nearest = convolution_from_attention(module, grid=grid)
            return nearest.conv, _report_layer(name, module.attention, *nearest, grid)
        case GaussianAttention():
            nearest = convolution_from_attention(module, kernel_size, grid)
            return AttentionAsConvolution(nearest), _report_layer(name, module, *nearest, grid)
        case _:
            return None


def _convert(
    model: nn.Module, conversion: Conversion, wanted: str, replace: Callable[[str, nn.Module], ReplacedLayer | None]
) -> Converted:
    """A copy with a new module wherever `replace` gives one; a module with several names is replaced once."""
    replaced: dict[nn.Module, ReplacedLayer] = {}

    def visit(name: str, module: nn.Module) -> nn.Module:
        if module not in replaced and (found := replace(name, module)) is not None:
            found[0].train(module.training)
            replaced[module] = found
        if module in replaced:
            return replaced[module][0]
        for child_name, child in module._modules.items():
            if child is not None:
                setattr(module, child_name, visit(f"{name}.{child_name}" if name else child_name, child))
        return module

    converted = visit("", deepcopy(model))
    if not replaced:
        raise ValueError(f"model must have {wanted}, got {type(model).__name__} without any")
    converted._conversions = (*conversions_of(model), conversion)  # type: ignore[assignment]  # no module, only a note
    return Converted(converted, conversion, tuple(layer for _, layer in replaced.values()))


def _grid_of(model: nn.Module) -> tuple[int, int]:
    description = describe(model)
    if description is None or description.grid is None:
        raise ValueError(f"grid must be given for a model whose description names none, got {type(model).__name__}")
    return description.grid


def _report_layer(
    name: str,
    before: nn.Conv2d | GaussianAttention,
    after: nn.Conv2d | GaussianAttention,
    error_bound: float,
    single_pixel: Float[Tensor, "head"],
    grid: tuple[int, int] | None = None,
) -> ConvertedLayer:
    """The report of a layer from its convolution and its heads, one of which it was before."""
    heads = before if isinstance(before, GaussianAttention) else after
    assert isinstance(heads, GaussianAttention)
    return ConvertedLayer(
        name=name,
        before=_in_words(before),
        after=_in_words(after),
        n_heads=heads.n_heads,
        alpha=_numbers(torch.linalg.det(full_precision(heads.alpha.detach()).double()).sqrt()),
        error_bound=error_bound,
        grid=grid,
        single_pixel=_numbers(single_pixel),
    )


def _in_words(layer: nn.Conv2d | GaussianAttention) -> str:
    if isinstance(layer, GaussianAttention):
        return "1 Gaussian head" if layer.n_heads == 1 else f"{layer.n_heads} Gaussian heads"
    rows, columns = layer.kernel_size
    return f"{rows} x {columns} convolution ({layer.in_channels} to {layer.out_channels} channels)"


def _numbers(values: Float[Tensor, "head"]) -> tuple[float, ...]:
    return tuple(values.tolist()) if has_numbers(values) else (math.nan,) * len(values)


def _span(values: tuple[float, ...]) -> str:
    low, high = f"{min(values):.2f}", f"{max(values):.2f}"
    return low if low == high else f"{low} to {high}"
