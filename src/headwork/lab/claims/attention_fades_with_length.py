r"""With scores between -B and B no weight exceeds e^(2B)/n, and the entropy is ln n less a constant: attention fades.

Each weight is $e^{s_j}/\sum_k e^{s_k} \le e^B/(n e^{-B})$. So with a fixed $\beta$ and layers that keep queries and
keys bounded (layer norm does), the longer the text, the less can a head attend to any one token. For scores that are
uniform on $[-B, B]$ the sum is $n \sinh B / B$, the mean score under the weights is $B \coth B - 1$, and

$$H = \ln n + \ln\frac{\sinh B}{B} - (B \coth B - 1), \qquad n\,w_{max} \to \frac{B\,e^B}{\sinh B}$$

A key that leads all the others by a score of $g > B$ keeps the share

$$w = \frac{1}{1 + n\,e^{-\beta g}\,\frac{\sinh \beta B}{\beta B}}$$

which goes to 0 as $1/n$ for a fixed $\beta$. It stays where it is if $\beta g - \ln\frac{\sinh\beta B}{\beta B}$
grows as $\ln n$: a $\beta$ that is multiplied by $\ln n$ is more than enough. Positions can help as well: with
ALiBi's bias $-m$ for each token of distance the weights are a geometric series, whose entropy

$$-\ln(1 - e^{-m}) + \frac{m\,e^{-m}}{1 - e^{-m}}$$

knows no $n$. (A mean over random scores has corrections of order $1/n$, from the variance of the sum; they are part
of the prediction.)

It stops being true when scores may grow with the length (unbounded keys, or a $\beta$ of $\ln n$), and for hard
attention.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from headwork.functional import alibi_bias, softargmax
from headwork.lab.plots import COLOURS, MARKERS, MEASURED, PREDICTED, Figure, panels
from headwork.lab.toolkit import Claim, Experiment, Verdict, about, seeded


@dataclass(frozen=True, kw_only=True)
class Setup(Experiment):
    """Scores in [-bound, bound] for texts of several lengths; one key that leads; how beta grows with ln n."""

    lengths: tuple[int, ...] = (64, 256, 1_024, 4_096)
    n_queries: int = 400
    bound: float = 1.0
    lead: float = 3.0
    alibi_heads: int = 4
    beta_grows: float = 0.0


@dataclass(frozen=True)
class Result:
    """For each length, the mean over the queries with its standard error; the extreme case; and ALiBi."""

    setup: Setup
    entropy: Float[Tensor, "length 2"]
    largest: Float[Tensor, "length 2"]
    """n times the largest weight of a query."""
    share: Float[Tensor, "length 2"]
    """The weight of a key that leads."""
    extreme: Float[Tensor, "length"]
    """n times the weight of a score of B among scores of -B."""
    alibi: Float[Tensor, "length"]
    """The entropy of the last query's weights with ALiBi's bias alone."""


@seeded
def run(setup: Setup) -> Result:
    rows = []
    for n in setup.lengths:
        beta, bound = math.log(n) ** setup.beta_grows, setup.bound
        scores = bound * (2 * torch.rand(setup.n_queries, n, dtype=torch.float64) - 1)
        weights = softargmax(scores, beta)
        lead = torch.full((setup.n_queries, 1), setup.lead, dtype=torch.float64)
        edge = torch.full((1, n), -bound, dtype=torch.float64)
        edge[0, 0] = bound
        rows.append(
            (
                _mean(torch.special.entr(weights).sum(-1)),
                _mean(n * weights.amax(-1)),
                _mean(softargmax(torch.cat([lead, scores], 1), beta)[:, 0]),
                n * softargmax(edge, beta)[0, 0],
                torch.special.entr(softargmax(alibi_bias(setup.alibi_heads, 1, n)[0].double())).sum(),
            )
        )
    return Result(setup, *(torch.stack(column) for column in zip(*rows, strict=True)))


def _mean(seen: Float[Tensor, "query"]) -> Float[Tensor, "2"]:
    """With its standard error."""
    return torch.stack([seen.mean(), seen.std() / len(seen) ** 0.5])


def predict_moments(b: float) -> tuple[float, float, float, float]:
    """Of e^s and s e^s, s uniform on [-b, b]: their means, the variance of the one and the covariance of both."""
    zero, one = math.sinh(b) / b, math.cosh(b) - math.sinh(b) / b
    square = math.sinh(2 * b) / (2 * b)
    mixed = math.cosh(2 * b) / 2 - math.sinh(2 * b) / (4 * b)
    return zero, one, square - zero**2, mixed - zero * one


def predict_entropy(n: float, b: float) -> float:
    zero, one, variance, covariance = predict_moments(b)
    next_term = -variance / (2 * zero**2) + covariance / zero**2 - one * variance / zero**3
    return math.log(n) + math.log(zero) - one / zero + next_term / n


def predict_share(n: float, lead: float, b: float) -> float:
    zero, _, variance, _ = predict_moments(b)
    odds = n * math.exp(-lead)
    return 1 / (1 + odds * zero) + odds**2 * variance / n / (1 + odds * zero) ** 3


def predict_largest(n: int, b: float) -> float:
    """n e^(the largest score) / the sum: the largest of n is 2 b / (n + 1) below b in the mean."""
    zero, _, variance, _ = predict_moments(b)
    return math.exp(b) / zero * (1 - 2 * b / (n + 1) + variance / (n * zero**2))


def predict_alibi(slope: float) -> float:
    r = math.exp(-slope)
    return -math.log(1 - r) + slope * r / (1 - r)


def verdict(result: Result) -> Verdict:
    setup, b, last = result.setup, result.setup.bound, result.setup.lengths[-1]
    slope = 2.0 ** (-8 / setup.alibi_heads)
    entropies = [
        about(
            f"entropy, n = {n}",
            predict_entropy(n, b),
            seen,
            sd=error,
            near={"ln n - B^2 / 6, the first term": math.log(n) - b**2 / 6, "ln n": math.log(n)},
        )
        for n, (seen, error) in zip(setup.lengths, result.entropy.tolist(), strict=True)
    ]
    shares = [
        about(
            f"share of a key that leads by {setup.lead:g}, n = {n}",
            predict_share(n, setup.lead, b),
            seen,
            sd=error,
            near={
                "without sinh B / B": 1 / (1 + n * math.exp(-setup.lead)),
                "as n^(3/4)": predict_share(n**0.75, setup.lead, b),
            },
        )
        for n, (seen, error) in zip(setup.lengths, result.share.tolist(), strict=True)
    ]
    seen, error = result.largest[-1].tolist()
    return Verdict(
        checks=(
            *reversed(entropies),
            *shares,
            about(
                f"n times the largest weight, n = {last}",
                predict_largest(last, b),
                seen,
                sd=error,
                near={"e^B": math.exp(b), "e^B / cosh B": math.exp(b) / math.cosh(b)},
            ),
            about(
                f"n times a weight of B among -B, n = {last}: the bound e^(2B)",
                last * math.exp(2 * b) / (last - 1 + math.exp(2 * b)),
                result.extreme[-1].item(),
                near={"e^(2B) itself, reached only without end": math.exp(2 * b)},
            ),
            about(
                f"entropy with ALiBi, n = {last}",
                predict_alibi(slope),
                result.alibi[-1].item(),
                bound=last * math.exp(-slope * last) + 1e-9,
                near={"-ln(1 - e^-m)": -math.log(1 - math.exp(-slope)), "1 - ln m": 1 - math.log(slope)},
            ),
        ),
        why="The sum under the fraction bar grows with n, and a bounded score cannot make up for it.",
    )


def figure(result: Result) -> Figure:
    setup, b = result.setup, result.setup.bound
    drawing, (left, right) = panels(2, title="With bounded scores attention fades as the text grows")
    n = torch.logspace(math.log10(setup.lengths[0]), math.log10(setup.lengths[-1]), 100).tolist()
    left.semilogx(n, [predict_entropy(m, b) for m in n], **PREDICTED)
    style = MEASURED | {"color": COLOURS[0], "label": "measured, scores in [-B, B]"}
    left.semilogx(setup.lengths, result.entropy[:, 0].numpy(), **style)
    left.axhline(predict_alibi(2.0 ** (-8 / setup.alibi_heads)), **PREDICTED | {"label": ""})
    style = MEASURED | {"color": COLOURS[1], "marker": MARKERS[1], "label": "measured, ALiBi's bias"}
    left.semilogx(setup.lengths, result.alibi.numpy(), **style)
    left.set(xlabel="tokens n", ylabel="entropy of the weights (nats)", ylim=(0, 1.6 * math.log(setup.lengths[-1])))
    left.legend(frameon=False, loc="upper left")
    right.loglog(n, [predict_share(m, setup.lead, b) for m in n], **PREDICTED)
    right.loglog(setup.lengths, result.share[:, 0].numpy(), **MEASURED | {"color": COLOURS[2], "marker": MARKERS[2]})
    right.set(xlabel="tokens n", ylabel=f"share of a key that leads by {setup.lead:g}")
    right.legend(frameon=False, loc="upper right")
    for ax in (left, right):
        ax.set_xticks(setup.lengths, [str(m) for m in setup.lengths])
        ax.minorticks_off()
    return drawing


CLAIM = Claim(
    __name__,
    __doc__,
    document="beyond",
    question="",
    paper="Hahn 2020, Theoretical limitations of self-attention (arXiv:1906.06755); Chiang and Cholak 2022, "
    "Overcoming a "
    "theoretical limitation of self-attention (arXiv:2202.12172)",
    setup=Setup(),
    small=Setup(lengths=(64, 1_024), n_queries=100),
    run=run,
    verdict=verdict,
    figure=figure,
    broken={"a beta that grows as ln n": {"beta_grows": 1.0}, "a beta that grows as its root": {"beta_grows": 0.5}},
    confidence="The tolerance is 5 standard deviations (SD) of the mean over the queries; with ALiBi, a bound "
    "on the end of "
    "the series that a text of n tokens cuts off; the extreme case is exact.",
)
