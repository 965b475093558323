r"""A query whose keys are all masked with -inf gets NaN, and one layer later everybody has it; zeros stop it at once.

The sheet's listing adds $-\infty$ to the scores and takes a softmax: a row of $-\infty$ alone is $0/0$. Causal mask
and padding on the left make such rows: with $p$ padding tokens the first $p$ queries see only padding, so $p$ rows
are NaN. They are padding themselves, and nobody looks at them? In the next layer their values are NaN, weighed with
0, and $0 \cdot \mathrm{NaN}$ is NaN: every row of that text is lost. In Headwork a query that sees nothing returns
zeros, with finite gradients. (A large negative number instead of $-\infty$ spreads the weight evenly over all keys,
hidden ones included: no NaN, but a mean of what was hidden.)

The same listing cuts its future mask as `future_mask[:tl, :sl]`, aligned to the *first* key. With as many queries as
keys that is right. With a cache of $m$ keys and $n$ new queries, query $i$ is shown $i + 1$ keys instead of $m - n +
i + 1$: one new query after four cached tokens sees the first token alone.

It stops being true when padding is on the right and queries and keys are equally many, as in training: then every
query sees itself at least.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from headwork import masks
from headwork.functional import scaled_dot_product_attention
from headwork.lab.plots import COLOURS, MARKERS, MEASURED, PREDICTED, Figure, panels
from headwork.lab.toolkit import Claim, Erratum, Experiment, Verdict, about, same, seeded


@dataclass(frozen=True, kw_only=True)
class Setup(Experiment):
    """Texts with some padding, on one side, and what hides a key."""

    n_tokens: int = 8
    padding: tuple[int, ...] = (1, 3, 5)
    d: int = 4
    side: Literal["left", "right"] = "left"
    hides: float = float("-inf")
    n_cached: int = 4


@dataclass(frozen=True)
class Result:
    """Rows with NaN after one layer and after two, by padding; and what queries after a cache look at."""

    setup: Setup
    one_layer: list[int]
    two_layers: list[int]
    library: list[int]
    """Of Headwork's attention, two layers and the gradients."""
    cached: Float[Tensor, "key"]
    """The listing's weights of one new query after the cached tokens."""
    keys_seen: int
    """Keys that the last of two new queries sees in the listing."""
    off: float
    """How far the listing's output of that query is from that of the whole text."""
    evenly: Float[Tensor, "key"]
    """The weights of the first query if a large negative number hides, with as much padding as there can be."""


@seeded
def run(setup: Setup) -> Result:
    n, d = setup.n_tokens, setup.d
    one, two, library = [], [], []
    for padding in setup.padding:
        x = torch.randn(1, n, d, dtype=torch.float64)
        hidden = torch.arange(n)[None] < padding if setup.side == "left" else torch.arange(n)[None] >= n - padding
        first = listing(x, x, x, setup.hides, hidden, causal=True)
        one.append(_rows_with_nan(first))
        two.append(_rows_with_nan(listing(first, first, first, setup.hides, hidden, causal=True)))
        library.append(_library(x, ~hidden))
    x = torch.randn(1, setup.n_cached + 1, d, dtype=torch.float64)
    values = torch.eye(setup.n_cached + 1, dtype=torch.float64)[None]
    cached = listing(x[:, -1:], x, values, setup.hides, None, causal=True)[0, 0]
    pair = listing(x[:, -2:], x, values, setup.hides, None, causal=True)[0, 1]
    whole = listing(x, x, x, setup.hides, None, causal=True)[0, -1]
    off = (listing(x[:, -1:], x, x, setup.hides, None, causal=True)[0, 0] - whole).abs().max().item()
    every = torch.ones(1, n, dtype=torch.bool)
    y = torch.randn(1, n, d, dtype=torch.float64)
    evenly = listing(y, y, torch.eye(n, dtype=torch.float64)[None], -1e30, every, causal=False)[0, 0]
    return Result(setup, one, two, library, cached, int((pair > 0).sum()), off, evenly)


def listing(
    q: Tensor, k: Tensor, v: Tensor, hides: float, key_padding_mask: Bool[Tensor, "n sl"] | None, *, causal: bool
) -> Tensor:
    """The sheet's function line by line: True in the mask is padding, and -inf (`hides`) stands for what is hidden."""
    s = torch.einsum("nth,nsh->nts", q, k) / q.shape[-1] ** 0.5
    if key_padding_mask is not None:
        s = s.masked_fill(key_padding_mask[:, None], hides)
    if causal:
        future_mask = torch.full((64, 64), hides, dtype=s.dtype).triu(1)
        s = s + future_mask[: s.shape[1], : s.shape[2]][None]
    return torch.einsum("nts,nsh->nth", F.softmax(s, dim=-1), v)


def _rows_with_nan(x: Float[Tensor, "1 token d"]) -> int:
    return int(x.isnan().any(-1).sum())


