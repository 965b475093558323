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

Time is another matter than FLOPs: small products along an axis run at a lower speed than large ones. It is measured
against the fused attention of PyTorch, and found shorter for large images; how much is not predicted.
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

from headwork.functional import (
    fused_attention,
    gaussian_attention,
    gaussian_attention_by_table,
    scaled_dot_product_attention,
)
from headwork.lab.measuring import best_times
from headwork.lab.plots import COLOURS, MARKERS, MEASURED, PREDICTED, Figure, panels, series
from headwork.lab.toolkit import Claim, Experiment, Verdict, at_most, exact, largest_difference, same, seeded
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
    """FLOPs of each step as PyTorch counts them, seconds of scores and mixing, and how far the Gaussian ways differ."""

    setup: Setup
    projections: dict[Kind, Float[Tensor, "side"]]
    attention: dict[Kind, Float[Tensor, "side"]]
    """Scores and mixing together."""
    seconds: dict[Kind, Float[Tensor, "timed_side"]]
    difference: float
    other_centre: float
    """By axes against by table, for the same head and for one that looks one pixel further."""

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
    image = torch.randn(1, 7, 9, setup.d, dtype=torch.float64)
    alpha, centre = torch.tensor([0.3]).double(), torch.tensor([[1.0, -2.0]]).double()
    by_axes = gaussian_attention(image, centre, alpha)
    return Result(
        setup,
        {kind: torch.tensor(counts, dtype=torch.float64) for kind, counts in projections.items()},
        {kind: torch.tensor(counts, dtype=torch.float64) for kind, counts in attention.items()},
        _time(setup),
        *(
            largest_difference(by_axes, gaussian_attention_by_table(image, where, alpha))
            for where in (centre, centre + 1)
        ),
    )


def _time(setup: Setup) -> dict[Kind, Float[Tensor, "timed_side"]]:
    """Scores and mixing, without projections; absolute scores by the fastest way there is."""
    gaussian = gaussian_attention if setup.gaussian == "by axes" else gaussian_attention_by_table
    steps: list[Callable[[], object]] = []
    for side in setup.timed_sides:
        q, k, v = torch.randn(3, 1, 1, side**2, setup.d)
        image = rearrange(v, "1 1 (row column) d -> 1 row column d", row=side)
        steps.append(partial(fused_attention, q, k, v))
        steps.append(partial(gaussian, image, torch.tensor([[1.0, -2.0]]), torch.tensor([0.3])))
    with torch.no_grad():
        seconds = torch.tensor(best_times(steps, rounds=setup.rounds), dtype=torch.float64)
    return {"absolute": seconds[0::2], "by axes": seconds[1::2]}


def _count(setup: Setup, side: int) -> dict[Kind, tuple[int, int]]:
    """Projections, and scores with mixing: by PyTorch's own counter, on readable paths, where it sees every product."""
    d, image = setup.d, torch.zeros(1, side, side, setup.d)
    tokens, head = image.flatten(1, 2), (torch.zeros(1, 2), torch.ones(1))
    absolute, gaussian = MultiHeadAttention(d, 1, bias=False), GaussianAttention(d, 1, d_value=d, bias=False)
    code = RelativePositionalEmbedding((side, side), *head)

    def by_table() -> Tensor:
        return code().flatten(3).softmax(-1).reshape(side**2, side**2) @ tokens[0]

    of_absolute = _flops(
        lambda: [layer(tokens) for layer in (absolute.query, absolute.key, absolute.value, absolute.out)]
    )
    of_gaussian = _flops(lambda: [layer(tokens) for layer in (gaussian.get_submodule("value"), gaussian.out)])
    table = of_gaussian, _flops(by_table)
    axes = of_gaussian, _flops(lambda: gaussian_attention(image, *head))
    return {
        "absolute": (of_absolute, _flops(lambda: scaled_dot_product_attention(tokens, tokens, tokens))),
        "by table": table,
        "by axes": axes if setup.gaussian == "by axes" else table,
    }


def _flops(step: Callable[[], object]) -> int:
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        step()
    return counter.get_total_flops()


