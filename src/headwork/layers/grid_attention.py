"""Attention over an image whose scores depend on the query and the shift, and on the content if wanted.

At the end, the two position codes of the ETH sheet as modules: absolute for each pixel, relative for each shift.
"""

import math
from functools import partial

import torch
from einops import einsum, rearrange
from jaxtyping import Float
from torch import Tensor, nn

from headwork import choices
from headwork.checks import check_divides, check_one_of
from headwork.functional.attention import softargmax
from headwork.functional.fused import fused_attention
from headwork.functional.gaussian import gaussian_vectors
from headwork.functional.positions import sinusoidal_positions_2d
from headwork.functional.processor import check_products
from headwork.functional.relative import grid_shifts, pick_by_shift, quadratic_codes, relative_index
from headwork.layers.gaussian import GaussianAttention, PositionAttention, ShiftAttention
from headwork.layers.hook_point import HookPoint, LazyHookPoint
from headwork.layers.linear import linear


class QueryShiftAttention(nn.Module):
    """The score of a pair is q . r, with a learned code r for the shift: the sum of a row code and a column code.

    The weights separate into a row and a column factor for each query, but the factors differ from query to query, so
    mixing the values costs as much as with a table: unlike position alone, this does not get cheaper.

    >>> layer = QueryShiftAttention(d_model=8, n_heads=2, grid=(4, 5))
    >>> layer(torch.randn(2, 4, 5, 8)).shape
    torch.Size([2, 4, 5, 8])
    """

    axes = "batch row column d_model"
    operation = "attention"
    operation_inside = "projections"

    def __init__(self, d_model: int, n_heads: int, grid: tuple[int, int]) -> None:
        super().__init__()
        check_divides(n_heads=n_heads, d_model=d_model)
        d_head = d_model // n_heads
        self.d_model, self.n_heads, self.grid = d_model, n_heads, grid
        self.beta = 1 / math.sqrt(d_head)
        self.query = linear(d_model, d_model)
        self.value = linear(d_model, d_model)
        self.out = linear(d_model, d_model)
        self.row_codes = nn.Parameter(torch.randn(n_heads, 2 * grid[0] - 1, d_head))
        self.column_codes = nn.Parameter(torch.randn(n_heads, 2 * grid[1] - 1, d_head))
        self.weights = LazyHookPoint("batch head query key")
        self.heads = HookPoint("batch query head d_head")

    def forward(self, x: Float[Tensor, "batch row column d_model"]) -> Float[Tensor, "batch row column d_model"]:
        if x.ndim != 4 or x.shape[1:] != (*self.grid, self.d_model):
            wanted = (*self.grid, self.d_model)
            raise ValueError(f"x must have the axes (batch, row, column, d_model) = {wanted}, got {tuple(x.shape)}")
        check_products(x)
        tokens = rearrange(x, "batch row column d_model -> batch (row column) d_model")
        q, v = self._heads(self.query(tokens)), self._heads(self.value(tokens))
        heads = self._attend(tokens, q, v, self.shift_scores(q))
        heads = self.heads(rearrange(heads, "batch head query d -> batch query head d"))
        joined = rearrange(heads, "batch (row column) head d -> batch row column (head d)", row=self.grid[0])
        return self.out(joined)

    def shift_scores(self, q: Float[Tensor, "batch head query d_head"]) -> Float[Tensor, "batch head query key"]:
        """What the scaled scores gain from the shift between query and key."""
        by_row = self._by_shift(q, self.row_codes, axis=0)
        by_column = self._by_shift(q, self.column_codes, axis=1)
        total = by_row[..., :, None] + by_column[..., None, :]
        return self.beta * rearrange(total, "batch head query row column -> batch head query (row column)")

    def _by_shift(self, q: Tensor, codes: Tensor, axis: int) -> Float[Tensor, "batch head query line"]:
        """The score of each row (or column) for each query, by its shift from the row (or column) of the query."""
        n = self.grid[axis]
        pixel = torch.arange(self.grid[0] * self.grid[1], device=q.device)
        line = pixel // self.grid[1] if axis == 0 else pixel % self.grid[1]
        index = relative_index(n, n, device=q.device)[line]
        by_shift = einsum(q, codes, "batch head query d, head shift d -> batch head query shift")
        return pick_by_shift(by_shift, index)

    def _attend(self, tokens: Tensor, q: Tensor, v: Tensor, scores: Tensor) -> Float[Tensor, "batch head query d_head"]:
        weights = partial(softargmax, scores)
        new_weights = self.weights.publish(weights)
        return (weights() if new_weights is None else new_weights) @ v

    def _heads(self, x: Tensor) -> Float[Tensor, "batch head token d_head"]:
        return rearrange(x, "batch token (head d) -> batch head token d", head=self.n_heads)


