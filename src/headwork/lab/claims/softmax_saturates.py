r"""Without 1/sqrt(d) the softmax saturates as d grows, and its mean squared Jacobian falls as 1/sqrt(d); with it, not.

The scores $s_i = q^\top k_i$ of $n$ keys have variance $d$. With $a = \operatorname{softmax}(s)$ the Jacobian is $J =
\operatorname{diag}(a) - aa^\top$, and where $a_{max} = 1 - \epsilon$ the sheet bounds it by $\|J\|_F^2 \le
n^2\epsilon^2$: a softmax that has decided passes no gradient. (In fact by $4\epsilon^2$, however many keys: $J$ has no
negative eigenvalues, so $\|J\|_F \le \operatorname{Tr} J = \sum_i a_i(1 - a_i) \le 2\epsilon$. Two keys that share
almost everything come as close to that as one likes.)

How fast? For wide heads only the best two scores count. A gap $g$ between them gives weights $p$ and $1 - p$ with
$p = 1/(1 + e^{-g})$, and $\|J\|_F^2 = 4p^2(1-p)^2 = \tfrac14\operatorname{sech}^4\tfrac g2$. Scores of standard
deviation $\sqrt d$ have a small gap with the density $c_n/\sqrt d$, so

$$E\|J\|_F^2 \to \frac{c_n}{\sqrt d}\int_0^\infty \tfrac14\operatorname{sech}^4\tfrac g2\,dg = \frac{c_n}{3\sqrt d},
\qquad c_n = n(n-1)\int \varphi(x)^2\,\Phi(x)^{n-2}\,dx$$

At a finite width a third key comes close, and the gap of the best two is not quite uniform. With the density
$d_n = n(n-1)(n-2)\int\varphi^3\,\Phi^{n-3}$ of a three-way tie, $f_2(g)$ for the norm above and $f_3(u, v)$ for that of
three keys with gaps $u < v$ below the best,

$$E\|J\|_F^2 = \frac{c_n}{3\sqrt d} + \frac{d_n}{d}\left(\int_0^\infty\!\!\int_u^\infty (f_3 - f_2)\,dv\,du
- \tfrac12\int_0^\infty g f_2\,dg\right) + O(d^{-3/2})$$

In the same way a share of about $c_n \ln 99/\sqrt d$ of the queries keeps $a_{max} < 0.99$. So "$d$ large enough for
$a_{max} > 1 - \epsilon$" holds for most queries, never for all: the gradient vanishes because ever fewer queries have
any. Scaled scores have variance 1 at every width, and the Jacobian stays that of $n$ standard normal scores.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from headwork.functional import attention_scores, softargmax
from headwork.lab.measuring import density_of_ties, mean_over_ties
from headwork.lab.plots import MEASURED, PREDICTED, Figure, panels, series
from headwork.lab.toolkit import Claim, Erratum, Experiment, Verdict, about, at_most, exact, largest_difference, seeded

Scale = Literal["none", "1/sqrt(d)", "1/d"]
WIDE = 256
"""From this width on, two terms of the expansion in 1/sqrt(d) are enough."""
DECIDED = 0.99
ROUNDING_OF_BOUND = 2.0**-32
"""2^20 eps: the norm of a weight of 1 - 1e-3 is a difference of numbers a million times as large."""


@dataclass(frozen=True, kw_only=True)
class Setup(Experiment):
    """Normal queries, each with several groups of normal keys, at several widths."""

    widths: tuple[int, ...] = (4, 16, 64, 256, 1024, 4096)
    n_keys: int = 8
    n_queries: int = 192
    n_groups: int = 32
    n_batches: int = 16
    without: Scale = "none"
    scaled: Scale = "1/sqrt(d)"
    jacobian: Literal["diag(a) - aa'", "diag(a)"] = "diag(a) - aa'"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_keys < 2 or self.n_batches < 2:
            raise ValueError(f"n_keys and n_batches must be 2 or more, got {self.n_keys} and {self.n_batches}")


@dataclass(frozen=True)
class Result:
    """Mean and standard error over the batches, by width: without the scale, and with it."""

    setup: Setup
    jacobian: Float[Tensor, "2 width"]
    jacobian_error: Float[Tensor, "2 width"]
    undecided: Float[Tensor, "2 width"]
    """The share of the queries whose largest weight is below 0.99."""
    of_bound: float
    """The largest squared norm over (1 - a_max)^2."""
    autograd: float
    """How far the formula is from the derivative of the library's softmax; and its first term alone."""
    autograd_of_first: float
    score_variance: float
    square_terms: float
    """Both for the widest heads: the variance of q.k, and its square terms alone, without the cross terms."""


