r"""Two dimensions address any of n places if beta grows as n^2, four need n; one dimension can point at two places.

Put the places on a circle, $k_j = (\cos 2\pi j/n, \sin 2\pi j/n)$, and let query $i$ be the code of the place that it
is to look at: any permutation of $n$ places is one head with $d_{head} = 2$. The scores are $\cos(2\pi(j - i)/n)$, so
with $x = \beta(1 - \cos\frac{2\pi}{n})$ the neighbour is behind by $x$, the next by nearly $4x$, and the weight of
the right place is

$$w = \frac{1}{1 + 2\sum_{j \ge 1} e^{-x j^2}}$$

up to terms of order $1/n^2$: a theta function. For $w = 0.9$ that is $x = 2.8905$, so $\beta \approx
x\,n^2/(2\pi^2)$. The correction is known: $1 - \cos(j\theta) = (1 - \cos\theta)\,j^2\,(1 -
\frac{(j^2-1)\,\theta^2}{12} + \dots)$, which changes only the far terms; the bound used here is that on their sum.

Two such circles, one for the "tens" and one for the "ones" of a place, have $\sqrt n$ places each: with four
dimensions $\beta$ grows only as $n$, and $w$ is a product of two such sums. On a line, $d_{head} = 1$, a score is
largest at an end: of all the places only the two outer ones can win, whatever $\beta$.

It stops being true when $\beta$ (or the length of the codes) is bounded, or for numbers of few bits: at $n = 4096$
the best score leads by $10^{-6}$ of itself, below the precision of bfloat16.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from headwork.functional import attention_scores, attention_weights, softargmax
from headwork.lab.plots import COLOURS, MARKERS, MEASURED, PREDICTED, Figure, panels
from headwork.lab.toolkit import Claim, Experiment, Verdict, about, same, seeded

N_QUERIES = 32
"""Of a permutation: on a circle all places are alike."""


@dataclass(frozen=True, kw_only=True)
class Setup(Experiment):
    """Numbers of places (squares, for two circles), the weight that the right place is to have, and where codes lie."""

    n_places: tuple[int, ...] = (64, 256, 1_024)
    weight: float = 0.9
    codes: Literal["circle", "random"] = "circle"


@dataclass(frozen=True)
class Result:
    """The smallest beta that gives every query of a random permutation its place, and who can win on a line."""

    setup: Setup
    beta_2: Float[Tensor, "n_places"]
    beta_4: Float[Tensor, "n_places"]
    on_a_line: int


@seeded
def run(setup: Setup) -> Result:
    two = [_least_beta(setup, _circle(setup, n)) for n in setup.n_places]
    four = []
    for n in setup.n_places:
        side = _circle(setup, math.isqrt(n))
        both = torch.cat([side.repeat_interleave(len(side), 0), side.repeat(len(side), 1)], 1)
        four.append(_least_beta(setup, both))
    line = torch.randn(max(setup.n_places), 1, dtype=torch.float64)
    asks = torch.randn(1_000, 1, dtype=torch.float64)
    winners = (softargmax(attention_scores(asks, line), math.inf) > 0).any(0).sum()
    return Result(setup, torch.tensor(two).double(), torch.tensor(four).double(), int(winners))


def _circle(setup: Setup, n: int) -> Float[Tensor, "place 2"]:
    angle = (
        2 * math.pi * (torch.arange(n, dtype=torch.float64) / n if setup.codes == "circle" else torch.rand(n).double())
    )
    return torch.stack([angle.cos(), angle.sin()], -1)


def _least_beta(setup: Setup, codes: Float[Tensor, "place d"]) -> float:
    """By halving: the beta from which the worst place of a random permutation gets the weight."""
    aim = torch.randperm(len(codes))[:N_QUERIES]
    low, high = 0.0, 1e9
    for _ in range(100):
        beta = (low + high) / 2
        seen = attention_weights(codes[aim], codes, beta=beta).gather(1, aim[:, None]).min()
        low, high = (beta, high) if seen < setup.weight else (low, beta)
    return high


def predict_x(weight: float, terms: int = 8) -> float:
    """x of the theta sum with this value, by halving."""
    low, high = 0.0, 100.0
    for _ in range(200):
        x = (low + high) / 2
        value = 1 / (1 + 2 * sum(math.exp(-x * j * j) for j in range(1, terms + 1)))
        low, high = (x, high) if value < weight else (low, x)
    return high


def predict_slack(x: float, n: int) -> float:
    """How much x may be off at a finite n: the change of the far terms, over that of the first, at most."""
    angle = (2 * math.pi / n) ** 2
    far = sum(math.exp(-x * j * j * 0.4) * x * j * j * (j * j - 1) * angle / 12 for j in range(2, n // 2 + 2))
    return far / math.exp(-x) + 1e-9


def verdict(result: Result) -> Verdict:
    setup = result.setup
    x, y = predict_x(setup.weight), predict_x(math.sqrt(setup.weight))
    first, first_4 = (math.log(2 * w / (1 - w)) for w in (setup.weight, math.sqrt(setup.weight)))
    checks = []
    for n, beta, beta_4 in zip(setup.n_places, result.beta_2.tolist(), result.beta_4.tolist(), strict=True):
        side = math.isqrt(n)
        near = {"a circle of n - 1 places": x * (n / (n - 1)) ** 2 if predict_slack(x, n) < x / n else x / 2}
        if predict_slack(x, n) < (x - first) / 4:
            near["the two neighbours alone"] = first
        what = f"beta (1 - cos(2 pi / n)), n = {n}, d_head = 2"
        checks.append(about(what, x, beta * (1 - math.cos(2 * math.pi / n)), bound=predict_slack(x, n), near=near))
        near = {"the whole weight for each circle": x}
        if predict_slack(y, side) < (y - first_4) / 4:
            near["the two neighbours alone"] = first_4
        what = f"beta (1 - cos(2 pi / sqrt n)), n = {n}, d_head = 4"
        seen = beta_4 * (1 - math.cos(2 * math.pi / side))
        checks.append(about(what, y, seen, bound=predict_slack(y, side), near=near))
    return Verdict(
        checks=(
            *reversed(checks),
            same("places that can win on a line", 2, result.on_a_line, near={"one": 1, "three": 3}),
        ),
        why="Neighbours on a circle of n places are 1/n apart, and a score sees the square of that.",
    )


def figure(result: Result) -> Figure:
    setup = result.setup
    drawing, (ax,) = panels(title="n places in two dimensions need a beta of n^2, in four a beta of n")
    n = torch.tensor(setup.n_places).double()
    x, y = predict_x(setup.weight), predict_x(math.sqrt(setup.weight))
    series = (
        (x / (1 - (2 * math.pi / n).cos()), result.beta_2, 2),
        (y / (1 - (2 * math.pi / n.sqrt()).cos()), result.beta_4, 4),
    )
    for (expected, seen, d), marker, colour in zip(series, MARKERS, COLOURS, strict=False):
        ax.loglog(n.numpy(), expected.numpy(), **PREDICTED | {"label": "predicted" if d == 2 else ""})
        ax.loglog(
            n.numpy(),
            seen.numpy(),
            **MEASURED | {"marker": marker, "color": colour, "label": f"measured, d_head = {d}"},
        )
    ax.set(xlabel="places n", ylabel=f"beta that gives a weight of {setup.weight:g}")
    ax.set_xticks(setup.n_places, [str(m) for m in setup.n_places])
    ax.minorticks_off()
    ax.legend(frameon=False, loc="upper left")
    return drawing


CLAIM = Claim(
    __name__,
    __doc__,
    document="beyond",
    question="",
    paper="Bhojanapalli et al. 2020, Low-rank bottleneck in multi-head attention models (arXiv:2002.07028); "
    "Likhosherstov, "
    "Choromanski and Weller 2023, On the expressive flexibility of self-attention matrices",
    setup=Setup(),
    small=Setup(n_places=(64,)),
    run=run,
    verdict=verdict,
    figure=figure,
    broken={"places at random on the circle": {"codes": "random"}},
    confidence="Within a bound on the terms of order 1/n^2; the count is exact.",
)
