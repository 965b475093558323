r"""A large beta gives hard attention, a small beta the mean of the values, and 1/sqrt(d) is in between at every width.

The scores of a query against $n$ random keys are normal with variance $d$, so $\beta$ times a score has the standard
deviation $t = \beta\sqrt d$. The sum of the $n$ exponentials is close to $n\,e^{t^2/2}$, the mean of the scaled scores
under the weights is $t^2$, and the entropy of the weights is the logarithm of the one minus the other:

$$H = \ln n + \frac{t^2}{2} - t^2 = \ln n - \frac{\beta^2 d}{2}$$

until this reaches 0 at $t = \sqrt{2 \ln n}$; for a finite $n$ the corner is round, and the fluctuations of the sum add
$((2t^2 - 1)\,e^{t^2} + 1) / 2n$. Beyond, the largest score stands more and more alone. What is left are ties: the gap
of the best two has the density $c_n/t$ at 0, with $c_n = n(n-1)\int\varphi^2\,\Phi^{n-2}$, and a gap $g$ leaves the
entropy of the two weights $1/(1 + e^{\pm g})$, which integrates to $\pi^2/6$. So $H \to c_n\pi^2/6t$; a third key that
comes close adds a term in $1/t^2$, as in `softmax-saturates`: 2 % at $t = 100$. So $\beta \to 0$ gives $\ln n$, the
mean of all values, and $\beta \to \infty$ gives 0, the value of the best key. With $\beta = 1/\sqrt d$ the entropy is
$\ln n - \frac12$ whatever the width: a query spreads its attention over about $n/\sqrt e = 0.61\,n$ keys, and still
chooses. Without the scale ($\beta = 1$, $t = \sqrt d$) it is past the corner as soon as $d > 2 \ln n$.
"""

import itertools
import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from headwork.functional import attention_scores, scaled_dot_product_attention, softargmax
from headwork.lab.measuring import density_of_ties, mean_over_ties, tie_terms
from headwork.lab.plots import MARKERS, MEASURED, PREDICTED, Figure, panels, series
from headwork.lab.toolkit import Claim, Experiment, Verdict, about, exact, largest_difference, seeded

FEWEST_KEYS = 100
"""For fewer, the next term of the entropy at t = 1, of order 1 / n^2, counts."""
WIDE = 64
"""In narrow heads the mean of 1 / |q| is larger than 1 / sqrt(d)."""
FROZEN = 100.0
"""A spread of the scaled scores at which most queries have chosen one key."""


@dataclass(frozen=True, kw_only=True)
class Setup(Experiment, smallest={"n_keys": FEWEST_KEYS, "n_queries": 100, "n_frozen": 20}):
    """Random queries, keys and values of several widths, and one rule that scales their scores."""

    widths: tuple[int, ...] = (16, 64, 256)
    n_queries: int = 1_000
    n_keys: int = 1_000
    n_frozen: int = 80
    """Tables of queries and keys of the largest width, with scores so large that only ties are left."""
    n_betas: int = 31
    scale: Literal["1/sqrt(d)", "1/d", "none"] = "1/sqrt(d)"

    def __post_init__(self) -> None:
        super().__post_init__()
        if max(self.widths) < WIDE:
            raise ValueError(f"widths must hold one of {WIDE} or more, where lengths vary little, got {self.widths}")


@dataclass(frozen=True)
class Result:
    """The mean entropy of the weights for each width and temperature, and what the two ends give."""

    setup: Setup
    spread: Float[Tensor, "beta"]
    """The standard deviation of the scaled scores, beta sqrt(d)."""
    entropy: Float[Tensor, "width beta"]
    at_scale: Float[Tensor, "width"]
    """The entropy with the scale of the setup."""
    flat: Float[Tensor, "width"]
    """The entropy at the smallest beta; and with scores that are FROZEN, the mean of each table."""
    frozen: Float[Tensor, "table"]
    from_mean: float
    """How far beta = 0 is from the mean of the values; and from the mean of all but the first."""
    from_mean_of_others: float
    from_best: float
    """How far beta = infinity is from the value of the best key; and from that of the second best."""
    from_second: float


@seeded
def run(setup: Setup) -> Result:
    spread = torch.logspace(-2, 3, setup.n_betas)
    entropy, at_scale, apart = [], [], []
    for d in setup.widths:
        q, k, v = (torch.randn(n, d, dtype=torch.float64) for n in (setup.n_queries, setup.n_keys, setup.n_keys))
        scores = attention_scores(q, k)
        entropy.append([_entropy(scores, s / math.sqrt(d)) for s in spread.tolist()])
        at_scale.append(_entropy(scores, {"1/sqrt(d)": 1 / math.sqrt(d), "1/d": 1 / d, "none": 1.0}[setup.scale]))
        mean, best = (scaled_dot_product_attention(q, k, v, beta=beta) for beta in (0.0, math.inf))
        first, second = scores.topk(2).indices.unbind(-1)
        apart.append(
            [
                largest_difference(mean, v.mean(0).expand_as(mean)),
                largest_difference(mean, v[1:].mean(0).expand_as(mean)),
                largest_difference(best, v[first]),
                largest_difference(best, v[second]),
            ]
        )
    frozen, d = [], max(setup.widths)
    for _ in range(setup.n_frozen):
        q, k = torch.randn(setup.n_queries, d), torch.randn(setup.n_keys, d)
        frozen.append(_entropy(attention_scores(q, k), FROZEN / math.sqrt(d)))
    curves = torch.tensor(entropy, dtype=torch.float64)
    at = torch.tensor(at_scale, dtype=torch.float64)
    return Result(
        setup, spread, curves, at, curves[:, 0], torch.tensor(frozen).double(), *map(max, zip(*apart, strict=True))
    )


