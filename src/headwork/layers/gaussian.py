"""Attention over an image by position alone: heads that look at an offset from the query, whatever is there."""

from collections.abc import Callable
from functools import partial
from typing import Literal

import torch
from einops import einsum, rearrange
from jaxtyping import Float
from torch import Tensor, nn

from headwork.checks import check_one_of, check_positive
from headwork.functional.attention import softargmax
from headwork.functional.gaussian import (
    QueryGrid,
    check_gaussian,
    gaussian_attention,
    gaussian_axis_weights,
    gaussian_weights,
    mix_along_axes,
    mix_heads_along_axes,
)
from headwork.functional.processor import check_products, has_numbers
from headwork.functional.relative import relative_index
from headwork.layers.hook_point import HookPoint, LazyHookPoint
from headwork.layers.linear import linear

AxisWeights = tuple[Float[Tensor, "head query_row row"], Float[Tensor, "head query_column column"]]


class PositionAttention(nn.Module):
    """Heads whose weights depend on the shift between query and key only; the kinds below say how.

    With `d_value=None` every head passes on the whole token, as in the paper, and `out` maps all heads to the output:
    that is equation (11) of the ETH sheet, with W^(h) the block of `out` for head h. With a `d_value`, a value
    projection comes first. The weights see no dropout.
    """

    axes = "batch row column d_model"
    operation = "mixing"
    operation_inside = "projections"

    def __init__(
        self, d_model: int, n_heads: int, *, d_value: int | None = None, d_out: int | None = None, bias: bool = True
    ) -> None:
        super().__init__()
        check_positive(d_model=d_model, n_heads=n_heads, d_value=d_value, d_out=d_out)
        self.d_model, self.n_heads = d_model, n_heads
        self.value = None if d_value is None else linear(d_model, n_heads * d_value, bias=bias)
        self.out = linear(n_heads * (d_value or d_model), d_out or d_model, bias=bias)
        self.weights = LazyHookPoint("head row column key_row key_column")
        self.heads = HookPoint("batch row column head d_value")

    def axis_weights(self, grid: tuple[int, int], queries: QueryGrid | None = None) -> AxisWeights:
        """The weights as two factors, along the rows and along the columns."""
        raise NotImplementedError

    def later_table(self, grid: tuple[int, int], queries: QueryGrid | None = None) -> Callable[[], Tensor]:
        """What computes the table of now whenever it is called, also after the parameters have been changed."""
        rows, columns = self.axis_weights(grid, queries)
        return partial(einsum, rows, columns, "head i row, head j column -> head i j row column")

    def table(
        self, grid: tuple[int, int], queries: QueryGrid | None = None
    ) -> Float[Tensor, "head query_row query_column row column"]:
        """The weights of all pairs of pixels, for looking at."""
        return self.later_table(grid, queries)()

    def seen_from(self, grid: tuple[int, int], pixel: tuple[int, int]) -> Float[Tensor, "head row column"]:
        """The weights of one query, the one on this pixel."""
        rows, columns = self.axis_weights(grid)
        return einsum(rows[:, pixel[0]], columns[:, pixel[1]], "head row, head column -> head row column")

    def forward(
        self, x: Float[Tensor, "batch row column d_model"], queries: QueryGrid | None = None
    ) -> Float[Tensor, "batch query_row query_column d_out"]:
        """Attend from every pixel, or from the rows and columns that `queries` names."""
        if x.ndim != 4 or x.shape[3] != self.d_model or 0 in x.shape[1:]:
            raise ValueError(f"x must have the axes (batch, row, column, {self.d_model}), got shape {tuple(x.shape)}")
        check_products(x)
        new_weights = None
        if self.weights.is_watched():
            new_weights = self.weights.publish(self.later_table((x.shape[1], x.shape[2]), queries))
        v = x
        if self.value is not None:
            v = rearrange(self.value(x), "batch row column (head d) -> batch head row column d", head=self.n_heads)
        heads = self._mix(v, queries) if new_weights is None else mix_by_table(new_weights, v)
        heads = self.heads(rearrange(heads, "batch head row column d -> batch row column head d"))
        return self.out(rearrange(heads, "batch row column head d -> batch row column (head d)"))

    def _mix(self, v: Tensor, queries: QueryGrid | None) -> Float[Tensor, "batch head query_row query_column d"]:
        """The means of v: one image for all heads, or one for each."""
        mix = mix_along_axes if v.ndim == 4 else mix_heads_along_axes
        return mix(v, *self.axis_weights((v.shape[-3], v.shape[-2]), queries))


