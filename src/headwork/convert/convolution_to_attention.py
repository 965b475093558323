"""Any two-dimensional convolution as attention with one Gaussian head for each kernel position.

In the limit of a large alpha a head picks the pixel nearest to where it looks. A head that looks past the border so
picks the border: bare Gaussian heads compute the convolution with *replicate* padding. Zero, circular and reflect
padding need tokens for the padding; a stride needs fewer queries; a dilation only moves the centres. How large alpha
has to be follows from the tolerance by a proven bound: see `sufficient_alpha`.
"""

import math

import torch
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from headwork.functional.processor import has_numbers
from headwork.layers.gaussian import GaussianAttention


class ConvolutionAsAttention(nn.Module):
    """A Gaussian multi-head attention over pixels that gives what a convolution gives, within its tolerance.

    >>> conv = nn.Conv2d(3, 5, kernel_size=3, padding=1, stride=2)
    >>> attention = attention_from_convolution(conv)
    >>> image = torch.randn(1, 3, 8, 8)
    >>> torch.allclose(attention(image), conv(image), atol=1e-5)
    True
    """

    axes = "batch channel row column"

    def __init__(self, conv: nn.Conv2d, alpha: float) -> None:
        super().__init__()
        left, right, top, bottom = conv._reversed_padding_repeated_twice
        self.kernel_size, self.stride, self.dilation = map(_pair, (conv.kernel_size, conv.stride, conv.dilation))
        self.padding = (left, right, top, bottom)
        self.padding_mode = conv.padding_mode
        shifts = torch.cartesian_prod(*map(torch.tensor, self.offsets())).to(conv.weight)
        self.attention = GaussianAttention(
            conv.in_channels, len(shifts), d_out=conv.out_channels, bias=conv.bias is not None
        ).to(conv.weight)
        self.attention.set_centres(shifts, conv.weight.new_full((len(shifts),), alpha))
        self.attention.requires_grad_(conv.weight.requires_grad)
        with (
            torch.no_grad()
        ):  # the head of kernel position (row, column) has the block W^(h) = kernel[:, :, row, column]
            dense = _without_groups(conv)
            self.attention.out.weight.copy_(rearrange(dense, "out channel row column -> out (row column channel)"))
            if conv.bias is not None:
                self.attention.out.bias.copy_(conv.bias).requires_grad_(conv.bias.requires_grad)

    def forward(
        self, image: Float[Tensor, "batch channel row column"]
    ) -> Float[Tensor, "batch out query_row query_column"]:
        """Attend from the corner of each window of the convolution, over the pixels and those of its padding."""
        if image.ndim != 4:
            raise ValueError(f"image must have the axes (batch, channel, row, column), got shape {tuple(image.shape)}")
        dtype = torch.promote_types(image.dtype, torch.float32)
        rows, columns = (corners.to(image.device, dtype) for corners in self.corners((image.shape[2], image.shape[3])))
        if self.padding_mode != "replicate" and any(self.padding):
            image = F.pad(image, self.padding, "constant" if self.padding_mode == "zeros" else self.padding_mode)
        tokens = rearrange(image, "batch channel row column -> batch row column channel")
        seen = self.attention(tokens, (rows, columns))
        return rearrange(seen, "batch row column out -> batch out row column")

    def corners(self, grid: tuple[int, int]) -> tuple[Int[Tensor, "query_row"], Int[Tensor, "query_column"]]:
        """The rows and columns of the tokens on which windows begin, for an image of this size: the queries.

        With replicate padding there are no tokens for the padding, since the nearest pixel is what a head finds past
        the border: the first windows begin before the first token.
        """
        left, right, top, bottom = self.padding
        rows, columns = self._fitting(0, grid[0] + top + bottom), self._fitting(1, grid[1] + left + right)
        return (rows - top, columns - left) if self.padding_mode == "replicate" else (rows, columns)

    def token_grid(self, grid: tuple[int, int]) -> tuple[int, int]:
        """How many (rows, columns) of tokens an image of this size has, with those for the padding."""
        left, right, top, bottom = (0, 0, 0, 0) if self.padding_mode == "replicate" else self.padding
        return grid[0] + top + bottom, grid[1] + left + right

    def offsets(self) -> tuple[range, range]:
        """How far the rows and columns of the kernel lie from the corner of the window."""
        rows, columns = (range(0, d * k, d) for d, k in zip(self.dilation, self.kernel_size, strict=True))
        return rows, columns

    def new_convolution(self) -> nn.Conv2d:
        """A fresh convolution of the kind this was made from, without groups."""
        left, right, top, bottom = self.padding
        return nn.Conv2d(
            self.attention.d_model,
            self.attention.out.out_features,
            self.kernel_size,
            self.stride,
            padding=(top, left) if (top, left) == (bottom, right) else "same",  # nothing else pads one side more
            dilation=self.dilation,
            bias=self.attention.out.bias is not None,
            padding_mode=self.padding_mode,
        )

    def _fitting(self, axis: int, size: int) -> Int[Tensor, "query"]:
        reach = self.dilation[axis] * (self.kernel_size[axis] - 1)
        if size <= reach:
            raise ValueError(
                f"the padded image must be as large as the kernel, {reach + 1} {('rows', 'columns')[axis]}, got {size}"
            )
        return torch.arange(0, size - reach, self.stride[axis])

    def extra_repr(self) -> str:
        return f"stride={self.stride}, padding={self.padding}, padding_mode={self.padding_mode}"


