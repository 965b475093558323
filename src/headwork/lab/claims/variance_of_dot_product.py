r"""The variance of q.k is 2 sigma^2 mu'mu + d sigma^4: it grows with the width d, and dividing by sqrt(d) undoes that.

Let the entries of $q$ and $k$ be independent with means $\mu \in \mathbb{R}^d$ and variance $\sigma^2$. Then
$E[q q^\top] = \mu\mu^\top + \sigma^2 I$, the same for $k$, and

$$\operatorname{Var}(q^\top k) = \operatorname{Tr}\left((\mu\mu^\top + \sigma^2 I)^2\right) - (\mu^\top\mu)^2
= 2\sigma^2\mu^\top\mu + d\,\sigma^4$$

and the mean is $E[q^\top k] = \mu^\top\mu$. The trace of $\mu\mu^\top$ is $\mu^\top\mu$, without a $d$; the trace of
$I$ is $d$. For entries of order 1 both terms grow as $d$, so the variance of $q^\top k/\sqrt d$ does not grow at all.
(With the $d$ that the sheet prints, the first term would grow as $d^2$, and $\sqrt d$ would not be enough.)
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from headwork.lab.plots import MEASURED, PREDICTED, PRINTED, Figure, panels
from headwork.lab.toolkit import Claim, Erratum, Experiment, Verdict, about, seeded


@dataclass(frozen=True, kw_only=True)
class Setup(Experiment, smallest={"n_samples": 100}):
    """Normal vectors of several widths, whose means differ from entry to entry."""

    widths: tuple[int, ...] = (4, 16, 64, 256, 1024)
    n_samples: int = 40_000
    mean: float = 0.7
    sigma: float = 1.3
    formula: Literal["derived", "printed"] = "derived"
    keys: Literal["independent", "equal to the query"] = "independent"


@dataclass(frozen=True)
class Result:
    """Variance and mean of the scores for each width, each with its standard deviation, beside the formulas."""

    setup: Setup
    measured: Tensor
    standard_error: Tensor
    mean: Tensor
    mean_error: Tensor
    products: Tensor
    """The variance of the first and of the last product q_i k_i, at the largest width."""

    @property
    def derived(self) -> Tensor:
        return torch.tensor([predict(self.setup, d) for d in self.setup.widths])

    @property
    def printed(self) -> Tensor:
        return torch.tensor([predict(self.setup, d, times=d) for d in self.setup.widths])


@seeded
def run(setup: Setup) -> Result:
    rows = [_measure(setup, d) for d in setup.widths]
    q, k = (_means(setup, 2) + setup.sigma * torch.randn(setup.n_samples, 2) for _ in range(2))
    variance, error, mean, of_mean = (torch.tensor(column).double() for column in zip(*rows, strict=True))
    return Result(setup, variance, error, mean, of_mean, (q * k).double().var(0))


def _means(setup: Setup, d: int) -> Tensor:
    """They differ from entry to entry."""
    return setup.mean * torch.linspace(0.5, 1.5, d)


def _measure(setup: Setup, d: int) -> tuple[float, float, float, float]:
    scores = torch.cat([_scores(setup, _means(setup, d), n) for n in _batches(setup.n_samples)]).double()
    away, n = (scores - scores.mean()).square(), setup.n_samples
    return away.mean().item(), (away.std() / n**0.5).item(), scores.mean().item(), (scores.std() / n**0.5).item()


def predict_power(setup: Setup, d: int) -> float:
    """mu'mu, for means that grow evenly from 0.5 to 1.5 times the mean."""
    return setup.mean**2 * sum((0.5 + i / (d - 1)) ** 2 for i in range(d))


def predict(setup: Setup, d: int, *, of_means: float = 2, times: float = 1) -> float:
    """The variance of q.k."""
    return of_means * times * setup.sigma**2 * predict_power(setup, d) + d * setup.sigma**4


def _scores(setup: Setup, mu: Tensor, n: int) -> Tensor:
    q = mu + setup.sigma * torch.randn(n, len(mu))
    k = mu + setup.sigma * torch.randn(n, len(mu)) if setup.keys == "independent" else q
    return (q * k).sum(-1)


def _batches(n_samples: int, size: int = 2_000) -> list[int]:
    """A few thousand vectors at a time stay in the cache."""
    return [min(size, n_samples - start) for start in range(0, n_samples, size)]


def verdict(result: Result) -> Verdict:
    setup = result.setup
    variances = zip(setup.widths, result.measured.tolist(), result.standard_error.tolist(), strict=True)
    means = zip(setup.widths, result.mean.tolist(), result.mean_error.tolist(), strict=True)
    return Verdict(
        checks=(
            *(
                about(
                    f"variance of q.k / sqrt(d) at d = {d}",
                    predict(setup, d, times=d if setup.formula == "printed" else 1) / d,
                    seen / d,
                    sd=error / d,
                    near={
                        "mu'mu once": predict(setup, d, of_means=1) / d,
                        "sigma^2 (2 d mu'mu + d sigma^2), as printed": predict(setup, d, times=d) / d,
                    },
                )
                for d, seen, error in variances
            ),
            *(
                about(
                    f"mean of q.k / d at d = {d}",
                    predict_power(setup, d) / d,
                    seen / d,
                    sd=error / d,
                    near={"mu'mu + d sigma^2": predict_power(setup, d) / d + setup.sigma**2, "0": 0.0},
                )
                for d, seen, error in means
            ),
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
    small=Setup(widths=(4, 32), n_samples=10_000),
    run=run,
    verdict=verdict,
    figure=figure,
    broken={
        "the formula as the sheet prints it": {"formula": "printed"},
        "keys that are not independent of the queries": {"keys": "equal to the query"},
    },
    confidence="The tolerance is 5 standard deviations (SD) of the measured variance and mean: by chance alone about "
    "one "
    "run in 300,000 would miss it.",
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
        Erratum(
            where="1(b) i, first sentence",
            printed="Since $q_i$ and $k_i$ are independent, each term $q_ik_i$ has the same mean and variance",
            right=r"independence does not make them the same, and for $\mu \in \mathbb{R}^d$, as the problem has it, "
            r"they are "
            r"not: mean $\mu_i^2$, variance $\sigma^2(2\mu_i^2 + \sigma^2)$. What is needed is that they are "
            r"independent of "
            "each other and of order 1: then the variances add to $O(d)$",
            measured=lambda result: (
                f"With means of {0.5 * result.setup.mean:g} and {1.5 * result.setup.mean:g} two products have the "
                f"variances {result.products[0]:.2f} and {result.products[1]:.2f}."
            ),
        ),
    ),
)
