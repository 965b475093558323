r"""The ends of n tokens meet after 1 layer of attention, or (n-1)/(K-1) of convolution; both read all places at once.

A convolution of size $K$ (odd, centred) lets an output see $r = (K-1)/2$ tokens to each side, and $L$ layers see
$rL$. So an output that depends on both ends of the text is there after $\lceil (n-1)/(K-1) \rceil$ layers, and the
last token depends on the first after $\lceil (n-1)/r \rceil$. With dilations $1, 2, 4, \dots$ the reach doubles in
each layer: $2^L - 1$ steps of $r$, so the last sees the first after $\lceil \log_2((n-1)/r + 1) \rceil$. Attention
needs one layer.

That is the one advantage of the three in the sheet's answer. The first, that "CNNs process sequences sequentially by
layers", is no difference: a Transformer has layers as well, and within a layer both compute all places at once. The
chain of operations from input to output is the same for every $n$, for convolution as for attention; it grows with
$n$ for a recurrent network. Nor is the third: a convolution takes any length, while a table of learned positions has
a last place.

It stops being true when attention is masked to a window of radius $r$: then it reaches as far as a convolution.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node

from headwork import masks
from headwork.lab.measuring import exists, influence
from headwork.lab.plots import COLOURS, MARKERS, MEASURED, PREDICTED, Figure, legend_outside, panels
from headwork.lab.toolkit import Claim, Erratum, Experiment, Verdict, same, seeded
from headwork.layers import LearnedPositions, MultiHeadAttention

CHANNELS = 4


@dataclass(frozen=True, kw_only=True)
class Setup(Experiment, smallest={"lengths": 4}):
    """Texts of several lengths, a size of the kernel, and a window that attention may have."""

    lengths: tuple[int, ...] = (10, 19, 30)
    kernel: int = 5
    window: int | None = None


@dataclass(frozen=True)
class Result:
    """Layers until ends meet, by length; chains of operations; and what a longer text does."""

    setup: Setup
    ends_meet: dict[str, list[int]]
    """Layers until some output depends on the first and on the last token."""
    last_sees_first: dict[str, list[int]]
    chain: dict[str, list[int]]
    """The most operations between an input and an output of one layer."""
    takes_longer: dict[str, bool]
    """Whether a layer made for the shortest text takes the longest one."""


@seeded
def run(setup: Setup) -> Result:
    convolution, dilated = partial(_convolution, setup), partial(_convolution, setup, grows=True)
    attention = _attention(setup)
    kinds: dict[str, Callable[[int], Callable[[Tensor], Tensor]]] = {
        "convolution": convolution,
        "dilated": dilated,
        "attention": lambda _: attention,
    }
    meet: dict[str, list[int]] = {name: [] for name in kinds}
    last: dict[str, list[int]] = {name: [] for name in kinds}
    for name, layer in kinds.items():
        for n in setup.lengths:
            both, far = _layers_needed(layer, n)
            meet[name].append(both)
            last[name].append(far)
    cell = nn.RNNCell(CHANNELS, CHANNELS).double()
    reads: dict[str, Callable[[Tensor], Tensor]] = {
        "convolution": convolution(0),
        "attention": attention,
        "recurrent": lambda x: _recur(cell, x),
    }
    chain = {name: [_chain(read(_text(n))) for n in setup.lengths] for name, read in reads.items()}
    shortest, longest = min(setup.lengths), max(setup.lengths)
    table = LearnedPositions(shortest, CHANNELS)
    takes = {
        "convolution": exists(lambda: convolution(0)(_text(longest))),
        "learned positions": exists(lambda: table.vectors(torch.arange(longest)[None], longest)),
    }
    return Result(setup, meet, last, chain, takes)


def _text(n: int) -> Tensor:
    return torch.randn(n, CHANNELS, dtype=torch.float64, requires_grad=True)


def _convolution(setup: Setup, layer: int, *, grows: bool = False) -> Callable[[Tensor], Tensor]:
    dilation = 2**layer if grows else 1
    convolution = nn.Conv1d(
        CHANNELS, CHANNELS, setup.kernel, padding=dilation * (setup.kernel // 2), dilation=dilation
    ).double()
    return lambda x: convolution(x.mT[None])[0].mT


def _attention(setup: Setup) -> Callable[[Tensor], Tensor]:
    layer = MultiHeadAttention(CHANNELS, 1).double()

    def attend(x: Tensor) -> Tensor:
        visible = None if setup.window is None else masks.window(len(x), radius=setup.window)
        out: Tensor = layer(x[None], None, visible)
        return out[0]

    return attend


def _layers_needed(layer: Callable[[int], Callable[[Tensor], Tensor]], n: int) -> tuple[int, int]:
    """Until an output depends on both ends, and until the last depends on the first; by the Jacobian of each layer."""
    reaches, both, depth = torch.eye(n), 0, 0
    while not reaches[-1, 0]:
        reaches = ((influence(layer(depth), _text(n).detach()) > 0).float() @ reaches > 0).float()
        depth += 1
        both = both or depth * int((reaches[:, 0] * reaches[:, -1]).any())
    return both, depth


def _recur(cell: nn.RNNCell, x: Tensor) -> Tensor:
    state = torch.zeros_like(x[0])
    for token in x:
        state = cell(token, state)
    return state


def _chain(out: Tensor) -> int:
    """The most operations between an input and the output, in PyTorch's own graph of the computation."""
    assert out.grad_fn is not None
    longest: dict[Node, int] = {}
    todo = [out.grad_fn]
    while todo:
        below = [each for each, _ in todo[-1].next_functions if each is not None]
        missing = [each for each in below if each not in longest]
        todo += missing
        if not missing:
            longest[todo.pop()] = max((1 + longest[each] for each in below), default=0)
    return longest[out.grad_fn]