def _entropy(scores: Float[Tensor, "query key"], beta: float) -> float:
    """In nats, the mean over the queries."""
    return torch.special.entr(softargmax(scores, beta)).sum(-1).mean().item()


def predict(n_keys: int, t: float) -> float:
    """The entropy for scores of spread t, well before the corner."""
    return math.log(n_keys) - t**2 / 2 + ((2 * t**2 - 1) * math.exp(t**2) + 1) / (2 * n_keys)


def predict_entropy(scores: Float[Tensor, "*batch key"]) -> Float[Tensor, "*batch"]:
    weights = torch.softmax(scores, -1)
    return -(weights * torch.log(weights.clamp(min=1e-300))).sum(-1)


def predict_sd(setup: Setup, d: int, t: float) -> float:
    """Of t^2 / 2: the mean length of so many queries, and of so many keys, each of d squares."""
    return t**2 / 2 * math.sqrt(2 / d * (1 / setup.n_queries + 1 / setup.n_keys))


def verdict(result: Result) -> Verdict:
    setup, log_n, t = result.setup, math.log(result.setup.n_keys), result.spread[0].item()
    frozen, first_term = mean_over_ties(predict_entropy, setup.n_keys, FROZEN), math.pi**2 / 6 / FROZEN
    return Verdict(
        checks=(
            *(
                about(
                    f"entropy with the scale, d = {d}",
                    predict(setup.n_keys, 1.0),
                    seen,
                    sd=predict_sd(setup, d, 1.0),
                    near={"ln n - 1": log_n - 1, "ln n - 1/4": log_n - 0.25},
                )
                for d, seen in zip(setup.widths, result.at_scale.tolist(), strict=True)
            ),
            *(
                about(
                    f"entropy below ln n at beta sqrt(d) = {t:g}, d = {d}",
                    log_n - predict(setup.n_keys, t),
                    log_n - seen,
                    sd=predict_sd(setup, d, t),
                    near={"t^2": t**2, "t^2 / 4": t**2 / 4},
                )
                for d, seen in zip(setup.widths, result.flat.tolist(), strict=True)
            ),
            about(
                f"entropy at beta sqrt(d) = {FROZEN:g}",
                frozen,
                result.frozen.mean().item(),
                sd=result.frozen.std().item() / math.sqrt(setup.n_frozen),
                near={
                    "c_n = sqrt(2 ln n), that of the largest numbers": math.sqrt(2 * log_n) * first_term,
                    "pi^2 / 12": density_of_ties(setup.n_keys) * first_term / 2,
                },
            ),
            exact(
                "beta = 0 against the mean of the values",
                result.from_mean,
                near={"the mean of all but one": result.from_mean_of_others},
            ),
            exact(
                "beta = infinity against the value of the best key",
                result.from_best,
                near={"the second best": result.from_second},
            ),
        ),
        why="1/sqrt(d) makes the spread of the scaled scores 1, and the entropy depends on that spread alone.",
    )


def figure(result: Result) -> Figure:
    log_n = math.log(result.setup.n_keys)
    drawing, (ax,) = panels(title="beta turns attention from the mean to a choice; 1/sqrt(d) is in between at every d")
    fine = torch.logspace(-2, 3, 400)
    predicted = (log_n - fine.square() / 2).clamp(min=0)
    ax.semilogx(fine.numpy(), predicted.numpy(), **PREDICTED | {"label": "predicted for many keys"})
    ties = fine[fine > 10].tolist()
    first, second = tie_terms(predict_entropy, result.setup.n_keys)
    ax.semilogx(
        ties,
        [first / t + second / t**2 for t in ties],
        **PREDICTED | {"linestyle": ":", "label": "predicted from ties"},
    )
    rows = zip(result.setup.widths, itertools.cycle(MARKERS), result.entropy, strict=False)
    for index, (d, marker, entropy) in enumerate(rows):  # ever smaller, so that no marker hides another
        size = {"markersize": max(3.0, 9.0 - 3 * index), "markerfacecolor": "none"}
        style = MEASURED | series(marker) | size | {"label": f"measured, d_head = {d}"}
        ax.semilogx(result.spread.numpy(), entropy.numpy(), **style)
    ax.axhline(log_n, color="0.6", linewidth=0.8)
    ax.axvline(1, color="0.6", linewidth=0.8)
    ax.text(0.93, 0.1, "beta = 1/sqrt(d):\nln n - 1/2", ha="right", va="bottom")
    ax.text(0.0105, log_n - 0.35, "the mean of all values: ln n", va="top")
    ax.text(950, 0.75, "hard attention: 0", ha="right")
    ax.set(xlabel="beta sqrt(d_head)", ylabel="entropy of the weights of a query (nats)", ylim=(-0.2, log_n + 0.4))
    ax.legend(frameon=False, loc="center left")
    return drawing


CLAIM = Claim(
    __name__,
    __doc__,
    document="NYU",
    question="1.1(b)",
    also=(
        "NYU 1.1(c)",
        "NYU 1.1(d)",
    ),
    setup=Setup(),
    small=Setup(widths=(32, 128), n_queries=1_500, n_keys=300, n_frozen=48, n_betas=2),
    run=run,
    verdict=verdict,
    figure=figure,
    broken={"no scale": {"scale": "none"}, "divided by d": {"scale": "1/d"}},
    confidence="Entropies are within 5 standard deviations (SD), by a formula; the two ends are exact up to rounding.",
)
