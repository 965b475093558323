r"""A large beta gives hard attention, a small beta the mean of the values, and 1/sqrt(d) is in between at every width.

The scores of a query against $n$ random keys are normal with variance $d$, so $\beta$ times a score has the standard
deviation $t = \beta\sqrt d$. The sum of the $n$ exponentials is close to $n\,e^{t^2/2}$, the mean of the scaled scores
under the weights is $t^2$, and the entropy of the weights is the logarithm of the one minus the other:

$$H = \ln n + \frac{t^2}{2} - t^2 = \ln n - \frac{\beta^2 d}{2}$$

until this reaches 0 at $t = \sqrt{2 \ln n}$. Beyond, the largest score stands more and more alone; for a finite $n$ the
corner is round. So $\beta \to 0$ gives $\ln n$, the mean of all values, and $\beta \to \infty$ gives 0, the value of
the best key. With $\beta = 1/\sqrt d$ the entropy is $\ln n - \frac12$ whatever the width: a query spreads its
attention over about $n/\sqrt e = 0.61\,n$ keys, and still chooses. Without the scale ($\beta = 1$, $t = \sqrt d$) it is
past the corner as soon as $d > 2 \ln n$.
"""

import itertools
import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from headwork.functional import attention_scores, scaled_dot_product_attention, softargmax
from headwork.lab.plots import MARKERS, MEASURED, PREDICTED, Figure, panels
from headwork.lab.toolkit import Claim, Experiment, Verdict, about, largest_difference, seeded

TOLERANCE = 0.05
"""Of an entropy between 0 and ln n = 6.9, in nats."""


@dataclass(frozen=True, kw_only=True)
class Setup(Experiment):
    """Random queries, keys and values of several widths, and one rule that scales their scores."""

    widths: tuple[int, ...] = (16, 64, 256)
    n_queries: int = 1_000
    n_keys: int = 1_000
    n_betas: int = 31
    scale: Literal["1/sqrt(d)", "1/d", "none"] = "1/sqrt(d)"


@dataclass(frozen=True)
class Result:
    """The mean entropy of the weights for each width and temperature, and what the two ends give."""

    setup: Setup
    spread: Float[Tensor, "beta"]
    """The standard deviation of the scaled scores, beta sqrt(d)."""
    entropy: Float[Tensor, "width beta"]
    at_scale: Float[Tensor, "width"]
    """The entropy with the scale of the setup."""
    from_mean: float
    """How far beta = 0 is from the mean of the values."""
    from_best: float
    """How far beta = infinity is from the value of the best key."""


@seeded
def run(setup: Setup) -> Result:
    spread = torch.logspace(-2, 3, setup.n_betas)
    entropy, at_scale, from_mean, from_best = [], [], 0.0, 0.0
    for d in setup.widths:
        q, k, v = torch.randn(setup.n_queries, d), torch.randn(setup.n_keys, d), torch.randn(setup.n_keys, d)
        scores = attention_scores(q, k)
        entropy.append([_entropy(scores, s / math.sqrt(d)) for s in spread.tolist()])
        at_scale.append(_entropy(scores, {"1/sqrt(d)": 1 / math.sqrt(d), "1/d": 1 / d, "none": 1.0}[setup.scale]))
        mean, best = (scaled_dot_product_attention(q, k, v, beta=beta) for beta in (0.0, math.inf))
        from_mean = max(from_mean, largest_difference(mean, v.mean(0).expand_as(mean)))
        from_best = max(from_best, largest_difference(best, v[scores.argmax(-1)]))
    return Result(setup, spread, torch.tensor(entropy), torch.tensor(at_scale), from_mean, from_best)


def _entropy(scores: Float[Tensor, "query key"], beta: float) -> float:
    """In nats, the mean over the queries."""
    return torch.special.entr(softargmax(scores, beta)).sum(-1).mean().item()


def verdict(result: Result) -> Verdict:
    log_n = math.log(result.setup.n_keys)
    in_between = [
        about(f"entropy with the scale, d = {d}", log_n - 0.5, seen, TOLERANCE)
        for d, seen in zip(result.setup.widths, result.at_scale.tolist(), strict=True)
    ]
    small, large = result.entropy[:, 0].min().item(), result.entropy[:, -1].max().item()
    return Verdict(
        checks=(
            *in_between,
            about(f"lowest entropy at beta sqrt(d) = {result.spread[0].item():g}", log_n, small, TOLERANCE),
            about(f"highest entropy at beta sqrt(d) = {result.spread[-1].item():g}", 0, large, TOLERANCE),
            about("beta = 0 against the mean of the values", 0, result.from_mean, 1e-5),
            about("beta = infinity against the value of the best key", 0, result.from_best, 1e-5),
        ),
        why="1/sqrt(d) makes the spread of the scaled scores 1, and the entropy depends on that spread alone.",
    )


def figure(result: Result) -> Figure:
    log_n = math.log(result.setup.n_keys)
    drawing, (ax,) = panels(title="beta turns attention from the mean to a choice; 1/sqrt(d) is in between at every d")
    fine = torch.logspace(-2, 3, 400)
    predicted = (log_n - fine.square() / 2).clamp(min=0)
    ax.semilogx(fine.numpy(), predicted.numpy(), **PREDICTED | {"label": "predicted for many keys"})
    for d, marker, entropy in zip(result.setup.widths, itertools.cycle(MARKERS), result.entropy, strict=False):
        style = MEASURED | {"marker": marker, "label": f"measured, d_head = {d}"}
        ax.semilogx(result.spread.numpy(), entropy.numpy(), **style)
    ax.axhline(log_n, color="0.6", linewidth=0.8)
    ax.axvline(1, color="0.6", linewidth=0.8)
    ax.text(0.93, 0.1, "beta = 1/sqrt(d):\nln n - 1/2", ha="right", va="bottom")
    ax.text(0.0105, log_n - 0.35, "the mean of all values: ln n", va="top")
    ax.text(950, 0.35, "hard attention: 0", ha="right")
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
    small=Setup(widths=(32, 128), n_queries=300, n_keys=500, n_betas=5),
    run=run,
    verdict=verdict,
    figure=figure,
    broken={"no scale": {"scale": "none"}, "divided by d": {"scale": "1/d"}},
    confidence="The entropy of a run varies by about 0.01 from seed to seed, a fifth of the tolerance.",
)
