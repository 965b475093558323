r"""Beside its projections a head mixes at a cost of N^2 D, by rows and columns of a Gaussian only N sqrt(N) D.

For one head on $N$ pixels with $D_i = D_{hid} = D_o = D$, a multiplication and an addition being 2 FLOPs:

| step | absolute | Gaussian, by table | Gaussian, by axes |
|---|---|---|---|
| projections | $3 \cdot 2ND^2$ | $2ND^2$ | $2ND^2$ |
| scores | $2N^2D$ | $2N^2D_p$ | $4N$ exponentials at most |
| mixing the values | $2N^2D$ | $2N^2D$ | $2 \cdot 2N\sqrt N D$ |

(The layers measured here also have $W_{out}$, another $2ND^2$ in each column.) With the table, $D_p = 3$ makes the
scores cheap, but the mixing stays, so both are $O(N^2D + ND^2)$. But the table need not be built: the exponent is a
sum over the two axes, so the weights are a product, and so is their softmax. Mixing first along the rows of $\sqrt N$
pixels and then along the columns is exact and costs $O(N^{3/2}D + ND^2)$.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from headwork.figures import MARKERS, MEASURED, PREDICTED, Figure, panels
from headwork.functional import gaussian_attention, gaussian_attention_by_table, scaled_dot_product_attention
from headwork.inspection import cost
from headwork.lab.claim import Claim, Experiment, seeded
from headwork.lab.measuring import best_times, largest_difference
from headwork.lab.verdict import Verdict, about, at_most, same
from headwork.layers import GaussianAttention, MultiHeadAttention, RelativePositionalEmbedding

D_P = 3
Kind = Literal["absolute", "by table", "by axes"]
KINDS: tuple[Kind, ...] = ("absolute", "by table", "by axes")
NAMES = {"absolute": "absolute", "by table": "Gaussian by table", "by axes": "Gaussian by axes"}


@dataclass(frozen=True, kw_only=True)
class Setup(Experiment):
    """Square images of several sizes, one head, and how the Gaussian one is computed."""

    sides: tuple[int, ...] = (8, 12, 16, 24, 32)
    timed_sides: tuple[int, ...] = (16, 24, 32, 48, 64)
    d: int = 32
    rounds: int = 4
    gaussian: Literal["by axes", "by table"] = "by axes"


@dataclass(frozen=True)
class Result:
    """FLOPs of each step as counted, seconds of scores and mixing, and how far the two Gaussian ways are apart."""

    setup: Setup
    projections: dict[Kind, Float[Tensor, "side"]]
    attention: dict[Kind, Float[Tensor, "side"]]
    """Scores and mixing together."""
    seconds: dict[Kind, Float[Tensor, "timed_side"]]
    difference: float

    @property
    def n(self) -> Float[Tensor, "side"]:
        return torch.tensor(self.setup.sides, dtype=torch.float64).square()

    @property
    def timed_n(self) -> Float[Tensor, "timed_side"]:
        return torch.tensor(self.setup.timed_sides, dtype=torch.float64).square()


@seeded
def run(setup: Setup) -> Result:
    projections: dict[Kind, list[int]] = {kind: [] for kind in KINDS}
    attention: dict[Kind, list[int]] = {kind: [] for kind in KINDS}
    for side in setup.sides:
        for kind, (of_projections, of_attention) in _count(setup, side).items():
            projections[kind].append(of_projections)
            attention[kind].append(of_attention)
    image, head = torch.randn(1, 7, 9, setup.d), (torch.tensor([[1.0, -2.0]]), torch.tensor([0.3]))
    return Result(
        setup,
        {kind: torch.tensor(counts, dtype=torch.float64) for kind, counts in projections.items()},
        {kind: torch.tensor(counts, dtype=torch.float64) for kind, counts in attention.items()},
        _time(setup),
        largest_difference(gaussian_attention(image, *head), gaussian_attention_by_table(image, *head)),
    )


def _time(setup: Setup) -> dict[Kind, Float[Tensor, "timed_side"]]:
    """Scores and mixing, without projections."""
    gaussian = gaussian_attention if setup.gaussian == "by axes" else gaussian_attention_by_table
    steps: list[Callable[[], object]] = []
    for side in setup.timed_sides:
        q, k, v = torch.randn(3, 1, side**2, setup.d)
        image = rearrange(v, "1 (row column) d -> 1 row column d", row=side)
        steps.append(partial(scaled_dot_product_attention, q, k, v))
        steps.append(partial(gaussian, image, torch.tensor([[1.0, -2.0]]), torch.tensor([0.3])))
    with torch.no_grad():
        seconds = torch.tensor(best_times(steps, rounds=setup.rounds), dtype=torch.float64)
    return {"absolute": seconds[0::2], "by axes": seconds[1::2]}


def _count(setup: Setup, side: int) -> dict[Kind, tuple[int, int]]:
    """Projections, and scores with mixing."""
    d, image = setup.d, torch.zeros(1, side, side, setup.d)
    tokens = image.flatten(1, 2)
    absolute = cost(MultiHeadAttention(d, 1, bias=False), tokens, tokens)
    axes = cost(GaussianAttention(d, 1, d_value=d, bias=False), image)
    code = RelativePositionalEmbedding((side, side), torch.zeros(1, 2), torch.ones(1))
    with FlopCounterMode(display=False) as counter:
        weights = code().flatten(3).softmax(-1).reshape(side**2, side**2)
        weights @ tokens[0]
    by_table = axes.projections, counter.get_total_flops()
    return {
        "absolute": (absolute.projections, absolute.attention),
        "by table": by_table,
        "by axes": (axes.projections, axes.attention) if setup.gaussian == "by axes" else by_table,
    }


def _predicted(setup: Setup, kind: Kind, n: float) -> float:
    match kind:
        case "absolute":
            return 4 * n**2 * setup.d
        case "by table":
            return 2 * n**2 * (D_P + setup.d)
        case "by axes":
            return 4 * n**1.5 * setup.d


def verdict(result: Result) -> Verdict:
    setup, n = result.setup, result.n[-1].item()
    shorter = result.seconds["by axes"][-1] / result.seconds["absolute"][-1]
    return Verdict(
        checks=(
            *(
                same(f"FLOPs of scores and mixing, {NAMES[kind]}", _predicted(setup, kind, n), seen[-1].item())
                for kind, seen in result.attention.items()
            ),
            *(
                about(f"exponent of N, {NAMES[kind]}", power, _slope(result.n, result.attention[kind]), 1e-6)
                for kind, power in zip(KINDS, (2, 2, 1.5), strict=True)
            ),
            same("FLOPs of the projections, absolute", 8 * n * setup.d**2, result.projections["absolute"][-1].item()),
            same("FLOPs of the projections, Gaussian", 4 * n * setup.d**2, result.projections["by axes"][-1].item()),
            about("by axes against by table", 0, result.difference, 1e-4),
            at_most("time by axes, as a share of that of absolute scores", 0.5, shorter.item()),
        ),
        why="A softmax of a sum over two axes is a product of two softmaxes, each over one axis of sqrt(N) pixels.",
    )


def _slope(n: Tensor, flops: Tensor) -> float:
    return ((flops[-1] / flops[0]).log() / (n[-1] / n[0]).log()).item()


def figure(result: Result) -> Figure:
    setup, n = result.setup, result.n
    title = "By rows and columns a Gaussian head costs N^1.5, and attention by content N^2"
    drawing, (left, right) = panels(2, title=title)
    for kind, marker in zip(KINDS, MARKERS, strict=False):
        predicted = [_predicted(setup, kind, size) for size in n.tolist()]
        left.loglog(n.numpy(), predicted, **PREDICTED | {"label": "predicted" if kind == "absolute" else None})
        style = MEASURED | {"marker": marker, "label": f"measured, {NAMES[kind]}"}
        left.loglog(n.numpy(), result.attention[kind].numpy(), **style)
    left.set_ylim(top=20 * result.attention["absolute"].max().item())
    fine = torch.logspace(math.log10(min(n[0], result.timed_n[0])), math.log10(max(n[-1], result.timed_n[-1])), 50)
    right.loglog(fine.numpy(), fine.rsqrt().numpy(), **PREDICTED | {"label": "predicted: 1 / sqrt(N)"})
    for where, of, marker, name in ((n, result.attention, "o", "FLOPs"), (result.timed_n, result.seconds, "s", "time")):
        share = of["by axes"] / of["absolute"]
        right.loglog(where.numpy(), share.numpy(), **MEASURED | {"marker": marker, "label": f"measured, {name}"})
    left.set(xlabel="pixels N", ylabel="FLOPs of scores and mixing")
    right.set(xlabel="pixels N", ylabel="Gaussian by axes / absolute")
    left.legend(frameon=False, fontsize=7)
    right.legend(frameon=False, fontsize=7)
    return drawing


CLAIM = Claim(
    __name__,
    __doc__,
    document="ETH",
    question="1(b.2)",
    setup=Setup(),
    small=Setup(sides=(4, 8), timed_sides=(8, 40), rounds=3),
    run=run,
    verdict=verdict,
    figure=figure,
    broken={"the table of all pairs is built": {"gaussian": "by table"}},
    confidence="The counts are exact; the time is the best of several rounds, and its bound is a wide one.",
)
