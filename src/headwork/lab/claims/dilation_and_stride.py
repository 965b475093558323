r"""Dilation only moves the heads apart; a stride asks fewer queries, and no layer that asks every pixel gives it.

A dilated convolution reads $Z_{q + d\delta}$ with $\delta \in \Delta_K$. So head $h$ looks at $d \cdot f(h)$ in place
of $f(h)$: as many heads, matrices and tokens as before, and any $d$, up to the size of the image, beyond which a head
finds only the border (e.2).

A strided convolution has an output at every $s$-th pixel only. Self-attention has as many outputs as inputs, so it
cannot be equal to it; but what the strided one gives is among what the unstrided one gives:

$$\text{strided}(Z)_{i,j} = \text{unstrided}(Z)_{si,\,sj}$$

Attention that asks only these $\lceil H/s \rceil \times \lceil W/s \rceil$ queries (or asks all of them, followed by
a choice) is the strided convolution, at about $1/s^2$ of the cost (e.3).
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headwork.convert import attention_from_convolution
from headwork.lab.plots import FLOOR, MEASURED, PREDICTED, Figure, on_log_axis, panels, series, whole_ticks
from headwork.lab.toolkit import Claim, Experiment, Verdict, at_most, largest_difference, same, seeded


@dataclass(frozen=True, kw_only=True)
class Setup(Experiment):
    """An image, a kernel with as much padding as it reaches, several dilations and strides."""

    n_rows: int = 23
    n_columns: int = 19
    kernel: int = 3
    channels: int = 2
    n_out: int = 3
    dilations: tuple[int, ...] = (1, 2, 3, 5, 8)
    strides: tuple[int, ...] = (1, 2, 3, 4, 6)
    tolerance: float = 1e-9
    heads: Literal["apart", "together"] = "apart"
    """Whether the heads of a dilated convolution stand apart, or where they stand without dilation."""
    first_query: Literal["corner", "next to it"] = "corner"


@dataclass(frozen=True)
class Result:
    """Attention against convolution, by dilation and by stride, and how many queries and heads it took."""

    setup: Setup
    by_dilation: Float[Tensor, "dilation"]
    n_heads: tuple[int, ...]
    by_stride: Float[Tensor, "stride"]
    chosen: Float[Tensor, "stride"]
    """The strided convolution against every s-th output of attention without stride."""
    n_queries: tuple[int, ...]
    image: Float[Tensor, "row column"]
    dense: Float[Tensor, "row column"]
    other_dilation: float
    """Attention without dilation against the most dilated convolution."""
    other_corner: float
    """Every s-th output from the second one on, against the strided convolution."""


@seeded
def run(setup: Setup) -> Result:
    image = 2 * torch.rand(1, setup.channels, setup.n_rows, setup.n_columns, dtype=torch.float64) - 1
    first = nn.Conv2d(setup.channels, setup.n_out, setup.kernel).double()
    by_dilation, n_heads, by_stride, chosen, n_queries = [], [], [], [], []
    for dilation in setup.dilations:
        conv = _convolution(setup, first, dilation=dilation)
        attention = attention_from_convolution(conv, setup.tolerance)
        if setup.heads == "together":
            near = torch.cartesian_prod(*(2 * [torch.arange(setup.kernel).double()]))
            attention.attention.set_centres(near, attention.attention.alpha)
        by_dilation.append(largest_difference(attention(image), conv(image)))
        n_heads.append(attention.attention.n_heads)
    dense = attention_from_convolution(_convolution(setup, first), setup.tolerance)(image)
    start = 0 if setup.first_query == "corner" else 1
    for stride in setup.strides:
        conv = _convolution(setup, first, stride=stride)
        strided = conv(image)
        attention = attention_from_convolution(conv, setup.tolerance)
        by_stride.append(largest_difference(attention(image), strided))
        choice = dense.roll((-start, -start), (2, 3))[:, :, ::stride, ::stride]
        chosen.append(largest_difference(choice, strided))
        rows, columns = attention.corners((setup.n_rows, setup.n_columns))
        n_queries.append(len(rows) * len(columns))
    return Result(
        setup,
        torch.tensor(by_dilation),
        tuple(n_heads),
        torch.tensor(by_stride),
        torch.tensor(chosen),
        tuple(n_queries),
        image[0, 0],
        dense[0, 0],
        largest_difference(dense, _convolution(setup, first, dilation=setup.dilations[-1])(image)),
        largest_difference(dense.roll((-1, -1), (2, 3))[:, :, ::stride, ::stride], strided),
    )


def _convolution(setup: Setup, like: nn.Conv2d, *, dilation: int = 1, stride: int = 1) -> nn.Conv2d:
    """PyTorch's, padded so that without stride the image keeps its size."""
    conv = nn.Conv2d(
        setup.channels,
        setup.n_out,
        setup.kernel,
        stride,
        padding=dilation * (setup.kernel // 2),
        dilation=dilation,
        padding_mode="replicate",
    ).double()
    conv.load_state_dict(like.state_dict())
    return conv.requires_grad_(False)


def predict_queries(setup: Setup, stride: int) -> int:
    return -(-setup.n_rows // stride) * -(-setup.n_columns // stride)


def verdict(result: Result) -> Verdict:
    setup = result.setup
    return Verdict(
        checks=(
            at_most(
                "dilated attention against convolution",
                setup.tolerance,
                result.by_dilation.max().item(),
                near={"heads that stay together": at_most("", setup.tolerance, result.other_dilation)},
            ),
            same(
                "heads, at the largest dilation",
                setup.kernel**2,
                result.n_heads[-1],
                near={"one for each pixel in reach": (setup.dilations[-1] * (setup.kernel - 1) + 1) ** 2},
            ),
            at_most(
                "strided attention against convolution",
                setup.tolerance,
                result.by_stride.max().item(),
                near={"queries one pixel too late": at_most("", setup.tolerance, result.other_corner)},
            ),
            at_most(
                "every s-th output without stride, the same",
                setup.tolerance,
                result.chosen.max().item(),
                near={"from the second one on": at_most("", setup.tolerance, result.other_corner)},
            ),
            *(
                same(
                    f"queries for a stride of {stride}",
                    predict_queries(setup, stride),
                    seen,
                    near={"one more along the rows": predict_queries(setup, stride) + -(-setup.n_columns // stride)}
                    | ({"rounded down": setup.n_rows // stride * (setup.n_columns // stride)} if stride > 1 else {}),
                )
                for stride, seen in zip(setup.strides, result.n_queries, strict=True)
            ),
        ),
        why="A dilation is where the heads look, and a stride is who asks; neither changes what a head does.",
    )


def figure(result: Result) -> Figure:
    setup = result.setup
    title = "A dilation moves the heads apart, a stride leaves out queries: attention does both"
    drawing, (left, middle, right) = panels(3, width=9.2, height=2.7, title=title)
    row, column, dilation = setup.n_rows // 2, setup.n_columns // 2, setup.dilations[min(2, len(setup.dilations) - 1)]
    left.imshow(result.image.numpy(), cmap="Greys", vmin=-2, vmax=3)
    offsets = torch.cartesian_prod(*(2 * [torch.arange(setup.kernel) - setup.kernel // 2]))
    for step, marker in ((1, "o"), (dilation, "s")):
        style = MEASURED | series(marker) | {"label": f"dilation {step}"}
        left.plot((column + step * offsets[:, 1]).numpy(), (row + step * offsets[:, 0]).numpy(), **style)
    left.set(xlabel="column", ylabel="row", title="where the heads look", xticks=[], yticks=[])
    left.legend(loc="lower left", fontsize=6.5, framealpha=1)
    for gaps, sizes, marker, name in (
        (result.by_dilation, setup.dilations, "o", "by dilation"),
        (result.by_stride, setup.strides, "s", "by stride"),
    ):
        style = MEASURED | series(marker) | {"label": f"measured, {name}"}
        beside = [size + (0.12 if marker == "s" else -0.12) for size in sizes]  # no marker hides another
        middle.semilogy(beside, on_log_axis(gaps), **style)
    middle.axhline(setup.tolerance, **PREDICTED | {"label": "predicted: below"})
    middle.set(xlabel="dilation or stride", ylabel="largest difference", ylim=(FLOOR, 1e2))
    whole_ticks(middle)
    fine = torch.linspace(1, max(setup.strides), 50)
    right.plot(fine.numpy(), (setup.n_rows * setup.n_columns / fine.square()).numpy(), **PREDICTED)
    right.plot(setup.strides, result.n_queries, **MEASURED)
    right.set(xlabel="stride s", ylabel="queries", xticks=setup.strides)
    middle.legend(frameon=False, loc="upper right")
    right.legend(["predicted, about N / s^2", "measured"], frameon=False)
    return drawing


CLAIM = Claim(
    __name__,
    __doc__,
    document="ETH",
    question="1(e.2)",
    also=("ETH 1(e.3)",),
    setup=Setup(),
    small=Setup(n_rows=11, n_columns=8, channels=1, n_out=2, dilations=(1, 3), strides=(1, 2, 3)),
    run=run,
    verdict=verdict,
    figure=figure,
    broken={
        "heads that stay together": {"heads": "together"},
        "queries that start one pixel too late": {"first_query": "next to it"},
    },
    confidence="Within the tolerance of the conversion, a bound that is proven, not fitted; counts are exact.",
)
