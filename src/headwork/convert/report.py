"""What a conversion changed, and how far two models are from each other on images."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headwork.functional.gaussian import full_precision
from headwork.functional.processor import has_numbers
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

    def __str__(self) -> str:
        grid = "" if self.grid is None else f" on {self.grid[0]} x {self.grid[1]} positions"
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


def report_layer(
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
