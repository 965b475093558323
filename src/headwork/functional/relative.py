"""Relative position codes: what a score gains or loses by how far the key stands from the query.

In a text the last query stands on the last key. On a grid of (row, column) the codes are those of the ETH sheet.
"""

import math
from typing import NamedTuple

import torch
from einops import rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headwork.checks import check_positive
from headwork.functional.processor import check_products


def distance(n_query: int, n_key: int, *, device: torch.device | str | None = None) -> Int[Tensor, "query key"]:
    r"""Signed distance $j - i$ from query to key, in tokens: negative is the past, positive the future.

    Fewer queries than keys are the newest ones, as when a cache holds the keys of the past.

    >>> distance(2, 4)
    tensor([[-2, -1,  0,  1],
            [-3, -2, -1,  0]])
    """
    query = torch.arange(n_key - n_query, n_key, device=device)
    key = torch.arange(n_key, device=device)
    return key[None, :] - query[:, None]


def not_ahead(n_query: int, n_key: int, *, device: torch.device | str | None = None) -> Bool[Tensor, "query key"]:
    """Which keys are not in the future of which query: `distance <= 0`, without a table of whole numbers.

    >>> not_ahead(2, 3)
    tensor([[ True,  True, False],
            [ True,  True,  True]])
    """
    query = torch.arange(n_key - n_query, n_key, device=device)
    return torch.arange(n_key, device=device) <= query[:, None]


class RelativeScores(NamedTuple):
    """The four terms of equation (6) of the ETH sheet; their sum is the score."""

    content_content: Float[Tensor, "*batch query key"]
    content_position: Float[Tensor, "*batch query key"]
    content_bias: Float[Tensor, "*batch 1 key"]
    position_bias: Float[Tensor, "*#batch query key"]

    def total(self) -> Float[Tensor, "*batch query key"]:
        return self.content_content + self.content_position + self.content_bias + self.position_bias


def relative_scores(
    q: Float[Tensor, "*batch query d_head"],
    k: Float[Tensor, "*batch key d_head"],
    r: Float[Tensor, "*#batch shift d_head"],
    index: Int[Tensor, "query key"],
    u: Float[Tensor, "*#batch d_head"],
    v: Float[Tensor, "*#batch d_head"],
) -> RelativeScores:
    r"""The score in four terms that know only the shift $\delta = q - k$, with learned biases $u$ and $v$.

    $$A_{q,k} = q \cdot k + q \cdot r_\delta + u \cdot k + v \cdot r_\delta$$

    Here `q`, `k` and `r` are already projected ($Z W_q$, $Z W_k$, $\widetilde W_k r_\delta$); `r` has a row for
    each shift and `index` says which row belongs to a pair, so that no query x key x d table is built.
    Dai et al., "Transformer-XL", 2019.

    >>> q, k, r, one = torch.ones(3, 2), torch.ones(4, 2), torch.ones(7, 2), torch.ones(2)
    >>> relative_scores(q, k, r, relative_index(3, 4), one, one).total()[0, 0]
    tensor(8.)
    """
    check_products(q)
    of_shift = v.unsqueeze(-2) @ r.mT
    return RelativeScores(
        content_content=q @ k.mT,
        content_position=pick_by_shift(q @ r.mT, index),
        content_bias=u.unsqueeze(-2) @ k.mT,
        position_bias=pick_by_shift(of_shift.expand(*of_shift.shape[:-2], len(index), -1), index),
    )


def relative_index(n_query: int, n_key: int, *, device: torch.device | str | None = None) -> Int[Tensor, "query key"]:
    """Which row of a table over the shifts $-(n_{key}-1) .. n_{key}-1$ belongs to each pair, shift = query - key.

    >>> relative_index(3, 3)
    tensor([[2, 1, 0],
            [3, 2, 1],
            [4, 3, 2]])
    """
    if n_query > n_key:
        raise ValueError(f"n_query must be at most n_key, got n_query={n_query} and n_key={n_key}")
    return n_key - 1 - distance(n_query, n_key, device=device)


