"""Position codes: what is added to a token, how its query and key are rotated, what its scores gain.

A stack owns one position code and asks it once per call for all three; most answer only one. A code of your own is an
subclass of `Positions` with one method or more:

>>> class HalfLife(Positions):
...     def __init__(self, n_heads: int) -> None:
...         super().__init__()
...         self.n_heads = n_heads
...         self.rate = nn.Parameter(torch.zeros(n_heads))
...
...     def bias(self, x, n_key):
...         away = hw.functional.distance(x.shape[1], n_key, device=x.device).abs()
...         return -self.rate.exp()[None, :, None, None] * away
>>> config = hw.models.DecoderConfig(vocab=100, d_model=8, n_layers=1, heads=choices.Heads(n_heads=2),
...     feed_forward=choices.FeedForward(d_ff=32))
>>> hw.models.Decoder(config, positions=HalfLife(n_heads=2))(torch.tensor([[3, 1, 4]])).shape
torch.Size([1, 3, 100])

To be saved and loaded, it keeps each argument of its constructor as an attribute of the same name. The position code of
an image is any module with `forward(patches, grid)`, as `LearnedGrid` has it: patches [batch token d_model] and the
(rows, columns) of the grid that they come from.
"""

from dataclasses import dataclass, field
from typing import Literal

import torch
from einops import rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from headwork import choices
from headwork.checks import check_one_of, check_positive
from headwork.functional.embedding import look_up
from headwork.functional.fused import fused_rotate
from headwork.functional.positions import sinusoidal_positions, sinusoidal_positions_2d, sinusoids
from headwork.functional.processor import check_products, has_numbers
from headwork.functional.relative import alibi_bias, distance, pick_by_shift, relative_index, t5_buckets
from headwork.functional.rotary import (
    llama3_frequencies,
    ntk_base,
    rotary_angles,
    rotary_frequencies,
    rotary_table,
    rotate,
    yarn_attention_factor,
    yarn_frequencies,
)
from headwork.layers.linear import linear, normal


@dataclass(frozen=True)
class Rotation:
    """The angles of every position, by which queries and keys are rotated."""

    angles: Float[Tensor, "#batch 1 token pair"]
    layout: Literal["interleaved", "halves"]
    n_kept: int = 0
    """So many features at the end of each head stay as they are."""
    scale: float = 1.0
    """What is rotated is multiplied by it."""

    def rotate(self, x: Float[Tensor, "batch head token d_head"]) -> Float[Tensor, "batch head token d_head"]:
        if not self.n_kept:
            return self._rotate(x)
        rotated, kept = x[..., : -self.n_kept], x[..., -self.n_kept :]
        return torch.cat([self._rotate(rotated), kept], dim=-1)

    def computed(self, dtype: torch.dtype) -> "ComputedRotation":
        """The same, with its sines and cosines, which are those of all layers."""
        cos, sin = ((self.scale * t).to(dtype) for t in rotary_table(self.angles, self.layout))
        return ComputedRotation(self.angles, self.layout, self.n_kept, self.scale, cos=cos, sin=sin)

    def _rotate(self, x: Float[Tensor, "batch head token d"]) -> Float[Tensor, "batch head token d"]:
        rotated = rotate(x, self.angles, self.layout)
        return rotated if self.scale == 1.0 else self.scale * rotated


@dataclass(frozen=True)
class ComputedRotation(Rotation):
    """A rotation with its sines and cosines, times its scale."""

    cos: Float[Tensor, "#batch 1 token d"] = field(kw_only=True)
    sin: Float[Tensor, "#batch 1 token d"] = field(kw_only=True)

    def _rotate(self, x: Float[Tensor, "batch head token d"]) -> Float[Tensor, "batch head token d"]:
        return fused_rotate(x, self.cos, self.sin, self.layout)


