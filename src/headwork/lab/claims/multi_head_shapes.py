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
from jaxtyping import Float
from torch import Tensor

from headwork import sheets
from headwork.inspection import record
from headwork.lab.measuring import shape_of
from headwork.lab.plots import FLOOR, MEASURED, PREDICTED, Figure, draw_rounding, on_log_axis, panels, series
from headwork.lab.toolkit import Claim, Erratum, Experiment, Verdict, exact, largest_difference, same, seeded
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
    """For each number of heads: shapes, numbers of weights, and how far columns and rows are apart."""

    setup: Setup
    output: str
    steps: dict[int, dict[str, str]]
    """Shapes in the sheet's columns."""
    seen: dict[int, dict[str, str]]
    """The same in the library's rows, transposed."""
    n_weights: list[int]
    """Of the layer with Q and K of width d and V of width t; and of self-attention, all of width d."""
    n_weights_self: list[int]
    difference: Float[Tensor, "heads"]
    self_difference: Float[Tensor, "heads"]
    """The same for self-attention, 1.3(a), against the library's layer."""
    wrong: dict[str, float]
    """How far the layer is from columns with one thing wrong."""


@seeded
def run(setup: Setup) -> Result:
    d, t, n, m = setup.d, setup.t, setup.n, setup.m
    differences, self_differences, n_weights, n_weights_self = [], [], [], []
    steps, seen = {}, {}
    for h in setup.heads:
        layer = sheets.MultiHeadAttention(d, t, h).double().requires_grad_(False)
        q, k, v = (torch.randn(*shape, dtype=torch.float64) for shape in ((d, n), (d, m), (t, m)))
        columns, steps[h] = predict(setup, h, q, k, v, _weights(layer.attention))
        with record(layer.attention) as inside:
            out = layer(q, k, v)
            seen[h] = {
                "scores": shape_of(inside["scores"][0, 0].mT),
                "weights": shape_of(inside["weights"][0, 0].mT),
                "one head": shape_of(inside["heads"][0, :, 0].mT),
                "all heads": shape_of(inside["heads"][0].flatten(1).mT),
            }
        differences.append(_apart(columns, out))
        n_weights.append(sum(weight.numel() for weight in layer.parameters()))
        of_self = MultiHeadAttention(d, h, bias=False).double().requires_grad_(False)
        c = torch.randn(d, n, dtype=torch.float64)
        columns_of_self, _ = predict(setup, h, c, c, c, _weights(of_self))
        self_differences.append(_apart(columns_of_self, of_self(c.mT[None])[0].mT))
        n_weights_self.append(sum(weight.numel() for weight in of_self.parameters()))
    weights = _weights(layer.attention)
    return Result(
        setup,
        shape_of(columns),
        steps,
        seen,
        n_weights,
        n_weights_self,
        torch.tensor(differences, dtype=torch.float64),
        torch.tensor(self_differences, dtype=torch.float64),
        {
            "1/sqrt(d) instead of 1/sqrt(d/h)": _apart(predict(setup, h, q / h**0.5, k, v, weights)[0], out),
            "the values one key later": _apart(predict(setup, h, q, k, v.roll(1, 1), weights)[0], out),
        },
    )


def _weights(layer: MultiHeadAttention) -> list[Tensor]:
    return [layer.get_parameter(f"{name}.weight") for name in ("query", "key", "value", "out")]


def _apart(a: Tensor, b: Tensor) -> float:
    """The largest difference; infinite if not even the shapes agree."""
    return largest_difference(a, b) if a.shape == b.shape else float("inf")


