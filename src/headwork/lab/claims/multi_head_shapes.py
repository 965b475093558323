r"""In columns, h heads map queries d x n, keys d x m and values t x m to outputs t x n, for the price of one full head.

The sheet writes tokens as columns: $Q \in \mathbb{R}^{d \times n}$, $K \in \mathbb{R}^{d \times m}$,
$V \in \mathbb{R}^{t \times m}$. Head $i$ has $W_Q^i, W_K^i \in \mathbb{R}^{d/h \times d}$ and
$W_V^i \in \mathbb{R}^{t/h \times t}$, and

| step | shape |
|---|---|
| $S^i = (W_K^i K)^\top (W_Q^i Q)$ | $m \times n$ |
| $\alpha^i$, each *column* sums to 1 | $m \times n$ |
| $H^i = (W_V^i V)\,\alpha^i$ | $t/h \times n$ |
| the heads on top of each other | $t \times n$ |
| $H = W_O H_{concat}$ | $t \times n$ |

Transposed, this is the library's layout, a token in each row: $(V\alpha)^\top = \alpha^\top V^\top$. All heads
together have $2d^2 + 2t^2$ weights, whatever their number; $h$ must divide $d$ and $t$.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from headwork.functional import scaled_dot_product_attention
from headwork.lab.measuring import shape_of
from headwork.lab.plots import FLOOR, MEASURED, PREDICTED, Figure, draw_rounding, on_log_axis, panels
from headwork.lab.toolkit import Claim, Erratum, Experiment, Verdict, exact, same, seeded
from headwork.layers import MultiHeadAttention


@dataclass(frozen=True, kw_only=True)
class Setup(Experiment):
    """The letters of the sheet; d and t have to be divisible by every number of heads."""

    d: int = 120
    t: int = 60
    n: int = 7
    m: int = 11
    heads: tuple[int, ...] = (1, 2, 3, 4, 6, 12)
    softargmax_over: Literal["keys", "queries"] = "keys"
    joined: Literal["features", "tokens"] = "features"

    def __post_init__(self) -> None:
        super().__post_init__()
        for h in self.heads:
            if self.d % h or self.t % h:
                raise ValueError(f"heads must divide d and t, got {h} heads, d={self.d} and t={self.t}")


@dataclass(frozen=True)
class Result:
    """For each number of heads: shapes, number of weights, and how far columns and rows are apart."""

    setup: Setup
    output: str
    steps: dict[str, str]
    """Shapes in the sheet's columns, for the largest number of heads."""
    seen: dict[str, str]
    """The same in the library's rows, transposed."""
    n_weights: list[int]
    difference: Float[Tensor, "heads"]
    self_difference: Float[Tensor, "heads"]
    """The same for self-attention, 1.3(a), against the library's layer."""


@seeded
def run(setup: Setup) -> Result:
    differences, self_differences, n_weights = [], [], []
    for h in setup.heads:
        parts = _draw(setup, h)
        columns, steps = _in_columns(setup, *(part.numpy() for part in parts))
        rows, seen = _in_rows(*parts)
        differences.append(_apart(columns, rows.mT.numpy()))
        self_differences.append(_self_attention(setup, h))
        layer = MultiHeadAttention(setup.d, h, bias=False)
        n_weights.append(sum(weight.numel() for weight in layer.parameters()))
    return Result(
        setup,
        shape_of(columns),
        steps,
        seen,
        n_weights,
        torch.tensor(differences).double(),
        torch.tensor(self_differences).double(),
    )