class Positions(nn.Module):
    """No positions at all: nothing is added, nothing is rotated, no score changes."""

    max_tokens: int | None = None
    """The longest sequence that has positions; None: any length."""

    def vectors(
        self, positions: Int[Tensor, "#batch token"], n_total: int
    ) -> Float[Tensor, "#batch token d_model"] | None:
        """What is added to the tokens at these positions, all of them below `n_total`."""
        return None

    def rotation(self, positions: Int[Tensor, "#batch token"]) -> Rotation | None:
        """How the queries and keys of the tokens at these positions are rotated."""
        return None

    def bias(self, x: Float[Tensor, "batch query d_model"], n_key: int) -> Float[Tensor, "1 head query key"] | None:
        """What the scaled scores of the tokens x gain, when they are the newest of `n_key`."""
        return None


class LearnedPositions(Positions):
    """A learned vector for each of `max_tokens` positions, added to the token.

    >>> LearnedPositions(max_tokens=512, d_model=8).vectors(torch.arange(5)[None], 5).shape
    torch.Size([1, 5, 8])
    """

    def __init__(self, max_tokens: int, d_model: int) -> None:
        super().__init__()
        check_positive(max_tokens=max_tokens, d_model=d_model)
        self.max_tokens, self.d_model = max_tokens, d_model
        self.table = normal(max_tokens, d_model, spread=0.02)

    def vectors(self, positions: Int[Tensor, "#batch token"], n_total: int) -> Float[Tensor, "#batch token d_model"]:
        check_length(positions, n_total, len(self.table), "learned positions")
        return look_up(positions, self.table, "positions")

    def extra_repr(self) -> str:
        return f"max_tokens={self.max_tokens}, d_model={self.d_model}"


class SinusoidalPositions(Positions):
    """The fixed sines and cosines of the original Transformer, added to the token; any length.

    >>> SinusoidalPositions(d_model=8).vectors(torch.arange(5)[None], 5).shape
    torch.Size([1, 5, 8])
    """

    n_ready = 1024

    def __init__(
        self, d_model: int, *, base: float = 10_000.0, layout: Literal["interleaved", "halves"] = "interleaved"
    ) -> None:
        super().__init__()
        self.d_model, self.base, self.layout = d_model, base, layout
        table = sinusoidal_positions(self.n_ready, d_model, base=base, layout=layout)
        self.register_buffer("table", table, persistent=False)

    def vectors(self, positions: Int[Tensor, "#batch token"], n_total: int) -> Float[Tensor, "#batch token d_model"]:
        table = self.get_buffer("table")
        if n_total > self.n_ready:
            more = sinusoidal_positions(
                n_total, table.shape[1], base=self.base, layout=self.layout, device=table.device
            )
            table = more.to(table.dtype)
        return look_up(positions, table, "positions")


