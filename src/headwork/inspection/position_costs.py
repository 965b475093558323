r"""What each position code costs an attention layer: question (b.2) of the ETH sheet, by formula and counted.

With $N$ tokens of width $D$ on $R \times C$ pixels, and $h$ heads of width $d$ ($h\,d = D$), for one image:

| | projections | scores | mixing | weights |
|---|---|---|---|---|
| absolute, equation (5) | $4ND^2$ | $N^2 D$ | $N^2 D$ | $h N^2$ |
| relative, equation (6) | $4ND^2 + 2ND^2$ | $N^2 D + 2N^2 D$ | $N^2 D$ | $h N^2$ |
| relative, a code for rows and one for columns | $4ND^2$ | $N^2 D + 2N(R + C) D$ | $N^2 D$ | $h N^2$ |
| Gaussian, equation (7), all pairs | $2ND^2$ | $3 h N^2$ | $N^2 D$ | $h N^2$, once for all images |
| Gaussian, rows, then columns | $2ND^2$ | - | $N(R + C) D$ | $h (R^2 + C^2)$, once for all images |

These are multiplications, each with an addition, so twice as many FLOPs; the functions below have every term.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from headwork.checks import check_positive
from headwork.functional.gaussian import QueryGrid
from headwork.inspection.costs import cost
from headwork.inspection.recording import record
from headwork.layers.attention import MultiHeadAttention
from headwork.layers.gaussian import GaussianAttention, PositionAttention, mix_by_table
from headwork.layers.grid_attention import ContentShiftAttention, RelativePositionalEmbedding
from headwork.layers.positions import RelativeShifts
from headwork.serialise import Checked

Kind = Literal["absolute", "relative", "relative, rows + columns", "gaussian, all pairs", "gaussian"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True, kw_only=True)
class Size(Checked):
    """Images of (rows, columns) tokens of width `d_model`; each head is d_model / n_heads wide."""

    grid: tuple[int, int]
    d_model: int
    n_heads: int = 1
    batch: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(rows=self.grid[0], columns=self.grid[1], d_model=self.d_model, n_heads=self.n_heads)
        check_positive(batch=self.batch)
        if self.d_model % self.n_heads:
            raise ValueError(f"n_heads must divide d_model, got n_heads={self.n_heads} and d_model={self.d_model}")


class Price(NamedTuple):
    """What a layer costs on images of some size: numbers to learn, FLOPs, and numbers in its tables of weights."""

    parameters: int
    projections: int
    """FLOPs that make queries, keys, values, codes and outputs."""
    attention: int
    """FLOPs of the scores and of mixing the values."""
    weights: int
    """How many weights there are; a fused kernel does not hold all of them at once."""

    @property
    def flops(self) -> int:
        return self.projections + self.attention


def formula(kind: Kind, size: Size) -> Price:
    """The price by the formulas above, with every term.

    >>> formula("absolute", Size(grid=(16, 16), d_model=64)).attention == 2 * 2 * 256**2 * 64
    True
    """
    (r, c), d, h, batch = size.grid, size.d_model, size.n_heads, size.batch
    n = r * c
    linear_map = d * d + d
    projection = 2 * batch * n * d * d
    all_pairs = 2 * batch * n * n * d
    match kind:
        case "absolute":
            return Price(4 * linear_map, 4 * projection, 2 * all_pairs, batch * h * n * n)
        case "relative":
            shifts = 2 * n - 1
            return Price(
                parameters=4 * linear_map + d * d + 2 * d,
                projections=4 * projection + 2 * shifts * d * d,
                attention=2 * all_pairs + 2 * batch * n * shifts * d,
                weights=batch * h * n * n,
            )
        case "relative, rows + columns":
            shifts = (2 * r - 1) + (2 * c - 1)
            return Price(
                parameters=4 * linear_map + shifts * d,
                projections=4 * projection,
                attention=2 * all_pairs + 2 * batch * n * shifts * d,
                weights=batch * h * n * n,
            )
        case "gaussian, all pairs":
            return Price(2 * linear_map + 3 * h, 2 * projection, 2 * 3 * h * n * n + all_pairs, h * n * n)
        case "gaussian":
            along_axes = 2 * batch * n * (r + c) * d
            return Price(2 * linear_map + 3 * h, 2 * projection, along_axes, h * (r * r + c * c))


def count(kind: Kind, size: Size) -> Price:
    """The price of a real layer: its parameters, the FLOPs of a forward pass, the weights it can show.

    >>> size = Size(grid=(3, 5), d_model=14, n_heads=7, batch=2)
    >>> count("gaussian", size) == formula("gaussian", size)
    True
    """
    layer, inputs = make_layer(kind, size)
    price = cost(layer, *inputs)
    with torch.no_grad(), record(layer, "weights") as seen:
        layer(*inputs)
    tables = layer.axis_weights(size.grid) if isinstance(layer, GaussianAttention) else [seen["weights"]]
    return Price(price.n_parameters, price.projections, price.attention, sum(table.numel() for table in tables))


def make_layer(kind: Kind, size: Size) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """A layer of this kind and random images for it: a sequence of tokens, or a grid of them."""
    d, h = size.d_model, size.n_heads
    image = torch.randn(size.batch, *size.grid, d)
    tokens = rearrange(image, "batch row column d_model -> batch (row column) d_model")
    match kind:
        case "absolute":
            return MultiHeadAttention(d, h), (tokens, tokens)
        case "relative":
            return MultiHeadAttention(d, h, relative=RelativeShifts(d, h, d // h)), (tokens, tokens)
        case "relative, rows + columns":
            return ContentShiftAttention(d, h, size.grid), (image,)
        case "gaussian, all pairs":
            return GaussianOfAllPairs(d, h, size.grid), (image,)
        case "gaussian":
            return GaussianAttention(d, h, d_value=d // h), (image,)


class GaussianOfAllPairs(PositionAttention):
    """Gaussian heads as the ETH sheet writes them: v . r for each pair, a softmax, and a sum over all keys.

    It gives what `GaussianAttention` gives, and is here to be counted.

    >>> GaussianOfAllPairs(d_model=8, n_heads=2, grid=(4, 5))(torch.randn(3, 4, 5, 8)).shape
    torch.Size([3, 4, 5, 8])
    """

    def __init__(self, d_model: int, n_heads: int, grid: tuple[int, int]) -> None:
        super().__init__(d_model, n_heads, d_value=d_model // n_heads)
        self.codes = RelativePositionalEmbedding(grid, 2 * torch.randn(n_heads, 2), torch.ones(n_heads))

    def later_table(self, grid: tuple[int, int], queries: QueryGrid | None = None) -> Callable[[], Tensor]:
        scores = self.codes()
        return lambda: scores.flatten(3).softmax(-1).reshape(scores.shape)

    def _mix(self, v: Tensor, queries: QueryGrid | None) -> Float[Tensor, "batch head query_row query_column d"]:
        return mix_by_table(self.table((v.shape[2], v.shape[3])), v)