class ContentShiftAttention(QueryShiftAttention):
    """The score is q . k + q . r: what is there, and where it is.

    >>> layer = ContentShiftAttention(d_model=8, n_heads=2, grid=(4, 5))
    >>> layer(torch.randn(2, 4, 5, 8)).shape
    torch.Size([2, 4, 5, 8])
    """

    def __init__(self, d_model: int, n_heads: int, grid: tuple[int, int]) -> None:
        super().__init__(d_model, n_heads, grid)
        self.key = linear(d_model, d_model)
        self.keys = HookPoint("batch head key d_head")

    def _attend(self, tokens: Tensor, q: Tensor, v: Tensor, scores: Tensor) -> Float[Tensor, "batch head query d_head"]:
        k = self.keys(self._heads(self.key(tokens)))
        new_weights = self.weights.publish(lambda: softargmax(self.beta * q @ k.mT + scores))
        if new_weights is None:
            return fused_attention(q, k, v, bias=scores, beta=self.beta)
        return new_weights @ v


class AbsolutePositionalEmbedding(nn.Module):
    """A vector P for each (row, column), added to the token of that pixel; sinusoidal or learned.

    >>> AbsolutePositionalEmbedding((4, 5), d_model=8)(torch.zeros(2, 4, 5, 8)).shape
    torch.Size([2, 4, 5, 8])
    """

    axes = "batch row column d_model"

    def __init__(self, grid: tuple[int, int], d_model: int, kind: str = "sinusoidal") -> None:
        super().__init__()
        check_one_of(("sinusoidal", "learned"), kind=kind)
        fixed = sinusoidal_positions_2d(*grid, d_model)
        self.table = nn.Parameter(
            fixed if kind == "sinusoidal" else 0.02 * torch.randn_like(fixed), requires_grad=kind == "learned"
        )

    def forward(self, x: Float[Tensor, "batch row column d_model"]) -> Float[Tensor, "batch row column d_model"]:
        if x.shape[1:] != self.table.shape:
            raise ValueError(f"x must have the axes (batch, {tuple(self.table.shape)}), got shape {tuple(x.shape)}")
        return x + self.table


class RelativePositionalEmbedding(nn.Module):
    """The Gaussian relative code of equation (7): r for each shift, v for each head, and their product as scores.

    A centre is where a head looks from the query, k - q, which is minus the sheet's Delta.

    >>> code = RelativePositionalEmbedding((4, 5), torch.zeros(3, 2), torch.ones(3))
    >>> code().shape
    torch.Size([3, 4, 5, 4, 5])
    """

    axes = "head row column key_row key_column"
    operation = "scores"

    def __init__(self, grid: tuple[int, int], centre: Float[Tensor, "head 2"], alpha: Float[Tensor, "head"]) -> None:
        super().__init__()
        self.centre = nn.Parameter(centre.clone())
        self.alpha = nn.Parameter(alpha.clone())
        self.register_buffer("codes", quadratic_codes(grid_shifts(*grid)).to(centre.dtype), persistent=False)

    def forward(self) -> Float[Tensor, "head row column key_row key_column"]:
        """The scores v . r of every pair of pixels, whose softmax over the keys are the attention weights."""
        return self.scores_at(self.centre)

    def scores_at(self, centre: Float[Tensor, "head 2"]) -> Float[Tensor, "head row column key_row key_column"]:
        v = gaussian_vectors(centre, self.alpha)
        check_products(v)
        return einsum(v, self.get_buffer("codes"), "head code, row column i j code -> head row column i j")


def make_image_attention(
    choice: choices.ImageHeads, d_model: int, grid: tuple[int, int]
) -> PositionAttention | QueryShiftAttention:
    match choice:
        case choices.GaussianHeads():
            return GaussianAttention(d_model, choice.n_heads, d_value=choice.d_value, precision=choice.precision)
        case choices.ShiftHeads():
            return ShiftAttention(d_model, choice.n_heads, grid, d_value=choice.d_value)
        case choices.QueryShiftHeads():
            return QueryShiftAttention(d_model, choice.n_heads, grid)
        case choices.ContentShiftHeads():
            return ContentShiftAttention(d_model, choice.n_heads, grid)