class RotaryPositions(Positions):
    """Queries and keys are rotated by an angle that grows with the position.

    Of the features of a head the first `fraction` is rotated; `scaling` slows the rotation down; sequences of more than
    `max_tokens` (None: any length) are refused.

    >>> rotation = RotaryPositions(d_head=4).rotation(torch.arange(5)[None])
    >>> rotation.rotate(torch.randn(2, 3, 5, 4)).shape
    torch.Size([2, 3, 5, 4])
    """

    def __init__(
        self,
        d_head: int,
        *,
        base: float = 10_000.0,
        layout: Literal["interleaved", "halves"] = "halves",
        fraction: float = 1.0,
        scaling: choices.RotaryScaling | None = None,
        max_tokens: int | None = None,
    ) -> None:
        super().__init__()
        check_positive(max_tokens=max_tokens)
        self.d_rotated = int(d_head * fraction)
        if d_head % 2 and fraction == 1:
            raise ValueError(f"d_head must be even (rotary positions rotate pairs of features), got {d_head}")
        if not 2 <= self.d_rotated <= d_head or self.d_rotated % 2:
            raise ValueError(
                "fraction must leave an even number of features, at most d_head, that are rotated in pairs, "
                f"got fraction={fraction} of d_head={d_head}"
            )
        check_one_of(("interleaved", "halves"), layout=layout)
        self.d_head, self.base, self.layout = d_head, base, layout
        self.fraction, self.scaling, self.max_tokens = fraction, scaling, max_tokens

    def vectors(self, positions: Int[Tensor, "#batch token"], n_total: int) -> None:
        """Nothing is added; but there may be no more positions."""
        if self.max_tokens is not None:
            check_length(positions, n_total, self.max_tokens, "positions that the model was made for")

    def rotation(self, positions: Int[Tensor, "#batch token"]) -> Rotation:
        return Rotation(
            rearrange(self._angles(positions), "batch token pair -> batch 1 token pair"),
            self.layout,
            n_kept=self.d_head - self.d_rotated,
            scale=self._scale(),
        )

    def _angles(self, positions: Int[Tensor, "#batch token"]) -> Float[Tensor, "#batch token pair"]:
        if self.scaling is None:
            return rotary_angles(positions, self.d_rotated, base=self.base)
        frequencies = rotary_frequencies(self.d_rotated, base=self.base, device=positions.device)
        match self.scaling:
            case choices.LinearScaling(factor=factor):
                slower = frequencies / factor
            case choices.NTKScaling(factor=factor):
                base = ntk_base(self.base, factor, self.d_rotated)
                slower = rotary_frequencies(self.d_rotated, base=base, device=positions.device)
            case choices.Llama3Scaling(factor=factor, original_max_tokens=n_tokens, low=low, high=high):
                slower = llama3_frequencies(frequencies, factor=factor, n_tokens=n_tokens, low=low, high=high)
            case choices.YarnScaling(factor=factor, original_max_tokens=n_tokens, fast=fast, slow=slow):
                slower = yarn_frequencies(
                    frequencies,
                    base=self.base,
                    factor=factor,
                    n_tokens=n_tokens,
                    fast=fast,
                    slow=slow,
                    whole_pairs=self.scaling.whole_pairs,
                )
        return positions.unsqueeze(-1) * slower

    def _scale(self) -> float:
        if not isinstance(self.scaling, choices.YarnScaling):
            return 1.0
        given = self.scaling.attention_factor
        return yarn_attention_factor(self.scaling.factor) if given is None else given


class AlibiPositions(Positions):
    """Scores fade linearly with distance, each head at its own slope; any length.

    >>> AlibiPositions(n_heads=4).bias(torch.zeros(1, 2, 8), 5).shape
    torch.Size([1, 4, 2, 5])
    """

    def __init__(self, n_heads: int) -> None:
        super().__init__()
        self.n_heads = n_heads

    def bias(self, x: Float[Tensor, "batch query d_model"], n_key: int) -> Float[Tensor, "1 head query key"]:
        return alibi_bias(self.n_heads, x.shape[1], n_key, device=x.device).to(x.dtype)[None]


class BucketPositions(Positions):
    """T5: a learned bias for each head and bucket of distances; any length.

    >>> BucketPositions(n_heads=4, bidirectional=True).bias(torch.zeros(1, 2, 8), 5).shape
    torch.Size([1, 4, 2, 5])
    """

    def __init__(self, n_heads: int, *, n_buckets: int = 32, max_distance: int = 128, bidirectional: bool) -> None:
        super().__init__()
        self.table = normal(n_buckets, n_heads, spread=0.02)
        self.n_heads, self.n_buckets = n_heads, n_buckets
        self.max_distance, self.bidirectional = max_distance, bidirectional

    def bias(self, x: Float[Tensor, "batch query d_model"], n_key: int) -> Float[Tensor, "1 head query key"]:
        buckets = t5_buckets(
            x.shape[1],
            n_key,
            n_buckets=len(self.table),
            max_distance=self.max_distance,
            bidirectional=self.bidirectional,
            device=self.table.device,
        )
        return rearrange(look_up(buckets, self.table), "query key head -> 1 head query key")