@seeded
def run(setup: Setup) -> Result:
    rows = torch.empty(2, len(setup.widths), setup.n_batches, 2, dtype=torch.float64)
    of_bound, variance, squares = 0.0, [], []
    for width, d in enumerate(setup.widths):
        for batch in range(setup.n_batches):
            q, k = torch.randn(setup.n_queries, d), torch.randn(setup.n_groups * setup.n_keys, d)
            raw = attention_scores(q, k).double()
            scores = rearrange(raw, "query (group key) -> group query key", key=setup.n_keys)
            for row, scale in enumerate((setup.without, setup.scaled)):
                weights = softargmax(scores, _beta(scale, d))
                norm, best = _squared_norm(weights), weights.amax(-1)
                rows[row, width, batch] = torch.stack([norm.mean(), (best < DECIDED).double().mean()])
                of_bound = max(of_bound, (norm / (1 - best).square())[best < 1 - 1e-3].max().item())
            if d == setup.widths[-1]:
                variance.append(raw.square().mean().item())
                squares.append((q.square() @ k.square().T).double().mean().item())
    error = rows[..., 0].std(-1) / math.sqrt(setup.n_batches)
    return Result(
        setup,
        rows[..., 0].mean(-1),
        error,
        rows[..., 1].mean(-1),
        of_bound,
        *_against_autograd(setup),
        sum(variance) / len(variance),
        sum(squares) / len(squares),
    )


def _beta(scale: Scale, d: int) -> float:
    return {"none": 1.0, "1/sqrt(d)": 1 / math.sqrt(d), "1/d": 1 / d}[scale]


def _squared_norm(a: Float[Tensor, "*batch key"]) -> Float[Tensor, "*batch"]:
    """The squared norm of diag(a) - aa' without building it: the sum of a^2 - 2 a^3, and (the sum of a^2) squared."""
    square = a.square()
    return (square - 2 * square * a).sum(-1) + square.sum(-1).square()


def _against_autograd(setup: Setup) -> tuple[float, float]:
    scores = torch.randn(1, setup.n_keys, dtype=torch.float64)
    jacobian: Tensor = torch.autograd.functional.jacobian(softargmax, scores)  # type: ignore[no-untyped-call]
    a = softargmax(scores)[0]
    formula = a.diag() - torch.outer(a, a) if setup.jacobian == "diag(a) - aa'" else a.diag()
    of_norm = abs(jacobian.square().sum().item() - _squared_norm(a).item())
    return max(of_norm, largest_difference(jacobian[0, :, 0], formula)), largest_difference(jacobian[0, :, 0], a.diag())


def predict(n: int, d: float) -> float:
    """The mean of |J|^2 without the scale, to the order 1/d."""
    return mean_over_ties(predict_norm, n, math.sqrt(d))


def predict_norm(scores: Float[Tensor, "*batch key"]) -> Float[Tensor, "*batch"]:
    """The squared norm of diag(a) - aa', entry by entry."""
    a = torch.softmax(scores, -1)
    off = (a[..., :, None] * a[..., None, :]).square().sum((-2, -1)) - a.square().square().sum(-1)
    return (a * (1 - a)).square().sum(-1) + off


def predict_scaled(setup: Setup, variance: float) -> Float[Tensor, "batch"]:
    """The mean of |J|^2 for normal scores, by batches of draws; the same draws for every variance."""
    draws = torch.Generator().manual_seed(setup.seed)
    shape = setup.n_batches, setup.n_groups * setup.n_queries, setup.n_keys
    normal = torch.randn(shape, dtype=torch.float64, generator=draws)
    return predict_norm(math.sqrt(variance) * normal).mean(-1)


def verdict(result: Result) -> Verdict:
    setup, n, last = result.setup, result.setup.n_keys, result.setup.widths[-1]
    limit = predict_scaled(setup, 1.0)
    wide = [(row, d) for row, d in enumerate(setup.widths) if d >= WIDE]
    sd = result.jacobian_error
    return Verdict(
        checks=(
            *(
                about(
                    f"mean |J|^2 without the scale at d = {d}",
                    predict(n, d),
                    result.jacobian[0, row].item(),
                    sd=sd[0, row].item(),
                    near={
                        "as d^-0.6": predict(n, d) * d**-0.1,
                        "a half of c_n / sqrt(d) for a third": 1.5 * predict(n, d),
                    },
                )
                for row, d in reversed(wide)
            ),
            about(
                f"mean |J|^2 with the scale at d = {last}",
                limit.mean().item(),
                result.jacobian[1, -1].item(),
                sd=math.hypot(sd[1, -1].item(), limit.std().item() / math.sqrt(setup.n_batches)),
                near={
                    f"scores of variance {variance:g}": predict_scaled(setup, variance).mean().item()
                    for variance in (0.7, 3.0)
                },
            ),
            exact(
                "the derivative of softmax against diag(a) - aa'",
                result.autograd,
                near={"diag(a)": result.autograd_of_first},
            ),
            at_most(
                "largest |J|^2 over (1 - a_max)^2",
                4,
                result.of_bound,
                ROUNDING_OF_BOUND,
                near={"at most 3.9": 3.9},
            ),
        ),
        why="Scores of standard deviation sqrt(d) are seldom close, and only close scores leave a gradient.",
    )


