"""Any two-dimensional convolution as attention with one Gaussian head for each kernel position.

In the limit of a large alpha a head picks the pixel nearest to where it looks. A head that looks past the border so
picks the border: bare Gaussian heads compute the convolution with *replicate* padding. Zero, circular and reflect
padding need tokens for the padding; a stride needs fewer queries; a dilation only moves the centres. How large alpha
has to be follows from the tolerance by a proven bound: see `sufficient_alpha`.
"""

import math
from copy import deepcopy

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

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
        kernel, dilation = _pair(conv.kernel_size), _pair(conv.dilation)
        left, right, top, bottom = conv._reversed_padding_repeated_twice
        self.stride = _pair(conv.stride)
        self.reach = dilation[0] * (kernel[0] - 1), dilation[1] * (kernel[1] - 1)
        """How far the last kernel position lies from the first, in (rows, columns)."""
        self.padding = (left, right, top, bottom)
        self.padding_mode = conv.padding_mode
        self.attention = GaussianAttention(
            conv.in_channels, kernel[0] * kernel[1], d_out=conv.out_channels, bias=conv.bias is not None
        ).to(conv.weight)
        shifts = torch.cartesian_prod(dilation[0] * torch.arange(kernel[0]), dilation[1] * torch.arange(kernel[1]))
        self.attention.place_heads(shifts.reshape(-1, 2).to(conv.weight), conv.weight.new_full((len(shifts),), alpha))
        with torch.no_grad():
            dense = _without_groups(conv)
            self.attention.out.weight.copy_(rearrange(dense, "out channel row column -> out (row column channel)"))
            if conv.bias is not None:
                self.attention.out.bias.copy_(conv.bias)

    def forward(
        self, image: Float[Tensor, "batch channel row column"]
    ) -> Float[Tensor, "batch out query_row query_column"]:
        if image.ndim != 4:
            raise ValueError(f"image must have the axes (batch, channel, row, column), got shape {tuple(image.shape)}")
        left, right, top, bottom = self.padding
        rows = self._queries(image, 0, image.shape[2] + top + bottom)
        columns = self._queries(image, 1, image.shape[3] + left + right)
        if self.padding_mode == "replicate":  # the nearest pixel is what a head finds past the border
            rows, columns = rows - top, columns - left
        elif any(self.padding):
            image = F.pad(image, self.padding, "constant" if self.padding_mode == "zeros" else self.padding_mode)
        tokens = rearrange(image, "batch channel row column -> batch row column channel")
        seen = self.attention(tokens, (rows, columns))
        return rearrange(seen, "batch row column out -> batch out row column")

    def _queries(self, image: Tensor, axis: int, size: int) -> Float[Tensor, "query"]:
        """The first corner of each window that fits into the padded image."""
        last = size - 1 - self.reach[axis]
        if last < 0:
            raise ValueError(
                f"the padded image must be as large as the kernel, {self.reach[axis] + 1} "
                f"{('rows', 'columns')[axis]}, got {size}"
            )
        dtype = torch.promote_types(image.dtype, torch.float32)
        return torch.arange(0, last + 1, self.stride[axis]).to(image.device, dtype)

    def extra_repr(self) -> str:
        return f"stride={self.stride}, padding={self.padding}, padding_mode={self.padding_mode}"


def attention_from_convolution(conv: nn.Conv2d, tolerance: float = 1e-6) -> ConvolutionAsAttention:
    """The convolution as attention: for pixels in [-1, 1] every output differs by at most `tolerance`, border included.

    That is in exact arithmetic; float32 adds its own rounding. The weights are copied, with zeros between groups.
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
    if not 0 < tolerance < 1:
        raise ValueError(f"tolerance must lie in (0, 1), got {tolerance}")
    largest = weight.detach().abs().sum((1, 2, 3)).max().item()
    if not math.isfinite(largest):
        raise ValueError("the weights of conv must be finite, got NaN or infinity among them")
    return math.log1p(8 * max(largest, tolerance) / tolerance)


def convert_all(model: nn.Module, tolerance: float = 1e-6) -> nn.Module:
    """A copy of the model in which every nn.Conv2d has become attention; everything else stays."""
    converted = deepcopy(model)
    attentions: dict[nn.Module, ConvolutionAsAttention] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        if isinstance(module, nn.Conv2d):
            if module not in attentions:
                attentions[module] = attention_from_convolution(module, tolerance).train(module.training)
            if not name:
                return attentions[module]
            converted.set_submodule(name, attentions[module])
    return converted


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