class RelativeShifts(nn.Module):
    """The learned part of equation (6) of the ETH sheet, one for each attention layer: u, v and W~_k over sinusoids.

    The score q.k + q.r + u.k + v.r is the product of (q + u) with k and a bias of (q + v) . r, so that it goes
    through fused attention as well; `headwork.functional.relative_scores` writes the four terms out.

    >>> q, bias = RelativeShifts(d_model=8, n_heads=2, d_head=4)(torch.randn(1, 2, 3, 4), n_key=5, beta=0.5)
    >>> q.shape, bias.shape
    (torch.Size([1, 2, 3, 4]), torch.Size([1, 2, 3, 5]))
    """

    operation = "scores"
    operation_inside = "projections"

    def __init__(self, d_model: int, n_heads: int, d_head: int) -> None:
        super().__init__()
        self.d_model, self.n_heads = d_model, n_heads
        self.key = linear(d_model, n_heads * d_head, bias=False)
        self.u = nn.Parameter(torch.zeros(n_heads, d_head))
        self.v = nn.Parameter(torch.zeros(n_heads, d_head))

    def forward(
        self, q: Float[Tensor, "batch head query d_head"], n_key: int, beta: float
    ) -> tuple[Float[Tensor, "batch head query d_head"], Float[Tensor, "batch head query key"]]:
        """The queries with u added, and what the scaled scores gain from the shifts."""
        check_products(q)
        by_shift = (q + self.v[:, None, :]) @ self.codes(n_key, q).mT
        index = relative_index(q.shape[2], n_key, device=q.device)
        return q + self.u[:, None, :], beta * pick_by_shift(by_shift, index)

    def codes(self, n_key: int, like: Tensor) -> Float[Tensor, "head shift d_head"]:
        """W~_k r for every shift from -(n_key - 1) to n_key - 1."""
        shifts = torch.arange(1 - n_key, n_key, device=like.device)
        codes = self.key(sinusoids(shifts, self.d_model).to(like.dtype))
        return rearrange(codes, "shift (head d) -> head shift d", head=self.n_heads)


class LearnedShifts(RelativeShifts):
    """A learned code r for each shift of at most `max_distance` (a further one has that of the last), in each head.

    The score is q.k + q.r or, with `biases`, (q + u).k + q.r + b: one vector u for all queries, a number b for each
    shift. Shaw et al., "Self-attention with relative position representations", 2018.

    >>> q, bias = LearnedShifts(n_heads=2, d_head=4, max_distance=3)(torch.randn(1, 2, 3, 4), n_key=5, beta=0.5)
    >>> q.shape, bias.shape
    (torch.Size([1, 2, 3, 4]), torch.Size([1, 2, 3, 5]))
    """

    def __init__(self, n_heads: int, d_head: int, max_distance: int, *, biases: bool = False) -> None:
        nn.Module.__init__(self)
        check_positive(n_heads=n_heads, d_head=d_head, max_distance=max_distance)
        self.n_heads, self.max_distance = n_heads, max_distance
        self.table = normal(n_heads, 2 * max_distance + 1, d_head, spread=0.02)
        self.shift_bias = nn.Parameter(torch.zeros(n_heads, 2 * max_distance + 1)) if biases else None
        self.query_bias = nn.Parameter(torch.zeros(n_heads, d_head)) if biases else None

    def forward(
        self, q: Float[Tensor, "batch head query d_head"], n_key: int, beta: float
    ) -> tuple[Float[Tensor, "batch head query d_head"], Float[Tensor, "batch head query key"]]:
        """The queries with u added (if there is one), and what the scaled scores gain from the shifts."""
        check_products(q)
        by_shift = q @ self.table.mT
        if self.shift_bias is not None:
            by_shift = by_shift + self.shift_bias[:, None, :]
        ahead = distance(q.shape[2], n_key, device=q.device).clamp(-self.max_distance, self.max_distance)
        bias = beta * pick_by_shift(by_shift, ahead + self.max_distance)
        return q if self.query_bias is None else q + self.query_bias[:, None, :], bias


