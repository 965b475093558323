r"""Gaussian heads: each looks at an offset (row, column) from the query, more or less sharply, whatever is there.

The softmax of $-\alpha\,|\delta - \Delta|^2$ over a grid is a row softmax times a column softmax, because the exponent
is a sum. So the mean under these weights is two small matrix products, one along the rows and one along the columns,
instead of one over all pairs of pixels: $N\sqrt N$ instead of $N^2$, and exact, border included.
Cordonnier, Loukas and Jaggi, "On the relationship between self-attention and convolutional layers", 2020.
"""

import warnings
from collections.abc import Callable
from typing import cast

import torch
from einops import einsum, rearrange
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from headwork.functional.attention import softargmax
from headwork.functional.processor import check_products, has_numbers, is_transformed

Precision = Float[Tensor, "head"] | Float[Tensor, "head 2"] | Float[Tensor, "head 2 2"]
"""How sharply a head looks: one alpha for both directions, one for each, or a full matrix."""


QueryGrid = tuple[Float[Tensor, "query_row"], Float[Tensor, "query_column"]]
"""The rows and the columns of the queries, which may lie between pixels or outside of the image."""


class SlowPathWarning(UserWarning):
    """The fast path does not apply, and the one that builds the table of all pairs is taken."""


def gaussian_attention(
    x: Float[Tensor, "batch row column d"],
    centre: Float[Tensor, "head 2"],
    alpha: Precision,
    queries: QueryGrid | None = None,
) -> Float[Tensor, "batch head query_row query_column d"]:
    r"""The mean of x around each pixel + centre, under weights $\propto e^{-\alpha\,|key - query - centre|^2}$.

    There is a query on every pixel unless `queries` gives other rows and columns, between pixels or outside if need be.
    `alpha` is one number for each head, or two (row, column); a full 2 x 2 precision does not separate, so it takes the
    path of `gaussian_attention_by_table` and warns. No dropout acts on either path.

    >>> x = torch.arange(9.0).reshape(1, 3, 3, 1)
    >>> below = gaussian_attention(x, torch.tensor([[1.0, 0.0]]), torch.tensor([50.0]))
    >>> below[0, 0, :, :, 0]
    tensor([[3., 4., 5.],
            [6., 7., 8.],
            [6., 7., 8.]])
    """
    if alpha.ndim == 3:
        mixed = gaussian_attention_by_table(x, centre, alpha, queries)
        if not torch.compiler.is_compiling():  # which cannot read it
            warnings.warn(
                "a full 2 x 2 precision does not separate into rows and columns: the table of all pairs is built",
                SlowPathWarning,
                stacklevel=2,
            )
        return mixed
    return mix_along_axes(x, *gaussian_axis_weights((x.shape[1], x.shape[2]), centre, alpha, queries))


def gaussian_attention_by_table(
    x: Float[Tensor, "batch row column d"],
    centre: Float[Tensor, "head 2"],
    alpha: Precision,
    queries: QueryGrid | None = None,
) -> Float[Tensor, "batch head query_row query_column d"]:
    """The readable form of `gaussian_attention`: one weight for each pair of pixels, then one sum over all keys.

    >>> x = torch.randn(1, 4, 5, 3)
    >>> gaussian_attention_by_table(x, torch.zeros(2, 2), torch.ones(2)).shape
    torch.Size([1, 2, 4, 5, 3])
    """
    check_products(x)
    weights = gaussian_weights((x.shape[1], x.shape[2]), centre, alpha, queries)
    return einsum(
        weights,
        x,
        "head row column key_row key_column, batch key_row key_column d -> batch head row column d",
    )