def _draw(setup: Setup, h: int) -> tuple[Tensor, ...]:
    """Q, K, V, then W_Q, W_K, W_V of every head, then W_O."""
    d, t, n, m = setup.d, setup.t, setup.n, setup.m
    shapes = ((d, n), (d, m), (t, m), (h, d // h, d), (h, d // h, d), (h, t // h, t), (t, t))
    return tuple(torch.randn(*shape, dtype=torch.float64) / shape[-1] ** 0.5 for shape in shapes)


def _in_columns(
    setup: Setup, q: ndarray, k: ndarray, v: ndarray, w_q: ndarray, w_k: ndarray, w_v: ndarray, w_o: ndarray
) -> tuple[ndarray, dict[str, str]]:
    """The sheet word for word, head by head, in NumPy."""
    heads = []
    for of_query, of_key, of_value in zip(w_q, w_k, w_v, strict=True):
        scores = (of_key @ k).T @ (of_query @ q) / np.sqrt(len(of_key))
        axis = 0 if setup.softargmax_over == "keys" else 1
        weights = np.exp(scores) / np.exp(scores).sum(axis, keepdims=True)
        heads.append((of_value @ v) @ weights)
    steps = {"scores": shape_of(scores), "weights": shape_of(weights), "one head": shape_of(heads[-1])}
    if setup.joined == "tokens":
        joined = np.concatenate(heads, axis=1)
        return np.resize(w_o, (setup.t, len(joined))) @ joined, steps | {"all heads": shape_of(joined)}
    joined = np.concatenate(heads, axis=0)
    return w_o @ joined, steps | {"all heads": shape_of(joined)}


def _in_rows(
    q: Tensor, k: Tensor, v: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor, w_o: Tensor
) -> tuple[Float[Tensor, "query t"], dict[str, str]]:
    """The same by the library, all heads at once, a token in each row."""
    queries, keys, values = (x.mT @ w.mT for x, w in ((q, w_q), (k, w_k), (v, w_v)))
    heads = scaled_dot_product_attention(queries, keys, values)
    scores = (queries @ keys.mT)[0].mT
    joined = rearrange(heads, "head query d -> query (head d)")
    shapes = {"scores": scores, "weights": scores, "one head": heads[0].mT, "all heads": joined.mT}
    return joined @ w_o.mT, {name: shape_of(x) for name, x in shapes.items()}


def _self_attention(setup: Setup, h: int) -> float:
    """1.3(a): queries, keys and values from the same columns C, against the layer as it is used in models."""
    layer = MultiHeadAttention(setup.d, h, bias=False).double()
    c = torch.randn(setup.d, setup.n, dtype=torch.float64)
    weights = (
        rearrange(linear.get_parameter("weight").detach(), "(h d) e -> h d e", h=h)
        for linear in (layer.query, layer.key, layer.value)
    )
    parts = (c, c, c, *weights, layer.out.weight.detach())
    columns, _ = _in_columns(setup, *(part.numpy() for part in parts))
    with torch.no_grad():
        return _apart(columns, layer(c.mT[None], c.mT[None])[0].mT.numpy())


def _apart(a: ndarray, b: ndarray) -> float:
    """The largest difference; infinite if not even the shapes agree."""
    return float(np.abs(a - b).max()) if a.shape == b.shape else float("inf")


def verdict(result: Result) -> Verdict:
    setup = result.setup
    d, t, n, m, h = setup.d, setup.t, setup.n, setup.m, setup.heads[-1]
    expected = {"scores": (m, n), "weights": (m, n), "one head": (t // h, n), "all heads": (t, n)}
    return Verdict(
        checks=(
            same("shape of the output, t x n", f"{t} x {n}", result.output),
            *(
                same(f"shape of {name}, {h} heads", f"{rows} x {columns}", result.steps[name])
                for name, (rows, columns) in expected.items()
            ),
            *(same(f"the library's {name}, transposed", result.steps[name], result.seen[name]) for name in expected),
            exact("columns by loops against rows by the library", result.difference.max().item()),
            exact("self-attention: columns against the layer", result.self_difference.max().item()),
            same("weights of the layer, fewest heads", 4 * d**2, min(result.n_weights)),
            same("weights of the layer, most heads", 4 * d**2, max(result.n_weights)),
        ),
        why="Each head is h times narrower and there are h of them; a transpose turns columns into rows.",
    )


def figure(result: Result) -> Figure:
    setup, heads = result.setup, result.setup.heads
    drawing, (left, right) = panels(2, title="Columns or rows, one head or many: the same numbers, at the same price")
    left.semilogy(heads, on_log_axis(result.difference), **MEASURED | {"label": "measured, 1.2(a)"})
    style = MEASURED | {"label": "measured, 1.3(a)", "marker": "s"}
    left.semilogy(heads, on_log_axis(result.self_difference), **style)
    draw_rounding(left)
    left.set(xlabel="heads h", ylabel="sheet in columns against library", ylim=(FLOOR, 1e-8), xticks=heads)
    predicted = torch.full((len(heads),), 4 * setup.d**2)
    right.plot(heads, predicted.numpy(), **PREDICTED | {"label": "predicted: 4 d^2"})
    right.plot(heads, result.n_weights, **MEASURED | {"label": "measured, self-attention"})
    right.set(xlabel="heads h", ylabel="weights of the layer", ylim=(0, 5 * setup.d**2), xticks=heads)
    for ax in (left, right):
        ax.legend(frameon=False, loc=("upper right", "lower right")[ax is right])
    return drawing


def _output(result: Result) -> str:
    t, n = result.setup.t, result.setup.n
    return f"With t = {t} and n = {n} the output is {result.output}."


CLAIM = Claim(
    __name__,
    __doc__,
    document="NYU",
    question="1.2(a)",
    also=(
        "NYU 1.1(a)",
        "NYU 1.3(a)",
    ),
    setup=Setup(),
    small=Setup(d=12, t=6, n=5, m=7, heads=(1, 2, 3)),
    run=run,
    verdict=verdict,
    figure=figure,
    broken={
        "each row of the weights sums to 1, not each column": {"softargmax_over": "queries"},
        "heads side by side instead of on top of each other": {"joined": "tokens"},
    },
    confidence="Shapes and counts are exact, the numbers up to rounding.",
    errata=(
        Erratum(
            where="1.1(a), output dimension",
            printed=r"The output $H$ has dimensions $\mathbb{R}^{n \times t}$",
            right=r"$\mathbb{R}^{t \times n}$, as the line before says: the sheet's tokens are columns",
            measured=_output,
        ),
    ),
)