class LearnedGrid(nn.Module):
    """A learned vector for each patch; a grid of another size gets them by bicubic interpolation.

    >>> LearnedGrid(4, 4, d_model=8)(torch.zeros(1, 12, 8), grid=(2, 6)).shape
    torch.Size([1, 12, 8])
    """

    axes = "batch token d_model"

    def __init__(self, n_rows: int, n_columns: int, d_model: int) -> None:
        super().__init__()
        self.n_rows, self.n_columns, self.d_model = n_rows, n_columns, d_model
        self.table = normal(n_rows, n_columns, d_model, spread=0.02)

    def forward(
        self, patches: Float[Tensor, "batch token d_model"], grid: tuple[int, int]
    ) -> Float[Tensor, "batch token d_model"]:
        table: Tensor = self.table
        if grid != (table.shape[0], table.shape[1]):
            image = rearrange(table, "row column d_model -> 1 d_model row column")
            wider = nn.functional.interpolate(image, size=grid, mode="bicubic", align_corners=False)
            table = rearrange(wider, "1 d_model row column -> row column d_model")
        return patches + rearrange(table, "row column d_model -> 1 (row column) d_model")

    def extra_repr(self) -> str:
        return f"n_rows={self.n_rows}, n_columns={self.n_columns}, d_model={self.d_model}"


class SinusoidalGrid(nn.Module):
    """Fixed sinusoids, half of the width for the row and half for the column; any size.

    >>> SinusoidalGrid()(torch.zeros(1, 6, 8), grid=(2, 3)).shape
    torch.Size([1, 6, 8])
    """

    axes = "batch token d_model"

    def forward(
        self, patches: Float[Tensor, "batch token d_model"], grid: tuple[int, int]
    ) -> Float[Tensor, "batch token d_model"]:
        table = sinusoidal_positions_2d(*grid, patches.shape[-1], device=patches.device)
        return patches + rearrange(table.to(patches.dtype), "row column d_model -> 1 (row column) d_model")


def check_length(positions: Int[Tensor, "#batch token"], n_total: int, limit: int, of_what: str) -> None:
    """Raise for positions from the limit on; padding has no position, so that more tokens may fit."""
    if n_total > limit and (not has_numbers(positions) or positions.max() >= limit):
        raise ValueError(f"a sequence must not be longer than the {limit} {of_what}, got {n_total} tokens")


def count_positions(
    x: Tensor, *, n_past: int = 0, visible: Bool[Tensor, "batch key"] | None = None
) -> Int[Tensor, "#batch token"]:
    """The position of each token of x, counting visible ones only: left padding does not move a sentence.

    `visible` covers the past as well.

    >>> count_positions(torch.zeros(1, 4), visible=torch.tensor([[False, False, True, True]]))
    tensor([[0, 0, 0, 1]])
    """
    n_token = x.shape[1]
    if visible is None:
        return torch.arange(n_past, n_past + n_token, device=x.device)[None]
    return (visible.cumsum(1) - 1).clamp(min=0)[:, -n_token:]


def make_positions(
    choice: choices.TextPositions | choices.GridPositions,
    *,
    d_model: int,
    n_heads: int,
    d_head: int,
    bidirectional: bool,
) -> Positions:
    """What the stack adds and rotates; relative positions are in each attention, those of a grid join the patches."""
    match choice:
        case choices.NoPositions() | choices.LearnedGrid() | choices.SinusoidalGrid():
            return Positions()
        case choices.RelativePositions() | choices.LearnedRelativePositions():
            return Positions()
        case choices.LearnedPositions():
            return LearnedPositions(choice.max_tokens, d_model)
        case choices.SinusoidalPositions():
            return SinusoidalPositions(d_model, base=choice.base, layout=choice.layout)
        case choices.RotaryPositions():
            return RotaryPositions(
                d_head,
                base=choice.base,
                layout=choice.layout,
                fraction=choice.fraction,
                scaling=choice.scaling,
                max_tokens=choice.max_tokens,
            )
        case choices.AlibiPositions():
            return AlibiPositions(n_heads)
        case choices.BucketPositions():
            return BucketPositions(
                n_heads,
                n_buckets=choice.n_buckets,
                max_distance=choice.max_distance,
                bidirectional=bidirectional,
            )


def make_grid(
    choice: choices.GridPositions, grid: tuple[int, int], d_model: int
) -> LearnedGrid | SinusoidalGrid | None:
    match choice:
        case choices.NoPositions():
            return None
        case choices.LearnedGrid():
            return LearnedGrid(*grid, d_model)
        case choices.SinusoidalGrid():
            return SinusoidalGrid()
