r"""A key scaled up takes over the queries that have a positive dot product with it, and loses all the others.

Scale key $i$ by $a$ and leave the others. For query $j$, with $s_j = \beta\,q_j \cdot k_i$ and
$L_j = \ln\sum_{l \ne i} e^{\beta\,q_j \cdot k_l}$, its weight is

$$A_{ji} = \frac{e^{a s_j}}{e^{a s_j} + e^{L_j}} = \frac{1}{1 + e^{L_j - a s_j}}$$

which goes to 1 if $s_j > 0$, with the half-way mark at $a = L_j / s_j$, and to 0 if $s_j < 0$. In the first case the
output becomes $v_i$. In the second the key drops out, and the output becomes attention over the other keys. For random
directions each happens to half of the queries. The sheet gives the first case only, for all queries.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from headwork import masks
from headwork.functional import attention_scores, attention_weights, scaled_dot_product_attention
from headwork.lab.plots import MEASURED, PREDICTED, PRINTED, Figure, panels, series
from headwork.lab.toolkit import Claim, Erratum, Experiment, Verdict, about, exact, largest_difference, seeded

FOREVER = 1e9
"""As good as infinity for a scale."""


@dataclass(frozen=True, kw_only=True)
class Setup(Experiment, smallest={"n_queries": 50, "n_keys": 2}):
    """Random queries and keys; the first key is scaled."""

    n_queries: int = 1_000
    n_keys: int = 20
    d_head: int = 16
    scales: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0)
    rule: Literal["positive dot product", "all queries"] = "positive dot product"
    scaled: Literal["key", "all keys"] = "key"


@dataclass(frozen=True)
class Result:
    """The weight of the scaled key for each scale, beside the formula, and what the outputs come to."""

    setup: Setup
    positive: Bool[Tensor, "query"]
    weight: Float[Tensor, "scale query"]
    predicted: Float[Tensor, "scale query"]
    wrong: Float[Tensor, "scale query"]
    """The formula with the key among the others."""
    limit: Float[Tensor, "query"]
    """Its weight at a scale as good as infinity."""
    from_limit: float
    """How far the outputs there are from the value of the key, or from attention without it; and all from the value."""
    from_value: float

    @property
    def predicted_share(self) -> float:
        """A random query has a positive dot product with the key one time in two."""
        return 0.5 if self.setup.rule == "positive dot product" else 1.0

    @property
    def predicted_limit(self) -> Float[Tensor, "query"]:
        everybody = torch.ones_like(self.positive)
        return (self.positive if self.setup.rule == "positive dot product" else everybody).double()


@seeded
def run(setup: Setup) -> Result:
    q = torch.randn(setup.n_queries, setup.d_head).double()
    k = torch.randn(setup.n_keys, setup.d_head).double()
    v = torch.randn(setup.n_keys, setup.d_head).double()
    beta = 1 / math.sqrt(setup.d_head)
    score, *others = (beta * q @ k.mT).unbind(-1)
    rest = torch.logsumexp(torch.stack(others), 0)
    positive = attention_scores(q, k)[:, 0] > 0

    weight = torch.stack([attention_weights(q, _scale(setup, k, a))[:, 0] for a in setup.scales])
    predicted = torch.stack([torch.sigmoid(a * score - rest) for a in setup.scales])
    with_itself = torch.logaddexp(rest, score)
    wrong = torch.stack([torch.sigmoid(a * score - with_itself) for a in setup.scales])
    last = _scale(setup, k, FOREVER)
    without = scaled_dot_product_attention(
        q, k, v, visible=masks.key_padding(torch.arange(setup.n_keys)[None] > 0)[0, 0]
    )
    expected = torch.where(positive[:, None], v[0], without)
    out = scaled_dot_product_attention(q, last, v)
    return Result(
        setup,
        positive,
        weight,
        predicted,
        wrong,
        attention_weights(q, last)[:, 0],
        largest_difference(out, expected),
        largest_difference(out, v[0].expand_as(out)),
    )


def _scale(setup: Setup, k: Float[Tensor, "key d_head"], a: float) -> Float[Tensor, "key d_head"]:
    """The keys with the first (or, broken, all) times a."""
    if setup.scaled == "all keys":
        return a * k
    return torch.cat([a * k[:1], k[1:]])


def verdict(result: Result) -> Verdict:
    everybody = torch.ones_like(result.limit)
    return Verdict(
        checks=(
            about(
                "share of the queries that a key takes over",
                result.predicted_share,
                (result.limit > 0.5).double().mean().item(),
                sd=0.5 / len(result.positive) ** 0.5,
                near={"every query, as printed": 1, "a quarter": 0.25},
            ),
            exact(
                "weight in the limit, 1 or 0",
                largest_difference(result.limit, result.predicted_limit),
                near={"1 for every query": largest_difference(result.limit, everybody)},
            ),
            exact(
                "weight at every scale against the formula",
                _error(result),
                near={"the key among the others too": largest_difference(result.weight, result.wrong)},
            ),
            exact(
                "outputs: the value of the key, or attention without it",
                result.from_limit,
                near={"the value of the key for every query": result.from_value},
            ),
        ),
        why="Scaling multiplies the score, and a negative score becomes more negative.",
    )


def _error(result: Result) -> float:
    return largest_difference(result.weight, result.predicted)


def figure(result: Result) -> Figure:
    scales = torch.tensor(result.setup.scales)
    title = "A scaled key takes over where its dot product is positive, and vanishes elsewhere"
    drawing, (left, right) = panels(2, title=title)
    shown = [*result.positive.nonzero()[:3, 0].tolist(), *(~result.positive).nonzero()[:3, 0].tolist()]
    for index, query in enumerate(shown):
        first = index in (0, 3)
        sign, marker = ("positive", "o") if result.positive[query] else ("negative", "s")
        line = PREDICTED | {"label": "predicted" if index == 0 else ""}
        left.semilogx(scales.numpy(), result.predicted[:, query].numpy(), **line)
        style = MEASURED | series(marker) | {"label": f"measured, {sign}" if first else ""}
        left.semilogx(scales.numpy(), result.weight[:, query].numpy(), **style)
    left.set(xlabel="scale a of the key", ylabel="its weight, for six queries")
    left.set_ylim(-0.05, 1.75)
    left.set_yticks([0, 0.5, 1])
    left.legend(frameon=False, loc="upper left", title="dot product with the key", ncols=2)
    taken, predicted = ((t > 0.5).double().mean(1) for t in (result.weight, result.predicted))
    right.axhline(1, **PRINTED | {"label": "as printed: every query"})
    right.axhline(result.positive.double().mean().item(), color="0.6", linewidth=0.8, zorder=0)
    right.semilogx(scales.numpy(), predicted.numpy(), **PREDICTED)
    right.semilogx(scales.numpy(), taken.numpy(), **MEASURED)
    right.text(1, result.positive.double().mean().item() + 0.02, "positive dot product")
    right.set(xlabel="scale a of the key", ylabel="share of queries it has taken", ylim=(-0.05, 1.08))
    right.legend(frameon=False, loc="center right", bbox_to_anchor=(1, 0.75))
    return drawing


def _half(result: Result) -> str:
    taken, n = int((result.limit > 0.5).sum()), len(result.limit)
    lost = result.limit[~result.positive].max().item()
    return (
        f"Of {n:,} random queries {taken} give the scaled key the weight 1; "
        f"the other {n - taken}, whose dot product with it is negative, give it {lost:g}."
    )


CLAIM = Claim(
    __name__,
    __doc__,
    document="NYU",
    question="1.1(g)",
    setup=Setup(),
    small=Setup(n_queries=800, n_keys=7, d_head=5, scales=(1.0, 4.0, 64.0)),
    run=run,
    verdict=verdict,
    figure=figure,
    broken={
        "the printed answer: every query is taken over": {"rule": "all queries"},
        "all keys scaled together": {"scaled": "all keys"},
    },
    confidence="The weights are exact up to rounding; the share of queries is within 5 standard deviations (SD).",
    errata=(
        Erratum(
            where="1.1(g), third to fifth point",
            printed=r"As $\alpha$ becomes large, $A_{ji}$ approaches 1 for key $k_i$; "
            r"all outputs $h_j$ are heavily influenced by $v_i$",
            right=r"only for queries with $k_i^\top q_j > 0$; for $k_i^\top q_j < 0$ the weight approaches 0, "
            "and the output becomes attention over the other keys",
            measured=_half,
        ),
    ),
)
