r"""Many queries at once are one formula, softmax(Q K') V with the softmax along each row, and it equals the loop.

One query $q$ matches keys $k_1, \dots, k_t$ with scores $s_j = q \cdot k_j$, turns them into weights that sum to 1, and
takes the mean of the values: $\sum_j \alpha_j v_j$. Put the queries into the rows of $Q$, the keys and values into
those of $K$ and $V$. Then

$$S = QK^\top \;(S_{ij} = q_i \cdot k_j), \qquad A = \operatorname{softmax}_{\text{row}}(S), \qquad
H = AV \;(h_i = \sum_j A_{ij} v_j)$$

Row $i$ belongs to query $i$, so the softmax runs along it, over the keys. Along the columns the weights of a query
would not sum to 1. Queries need not be as many as keys, nor values as wide: $Q$ is $[n, d]$, $K$ is $[t, d]$ and $V$ is
$[t, d_v]$.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from headwork.functional import attention_weights, scaled_dot_product_attention
from headwork.lab.plots import MEASURED, PREDICTED, Figure, panels
from headwork.lab.toolkit import Claim, Experiment, Verdict, exact, largest_difference, seeded


@dataclass(frozen=True, kw_only=True)
class Setup(Experiment):
    """As many queries as keys or not, and the axis of the softmax."""

    n_queries: int = 60
    n_keys: int = 47
    d: int = 16
    d_value: int = 11
    softmax: Literal["along the keys", "along the queries"] = "along the keys"


@dataclass(frozen=True)
class Result:
    """The output of the matrix form and of the loop, the sums of the weights, and PyTorch's own function."""

    setup: Setup
    matrix: Float[Tensor, "query d_value"]
    loop: Float[Tensor, "query d_value"]
    sums: Float[Tensor, "query"]
    from_pytorch: float
    wrong: dict[str, Float[Tensor, "query d_value"]]
    """The loop with one thing wrong."""


@seeded
def run(setup: Setup) -> Result:
    q = torch.randn(setup.n_queries, setup.d, dtype=torch.float64) / setup.d**0.25
    k = torch.randn(setup.n_keys, setup.d, dtype=torch.float64) / setup.d**0.25
    v = torch.randn(setup.n_keys, setup.d_value, dtype=torch.float64)
    if setup.softmax == "along the keys":
        weights = attention_weights(q, k, beta=1.0)
        matrix = scaled_dot_product_attention(q, k, v, beta=1.0)
    else:
        weights = attention_weights(k, q, beta=1.0).T
        matrix = weights @ v
    loop = torch.tensor(predict(q.tolist(), k.tolist(), v.tolist()), dtype=torch.float64)
    pytorch = F.scaled_dot_product_attention(q[None, None], k[None, None], v[None, None], scale=1.0)[0, 0]
    wrong = {
        "with 1/sqrt(d)": (q / setup.d**0.5, k, v),
        "values one key later": (q, k, v.roll(1, 0)),
        "without the last key": (q, k[:-1], v[:-1]),
    }
    return Result(
        setup,
        matrix,
        loop,
        weights.sum(1),
        largest_difference(matrix, pytorch),
        {
            name: torch.tensor(predict(*(t.tolist() for t in parts)), dtype=torch.float64)
            for name, parts in wrong.items()
        },
    )


def predict(q: list[list[float]], k: list[list[float]], v: list[list[float]]) -> list[list[float]]:
    """One query after the other, one key after the other, in plain Python."""
    out = []
    for query in q:
        scores = [math.exp(sum(a * b for a, b in zip(query, key, strict=True))) for key in k]
        total = sum(scores)
        mixed = [0.0] * len(v[0])
        for score, value in zip(scores, v, strict=True):
            for i, entry in enumerate(value):
                mixed[i] += score / total * entry
        out.append(mixed)
    return out


def verdict(result: Result) -> Verdict:
    away = (result.sums - 1).abs().max().item()
    return Verdict(
        checks=(
            exact(
                "the matrix form against the loop",
                largest_difference(result.matrix, result.loop),
                near={name: largest_difference(result.matrix, wrong) for name, wrong in result.wrong.items()},
            ),
            exact(
                "sum of the weights of a query, farthest from 1",
                away,
                near={
                    "queries and keys exchanged: n_keys / n_queries": abs(result.setup.n_keys / len(result.sums) - 1)
                },
            ),
            exact(
                "the matrix form against PyTorch's function",
                result.from_pytorch,
                near={"without the last key": largest_difference(result.matrix, result.wrong["without the last key"])},
            ),
        ),
        why="Entry (i, j) of Q K' is the score of query i and key j, and row i of A V the mean that query i takes.",
    )


def figure(result: Result) -> Figure:
    drawing, (left, right) = panels(2, title="softmax(Q K') V is the loop over queries and keys, written at once")
    low, high = result.loop.min().item(), result.loop.max().item()
    left.plot([low, high], [low, high], **PREDICTED | {"label": "predicted: equal"})
    left.plot(result.loop.flatten().numpy(), result.matrix.flatten().numpy(), **MEASURED | {"markersize": 3})
    left.set(xlabel="output of the loop", ylabel="output of the matrix form")
    right.axhline(1, **PREDICTED | {"label": "predicted: 1"})
    right.plot(result.sums.numpy(), **MEASURED | {"markersize": 3})
    right.set(xlabel="query", ylabel="sum of the weights", ylim=(0, 2))
    for ax in (left, right):
        ax.legend(frameon=False, loc="upper left")
    return drawing


CLAIM = Claim(
    __name__,
    __doc__,
    document="C182",
    question="1(a)",
    also=("QMUL 2.1", "NYU 1.1(a)"),
    setup=Setup(),
    small=Setup(n_queries=5, n_keys=7, d=3, d_value=2),
    run=run,
    verdict=verdict,
    figure=figure,
    broken={"a softmax along the queries": {"softmax": "along the queries"}},
    confidence="Exact up to rounding.",
)