def _library(x: Float[Tensor, "1 token d"], real: Bool[Tensor, "1 token"]) -> int:
    x = x.clone().requires_grad_()
    visible = masks.causal(x.shape[1]) & real[:, None]
    first = scaled_dot_product_attention(x, x, x, visible=visible)
    second = scaled_dot_product_attention(first, first, first, visible=visible)
    gradient = torch.autograd.grad(second.sum(), x)[0]
    return _rows_with_nan(first) + _rows_with_nan(second) + _rows_with_nan(gradient)


def verdict(result: Result) -> Verdict:
    setup, n = result.setup, result.setup.n_tokens
    checks = []
    for padding, one, two in zip(setup.padding, result.one_layer, result.two_layers, strict=True):
        checks += [
            same(f"rows with NaN, {padding} padding tokens, one layer", padding, one, near={"one more": padding + 1}),
            same(f"rows with NaN, {padding} padding tokens, two layers", n, two, near={"as many": padding}),
        ]
    m = setup.n_cached + 1
    return Verdict(
        checks=(
            *reversed(checks),
            same(
                "rows with NaN in the library, gradients included",
                0,
                sum(result.library),
                near={"as the listing": sum(setup.padding)},
            ),
            same(
                f"keys that one new query sees after {m - 1} cached ones",
                1,
                int((result.cached > 0).sum()),
                near={"all of them": m, "all but itself": m - 1},
            ),
            about("weight of the first key for it", 1, result.cached[0].item(), near={"equal weights": 1 / m}),
            same("keys that the second of two new queries sees", 2, result.keys_seen, near={"all of them": m}),
            about(
                "largest weight if -1e30 hides all keys",
                1 / n,
                result.evenly.max().item(),
                near={"nothing": 0.0, "n - 1 keys": 1 / (n - 1)},
            ),
        ),
        why="0/0 is no number, and a product with no number is none, whatever the weight.",
    )


def figure(result: Result) -> Figure:
    setup = result.setup
    drawing, (left, right) = panels(2, title="One row of -inf, and in the next layer everything is NaN")
    n = setup.n_tokens
    padding = list(setup.padding)
    left.plot(padding, padding, **PREDICTED)
    left.plot(padding, [n] * len(padding), **PREDICTED | {"label": ""})
    left.plot(padding, result.one_layer, **MEASURED | {"color": COLOURS[0], "label": "measured, one layer"})
    style = MEASURED | {"color": COLOURS[1], "marker": MARKERS[1], "markersize": 8, "markerfacecolor": "none"}
    left.plot(padding, result.two_layers, **style | {"label": "measured, two layers"})
    style = MEASURED | {"color": COLOURS[2], "marker": MARKERS[2], "label": "measured, Headwork"}
    left.plot([p + 0.15 for p in padding], result.library, **style)
    left.set(xlabel="padding tokens on the left", xticks=padding, ylabel="rows with NaN", ylim=(-0.5, 1.9 * n))
    left.locator_params(axis="y", integer=True)
    left.legend(frameon=False, loc="upper left")
    keys = range(setup.n_cached + 1)
    right.bar(keys, result.cached.numpy(), color="0.8", edgecolor="black", label="measured, the listing")
    right.plot(
        keys, [1.0, *[0.0] * setup.n_cached], **PREDICTED | {"marker": "_", "linestyle": "none", "markersize": 16}
    )
    right.set(xlabel="key", xticks=keys, ylabel="weight of one new query", ylim=(0, 1.5))
    right.legend(frameon=False, loc="upper right")
    return drawing


CLAIM = Claim(
    __name__,
    __doc__,
    document="EECS 182",
    question="1",
    also=("EECS 182 2(b)",),
    setup=Setup(),
    small=Setup(n_tokens=5, padding=(1, 2)),
    run=run,
    verdict=verdict,
    figure=figure,
    broken={"padding on the right": {"side": "right"}, "a large negative number instead of -inf": {"hides": -1e30}},
    confidence="Exact: rows are counted.",
    errata=(
        Erratum(
            where="1, listing, lines 6 to 14",
            printed="masked scores are -inf, and the softmax is taken of every row",
            right="a query that sees no key needs an answer of its own, such as zeros",
            measured=lambda result: (
                f"With {result.setup.padding[-1]} padding tokens on the left {result.one_layer[-1]} of "
                f"{result.setup.n_tokens} "
                f"rows are NaN after one layer, and {result.two_layers[-1]} after two."
            ),
        ),
        Erratum(
            where="1, listing, line 12",
            printed="future_mask[: tl, : sl]: the first query is on the first key",
            right="the last query is on the last key, if there are fewer queries than keys (a cache)",
            measured=lambda result: (
                f"One new query after {result.setup.n_cached} cached tokens sees "
                f"{int((result.cached > 0).sum())} key, the first; "
                f"its output is off by {result.off:.2f}."
            ),
        ),
    ),
)
