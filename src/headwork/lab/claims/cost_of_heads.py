r"""More heads of width d / h cost the same parameters and the same FLOPs; only the weights are h tables instead of one.

With $n$ tokens, widths $d_q = d_k$ and $d_v$ in all, and a product $[N, D] \times [D, M]$ at $2NDM$ FLOPs:

| step | one head | $h$ heads of width $1/h$ |
|---|---|---|
| queries, keys, values | $2nd(2d_q + d_v)$ | $h \cdot 2nd(2d_q + d_v)/h$ |
| scores | $2n^2d_q$ | $h \cdot 2n^2 d_q/h$ |
| mixing the values | $2n^2d_v$ | $h \cdot 2n^2 d_v/h$ |
| output | $2nd_vd$ | $2nd_vd$ |

The $h$ cancels everywhere, as the sheet says. (It is a bottleneck of $n^2$ only for $n > 2d$: below, the
$4nd(d_q + d_v)$ of the projections, with that of the output, are more than the $2n^2(d_q + d_v)$ of scores and mixing,
whatever $d_q$ and $d_v$ are; the claim `complexity` measures that for $d_q = d_v = d$. Without the output, which the
sheet does not count, $n^2$ leads from $n = d\,(2d_q + d_v)/(d_q + d_v)$ on, $1.5d$ for $d_q = d_v$.) What does grow is
the number of weights, $h\,n^2$, and with it the exponentials of the softmax, which FLOPs of products do not count.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from headwork.functional import attention_scores
from headwork.inspection import record
from headwork.lab.plots import MARKERS, MEASURED, PREDICTED, Figure, panels, series
from headwork.lab.toolkit import Claim, Erratum, Experiment, Verdict, same, seeded
from headwork.layers import MultiHeadAttention

Kind = Literal["projections", "scores", "mixing"]
KINDS: tuple[Kind, ...] = ("projections", "scores", "mixing")


@dataclass(frozen=True, kw_only=True)
class Setup(Experiment):
    """One layer with several numbers of heads, which share the widths d_q and d_v or have them each."""

    n_heads: tuple[int, ...] = (1, 2, 4, 8, 16)
    n_tokens: int = 96
    d: int = 64
    d_q: int = 32
    d_v: int = 48
    width: Literal["shared by the heads", "for each head"] = "shared by the heads"

    def __post_init__(self) -> None:
        super().__post_init__()
        for h in self.n_heads:
            if self.width == "shared by the heads" and (self.d_q % h or self.d_v % h):
                raise ValueError(f"n_heads must divide d_q={self.d_q} and d_v={self.d_v}, got {h}")


@dataclass(frozen=True)
class Result:
    """By the number of heads: FLOPs of each step as counted, parameters, and weights as recorded."""

    setup: Setup
    flops: dict[Kind, tuple[int, ...]]
    parameters: tuple[int, ...]
    weights: tuple[int, ...]


@seeded
def run(setup: Setup) -> Result:
    x = torch.randn(1, setup.n_tokens, setup.d)
    flops: dict[str, list[int]] = {kind: [] for kind in KINDS}
    parameters, weights = [], []
    for n in setup.n_heads:
        share = n if setup.width == "shared by the heads" else 1
        layer = MultiHeadAttention(setup.d, n, d_head=setup.d_q // share, d_value=setup.d_v // share, bias=False)
        with torch.no_grad(), record(layer) as seen:
            layer(x, x)
        q, k = (seen[name].movedim(2, 1) for name in ("queries", "keys"))
        for kind, step in (
            ("projections", partial(_project, layer, x, seen["heads"].flatten(2))),
            ("scores", partial(attention_scores, q, k)),
            ("mixing", partial(torch.matmul, seen["weights"], seen["values"].movedim(2, 1))),
        ):
            flops[kind].append(_count(step))
        parameters.append(sum(parameter.numel() for parameter in layer.parameters()))
        weights.append(seen["weights"].numel())
    return Result(setup, {kind: tuple(flops[kind]) for kind in KINDS}, tuple(parameters), tuple(weights))


def _project(layer: MultiHeadAttention, x: Tensor, heads: Tensor) -> None:
    for linear in (layer.query, layer.key, layer.value):
        linear(x)
    layer.out(heads)


def _count(step: Callable[[], object]) -> int:
    """As PyTorch counts the products of one step."""
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        step()
    return counter.get_total_flops()


def predict(setup: Setup, kind: Kind) -> int:
    n, d = setup.n_tokens, setup.d
    match kind:
        case "projections":
            return 2 * n * d * (2 * setup.d_q + setup.d_v) + 2 * n * setup.d_v * d
        case "scores":
            return 2 * n**2 * setup.d_q
        case "mixing":
            return 2 * n**2 * setup.d_v


def verdict(result: Result) -> Verdict:
    setup = result.setup
    checks = []
    for row, n in enumerate(setup.n_heads):
        checks += [
            same(
                f"FLOPs of {kind}, {n} heads",
                predict(setup, kind),
                result.flops[kind][row],
                near={
                    "an addition is not counted": predict(setup, kind) // 2,
                    "one token more": predict(replace(setup, n_tokens=setup.n_tokens + 1), kind),
                },
            )
            for kind in KINDS
        ]
        in_all = 2 * setup.d * (setup.d_q + setup.d_v)
        checks.append(
            same(
                f"parameters, {n} heads",
                in_all,
                result.parameters[row],
                near={"without the output": in_all - setup.d * setup.d_v, "4 d^2": 4 * setup.d**2},
            )
        )
        checks.append(
            same(
                f"weights, {n} heads",
                n * setup.n_tokens**2,
                result.weights[row],
                near={"a head more": (n + 1) * setup.n_tokens**2},
            )
        )
    return Verdict(checks=tuple(checks), why="h heads do 1/h of the work each.")


def figure(result: Result) -> Figure:
    setup, heads = result.setup, result.setup.n_heads
    drawing, (left, right) = panels(2, title="More heads cost no more FLOPs; only the tables of weights are more")
    for kind, marker in zip(KINDS, MARKERS, strict=False):
        line = [predict(setup, kind) / 1e6 for _ in heads]
        left.plot(heads, line, **PREDICTED | {"label": "predicted" if kind == KINDS[0] else None})
        style = MEASURED | series(marker) | {"label": f"measured, {kind}"}
        left.plot(heads, [count / 1e6 for count in result.flops[kind]], **style)
    left.set(xlabel="heads", ylabel="FLOPs (millions)", ylim=(0, 1.8 * max(result.flops["projections"]) / 1e6))
    right.plot(heads, [n * setup.n_tokens**2 / 1e3 for n in heads], **PREDICTED)
    right.plot(heads, [count / 1e3 for count in result.weights], **MEASURED | {"label": "measured, weights"})
    right.plot(heads, [2 * setup.d * (setup.d_q + setup.d_v) / 1e3 for _ in heads], **PREDICTED | {"label": None})
    style = MEASURED | series("s") | {"label": "measured, parameters"}
    right.plot(heads, [count / 1e3 for count in result.parameters], **style)
    right.set(xlabel="heads", ylabel="numbers (thousands)")
    for ax in (left, right):
        ax.set_xscale("log", base=2)
        ax.set_xticks(heads, [str(n) for n in heads])
        ax.legend(frameon=False, loc="upper left")
    return drawing


def _product_of_elements(result: Result) -> str:
    setup = result.setup
    counted, elements = result.flops["scores"][0] // 2, setup.n_tokens**2 * setup.d_q**2
    return (
        f"The product of {setup.n_tokens} queries and {setup.n_tokens} keys of width {setup.d_q} takes {counted:,} "
        f"multiplications, n d_q n; the product of the numbers of elements is {elements:,}."
    )


def _below(result: Result) -> str:
    setup = result.setup
    projections, attention = result.flops["projections"][0], result.flops["scores"][0] + result.flops["mixing"][0]
    output = 2 * setup.n_tokens * setup.d_v * setup.d
    return (
        f"For n = {setup.n_tokens} tokens of width d = {setup.d}, d_q = {setup.d_q} and d_v = {setup.d_v} the "
        f"projections take {projections:,} FLOPs ({projections - output:,} without the output), scores and mixing "
        f"{attention:,}."
    )


CLAIM = Claim(
    __name__,
    __doc__,
    document="C182",
    question="1(c) iii",
    also=("C182 1(c) ii",),
    setup=Setup(),
    small=Setup(n_heads=(1, 2, 4), n_tokens=7, d=8, d_q=4, d_v=8),
    run=run,
    verdict=verdict,
    figure=figure,
    broken={"heads that all have the full width": {"width": "for each head"}},
    confidence="Exact: whole numbers.",
    errata=(
        Erratum(
            where="1(c) ii",
            printed="Assume the computation is the product of the number of elements in the two matrices",
            right="a product $[N, D] \\times [D, M]$ takes $NDM$ multiplications, as 1(c) iii says and the answer to "
            "ii uses: the shared axis counts once",
            measured=_product_of_elements,
        ),
        Erratum(
            where="1(c) ii, the bottleneck",
            printed="The computational bottle neck is $n^2$",
            right=r"for long sequences: the projections need $4nd(d_q + d_v)$ FLOPs with that of the output, attention "
            r"$2n^2(d_q + d_v)$, so $n^2$ takes over at $n = 2d$ (as EECS 182 2(d) has it for $d_q = d_v = d$); with "
            r"the three projections alone that the sheet counts at $n = d\,(2d_q + d_v)/(d_q + d_v)$, "
            r"$1.5d$ for $d_q = d_v$",
            measured=_below,
        ),
    ),
)