def t5_buckets(
    n_query: int,
    n_key: int,
    *,
    n_buckets: int = 32,
    max_distance: int = 128,
    bidirectional: bool = True,
    device: torch.device | str | None = None,
) -> Int[Tensor, "query key"]:
    """Bucket of each signed distance: one for each near distance, ever wider ones further out.

    Half of the buckets count near distances exactly, half grow as the logarithm up to `max_distance`; both ways if
    `bidirectional` (an encoder), the past only if not (a decoder). Raffel et al. (T5), 2020.

    >>> t5_buckets(1, 4, n_buckets=8, max_distance=16, bidirectional=False)
    tensor([[3, 2, 1, 0]])
    """
    if n_buckets < 4 or n_buckets % 2:
        raise ValueError(f"n_buckets must be even and 4 or more, got {n_buckets}")
    ahead = distance(n_query, n_key, device=device)
    if bidirectional:
        n_buckets //= 2
        start = n_buckets * (ahead > 0)
        away = ahead.abs()
    else:
        start = torch.zeros_like(ahead)
        away = (-ahead).clamp(min=0)
    n_exact = n_buckets // 2
    if max_distance <= n_exact:
        raise ValueError(f"max_distance must be more than the {n_exact} exact buckets, got {max_distance}")
    share = torch.log(away.clamp(min=1).float() / n_exact) / math.log(max_distance / n_exact)
    far = (n_exact + share * (n_buckets - n_exact)).long().clamp(max=n_buckets - 1)
    return start + torch.where(away < n_exact, away, far)


def alibi_slopes(n_heads: int, *, device: torch.device | str | None = None) -> Float[Tensor, "head"]:
    r"""A geometric series of slopes: head $h$ of $n$ has $2^{-8h/n}$.

    When $n$ is no power of 2, the rest comes from the series of twice as many heads.
    Press, Smith and Lewis, "Train short, test long", 2022.

    >>> alibi_slopes(4)
    tensor([0.2500, 0.0625, 0.0156, 0.0039])
    """
    check_positive(n_heads=n_heads)
    power = 2 ** int(math.log2(n_heads))
    series = [2 ** (-8 * (h + 1) / power) for h in range(power)]
    between = [2 ** (-8 * (2 * h + 1) / (2 * power)) for h in range(n_heads - power)]
    return torch.tensor(series + between, device=device)


def alibi_bias(
    n_heads: int, n_query: int, n_key: int, *, device: torch.device | str | None = None
) -> Float[Tensor, "head query key"]:
    r"""$-m_h\,|j - i|$: each head fades with distance at its own slope $m_h$.

    >>> alibi_bias(2, 1, 3)[0]
    tensor([[-0.1250, -0.0625, -0.0000]])
    """
    slopes = rearrange(alibi_slopes(n_heads, device=device), "head -> head 1 1")
    return -slopes * distance(n_query, n_key, device=device).abs()


def pick_by_shift(
    by_shift: Float[Tensor, "*batch query shift"], index: Int[Tensor, "query key"]
) -> Float[Tensor, "*batch query key"]:
    """From a score for each shift to a score for each key.

    >>> pick_by_shift(torch.tensor([[0.0, 10.0, 20.0]]), torch.tensor([[2, 1]]))
    tensor([[20., 10.]])
    """
    return by_shift.gather(-1, index.expand(*by_shift.shape[:-1], -1))


def grid_shifts(n_rows: int, n_columns: int) -> Int[Tensor, "row column key_row key_column 2"]:
    r"""The shift $\delta = q - k$ of each pair of pixels, as the sheet writes it (query minus key).

    >>> grid_shifts(2, 3)[1, 2, 0, 0]
    tensor([1, 2])
    """
    check_positive(n_rows=n_rows, n_columns=n_columns)
    pixel = torch.stack(torch.meshgrid(torch.arange(n_rows), torch.arange(n_columns), indexing="ij"), -1)
    return pixel[:, :, None, None] - pixel[None, None, :, :]


def quadratic_codes(shifts: Int[Tensor, "*pair 2"]) -> Float[Tensor, "*pair 3"]:
    r"""$r_\delta = (|\delta|^2,\ \delta_1,\ \delta_2)$ of equation (7): three numbers are enough for a Gaussian head.

    >>> quadratic_codes(torch.tensor([1, 2]))
    tensor([5., 1., 2.])
    """
    delta = shifts.to(torch.get_default_dtype())
    return torch.cat([delta.square().sum(-1, keepdim=True), delta], dim=-1)