def gaussian_weights(
    grid: tuple[int, int], centre: Float[Tensor, "head 2"], alpha: Precision, queries: QueryGrid | None = None
) -> Float[Tensor, "head query_row query_column key_row key_column"]:
    r"""The table of all weights: $\operatorname{softmax}_{key}(-(\delta-\Delta)^\top A\,(\delta-\Delta))$.

    The shift is $\delta = key - query$, so `centre` is the offset at which the head looks. The ETH sheet writes
    $\delta = q - k$, and its $\Delta$ has the other sign.

    >>> round(gaussian_weights((3, 3), torch.zeros(1, 2), torch.ones(1))[0, 1, 1].sum().item(), 6)
    1.0
    """
    check_gaussian(centre, alpha)
    key, query = _on_every_pixel(grid, centre), _on_every_pixel(grid, centre) if queries is None else queries
    delta = _pairs(*key)[None, None] - _pairs(*query)[:, :, None, None]
    miss = delta[None] - rearrange(centre, "head two -> head 1 1 1 1 two").to(delta.dtype)
    check_products(miss)
    scores = -einsum(
        miss, full_precision(alpha).to(miss.dtype), miss, "head r c i j a, head a b, head r c i j b -> head r c i j"
    )
    return softargmax(scores.flatten(3)).reshape(scores.shape).to(centre.dtype)


def gaussian_axis_weights(
    grid: tuple[int, int],
    centre: Float[Tensor, "head 2"],
    alpha: Float[Tensor, "head"] | Float[Tensor, "head 2"],
    queries: QueryGrid | None = None,
) -> tuple[Float[Tensor, "head query_row key_row"], Float[Tensor, "head query_column key_column"]]:
    """The two factors of the table of weights: along the rows, and along the columns.

    >>> rows, columns = gaussian_axis_weights((3, 4), torch.zeros(1, 2), torch.ones(1))
    >>> table = gaussian_weights((3, 4), torch.zeros(1, 2), torch.ones(1))
    >>> torch.allclose(table, torch.einsum("hri,hcj->hrcij", rows, columns))
    True
    """
    check_gaussian(centre, alpha)
    keys = _on_every_pixel(grid, centre)
    queries = keys if queries is None else queries
    alphas = (alpha, alpha) if alpha.ndim == 1 else (alpha[:, 0], alpha[:, 1])
    rows, columns = (axis_weights(queries[i], keys[i], centre[:, i], alphas[i]) for i in (0, 1))
    return rows, columns


def axis_weights(
    query: Float[Tensor, "query"],
    key: Float[Tensor, "key"],
    centre: Float[Tensor, "head"],
    alpha: Float[Tensor, "head"],
) -> Float[Tensor, "head query key"]:
    r"""The weights along one axis: $\operatorname{softmax}_{key}(-\alpha\,(key - query - centre)^2)$.

    >>> pixel = torch.arange(3.0)
    >>> axis_weights(pixel, pixel, torch.tensor([1.0]), torch.tensor([50.0]))[0].round(decimals=3)
    tensor([[0., 1., 0.],
            [0., 0., 1.],
            [0., 0., 1.]])
    """
    miss = key[None, None, :] - query[None, :, None] - centre[:, None, None].to(key.dtype)
    return softargmax(-alpha[:, None, None] * miss.square()).to(centre.dtype)


def _on_every_pixel(grid: tuple[int, int], like: Tensor) -> tuple[Float[Tensor, "row"], Float[Tensor, "column"]]:
    """In float32 at least: bfloat16 does not know 257."""
    dtype = torch.promote_types(like.dtype, torch.float32)
    return torch.arange(grid[0], device=like.device).to(dtype), torch.arange(grid[1], device=like.device).to(dtype)


def _pairs(row: Tensor, column: Tensor) -> Float[Tensor, "_ _ 2"]:
    return torch.stack(torch.meshgrid(row, column, indexing="ij"), -1)


def mix_along_axes(
    x: Float[Tensor, "batch row column d"],
    rows: Float[Tensor, "head query_row row"],
    columns: Float[Tensor, "head query_column column"],
) -> Float[Tensor, "batch head query_row query_column d"]:
    r"""$y_{ij} = \sum_{r,c} rows_{ir}\, columns_{jc}\, x_{rc}$ for each head: any weights that are a product of two.

    On the CPU one image at a time passes through a workspace that stays in the cache, and the backward pass computes
    the half-mixed image again instead of keeping it; `mix_along_axes_plainly` says the same in two lines, which the
    transforms of torch.func (vmap, grad) and the compiler take. Second derivatives go through those only.

    >>> mix_along_axes(torch.randn(2, 4, 5, 3), torch.rand(7, 4, 4), torch.rand(7, 5, 5)).shape
    torch.Size([2, 7, 4, 5, 3])
    """
    if x.shape[1:3] != (rows.shape[2], columns.shape[2]) or len(rows) != len(columns):
        raise ValueError(
            f"rows and columns must have the same heads and fit the image of {x.shape[1]} x {x.shape[2]}, "
            f"got shapes {tuple(rows.shape)} and {tuple(columns.shape)}"
        )
    check_products(x)
    rows, columns = rows.to(x.dtype), columns.to(x.dtype)
    if x.device.type != "cpu" or x.numel() == 0 or is_transformed():
        return mix_along_axes_plainly(x, rows, columns)
    return cast(Callable[[Tensor, Tensor, Tensor], Tensor], _MixAlongAxes.apply)(x, rows, columns)


