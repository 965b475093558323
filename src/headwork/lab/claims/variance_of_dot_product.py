r"""The variance of q.k is 2 sigma^2 mu'mu + d sigma^4: it grows with the width d, and dividing by sqrt(d) undoes that.

Let the entries of $q$ and $k$ be independent with means $\mu \in \mathbb{R}^d$ and variance $\sigma^2$. Then
$E[q q^\top] = \mu\mu^\top + \sigma^2 I$, the same for $k$, and

$$\operatorname{Var}(q^\top k) = \operatorname{Tr}\left((\mu\mu^\top + \sigma^2 I)^2\right) - (\mu^\top\mu)^2
= 2\sigma^2\mu^\top\mu + d\,\sigma^4$$

The trace of $\mu\mu^\top$ is $\mu^\top\mu$, without a $d$; the trace of $I$ is $d$. For entries of order 1 both terms
grow as $d$, so the variance of $q^\top k/\sqrt d$ does not grow at all. (With the $d$ that the sheet prints, the first
term would grow as $d^2$, and $\sqrt d$ would not be enough.)
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from headwork.lab.plots import MEASURED, PREDICTED, PRINTED, Figure, panels
from headwork.lab.toolkit import Claim, Erratum, Experiment, Verdict, about, seeded

STANDARD_ERRORS = 5


@dataclass(frozen=True, kw_only=True)
class Setup(Experiment):
    """Normal vectors of several widths, whose means differ from entry to entry."""

    widths: tuple[int, ...] = (4, 16, 64, 256, 1024)
    n_samples: int = 40_000
    mean: float = 0.7
    sigma: float = 1.3
    formula: Literal["derived", "printed"] = "derived"
    keys: Literal["independent", "equal to the query"] = "independent"


@dataclass(frozen=True)
class Result:
    """The variance of the scores for each width, with its standard error, beside both formulas."""

    setup: Setup
    measured: Tensor
    standard_error: Tensor
    derived: Tensor
    printed: Tensor


@seeded
def run(setup: Setup) -> Result:
    rows = [_measure(setup, d) for d in setup.widths]
    return Result(setup, *(torch.tensor(column, dtype=torch.float64) for column in zip(*rows, strict=True)))


def _measure(setup: Setup, d: int) -> tuple[float, float, float, float]:
    mu = setup.mean * torch.linspace(0.5, 1.5, d)
    scores = torch.cat([_scores(setup, mu, n) for n in _batches(setup.n_samples)]).double()
    away = (scores - scores.mean()).square()
    derived = 2 * setup.sigma**2 * mu.dot(mu).item() + d * setup.sigma**4
    printed = 2 * d * setup.sigma**2 * mu.dot(mu).item() + d * setup.sigma**4
    return away.mean().item(), (away.std() / setup.n_samples**0.5).item(), derived, printed


def _scores(setup: Setup, mu: Tensor, n: int) -> Tensor:
    q = mu + setup.sigma * torch.randn(n, len(mu))
    k = mu + setup.sigma * torch.randn(n, len(mu)) if setup.keys == "independent" else q
    return (q * k).sum(-1)


def _batches(n_samples: int, size: int = 2_000) -> list[int]:
    """A few thousand vectors at a time stay in the cache."""
    return [min(size, n_samples - start) for start in range(0, n_samples, size)]


def verdict(result: Result) -> Verdict:
    predicted = result.derived if result.setup.formula == "derived" else result.printed
    rows = zip(
        result.setup.widths, predicted.tolist(), result.measured.tolist(), result.standard_error.tolist(), strict=True
    )
    return Verdict(
        checks=tuple(
            about(f"variance of q.k / sqrt(d) at d = {d}", expected / d, seen / d, STANDARD_ERRORS * error / d)
            for d, expected, seen, error in rows
        ),
        why="Both terms of the variance grow as d, so the variance of q.k / sqrt(d) does not grow with the width.",
    )


def figure(result: Result) -> Figure:
    widths = result.setup.widths
    drawing, (left, right) = panels(2, title="The variance of q.k grows as d, so 1/sqrt(d) keeps it constant")
    for ax, scale in ((left, torch.ones(len(widths))), (right, torch.tensor(widths))):
        ax.loglog(widths, (result.printed / scale).numpy(), **PRINTED)
        ax.loglog(widths, (result.derived / scale).numpy(), **PREDICTED)
        ax.loglog(widths, (result.measured / scale).numpy(), **MEASURED)
        ax.set(xlabel="d_head", xticks=widths, xticklabels=widths)
        ax.minorticks_off()
    left.set(ylabel="variance of q.k")
    right.set(ylabel="variance of q.k / sqrt(d_head)", ylim=(1, None))
    left.legend(frameon=False)
    return drawing


def _farthest(result: Result) -> str:
    d, seen = result.setup.widths[-1], result.measured[-1].item()
    return (
        f"At d = {d} the variance is {seen:,.0f}; the line before the last gives {result.derived[-1].item():,.0f}, "
        f"the last one {result.printed[-1].item():,.0f}."
    )


def _one_product(result: Result) -> str:
    mean, sigma = result.setup.mean, result.setup.sigma
    d, seen = result.setup.widths[-1], result.measured[-1].item()
    power = mean**2 * torch.linspace(0.5, 1.5, d).square().mean().item()
    return (
        f"The variance of a product is {seen / d:.3f} on average over d = {d} entries; "
        f"sigma^2 (2 mu^2 + sigma^2) gives {sigma**2 * (2 * power + sigma**2):.3f}, "
        f"sigma^2 (mu^2 + sigma^2) gives {sigma**2 * (power + sigma**2):.3f}."
    )


CLAIM = Claim(
    __name__,
    __doc__,
    document="C182",
    question="1(b)",
    also=("EECS 182 1(a)",),
    setup=Setup(),
    small=Setup(widths=(4, 32), n_samples=4_000),
    run=run,
    verdict=verdict,
    figure=figure,
    broken={
        "the formula as the sheet prints it": {"formula": "printed"},
        "keys that are not independent of the queries": {"keys": "equal to the query"},
    },
    confidence=f"The tolerance is {STANDARD_ERRORS} standard errors of the measured variance: "
    "by chance alone about one run in 300,000 would miss it.",
    errata=(
        Erratum(
            where="1(b) iv, last line (and 1(b) ii, which uses it)",
            printed=r"$2d\sigma^2\mu^\top\mu + d\sigma^4$",
            right=r"$2\sigma^2\mu^\top\mu + d\sigma^4$, as the line before it says",
            measured=_farthest,
        ),
        Erratum(
            where="1(b) i, the variance of one product",
            printed=r"$\operatorname{Var}[q_1k_1] = \sigma^2(\mu^2+\sigma^2)$",
            right=r"$\operatorname{Var}[q_1k_1] = \sigma^2(2\mu^2+\sigma^2)$",
            measured=_one_product,
        ),
    ),
)