def predict(
    setup: Setup, n_heads: int, q: Tensor, k: Tensor, v: Tensor, weights: list[Tensor]
) -> tuple[Tensor, dict[str, str]]:
    """The sheet word for word, head by head, in NumPy."""
    q_, k_, v_ = (t.numpy() for t in (q, k, v))
    w_q, w_k, w_v = (np.split(w.numpy(), n_heads) for w in weights[:3])
    w_o = weights[3].numpy()
    heads = []
    for of_query, of_key, of_value in zip(w_q, w_k, w_v, strict=True):
        scores = (of_key @ k_).T @ (of_query @ q_) / np.sqrt(len(of_key))
        axis = 0 if setup.softargmax_over == "keys" else 1
        alpha = np.exp(scores) / np.exp(scores).sum(axis, keepdims=True)
        heads.append((of_value @ v_) @ alpha)
    steps = {"scores": shape_of(scores), "weights": shape_of(alpha), "one head": shape_of(heads[-1])}
    joined = np.concatenate(heads, axis=1 if setup.joined == "tokens" else 0)
    out = np.resize(w_o, (len(w_o), len(joined))) @ joined
    return torch.from_numpy(out), steps | {"all heads": shape_of(joined)}


def verdict(result: Result) -> Verdict:
    setup = result.setup
    d, t, n, m, most = setup.d, setup.t, setup.n, setup.m, setup.heads[-1]

    def shapes(h: int) -> dict[str, tuple[int, int]]:
        return {"scores": (m, n), "weights": (m, n), "one head": (t // h, n), "all heads": (t, n)}

    return Verdict(
        checks=(
            same("shape of the output, t x n", f"{t} x {n}", result.output, near={"n x t": f"{n} x {t}"}),
            *(
                same(
                    f"shape of {name}, {most} heads, {where}",
                    f"{rows} x {columns}",
                    of[most][name],
                    near={"transposed": f"{columns} x {rows}"},
                )
                for where, of in (("by hand", result.steps), ("in the layer, transposed", result.seen))
                for name, (rows, columns) in shapes(most).items()
            ),
            same(
                f"numbers of heads, of {len(setup.heads)}, for which a shape is another one",
                0,
                sum(
                    of[h] != {name: f"{rows} x {columns}" for name, (rows, columns) in shapes(h).items()}
                    for h in setup.heads
                    for of in (result.steps, result.seen)
                ),
                near={"one": 1},
            ),
            exact("columns by loops against the layer", result.difference.max().item(), near=result.wrong),
            exact("self-attention: columns against the layer", result.self_difference.max().item(), near=result.wrong),
            *(
                same(
                    f"weights of the layer, {words} of all numbers of heads",
                    2 * d**2 + 2 * t**2,
                    pick(result.n_weights),
                    near={"4 d^2": 4 * d**2, "2 d^2 + 2 d t": 2 * d**2 + 2 * d * t, "without W_O": 2 * d**2 + t**2},
                )
                for words, pick in (("fewest", min), ("most", max))
            ),
            *(
                same(
                    f"weights of self-attention, {words} of all numbers of heads",
                    4 * d**2,
                    pick(result.n_weights_self),
                    near={"without W_O": 3 * d**2, "h times that": 4 * d**2 * most},
                )
                for words, pick in (("fewest", min), ("most", max))
            ),
        ),
        why="Each head is h times narrower and there are h of them; a transpose turns columns into rows.",
    )


def figure(result: Result) -> Figure:
    setup, heads = result.setup, result.setup.heads
    drawing, (left, right) = panels(2, title="Columns or rows, one head or many: the same numbers, at the same price")
    left.semilogy(heads, on_log_axis(result.difference), **MEASURED | {"label": "measured, 1.2(a)"})
    style = MEASURED | series("s") | {"label": "measured, 1.3(a)"}
    left.semilogy(heads, on_log_axis(result.self_difference), **style)
    draw_rounding(left)
    left.set(xlabel="heads h", ylabel="sheet in columns against library", ylim=(FLOOR, 1e-8), xticks=heads)
    for counts, predicted, words, marker in (
        (result.n_weights_self, 4 * setup.d**2, "4 d^2, self-attention", "s"),
        (result.n_weights, 2 * setup.d**2 + 2 * setup.t**2, "2 d^2 + 2 t^2", "o"),
    ):
        right.plot(heads, [predicted for _ in heads], **PREDICTED | {"label": None if marker == "s" else "predicted"})
        right.plot(heads, counts, **MEASURED | series(marker) | {"label": f"measured, {words}"})
    right.set(xlabel="heads h", ylabel="weights of the layer", ylim=(0, 6.5 * setup.d**2), xticks=heads)
    for ax in (left, right):
        ax.legend(frameon=False, loc="upper right")
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