def predict(setup: Setup, kind: Kind, n: float) -> float:
    match kind:
        case "absolute":
            return 4 * n**2 * setup.d
        case "by table":
            return 2 * n**2 * (D_P + setup.d)
        case "by axes":
            return 4 * n**1.5 * setup.d


def predict_near(setup: Setup, kind: Kind, n: float) -> dict[str, float]:
    match kind:
        case "absolute":
            return {"scores alone": 2 * n**2 * setup.d, "N^1.5": 4 * n**1.5 * setup.d}
        case "by table":
            return {"scores as wide as content": 4 * n**2 * setup.d, "no scores": 2 * n**2 * setup.d}
        case "by axes":
            return {"one axis": 2 * n**1.5 * setup.d, "N ln N": 4 * n * math.log(n) * setup.d}


def verdict(result: Result) -> Verdict:
    setup, n, d = result.setup, result.n[-1].item(), result.setup.d
    shorter = (result.seconds["by axes"][-1] / result.seconds["absolute"][-1]).item()
    as_flops = result.timed_n[-1].item() ** -0.5
    return Verdict(
        checks=(
            *(
                same(
                    f"FLOPs of scores and mixing, N = {size:g}, {NAMES[kind]}",
                    predict(setup, kind, size),
                    seen,
                    near=predict_near(setup, kind, size),
                )
                for kind in KINDS
                for size, seen in zip(result.n.tolist(), result.attention[kind].tolist(), strict=True)
            ),
            same(
                "FLOPs of the projections, absolute",
                8 * n * d**2,
                result.projections["absolute"][-1].item(),
                near={"without W_out": 6 * n * d**2},
            ),
            same(
                "FLOPs of the projections, Gaussian",
                4 * n * d**2,
                result.projections["by axes"][-1].item(),
                near={"queries and keys too": 8 * n * d**2},
            ),
            exact("by axes against by table", result.difference, near={"one pixel further": result.other_centre}),
            at_most(
                f"time by axes, as a share of that of absolute scores, N = {result.timed_n[-1]:g}",
                1,
                shorter,
                near={"as the FLOPs, 1 / sqrt(N)": as_flops},
            ),
        ),
        why="A softmax of a sum over two axes is a product of two softmaxes, each over one axis of sqrt(N) pixels.",
    )


def figure(result: Result) -> Figure:
    setup, n = result.setup, result.n
    title = "By rows and columns a Gaussian head costs N^1.5, and attention by content N^2"
    drawing, (left, right) = panels(2, title=title)
    for kind, marker, colour in zip(KINDS, MARKERS, COLOURS, strict=False):
        predicted = [predict(setup, kind, size) for size in n.tolist()]
        left.loglog(n.numpy(), predicted, **PREDICTED | {"label": "predicted" if kind == "absolute" else None})
        style = MEASURED | series(marker) | {"color": colour, "label": f"measured, {NAMES[kind]}"}
        left.loglog(n.numpy(), result.attention[kind].numpy(), **style)
    left.set_ylim(top=60 * result.attention["absolute"].max().item())
    right.loglog(n.numpy(), n.rsqrt().numpy(), **PREDICTED | {"label": "predicted for FLOPs: 1 / sqrt(N)"})
    for where, of, marker, colour, name in (
        (n, result.attention, "o", COLOURS[0], "FLOPs"),
        (result.timed_n, result.seconds, "s", COLOURS[1], "time (not predicted)"),
    ):
        share = of["by axes"] / of["absolute"]
        style = MEASURED | series(marker) | {"color": colour, "label": f"measured, {name}"}
        right.loglog(where.numpy(), share.numpy(), **style)
    right.set_ylim(top=20 * right.get_ylim()[1])
    left.set(xlabel="pixels N", ylabel="FLOPs of scores and mixing")
    right.set(xlabel="pixels N", ylabel="Gaussian by axes / absolute")
    left.legend(frameon=False, fontsize=7, loc="upper left")
    right.legend(frameon=False, fontsize=7, loc="upper right")
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
    confidence="The counts are exact, and PyTorch's; the time is the best of several rounds on one core.",
)