class GaussianAttention(PositionAttention):
    """Each head looks at its own offset (row, column) from the query, more or less sharply.

    `centre` is the offset and `alpha` how sharply it looks; both are learned. In the limit of a large alpha every head
    picks one pixel, and the layer is a convolution. Cordonnier, Loukas and Jaggi, 2020.

    >>> layer = GaussianAttention(d_model=8, n_heads=9)
    >>> layer(torch.randn(2, 4, 5, 8)).shape
    torch.Size([2, 4, 5, 8])
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        *,
        d_value: int | None = None,
        d_out: int | None = None,
        precision: Literal["isotropic", "diagonal", "full"] = "isotropic",
        bias: bool = True,
    ) -> None:
        super().__init__(d_model, n_heads, d_value=d_value, d_out=d_out, bias=bias)
        check_one_of(("isotropic", "diagonal", "full"), precision=precision)
        self.precision = precision
        self.centre = nn.Parameter(2 * torch.randn(n_heads, 2))
        self.sharpness = nn.Parameter(_sharpness_one(n_heads, precision))

    @property
    def alpha(self) -> Tensor:
        """The precision of each head, positive whatever the parameter `sharpness` is."""
        return self._alpha_of(self.sharpness)

    def _alpha_of(self, sharpness: Tensor) -> Tensor:
        if self.precision == "full":
            precise = sharpness.to(torch.promote_types(sharpness.dtype, torch.float32))
            square = precise @ precise.mT
            at_least = 1e-6 + 4 * torch.finfo(square.dtype).eps * square.diagonal(dim1=1, dim2=2).sum(-1)
            return square + at_least[:, None, None] * torch.eye(2, dtype=square.dtype, device=square.device)
        return sharpness.clamp(-80, 80).exp()

    def _sharpness_of(self, alpha: Tensor) -> Tensor:
        """What gives this alpha: in full, alpha = S S^T + f I, f = 1e-6 + 4 eps tr(S S^T), tr(S S^T) = tr(alpha) - 2 f.

        The root by eigenvalues, unlike Cholesky's, is there when alpha is hardly more than f.
        """
        if self.precision != "full":
            return alpha.log().to(self.sharpness.dtype)
        four_eps = 4 * torch.finfo(torch.promote_types(self.sharpness.dtype, torch.float32)).eps
        values, vectors = torch.linalg.eigh(alpha.double())
        at_least = (1e-6 + four_eps * values.sum(-1, keepdim=True)) / (1 + 2 * four_eps)
        return (vectors * (values - at_least).clamp(min=0).sqrt()[:, None]).to(self.sharpness.dtype)

    @torch.no_grad()
    def set_centres(self, centre: Float[Tensor, "head 2"], alpha: Tensor) -> None:
        """Let the heads look at these offsets, this sharply."""
        check_gaussian(centre, alpha)
        if centre.shape != self.centre.shape or alpha.shape != self.alpha.shape:
            raise ValueError(
                f"centre and alpha must have the shapes {tuple(self.centre.shape)} and {tuple(self.alpha.shape)}, "
                f"got {tuple(centre.shape)} and {tuple(alpha.shape)}"
            )
        sharpness = self._sharpness_of(alpha)
        reached, half = self._alpha_of(sharpness), self.sharpness.dtype in (torch.float16, torch.bfloat16)
        near = not has_numbers(alpha) or torch.allclose(
            reached.double(), alpha.double(), rtol=0.1 if half else 1e-3, atol=0
        )
        if not near:
            raise ValueError(
                f"alpha must be what {self.precision} heads in {self.sharpness.dtype} can have, got {alpha.tolist()}, "
                f"which would become {reached.tolist()}"
            )
        self.centre.copy_(centre)
        self.sharpness.copy_(sharpness)

    def axis_weights(self, grid: tuple[int, int], queries: QueryGrid | None = None) -> AxisWeights:
        return gaussian_axis_weights(grid, self.centre, self.alpha, queries)

    def later_table(self, grid: tuple[int, int], queries: QueryGrid | None = None) -> Callable[[], Tensor]:
        return partial(gaussian_weights, grid, self.centre.clone(), self.alpha, queries)

    def seen_from(self, grid: tuple[int, int], pixel: tuple[int, int]) -> Float[Tensor, "head row column"]:
        row, column = (self.centre.new_full((1,), index, dtype=torch.float32) for index in pixel)
        return self.table(grid, (row, column))[:, 0, 0]

    def _mix(self, v: Tensor, queries: QueryGrid | None) -> Float[Tensor, "batch head query_row query_column d"]:
        if self.precision != "full":
            return super()._mix(v, queries)
        if v.ndim == 4:
            return gaussian_attention(v, self.centre, self.alpha, queries)
        return mix_by_table(self.table((v.shape[2], v.shape[3]), queries), v)

    def extra_repr(self) -> str:
        path = "the table of all pairs" if self.precision == "full" else "rows, then columns"
        return f"d_model={self.d_model}, n_heads={self.n_heads}, precision={self.precision} (computed by {path})"


class ShiftAttention(PositionAttention):
    """Each head has a learned score for every shift along the rows and every shift along the columns.

    The score of a pair is the sum of both: v . r of equation (6) of the ETH sheet, with a row and a column code. So
    these weights separate as the Gaussian ones do.

    >>> layer = ShiftAttention(d_model=8, n_heads=3, grid=(4, 5))
    >>> layer(torch.randn(2, 4, 5, 8)).shape
    torch.Size([2, 4, 5, 8])
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        grid: tuple[int, int],
        *,
        d_value: int | None = None,
        d_out: int | None = None,
        bias: bool = True,
    ) -> None:
        super().__init__(d_model, n_heads, d_value=d_value, d_out=d_out, bias=bias)
        self.grid = grid
        self.row_scores = nn.Parameter(torch.randn(n_heads, 2 * grid[0] - 1))
        self.column_scores = nn.Parameter(torch.randn(n_heads, 2 * grid[1] - 1))

    def axis_weights(self, grid: tuple[int, int], queries: QueryGrid | None = None) -> AxisWeights:
        if grid[0] > self.grid[0] or grid[1] > self.grid[1] or queries is not None:
            raise ValueError(f"the grid must fit into {self.grid}, with a query on every pixel, got {grid}")
        rows, columns = (
            softargmax(scores[:, relative_index(n, n, device=scores.device) + (len(scores[0]) + 1) // 2 - n])
            for scores, n in ((self.row_scores, grid[0]), (self.column_scores, grid[1]))
        )
        return rows, columns


def mix_by_table(
    table: Float[Tensor, "head query_row query_column row column"],
    v: Float[Tensor, "batch row column d"] | Float[Tensor, "batch head row column d"],
) -> Float[Tensor, "batch head query_row query_column d"]:
    of_head = "" if v.ndim == 4 else "head "
    return einsum(table, v, f"head i j row column, batch {of_head}row column d -> batch head i j d")


def _sharpness_one(n_heads: int, precision: str) -> Tensor:
    """What makes every alpha 1 at the start."""
    match precision:
        case "full":
            return torch.eye(2).repeat(n_heads, 1, 1)
        case "diagonal":
            return torch.zeros(n_heads, 2)
        case _:
            return torch.zeros(n_heads)
