r"""A value is kept when its score leads by much more than ln(n)/beta, and diluted to the mean when no score leads.

Let one of $n$ keys lead the others by $g$ in score. Its weight is

$$w = \frac{1}{1 + (n - 1)\,e^{-\beta g}}$$

and the output is $h = w\,v_1 + (1 - w)\,\bar v$ with $\bar v$ the mean of the other values. At
$\beta g = \ln(n - 1)$ the value is half kept. Beyond, what is lost shrinks as $e^{-\beta g}$; it is at most
$(n - 1)\,e^{-\beta g}$ whatever the other scores are, as long as they stay $g$ below.

The other way, for $\beta \to 0$ the weights are $\alpha_j = \frac1n(1 + \beta(s_j - \bar s)) + O(\beta^2)$, so that

$$h = \frac1n\sum_j v_j + \frac{\beta}{n}\sum_j (s_j - \bar s)\,v_j + O(\beta^2)$$

the mean of all values, and a first correction by the covariance of score and value.

It is the lead that counts. If two keys share the best score, no $\beta$ keeps a value: the two are averaged, for
$\beta \to \infty$ as well.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from headwork.functional import scaled_dot_product_attention
from headwork.lab.plots import MARKERS, MEASURED, PREDICTED, Figure, panels, series
from headwork.lab.toolkit import ROUNDING, Claim, Experiment, Verdict, about, at_most, exact, largest_difference, seeded

ORDER = 0.0012
"""The standard deviation of the fitted order of the error over draws of scores and values: measured."""


@dataclass(frozen=True, kw_only=True)
class Setup(Experiment, smallest={"n_keys": 2}):
    """Several numbers of keys, one of which leads; and random scores, which beta flattens."""

    n_keys: tuple[int, ...] = (2, 8, 64, 1024)
    d_value: int = 16
    leads: tuple[float, ...] = tuple(0.5 * step for step in range(37))
    """Times beta."""
    betas: tuple[float, ...] = (1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2)
    best: Literal["one key", "two keys"] = "one key"
    values: Literal["mixed by the weights", "each its own"] = "mixed by the weights"


@dataclass(frozen=True)
class Result:
    """What is kept of the leading value, and how far flat attention is from the mean."""

    setup: Setup
    kept: Float[Tensor, "n lead"]
    predicted: Float[Tensor, "n lead"]
    of_bound: float
    """What is lost when the other scores are random, as a share of its bound."""
    from_mean: Float[Tensor, "beta"]
    from_first_order: Float[Tensor, "beta"]

    @property
    def order(self) -> float:
        """The slope of log error over log beta, once the mean and the first correction are taken away."""
        log_beta = torch.tensor(self.setup.betas, dtype=torch.float64).log()
        away = log_beta - log_beta.mean()
        return (self.from_first_order.log() @ away / away.square().sum()).item()


@seeded
def run(setup: Setup) -> Result:
    kept, of_bound = [], 0.0
    for n_keys in setup.n_keys:
        v = torch.randn(n_keys, setup.d_value, dtype=torch.float64)
        kept.append([_kept(_scores(setup, n_keys, lead), v) for lead in setup.leads])
        for lead in setup.leads:
            scores = _scores(setup, n_keys, lead)
            scores[1:] -= torch.rand(n_keys - 1, dtype=torch.float64)
            bound = (n_keys - 1) * math.exp(-lead)
            of_bound = max(of_bound, (1 - _attend(scores, torch.eye(n_keys).double())[0].item()) / bound)
    return Result(setup, torch.tensor(kept, dtype=torch.float64), predict(setup), of_bound, *_flatten(setup))


def _scores(setup: Setup, n_keys: int, lead: float) -> Float[Tensor, "key"]:
    """The first key leads; the broken variant has a second one beside it."""
    scores = torch.zeros(n_keys, dtype=torch.float64)
    scores[: 1 if setup.best == "one key" else 2] = lead
    return scores


def _attend(
    scores: Float[Tensor, "key"], v: Float[Tensor, "key d_value"], beta: float = 1.0
) -> Float[Tensor, "d_value"]:
    """One query (1) and keys of width 1, so that the scores are the keys."""
    return scaled_dot_product_attention(torch.ones(1, 1).double(), scores[:, None], v, beta=beta)[0]


def _kept(scores: Float[Tensor, "key"], v: Float[Tensor, "key d_value"]) -> float:
    """Where the output lies on the way from the mean of the others (0) to the leading value (1)."""
    rest = v[1:].mean(0)
    way = v[0] - rest
    return ((_attend(scores, v) - rest) @ way / way.square().sum()).item()


def _flatten(setup: Setup) -> tuple[Float[Tensor, "beta"], Float[Tensor, "beta"]]:
    n_keys = setup.n_keys[-1]
    scores, v = torch.randn(n_keys).double(), torch.randn(n_keys, setup.d_value).double()
    slope = (scores - scores.mean()) @ v / n_keys
    mean = v.mean(0) if setup.values == "mixed by the weights" else v[0]
    from_mean, from_first_order = [], []
    for beta in setup.betas:
        away = _attend(scores, v, beta) - mean
        from_mean.append(away.norm().item())
        from_first_order.append((away - beta * slope).norm().item())
    return torch.tensor(from_mean).double(), torch.tensor(from_first_order).double()


def predict(setup: Setup, less: int = 1, share: float = 1.0) -> Float[Tensor, "n lead"]:
    """The weight of the leading key: all n keys but one are below it."""
    n, leads = (torch.tensor(sizes, dtype=torch.float64) for sizes in (setup.n_keys, setup.leads))
    return 1 / (1 + share * (n[:, None] - less) * (-leads).exp())


def verdict(result: Result) -> Verdict:
    return Verdict(
        checks=(
            exact(
                "share of the leading value, formula against attention",
                largest_difference(result.kept, result.predicted),
                near={
                    "n instead of n - 1": largest_difference(result.kept, predict(result.setup, less=0)),
                    "half of the others": largest_difference(result.kept, predict(result.setup, less=1, share=0.5)),
                },
            ),
            at_most(
                "what random scores below it take away, as a share of the bound",
                1,
                result.of_bound,
                ROUNDING,
                near={"half of the bound": 0.5},
            ),
            about(
                "order in beta of what is left beside mean and first correction",
                2,
                result.order,
                sd=ORDER,
                near={"order 1.9": 1.9, "one order higher": 3},
            ),
        ),
        why="The weight of a key depends on beta times its lead over the others alone.",
    )


def figure(result: Result) -> Figure:
    setup = result.setup
    drawing, (left, right) = panels(
        2, title="A lead of more than ln(n)/beta keeps a value; a small beta dilutes them all"
    )
    leads, betas = torch.tensor(setup.leads), torch.tensor(setup.betas)
    for row, (n_keys, marker) in enumerate(zip(setup.n_keys, MARKERS, strict=False)):
        left.plot(leads.numpy(), result.predicted[row].numpy(), **PREDICTED | {"label": "" if row else "predicted"})
        style = MEASURED | series(marker) | {"markevery": 2, "label": f"measured, {n_keys:,} keys"}
        left.plot(leads.numpy(), result.kept[row].numpy(), **style)
    left.axhline(0.5, color="0.6", linewidth=0.8, zorder=0)
    left.set(xlabel="beta times the lead in score", ylabel="share of the leading value in the output")
    left.legend(frameon=False, loc="lower right")
    for name, marker, error, power in (
        ("the mean", "o", result.from_mean, 1),
        ("mean and first correction", "s", result.from_first_order, 2),
    ):
        line = error[0] * (betas / betas[0]) ** power
        label = "predicted: as beta, as beta^2" if power == 1 else ""
        right.loglog(betas.numpy(), line.numpy(), **PREDICTED | {"label": label})
        right.loglog(betas.numpy(), error.numpy(), **MEASURED | series(marker) | {"label": f"measured from {name}"})
    right.set(xlabel="beta, random scores", ylabel="distance of the output", ylim=(None, 1e0))
    right.legend(frameon=False, loc="upper left")
    return drawing


CLAIM = Claim(
    __name__,
    __doc__,
    document="NYU",
    question="1.1(c)",
    also=("NYU 1.1(d)",),
    setup=Setup(),
    small=Setup(n_keys=(2, 7, 101), d_value=5, leads=(0.0, 1.0, 3.0, 9.0), betas=(1e-3, 3e-3, 1e-2)),
    run=run,
    verdict=verdict,
    figure=figure,
    broken={
        "two keys share the best score": {"best": "two keys"},
        "diluted to a value, not to the mean": {"values": "each its own"},
    },
    confidence="The parts are exact up to rounding, the order of the error is within 5 standard deviations (SD) over "
    "draws.",
)
