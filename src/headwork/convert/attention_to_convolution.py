"""The nearest convolution of a layer of Gaussian heads, and how near it is."""

import math
from typing import NamedTuple

import torch
from einops import einsum, rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from headwork.checks import check_positive
from headwork.convert.convolution_to_attention import ConvolutionAsAttention
from headwork.functional.gaussian import gaussian_weights
from headwork.functional.processor import has_numbers
from headwork.layers.gaussian import GaussianAttention


class ConvolutionFromAttention(NamedTuple):
    """A convolution and how far the layer can be from it."""

    conv: nn.Conv2d
    error_bound: float
    """For pixels in [-1, 1] and images of the given grid, no output of the layer is further from the convolution's.

    The difference is linear: for pixels in [-m, m] it is at most m times as much.
    """
    single_pixel: Float[Tensor, "head"]
    """The largest weight of each head away from the border: 1 is a head that sees a single pixel."""


@torch.no_grad()
def convolution_from_attention(
    layer: GaussianAttention | ConvolutionAsAttention,
    kernel_size: int | tuple[int, int] | None = None,
    grid: tuple[int, int] = (32, 32),
) -> ConvolutionFromAttention:
    r"""The convolution whose kernel is what the heads see: $K_\delta = \sum_h w_h(\delta) W^{(h)}$, cut to its size.

    It has replicate padding, as bare Gaussian heads do in the limit. A convolution that was made into attention comes
    back as it was, so no `kernel_size` is given for it; only groups come back as zeros in one dense kernel. The bound
    counts, at every pixel of the grid, border included, all weight that the convolution puts elsewhere than the layer.

    >>> layer = GaussianAttention(d_model=4, n_heads=9)
    >>> conv, error_bound, single_pixel = convolution_from_attention(layer, 5)
    >>> conv.weight.shape
    torch.Size([4, 4, 5, 5])
    """
    check_positive(grid_rows=grid[0], grid_columns=grid[1])
    if isinstance(layer, GaussianAttention):
        heads, (conv, windows) = layer, _around_every_pixel(layer, kernel_size, grid)
    else:
        heads, (conv, windows) = layer.attention, _as_it_was(layer, kernel_size, grid)
    w, bias = weights_of_heads(heads)
    from_middle = windows.from_middle(heads)
    seen = windows.cut_middle(from_middle)
    # With the weights w of the heads and c of the convolution, output o at query p is off by
    #   | sum_h sum_k (w[h,p,k] - c[h,p,k]) sum_d W[h,o,d] x[k,d] |  <=  sum_h (sum_k |w - c|[h,p,k]) (sum_d |W[h,o,d]|)
    # for |x| <= 1: the misplaced weight of each head times the 1-norm of its row of W. The biases are the same.
    misplaced = (windows.by_heads(heads) - windows.by_convolution(seen)).abs().sum((3, 4))
    of_output = einsum(misplaced, w.abs().sum(2), "head row column, head out -> out row column").max()

    conv = conv.to(w)
    conv.weight.copy_(einsum(seen, w, "head row column, head out channel -> out channel row column"))
    conv.weight.requires_grad = _any_learns(heads, bias=False)
    if conv.bias is not None:
        conv.bias.copy_(bias)
        conv.bias.requires_grad = _any_learns(heads, bias=True)
    error_bound = of_output.item() if has_numbers(of_output) else math.nan
    return ConvolutionFromAttention(conv, error_bound, from_middle.flatten(1).amax(1))


class AttentionAsConvolution(nn.Module):
    """The nearest convolution instead of a layer of Gaussian heads, and how near it is.

    >>> heads = GaussianAttention(d_model=4, n_heads=9)
    >>> layer = AttentionAsConvolution(convolution_from_attention(heads, kernel_size=3, grid=(5, 7)))
    >>> layer(torch.randn(2, 5, 7, 4)).shape, layer.single_pixel.shape
    (torch.Size([2, 5, 7, 4]), torch.Size([9]))
    """

    axes = "batch row column d_model"
    error_bound: Float[Tensor, ""]
    single_pixel: Float[Tensor, "head"]

    def __init__(self, nearest: ConvolutionFromAttention) -> None:
        super().__init__()
        self.conv: nn.Module = nearest.conv  # `to_attention` may replace it
        self.register_buffer("error_bound", nearest.single_pixel.new_tensor(nearest.error_bound))
        self.register_buffer("single_pixel", nearest.single_pixel)

    def forward(self, x: Float[Tensor, "batch row column d_model"]) -> Float[Tensor, "batch row column d_out"]:
        """The convolution over the grid of tokens; channels come last, as they do for the heads."""
        image = rearrange(x, "batch row column d -> batch d row column")
        return rearrange(self.conv(image), "batch d row column -> batch row column d")