def attention_from_convolution(conv: nn.Conv2d, tolerance: float = 1e-6) -> ConvolutionAsAttention:
    """The convolution as attention: for pixels in [-1, 1] every output differs by at most `tolerance`, border included.

    That is in exact arithmetic; float32 adds its own rounding. The weights are copied, with zeros between groups; where
    the convolution was frozen, so are the heads.
    """
    if not isinstance(conv, nn.Conv2d):
        kind = type(conv).__name__
        hint = ": a transposed convolution is not one" if "Transpose" in kind else ""
        raise TypeError(f"conv must be an nn.Conv2d (two dimensions), got {kind}{hint}")
    return ConvolutionAsAttention(conv, sufficient_alpha(conv.weight, tolerance))


def sufficient_alpha(weight: Float[Tensor, "out channel row column"], tolerance: float) -> float:
    r"""$\alpha = \ln(1 + 8\,|W|_1 / tolerance)$, with the largest sum $|W|_1$ of absolute weights of any output.

    A head on a pixel leaks at most $\sum_{m \ne 0} e^{-\alpha m^2} \le 2q/(1-q)$ along an axis, with $q = e^{-\alpha}$,
    so at most $4q/(1-q)$ in the plane, and what it passes on is off by at most twice that for pixels in [-1, 1].

    >>> round(sufficient_alpha(torch.ones(1, 1, 1, 1), 1e-6), 2)
    15.89
    """
    check_tolerance(tolerance)
    if not has_numbers(weight):
        return 1.0  # a model without numbers has its alpha yet to be loaded
    largest = weight.detach().abs().sum((1, 2, 3)).max().item()
    if not math.isfinite(largest):
        raise ValueError("the weights of conv must be finite, got NaN or infinity among them")
    return math.log1p(8 * max(largest, tolerance) / tolerance)


def check_tolerance(tolerance: float) -> None:
    """Raise unless something between exact, which no finite alpha is, and as large as the pixels.

    >>> check_tolerance(0.0)
    Traceback (most recent call last):
    ValueError: tolerance must lie in (0, 1), got 0.0
    """
    if not 0 < tolerance < 1:
        raise ValueError(f"tolerance must lie in (0, 1), got {tolerance}")


def _without_groups(conv: nn.Conv2d) -> Float[Tensor, "out channel row column"]:
    """The kernel of the same convolution without groups: zeros between channels of different groups."""
    weight = conv.weight.detach()
    dense = weight.new_zeros(conv.out_channels, conv.in_channels, *weight.shape[2:])
    out, channel = conv.out_channels // conv.groups, conv.in_channels // conv.groups
    for group in range(conv.groups):
        here = slice(group * out, (group + 1) * out)
        dense[here, group * channel : (group + 1) * channel] = weight[here]
    return dense


def _pair(size: tuple[int, ...]) -> tuple[int, int]:
    return size[0], size[1]