def mix_heads_along_axes(
    v: Float[Tensor, "batch head row column d"],
    rows: Float[Tensor, "head query_row row"],
    columns: Float[Tensor, "head query_column column"],
) -> Float[Tensor, "batch head query_row query_column d"]:
    """The same for heads that each have an image of their own: their values.

    >>> mix_heads_along_axes(torch.randn(2, 7, 4, 5, 3), torch.rand(7, 4, 4), torch.rand(7, 5, 5)).shape
    torch.Size([2, 7, 4, 5, 3])
    """
    check_products(v)
    _, _, _, n_columns, d = v.shape
    half = rearrange(rows @ v.flatten(3), "batch head i (column d) -> batch head i column d", column=n_columns, d=d)
    return columns.unsqueeze(1) @ half


def mix_along_axes_plainly(
    x: Float[Tensor, "batch row column d"],
    rows: Float[Tensor, "head query_row row"],
    columns: Float[Tensor, "head query_column column"],
) -> Float[Tensor, "batch head query_row query_column d"]:
    """First along the rows, then along the columns.

    >>> mix_along_axes_plainly(torch.randn(2, 4, 5, 3), torch.rand(7, 4, 4), torch.rand(7, 5, 5)).shape
    torch.Size([2, 7, 4, 5, 3])
    """
    half = einsum(x, rows, "batch row column d, head i row -> batch head i column d")
    return einsum(half, columns, "batch head i column d, head j column -> batch head i j d")


class _MixAlongAxes(torch.autograd.Function):
    r"""`mix_along_axes_plainly`, image by image, in a workspace that is used again.

    With R the rows and C the columns of a head, X an image and Y what the head makes of it,

    $$H_{icd} = \sum_r R_{ir} X_{rcd}, \qquad Y_{ijd} = \sum_c C_{jc} H_{icd}.$$

    Forward mixes the rows first (H), backward the columns (U below): so every product is one that runs fast.
    """

    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        ctx.save_for_backward(x, rows, columns)
        (n_heads, i, r), (j, c) = rows.shape, columns.shape[1:]
        batch, _, _, d = x.shape
        every_row = rows.reshape(n_heads * i, r)
        every_column = columns.repeat_interleave(i, dim=0)  # C of head h, once for each of its rows i
        half, of_image = x.new_empty(n_heads * i, c, d), x.new_empty(n_heads, i, j, d)
        # All heads of a pixel lie together, as the linear map behind them wants them, in the precision of its products.
        dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else x.dtype
        mixed = rearrange(x.new_empty(batch, i, j, n_heads, d, dtype=dtype), "batch i j head d -> batch head i j d")
        for image, out in zip(x, mixed, strict=True):
            torch.mm(every_row, image.reshape(r, c * d), out=half.view(n_heads * i, c * d))  # H = R X
            torch.bmm(every_column, half, out=of_image.view(n_heads * i, j, d))  # Y = C H
            out.copy_(of_image)
        return mixed

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        r"""With G the gradient of Y, and two half-mixed tensors that share one workspace:

        $U_{rjd} = \sum_c C_{jc} X_{rcd}$ gives $dR_{ir} = \sum_{jd} G_{ijd} U_{rjd}$;
        $V_{rjd} = \sum_i R_{ir} G_{ijd}$ gives $dX_{rcd} = \sum_{hj} C_{jc} V_{rjd}$ (over all heads h)
        and $dC_{jc} = \sum_{rd} V_{rjd} X_{rcd}$.
        """
        x, rows, columns = ctx.saved_tensors  # type: ignore[attr-defined]
        (n_heads, i, r), (j, c) = rows.shape, columns.shape[1:]
        d = x.shape[-1]
        every_column = columns.reshape(n_heads * j, c).expand(r, -1, -1)  # C of all heads, for each row r
        of_x, of_rows = torch.empty_like(x, memory_format=torch.contiguous_format), torch.zeros_like(rows)
        of_columns = x.new_zeros(r, n_heads * j, c)  # dC before the sum over r
        work = x.new_empty(r, n_heads, j * d)
        by_row, by_head = work.view(r, n_heads * j, d), work.transpose(0, 1)  # it holds first U, then V
        for image, of_image, of_mixed in zip(x, of_x, gradients[0], strict=True):
            of_heads = of_mixed.reshape(n_heads, i, j * d).to(x.dtype)  # G of each head as a matrix: i by (j d)
            torch.bmm(every_column, image, out=by_row)  # U = C X
            of_rows.baddbmm_(of_heads, by_head.mT)  # dR += G U^T
            torch.bmm(rows.mT, of_heads, out=by_head)  # V = R^T G, over U
            torch.bmm(every_column.mT, by_row, out=of_image)  # dX = C^T V, summed over heads and j
            of_columns.baddbmm_(by_row, image.mT)  # dC += V X^T
        return of_x, of_rows, of_columns.sum(0).view_as(columns)


