r"""Projections cost n d^2 FLOPs and attention n^2 d, equal at n = 2 d_model tokens; in time they grow as n and n^2.

For $n_t$ queries and $n_s$ keys, a multiplication and an addition being 2 FLOPs:

| step | FLOPs |
|---|---|
| queries and outputs: two products with $d \times d$ | $2 \cdot 2\,n_t d^2$ |
| keys and values: two products with $d \times d$ | $2 \cdot 2\,n_s d^2$ |
| scores, and the mix of the values | $2 \cdot 2\,n_t n_s d$ |

The number of heads cancels: $h$ heads of width $d/h$. With $n_t = n_s = n$ the projections need $8nd^2$ and attention
needs $4n^2d$; they are equal at $n = 2d$. For short sequences the projections are the bottleneck, for long ones
attention is. Where the two cross in *time* depends on the machine, and is drawn but not predicted: attention also takes
$h\,n^2$ exponentials, and its thin matrices run at a lower speed.
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

from headwork.functional import fused_attention, scaled_dot_product_attention
from headwork.lab.measuring import best_times
from headwork.lab.plots import MEASURED, PREDICTED, Figure, panels, series
from headwork.lab.toolkit import Claim, Experiment, Verdict, about, same, seeded
from headwork.layers import MultiHeadAttention

EXPONENT = 0.02
"""The standard deviation of a fitted exponent from run to run: measured on two cores, idle and busy."""
LONG = 4
"""From this many times d_model tokens on, the time goes into the products and not into calling them."""


@dataclass(frozen=True, kw_only=True)
class Setup(Experiment):
    """One attention layer, and sequences of several lengths."""

    d_model: int = 256
    n_heads: int = 4
    lengths: tuple[int, ...] = (256, 512, 1024, 2048, 4096)
    cross_lengths: tuple[int, int] = (37, 101)
    """As many queries and keys, for the count."""
    rounds: int = 8
    attends_between: Literal["tokens", "features"] = "tokens"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.d_model % self.n_heads:
            raise ValueError(f"n_heads must divide d_model, got n_heads={self.n_heads} and d_model={self.d_model}")
        if len({n for n in self.lengths if n >= LONG * self.d_model}) < 2:
            raise ValueError(
                f"lengths must hold two of {LONG} d_model = {LONG * self.d_model} or more, got {self.lengths}"
            )


@dataclass(frozen=True)
class Result:
    """FLOPs as PyTorch counts them, and seconds of one core, both for projections and for attention."""

    setup: Setup
    cross_flops: tuple[int, int]
    crossing_flops: tuple[int, int]
    """At 2 d_model tokens."""
    flops: Float[Tensor, "2 length"]
    seconds: Float[Tensor, "2 length"]

    @property
    def exponents(self) -> tuple[float, float]:
        """The slope of log time over log length, for long sequences."""
        lengths = torch.tensor(self.setup.lengths)
        long = lengths >= LONG * self.setup.d_model
        log_n = lengths[long].double().log()
        away = log_n - log_n.mean()
        projections, attention = (self.seconds[:, long].double().log() @ away / away.square().sum()).tolist()
        return projections, attention


@seeded
def run(setup: Setup) -> Result:
    n_t, n_s = setup.cross_lengths
    crossing = 2 * setup.d_model
    flops = [_count(setup, n, n) for n in setup.lengths]
    steps = [step for n in setup.lengths for step in _steps(setup, n, n, fused_attention)]
    with torch.no_grad():
        seconds = torch.tensor(best_times(steps, rounds=setup.rounds), dtype=torch.float64)
    return Result(
        setup,
        _count(setup, n_t, n_s),
        _count(setup, crossing, crossing),
        torch.tensor(flops, dtype=torch.float64).T,
        rearrange(seconds, "(length two) -> two length", two=2),
    )


def _count(setup: Setup, n_t: int, n_s: int) -> tuple[int, int]:
    """PyTorch's own count: the linear maps of the layer as it runs, and attention on the readable path, where every
    product is known; shapes without numbers are enough."""
    with torch.device("meta"):
        layer = MultiHeadAttention(setup.d_model, setup.n_heads)
        x, memory = torch.randn(1, n_t, setup.d_model), torch.randn(1, n_s, setup.d_model)
        _, attend = _steps(setup, n_t, n_s, scaled_dot_product_attention)
    with FlopCounterMode(display=False) as counter:
        layer(x, memory)
    by_module = counter.get_flop_counts()
    maps = [sum(by_module[f"MultiHeadAttention.{name}"].values()) for name in ("query", "key", "value", "out")]
    with FlopCounterMode(display=False) as counter:
        attend()
    return sum(maps), counter.get_total_flops()


def _steps(
    setup: Setup, n_t: int, n_s: int, attention: Callable[[Tensor, Tensor, Tensor], Tensor]
) -> tuple[Callable[[], object], Callable[[], object]]:
    """The projections of a layer, and the attention between what they give."""
    layer = MultiHeadAttention(setup.d_model, setup.n_heads)
    x, memory = torch.randn(n_t, setup.d_model), torch.randn(n_s, setup.d_model)
    q, k, v = (rearrange(t, "token (head d) -> 1 head token d", head=setup.n_heads) for t in (x, memory, memory))
    if setup.attends_between == "features":
        q, k, v = q.mT, q.mT, q.mT
    return partial(_project, layer, x, memory), partial(attention, q, k, v)


def _project(layer: MultiHeadAttention, x: Tensor, memory: Tensor) -> None:
    """Queries, keys, values and outputs; what the inputs hold does not matter."""
    for linear, t in ((layer.query, x), (layer.key, memory), (layer.value, memory), (layer.out, x)):
        linear(t)


def verdict(result: Result) -> Verdict:
    setup, d = result.setup, result.setup.d_model
    n_t, n_s = setup.cross_lengths
    for_projections, for_attention = result.exponents
    middle = math.sqrt(LONG * d * setup.lengths[-1])
    cross = f"for {n_t} queries and {n_s} keys"
    return Verdict(
        checks=(
            same(
                f"FLOPs of the projections {cross}",
                4 * (n_t + n_s) * d**2,
                result.cross_flops[0],
                near={"three projections": 2 * (n_t + 2 * n_s) * d**2, "of n_t alone": 8 * n_t * d**2},
            ),
            same(
                f"FLOPs of attention {cross}",
                4 * n_t * n_s * d,
                result.cross_flops[1],
                near={"scores alone": 2 * n_t * n_s * d, "n_s^2": 4 * n_s**2 * d},
            ),
            same(
                "FLOPs of attention at 2 d_model tokens, by those of the projections",
                1,
                result.crossing_flops[1] / result.crossing_flops[0],
                near={"equal at d_model tokens already": 2, "equal at 4 d_model": 0.5},
            ),
            about(
                "exponent of n in the time of attention",
                2,
                for_attention,
                sd=EXPONENT,
                near={"1.5": 1.5, "n ln n": 1 + 1 / math.log(middle)},
            ),
            about(
                "exponent of n in the time of the projections",
                1,
                for_projections,
                sd=EXPONENT,
                near={"1.5": 1.5, "0.7": 0.7},
            ),
        ),
        why="Each token is projected once, and compared with every other token.",
    )


def figure(result: Result) -> Figure:
    setup, lengths = result.setup, torch.tensor(result.setup.lengths).double()
    d, n = setup.d_model, torch.logspace(math.log10(setup.d_model / 2), math.log10(max(setup.lengths)), 50).double()
    drawing, (left, right) = panels(
        2, title="Projections grow as n, attention as n^2: long sequences belong to attention"
    )
    fits = [(result.seconds[i] / lengths ** (i + 1)).log().mean().exp() for i in (0, 1)]
    for power, (name, marker) in enumerate((("projections", "o"), ("attention", "s")), start=1):
        style = PREDICTED | {"label": f"predicted: as n^{power}", "linestyle": ("--", ":")[power - 1]}
        left.loglog(n.numpy(), (1e3 * fits[power - 1] * n**power).numpy(), **style)
        style = MEASURED | series(marker) | {"label": f"measured: {name}"}
        left.loglog(lengths.numpy(), (1e3 * result.seconds[power - 1]).numpy(), **style)
    left.set(xlabel="tokens n", ylabel="time on one core (ms)")
    right.loglog(n.numpy(), (n / (2 * d)).numpy(), **PREDICTED | {"label": "predicted: n / (2 d_model)"})
    for name, marker, ratio in (
        ("FLOPs", "o", result.flops[1] / result.flops[0]),
        ("time", "s", result.seconds[1] / result.seconds[0]),
    ):
        right.loglog(lengths.numpy(), ratio.numpy(), **MEASURED | series(marker) | {"label": f"measured: {name}"})
    right.axhline(1, color="0.6", linewidth=0.8, zorder=0)
    right.axvline(2 * d, ymax=0.65, color="0.6", linewidth=0.8, zorder=0)
    right.text(2.1 * d, right.get_ylim()[0] * 1.3, "2 d_model")
    right.set(xlabel="tokens n", ylabel="attention / projections")
    right.set_yticks([0.25, 0.5, 1, 2, 4, 8], ["1/4", "1/2", "1", "2", "4", "8"])
    for ax in (left, right):
        ax.set_xticks(setup.lengths, [str(length) for length in setup.lengths])
        ax.minorticks_off()
        ax.legend(frameon=False, loc="upper left")
    return drawing


CLAIM = Claim(
    __name__,
    __doc__,
    document="EECS 182",
    question="2(c)",
    also=(
        "EECS 182 2(d)",
        "C182 1(c) ii",
    ),
    setup=Setup(),
    small=Setup(lengths=(1024, 2048), cross_lengths=(3, 5), rounds=4),
    run=run,
    verdict=verdict,
    figure=figure,
    broken={"attention between features instead of tokens": {"attends_between": "features"}},
    confidence="FLOPs are counted exactly. Times are the best of several rounds on one core, other programs left out; "
    f"exponents are within 5 standard deviations (SD, {EXPONENT:g} each).",
)
