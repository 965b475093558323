"""The nearest convolution of a layer of Gaussian heads, and how near it is."""

from typing import NamedTuple

import torch
from einops import einsum, rearrange
from jaxtyping import Float
from torch import Tensor, nn

from headwork.checks import check_positive
from headwork.functional.gaussian import gaussian_weights
from headwork.layers.gaussian import GaussianAttention


class ConvolutionFromAttention(NamedTuple):
    """A convolution and how far the layer can be from it."""

    conv: nn.Conv2d
    error_bound: float
    """For pixels in [-1, 1] and images of the given grid, no output of the layer is further from the convolution's."""
    single_pixel: Float[Tensor, "head"]
    """The largest weight of each head away from the border: 1 is a head that sees a single pixel."""


@torch.no_grad()
def convolution_from_attention(
    layer: GaussianAttention, kernel_size: int | tuple[int, int], grid: tuple[int, int] = (32, 32)
) -> ConvolutionFromAttention:
    r"""The convolution whose kernel is what the heads see: $K_\delta = \sum_h w_h(\delta) W^{(h)}$, cut to its size.

    It has replicate padding, as bare Gaussian heads do in the limit. The bound counts, at every pixel of the grid,
    border included, all weight that the convolution puts elsewhere than the layer does.

    >>> layer = GaussianAttention(d_model=4, n_heads=9)
    >>> conv, error_bound, single_pixel = convolution_from_attention(layer, 5)
    >>> conv.weight.shape
    torch.Size([4, 4, 5, 5])
    """
    rows, columns = (kernel_size, kernel_size) if isinstance(kernel_size, int) else kernel_size
    check_positive(kernel_rows=rows, kernel_columns=columns, grid_rows=grid[0], grid_columns=grid[1])
    if grid[0] < rows or grid[1] < columns:
        raise ValueError(f"the grid must be as large as the kernel, got grid={grid} and kernel={(rows, columns)}")
    w, bias = weights_of_heads(layer)
    by_layer = gaussian_weights(grid, layer.centre, layer.alpha)
    from_middle = by_layer[:, grid[0] // 2, grid[1] // 2]
    top, left = (rows - 1) // 2, (columns - 1) // 2
    seen = _cut(from_middle, (grid[0] // 2 - top, grid[1] // 2 - left), (rows, columns))

    conv = nn.Conv2d(layer.d_model, w.shape[1], (rows, columns), padding="same", padding_mode="replicate").to(w)
    conv.weight.copy_(einsum(seen, w, "head row column, head out channel -> out channel row column"))
    assert conv.bias is not None
    conv.bias.copy_(bias)

    misplaced = (by_layer - _by_convolution(seen, grid, (top, left))).abs().sum((3, 4))
    of_output = einsum(misplaced, w.abs().sum(2), "head row column, head out -> out row column")
    return ConvolutionFromAttention(conv, of_output.max().item(), from_middle.flatten(1).amax(1))


def weights_of_heads(layer: GaussianAttention) -> tuple[Float[Tensor, "head out channel"], Float[Tensor, "out"]]:
    """W^(h) of equation (11) of the ETH sheet, value and output projection in one; and the answer to a black image.

    The weights of a head sum to 1, so the bias of its value passes unchanged.
    """
    out = rearrange(layer.out.weight, "out (head d) -> head out d", head=layer.n_heads)
    if layer.value is None:
        return out, layer.out(layer.out.weight.new_zeros(layer.out.in_features))
    value = rearrange(layer.value.weight, "(head d) channel -> head d channel", head=layer.n_heads)
    return out @ value, layer.out(layer.value(layer.value.weight.new_zeros(layer.value.in_features)))


def _cut(table: Tensor, corner: tuple[int, int], size: tuple[int, int]) -> Float[Tensor, "head row column"]:
    """A window of the table; the kernel is no larger than the grid, but may stick out of it on one side by a pixel."""
    window = table.new_zeros(len(table), *size)
    inside = table[:, max(corner[0], 0) : corner[0] + size[0], max(corner[1], 0) : corner[1] + size[1]]
    first = max(-corner[0], 0), max(-corner[1], 0)
    window[:, first[0] : first[0] + inside.shape[1], first[1] : first[1] + inside.shape[2]] = inside
    return window


def _by_convolution(
    kernel: Float[Tensor, "head _ _"], grid: tuple[int, int], corner: tuple[int, int]
) -> Float[Tensor, "head row column key_row key_column"]:
    """The table of weights of a convolution with replicate padding: what falls past the border goes to the border."""
    table = kernel.new_zeros(len(kernel), *grid, *grid)
    row, column = torch.arange(grid[0]), torch.arange(grid[1])
    for i in range(kernel.shape[1]):
        for j in range(kernel.shape[2]):
            key_row = (row + i - corner[0]).clamp(0, grid[0] - 1)
            key_column = (column + j - corner[1]).clamp(0, grid[1] - 1)
            table[:, row[:, None], column, key_row[:, None], key_column] += kernel[:, i, j, None, None]
    return table