def weights_of_heads(layer: GaussianAttention) -> tuple[Float[Tensor, "head out channel"], Float[Tensor, "out"]]:
    """W^(h) of equation (11) of the ETH sheet, value and output projection in one; and the answer to a black image.

    The weights of a head sum to 1, so the bias of its value passes unchanged.
    """
    out = rearrange(layer.out.weight, "out (head d) -> head out d", head=layer.n_heads)
    if layer.value is None:
        return out, layer.out(layer.out.weight.new_zeros(layer.out.in_features))
    value = rearrange(layer.value.weight, "(head d) channel -> head d channel", head=layer.n_heads)
    return out @ value, layer.out(layer.value(layer.value.weight.new_zeros(layer.value.in_features)))


class _Windows(NamedTuple):
    """Where a convolution reads on a grid of tokens: from each query at each offset, and past the border the border."""

    grid: tuple[int, int]
    queries: tuple[Int[Tensor, "query_row"], Int[Tensor, "query_column"]]
    offsets: tuple[range, range]

    def by_heads(self, heads: GaussianAttention) -> Float[Tensor, "head query_row query_column row column"]:
        """The weights of the heads on every token, from every query."""
        return _weights_from(heads, self.grid, *self.queries)

    def by_convolution(
        self, kernel: Float[Tensor, "head kernel_row kernel_column"]
    ) -> Float[Tensor, "head query_row query_column row column"]:
        """The same for a convolution: each query puts the kernel on the tokens of its window."""
        rows, columns = (
            _one_hot((queries[:, None] + torch.tensor(offsets)).clamp(0, n - 1), n).to(kernel)
            for queries, offsets, n in zip(self.queries, self.offsets, self.grid, strict=True)
        )
        return einsum(kernel, rows, columns, "head i j, p i row, q j column -> head p q row column")

    def from_middle(self, heads: GaussianAttention) -> Float[Tensor, "head row column"]:
        """The weights of the heads from where the window lies in the middle of the grid."""
        row, column = (torch.tensor([c - offsets[0]]) for c, offsets in zip(self._corner(), self.offsets, strict=True))
        return _weights_from(heads, self.grid, row, column)[:, 0, 0]

    def cut_middle(
        self, from_middle: Float[Tensor, "head row column"]
    ) -> Float[Tensor, "head kernel_row kernel_column"]:
        """Those at the offsets of the window."""
        rows, columns = (slice(c, c + _reach(o), o.step) for c, o in zip(self._corner(), self.offsets, strict=True))
        return from_middle[:, rows, columns]

    def _corner(self) -> tuple[int, int]:
        rows, columns = map(_reach, self.offsets)
        if self.grid[0] < rows or self.grid[1] < columns:
            raise ValueError(
                f"the grid must be as large as the kernel, got grid={self.grid} and kernel={(rows, columns)}"
            )
        return (self.grid[0] - rows) // 2, (self.grid[1] - columns) // 2


def _around_every_pixel(
    layer: GaussianAttention, kernel_size: int | tuple[int, int] | None, grid: tuple[int, int]
) -> tuple[nn.Conv2d, _Windows]:
    if kernel_size is None:
        raise ValueError("kernel_size must be given for bare Gaussian heads, got None")
    rows, columns = (kernel_size, kernel_size) if isinstance(kernel_size, int) else kernel_size
    check_positive(kernel_rows=rows, kernel_columns=columns)
    has_bias = any(linear is not None and linear.bias is not None for linear in (layer.value, layer.out))
    conv = nn.Conv2d(
        layer.d_model, layer.out.out_features, (rows, columns), padding="same", padding_mode="replicate", bias=has_bias
    )
    every_pixel = torch.arange(grid[0]), torch.arange(grid[1])
    top, left = (rows - 1) // 2, (columns - 1) // 2
    return conv, _Windows(grid, every_pixel, (range(-top, rows - top), range(-left, columns - left)))


def _as_it_was(
    layer: ConvolutionAsAttention, kernel_size: int | tuple[int, int] | None, grid: tuple[int, int]
) -> tuple[nn.Conv2d, _Windows]:
    own = layer.kernel_size
    if kernel_size not in (None, own) and (kernel_size, kernel_size) != own:
        raise ValueError(
            f"kernel_size must be that of the convolution the layer was made from, {own}, got {kernel_size}"
        )
    return layer.new_convolution(), _Windows(layer.token_grid(grid), layer.corners(grid), layer.offsets())


def _weights_from(
    heads: GaussianAttention, grid: tuple[int, int], row: Int[Tensor, "query_row"], column: Int[Tensor, "query_column"]
) -> Float[Tensor, "head query_row query_column row column"]:
    dtype = torch.promote_types(heads.centre.dtype, torch.float32)
    queries = row.to(heads.centre.device, dtype), column.to(heads.centre.device, dtype)
    return gaussian_weights(grid, heads.centre, heads.alpha, queries)


def _one_hot(positions: Int[Tensor, "query kernel"], n: int) -> Bool[Tensor, "query kernel n"]:
    return positions[:, :, None] == torch.arange(n)


def _reach(offsets: range) -> int:
    """How many tokens lie between the first and the last offset, both included."""
    return offsets[-1] - offsets[0] + 1


def _any_learns(heads: GaussianAttention, *, bias: bool) -> bool:
    """Whether the kernel (or the bias) is made of anything that is not frozen."""
    return any(p.requires_grad for name, p in heads.named_parameters() if name.endswith("bias") is bias)