def gaussian_vectors(centre: Float[Tensor, "head 2"], alpha: Float[Tensor, "head"]) -> Float[Tensor, "head 3"]:
    r"""$v = -\alpha\,(1,\ -2\Delta_1,\ -2\Delta_2)$ of equation (7), with the sheet's $\Delta = -centre$.

    Then $v \cdot r_\delta = -\alpha\,(|\delta - \Delta|^2 - |\Delta|^2)$: the constant of equation (12) is
    $c = -|\Delta|^2$, and the softmax over the keys does not feel it.

    >>> gaussian_vectors(torch.tensor([[1.0, 0.0]]), torch.tensor([2.0]))
    tensor([[-2., -4., -0.]])
    """
    check_gaussian(centre, alpha)
    return -alpha[:, None] * torch.cat([torch.ones_like(alpha)[:, None], 2 * centre], dim=-1)


def full_precision(alpha: Precision) -> Float[Tensor, "head 2 2"]:
    """Any precision as a 2 x 2 matrix.

    >>> full_precision(torch.tensor([3.0]))
    tensor([[[3., 0.],
             [0., 3.]]])
    """
    if alpha.ndim == 3:
        return alpha
    return torch.diag_embed(alpha[:, None].expand(-1, 2) if alpha.ndim == 1 else alpha)


def check_gaussian(centre: Float[Tensor, "head 2"], alpha: Precision) -> None:
    """Raise unless centres and precisions fit together, are finite, and the precisions are positive (definite)."""
    if centre.ndim != 2 or centre.shape[1] != 2 or len(centre) == 0:
        raise ValueError(f"centre must have the axes (head, 2), each (row, column), got shape {tuple(centre.shape)}")
    n_heads = len(centre)
    if tuple(alpha.shape) not in ((n_heads,), (n_heads, 2), (n_heads, 2, 2)):
        raise ValueError(
            f"alpha must have the axes (head,), (head, 2) or (head, 2, 2) for {n_heads} heads, "
            f"got shape {tuple(alpha.shape)}"
        )
    if not has_numbers(centre):
        return
    if not centre.isfinite().all():
        raise ValueError(f"centre must be finite, got {centre.tolist()}")
    if not alpha.isfinite().all() or not _is_positive(alpha.detach()):
        rule = "positive and finite" if alpha.ndim < 3 else "positive definite and finite, and symmetric"
        raise ValueError(f"alpha must be {rule}, got {alpha.tolist()}")


def _is_positive(alpha: Tensor) -> bool:
    if alpha.ndim < 3:
        return bool((alpha > 0).all())
    return torch.allclose(alpha, alpha.mT) and bool((torch.linalg.eigvalsh(alpha.double()) > 0).all())
