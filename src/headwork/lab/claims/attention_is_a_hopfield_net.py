r"""Attention with keys as values is a Hopfield net: its energy never rises, and near patterns are found in a step.

Let the rows of $X$ be patterns, keys and values at once, and the query $\xi$ the state: $\xi' = X^\top
\operatorname{softmax}(\beta X \xi)$. The energy

$$E(\xi) = \tfrac12|\xi|^2 - \tfrac1\beta \ln \sum_j e^{\beta x_j \cdot \xi}$$

is a convex function less a convex one, and $\xi'$ is the gradient of the second at $\xi$. A convex function lies
above its tangent, so $E(\xi') \le \frac12|\xi'|^2 - \xi' \cdot (\xi' - \xi) - \dots = E(\xi) - \frac12|\xi' -
\xi|^2$: the energy falls by at least half the square of the step, whatever the patterns.

From the pattern $x_i$ itself the weight of all the others over its own is exactly $\sum_{j \ne i} e^{-\beta(|x_i|^2 -
x_i \cdot x_j)}$. For normal patterns the mean over the others is known ($\mathbb E\,e^{\beta x_i \cdot x_j} =
e^{\beta^2|x_i|^2/2}$):

$$(n - 1)\,e^{-\beta|x_i|^2(1 - \beta/2)}$$

It stays small for $n$ up to $e^{\beta d(1 - \beta/2)}$ patterns: the capacity is exponential in the width.

It stops being true when keys and values are different projections, as in a trained layer: then there is no such
energy.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from headwork.functional import attention_weights, scaled_dot_product_attention
from headwork.lab.plots import COLOURS, MARKERS, MEASURED, PREDICTED, Figure, panels
from headwork.lab.toolkit import Claim, Experiment, Verdict, about, at_least, seeded


@dataclass(frozen=True, kw_only=True)
class Setup(Experiment):
    """Normal patterns, inverse temperatures, and states to start from."""

    n_patterns: int = 400
    d: int = 64
    betas: tuple[float, ...] = (0.06, 0.08, 0.1, 0.12)
    n_states: int = 100
    own_values: bool = True
    """Whether the values are the patterns themselves."""


@dataclass(frozen=True)
class Result:
    """Falls of the energy in units of half the squared step; and of the patterns, the odds of the others."""

    setup: Setup
    falls: Float[Tensor, "beta state"]
    odds: Float[Tensor, "beta 2"]
    """The weight of the others over a pattern's own, over what is predicted; the mean, and its standard error."""


@seeded
def run(setup: Setup) -> Result:
    x = torch.randn(setup.n_patterns, setup.d, dtype=torch.float64)
    values = x if setup.own_values else torch.randn_like(x)
    states = x[: setup.n_states] + torch.randn_like(x[: setup.n_states])
    falls, odds = [], []
    for beta in setup.betas:
        new = scaled_dot_product_attention(states, x, values, beta=beta)
        falls.append((_energy(x, states, beta) - _energy(x, new, beta)) / ((new - states).square().sum(-1) / 2))
        own = attention_weights(x, x, beta=beta).diagonal()
        found = (1 - own) / own / predict_odds(x, beta)
        odds.append(torch.stack([found.mean(), found.std() * (2 / len(found)) ** 0.5]))  # each pair counts twice
    return Result(setup, torch.stack(falls), torch.stack(odds))


def _energy(x: Float[Tensor, "pattern d"], state: Float[Tensor, "state d"], beta: float) -> Float[Tensor, "state"]:
    return state.square().sum(-1) / 2 - (beta * state @ x.mT).logsumexp(-1) / beta


def predict_odds(x: Float[Tensor, "pattern d"], beta: float) -> Float[Tensor, "pattern"]:
    """The mean over all other patterns, given the length of each."""
    return (len(x) - 1) * (-beta * (1 - beta / 2) * x.square().sum(-1)).exp()


def verdict(result: Result) -> Verdict:
    setup = result.setup
    size = setup.d
    fall = result.falls.min().item()
    odds = [
        about(
            f"weight of the other patterns over their formula, beta = {beta:g}",
            1,
            seen,
            sd=error,
            near={
                "without beta / 2": math.exp(-(beta**2) * size / 2),
                "beta^2 instead of beta^2 / 2": math.exp(beta**2 * size / 2),
            },
        )
        for beta, (seen, error) in zip(setup.betas, result.odds.tolist(), strict=True)
    ]
    return Verdict(
        checks=(
            at_least(
                "fall of the energy, over half the squared step; the smallest", 1, fall, near={"the whole square": 2}
            ),
            *odds,
        ),
        why="The new state minimises the energy with the second part replaced by its tangent.",
    )


def figure(result: Result) -> Figure:
    setup = result.setup
    drawing, (left, right) = panels(
        2, title="Attention that retrieves: the energy falls, patterns are found in one step"
    )
    for row, (beta, marker, colour) in enumerate(zip(setup.betas, MARKERS, COLOURS, strict=False)):
        style = MEASURED | {
            "marker": marker,
            "color": colour,
            "label": f"measured, beta = {beta:g}",
            "markersize": 4,
            "markevery": (2 * row, 8),
        }
        left.plot(range(setup.n_states), result.falls[row].sort().values.numpy(), **style)
    left.axhline(1, **PREDICTED | {"label": "predicted: above"})
    left.set(xlabel="start, in the order of its fall", ylabel="fall of the energy / half the squared step")
    left.set_ylim(0.9, 1.1 + 1.5 * (result.falls.max().item() - 1))
    left.legend(frameon=False, loc="upper left", fontsize=7)
    right.axhline(1, **PREDICTED)
    low = 5 * result.odds[:, 1].numpy()
    style = {"color": COLOURS[0], "linestyle": "none", "marker": "o", "markerfacecolor": "white", "markersize": 4.5}
    right.errorbar(setup.betas, result.odds[:, 0].numpy(), yerr=low, capsize=3, label="measured, with 5 SD", **style)
    right.set(xlabel="beta", ylabel="weight of the others / formula", xticks=setup.betas, ylim=(0.85, 1.25))
    right.legend(frameon=False, loc="upper left")
    return drawing


CLAIM = Claim(
    __name__,
    __doc__,
    document="beyond",
    question="",
    paper="Ramsauer et al. 2021, Hopfield networks is all you need (arXiv:2008.02217)",
    setup=Setup(),
    small=Setup(n_patterns=200, betas=(0.1,), n_states=50),
    run=run,
    verdict=verdict,
    figure=figure,
    broken={"values that are not the patterns": {"own_values": False}},
    confidence="The fall is proven; the weight of the others is within 5 standard deviations (SD) of its mean.",
)
