"""What a conversion changed, and how far two models are from each other on images."""

import math
from dataclasses import asdict, dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headwork.convert.attention_to_convolution import ConvolutionFromAttention
from headwork.convert.convolution_to_attention import ConvolutionAsAttention
from headwork.functional.gaussian import full_precision
from headwork.functional.tracing import has_numbers
from headwork.layers.gaussian import GaussianAttention


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

    def to_dict(self) -> dict[str, object]:
        return asdict(self)

    def __str__(self) -> str:
        grid = "" if self.grid is None else f" on {_by(self.grid)} positions"
        return (
            f"{self.name or 'the model'}: {self.before} -> {self.after}; alpha {_span(self.alpha)}; "
            f"off by at most {self.error_bound:.2g} for inputs in [-1, 1]{grid}; "
            f"largest weight of a head {_span(self.single_pixel)}"
        )


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """How far the outputs of two models are from each other."""

    n_images: int
    largest_difference: float
    largest_output: float
    """The largest absolute value of the first model's outputs, to judge the difference by."""
    same_predictions: int

    def to_dict(self) -> dict[str, object]:
        return asdict(self)

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


def report_attention(name: str, conv: nn.Conv2d, new: ConvolutionAsAttention, tolerance: float) -> ConvertedLayer:
    """The report of a convolution that became attention."""
    return ConvertedLayer(
        name=name,
        before=_name_convolution(conv),
        after=_name_heads(new.attention),
        n_heads=new.attention.n_heads,
        alpha=_alpha(new.attention),
        error_bound=tolerance,
        grid=None,
        single_pixel=_numbers(_largest_weights(new)),
    )


def report_convolution(
    name: str, heads: GaussianAttention, found: ConvolutionFromAttention, grid: tuple[int, int]
) -> ConvertedLayer:
    """The report of Gaussian heads that became a convolution."""
    return ConvertedLayer(
        name=name,
        before=_name_heads(heads),
        after=_name_convolution(found.conv),
        n_heads=heads.n_heads,
        alpha=_alpha(heads),
        error_bound=found.error_bound,
        grid=grid,
        single_pixel=_numbers(found.single_pixel),
    )


def _name_convolution(conv: nn.Conv2d) -> str:
    return f"{_by(conv.kernel_size)} convolution ({conv.in_channels} to {conv.out_channels} channels)"


def _name_heads(heads: GaussianAttention) -> str:
    return "1 Gaussian head" if heads.n_heads == 1 else f"{heads.n_heads} Gaussian heads"


def _largest_weights(layer: ConvolutionAsAttention) -> Float[Tensor, "head"]:
    """The largest weight of each head, on a grid in which all of them look 4 pixels or more away from the border.

    That is as good as no border: alpha is at least ln 9, so less than 9**-25 lies further away.
    """
    rows, columns = (offsets[-1] + 9 for offsets in layer.offsets())
    return layer.attention.seen_from((rows, columns), (4, 4)).detach().flatten(1).amax(1)


def _alpha(heads: GaussianAttention) -> tuple[float, ...]:
    alpha = heads.alpha.detach()
    if alpha.ndim == 1:
        return _numbers(alpha)
    return _numbers(torch.linalg.det(full_precision(alpha).double()).sqrt())


def _numbers(values: Float[Tensor, "head"]) -> tuple[float, ...]:
    return tuple(values.tolist()) if has_numbers(values) else (math.nan,) * len(values)


def _span(values: tuple[float, ...]) -> str:
    low, high = f"{min(values):.2f}", f"{max(values):.2f}"
    return low if low == high else f"{low} to {high}"


def _by(sizes: tuple[int, ...]) -> str:
    return " x ".join(map(str, sizes))