def figure(result: Result) -> Figure:
    setup, widths = result.setup, torch.tensor(result.setup.widths).double()
    tie = density_of_ties(setup.n_keys)
    drawing, (left, right) = panels(2, title="Without 1/sqrt(d) the softmax saturates, and its gradient vanishes")
    drawn = (
        (left, result.jacobian, tie / 3, "mean of |J|^2"),
        (right, result.undecided, tie * math.log(DECIDED / (1 - DECIDED)), "share of queries with a_max < 0.99"),
    )
    for ax, measured, factor, name in drawn:
        wide = torch.logspace(math.log10(max(4.0, factor**2)), math.log10(max(setup.widths)), 50).double()
        curve = [predict(setup.n_keys, d) for d in wide.tolist()] if ax is left else (factor / wide.sqrt()).tolist()
        label = "predicted without: two terms" if ax is left else "predicted without: 1/sqrt(d)"
        ax.loglog(wide.numpy(), curve, **PREDICTED | {"label": label})
        for row, (words, marker) in enumerate((("measured without", "o"), ("measured with 1/sqrt(d)", "s"))):
            ax.loglog(widths.numpy(), measured[row].numpy(), **MEASURED | series(marker) | {"label": words})
        ax.set(xlabel="d_head", ylabel=name, xticks=setup.widths, xticklabels=setup.widths)
        ax.minorticks_off()
    flat = PREDICTED | {"linestyle": ":", "label": "predicted with: the same at all d"}
    left.axhline(predict_scaled(setup, 1.0).mean().item(), **flat)
    right.axhline(1, **flat)
    left.set_ylim(left.get_ylim()[0] / 6, None)
    left.legend(frameon=False, loc="lower left")
    return drawing


def _cross_terms(result: Result) -> str:
    return (
        f"At d = {result.setup.widths[-1]} the mean of s^2 is {result.score_variance:,.0f}, that of its square terms "
        f"alone {result.square_terms:,.0f}: the cross terms come to nothing, but only on average."
    )


def _never_all(result: Result) -> str:
    *_, d = result.setup.widths
    return (
        f"At d = {d} a share of {result.undecided[0, -1].item():.3f} of the queries still has a_max < {DECIDED}; "
        f"the derivation predicts "
        f"{density_of_ties(result.setup.n_keys) * math.log(DECIDED / (1 - DECIDED)) / math.sqrt(d):.3f}."
    )


CLAIM = Claim(
    __name__,
    __doc__,
    document="EECS 182",
    question="1(a)",
    also=("C182 1(b) i",),
    setup=Setup(),
    small=Setup(widths=(16, 1024), n_queries=96, n_groups=16, n_batches=10),
    run=run,
    verdict=verdict,
    figure=figure,
    broken={
        "the scale left in where it should be missing": {"without": "1/sqrt(d)"},
        "the scale missing where it should be": {"scaled": "none"},
        "a scale of 1/d": {"scaled": "1/d"},
        "a Jacobian without its second term": {"jacobian": "diag(a)"},
    },
    confidence="Means are within 5 standard deviations (SD), from the spread of the batches. The Jacobian is exact "
    "up to "
    "rounding, the bound holds always.",
    errata=(
        Erratum(
            where="1(a), the lines for E(s_i) and Var(s_i)",
            printed=r"$\sum_j E(q_i^2 k_{i,j}^2)$ for $E(s_i^2)$",
            right=r"$q_j$ for $q_i$; and the square of a sum has cross terms $E(q_j k_{i,j} q_l k_{i,l})$, "
            r"which are 0 because $E(q_j q_l) = 0$; the result $d_{head}$ is right",
            measured=_cross_terms,
        ),
        Erratum(
            where="1(a), 'a sufficiently large d_head can be found'",
            printed=r"$a_{i_{max}} > 1 - \epsilon$ for $d_{head}$ large enough",
            right=r"this with a probability that goes to 1; what is left falls as $1/\sqrt{d_{head}}$",
            measured=_never_all,
        ),
    ),
)