def verdict(result: Result) -> Verdict:
    setup, k = result.setup, result.setup.kernel
    r = (k - 1) // 2
    checks = []
    for i, n in enumerate(setup.lengths):
        meet, far = math.ceil((n - 1) / (k - 1)), math.ceil((n - 1) / r)
        grown = math.ceil(math.log2((n - 1) / r + 1))
        checks += [
            same(
                f"layers until both ends of {n} meet, convolution",
                meet,
                result.ends_meet["convolution"][i],
                near={"r instead of K - 1": far, "one more": meet + 1},
            ),
            same(
                f"layers until the last of {n} sees the first, convolution",
                far,
                result.last_sees_first["convolution"][i],
                near={"(n - 1) / K": math.ceil((n - 1) / k), "one less": far - 1},
            ),
            same(
                f"layers until the last of {n} sees the first, dilated",
                grown,
                result.last_sees_first["dilated"][i],
                near={"one more": grown + 1, "not dilated": far if far != grown else 0},
            ),
            same(
                f"layers until the last of {n} sees the first, attention",
                1,
                result.last_sees_first["attention"][i],
                near={"two": 2},
            ),
        ]
    for name in ("convolution", "attention"):
        short, *_, long = result.chain[name]
        checks.append(
            same(
                f"chain of operations in a layer of {name}, longest text against shortest",
                short,
                long,
                near={"one more": short + 1},
            )
        )
    short, *_, long = result.chain["recurrent"]
    per_token = (long - short) / (setup.lengths[-1] - setup.lengths[0])
    checks += [
        same(
            "operations that a token adds to the chain, recurrent",
            round(short / setup.lengths[0]),
            per_token,
            near={"none": 0},
        ),
        same(
            "a convolution takes a longer text",
            "yes",
            "yes" if result.takes_longer["convolution"] else "no",
            near={"as printed": "no"},
        ),
        same(
            "learned positions take a longer text",
            "no",
            "yes" if result.takes_longer["learned positions"] else "no",
            near={"as printed": "yes"},
        ),
    ]
    return Verdict(tuple(checks), why="A kernel has a fixed reach; attention has an edge between any two tokens.")


def figure(result: Result) -> Figure:
    setup = result.setup
    drawing, (ax,) = panels(title="Until the last token sees the first: one layer of attention, many of convolution")
    fine = range(2, max(setup.lengths) + 1)
    r = (setup.kernel - 1) // 2
    ax.step(fine, [math.ceil((n - 1) / r) for n in fine], where="mid", **PREDICTED)
    ax.step(fine, [math.ceil(math.log2((n - 1) / r + 1)) for n in fine], where="mid", **PREDICTED | {"label": ""})
    ax.step(fine, [1] * len(fine), **PREDICTED | {"label": ""})
    for (name, layers), marker, colour in zip(result.last_sees_first.items(), MARKERS, COLOURS, strict=False):
        ax.plot(setup.lengths, layers, **MEASURED | {"marker": marker, "color": colour, "label": f"measured, {name}"})
    ax.set(xlabel="tokens n", xticks=setup.lengths, ylabel=f"layers (kernel of {setup.kernel})", ylim=(0, None))
    ax.locator_params(axis="y", integer=True)
    legend_outside(ax)
    return drawing


CLAIM = Claim(
    __name__,
    __doc__,
    document="QMUL",
    question="2.3",
    also=("C182 3(b)",),
    setup=Setup(),
    small=Setup(lengths=(10, 14), kernel=3),
    run=run,
    verdict=verdict,
    figure=figure,
    broken={"attention in a window of radius 2": {"window": 2}},
    confidence="Exact: everything is counted.",
    errata=(
        Erratum(
            where="2.3(a)",
            printed="CNNs process sequences sequentially by layers, the Transformer computes all points in parallel",
            right="both compute all places at once, and both go layer by layer; it is the recurrent network "
            "that is sequential",
            measured=lambda result: (
                f"The chain of operations of one layer is {result.chain['convolution'][0]} for a convolution and "
                f"{result.chain['attention'][0]} for attention, with {result.setup.lengths[0]} tokens and with "
                f"{result.setup.lengths[-1]}; of a recurrent network {result.chain['recurrent'][0]} and "
                f"{result.chain['recurrent'][-1]}."
            ),
        ),
        Erratum(
            where="2.3(c)",
            printed="position encoding allows sequences of any length without truncation or padding, which "
            "CNNs require",
            right="convolutions take any length; a table of learned positions has a last place, and batches "
            "of texts are padded",
            measured=lambda result: (
                f"Made for {min(result.setup.lengths)} tokens and given {max(result.setup.lengths)}: the "
                "convolution takes "
                f"them ({result.takes_longer['convolution']}), learned positions do not "
                f"({result.takes_longer['learned positions']})."
            ),
        ),
    ),
)
