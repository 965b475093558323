r"""With k heads that each look at one token, n residual layers see at most (k + 1)^n tokens, and heads exist that do.

With hard attention (argmax) each head passes on one token, and the residual connection passes on the token itself. So
after one layer a token knows $k + 1$ tokens; each of these knew $k + 1$ before, and after $n$ layers

$$\text{tokens seen} \le (k + 1)^n$$

Equality needs all these paths to end at different tokens. Let head $h = 1 \dots k$ of layer $l = 0 \dots n-1$ look
$h\,(k+1)^l$ tokens back. A path picks a digit $h_l \in \{0 \dots k\}$ in each layer, 0 being the residual, and ends
$\sum_l h_l\,(k+1)^l$ tokens back: this writes every number below $(k+1)^n$ in base $k + 1$, each once. Layers that all
look at the same distances $1 \dots k$ see only $kn + 1$ tokens, and without the residual there are only $k^n$ paths.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headwork.functional import scaled_dot_product_attention
from headwork.lab.measuring import influence
from headwork.lab.plots import MARKERS, MEASURED, PREDICTED, Axes, Figure, panels, series
from headwork.lab.toolkit import Claim, Erratum, Experiment, Verdict, same, seeded


@dataclass(frozen=True, kw_only=True)
class Setup(Experiment):
    """Tokenizer on a ring, and pairs of (heads, layers)."""

    n_tokens: int = 101
    sizes: tuple[tuple[int, int], ...] = (
        *((1, n) for n in range(1, 7)),
        *((2, n) for n in range(1, 5)),
        *((3, n) for n in range(1, 4)),
    )
    drawn: tuple[int, int] = (2, 3)
    distances: Literal["digits", "the same in every layer"] = "digits"
    residual: bool = True
    beta: float = math.inf

    def __post_init__(self) -> None:
        super().__post_init__()
        if any((k + 1) ** n > self.n_tokens for k, n in self.sizes):
            raise ValueError(f"n_tokens must be (k + 1)^n or more for each of sizes, got {self.n_tokens}")


@dataclass(frozen=True)
class Result:
    """How many tokens an output sees, for each of the sizes: built, and with heads that look anywhere."""

    setup: Setup
    seen: tuple[int, ...]
    fewest_seen: tuple[int, ...]
    """By the output that sees fewest; the ring is the same everywhere, so all should see as many."""
    seen_at_random: tuple[int, ...]
    by_depth: Float[Tensor, "depth token"]
    """For the size that is drawn: how much the last token depends on each token, so many layers below."""


@seeded
def run(setup: Setup) -> Result:
    built = [_count(setup, _looks(setup, k, n)) for k, n in setup.sizes]
    at_random = [_count(setup, torch.randint(setup.n_tokens, (n, k, setup.n_tokens))) for k, n in setup.sizes]
    looks = _looks(setup, *setup.drawn)
    by_depth = torch.stack([_influence(setup, looks[-depth:] if depth else [])[-1] for depth in range(len(looks) + 1)])
    return Result(
        setup,
        tuple(int(count.max()) for count in built),
        tuple(int(count.min()) for count in built),
        tuple(int(count.max()) for count in at_random),
        by_depth,
    )


def _looks(setup: Setup, n_heads: int, n_layers: int) -> Int[Tensor, "layer head token"]:
    """Where each head of each layer looks from each token of the ring."""
    head = torch.arange(1, n_heads + 1)[None, :, None]
    layer = torch.arange(n_layers)[:, None, None]
    back = head * (n_heads + 1) ** layer if setup.distances == "digits" else head.expand(n_layers, -1, -1)
    return (torch.arange(setup.n_tokens) - back) % setup.n_tokens


def _count(setup: Setup, looks: Int[Tensor, "layer head token"]) -> Int[Tensor, "token"]:
    return (_influence(setup, looks) > 0).sum(-1)


def _influence(
    setup: Setup, looks: Int[Tensor, "layer head token"] | Sequence[Tensor]
) -> Float[Tensor, "out_token token"]:
    """Keys say where they are, queries where they look; values are the tokens, with a positive weight for each head."""
    positions = torch.eye(setup.n_tokens, dtype=torch.float64)
    gains = [torch.rand(len(heads), dtype=torch.float64) + 0.5 for heads in looks]

    def read(x: Tensor) -> Tensor:
        for heads, gain in zip(looks, gains, strict=True):
            seen = [scaled_dot_product_attention(positions[look], positions, x, beta=setup.beta) for look in heads]
            mixed = torch.einsum("h,htd->td", gain, torch.stack(seen))
            x = x + mixed if setup.residual else mixed
        return x

    return influence(read, torch.randn(setup.n_tokens, 1, dtype=torch.float64))


def verdict(result: Result) -> Verdict:
    rows = list(zip(result.setup.sizes, result.seen, result.fewest_seen, strict=True))
    counts = [
        same(
            f"tokens seen with k = {k} and n = {n}",
            (k + 1) ** n,
            seen,
            near={"without the residual: k^n": k**n, "one layer more": (k + 1) ** (n + 1)}
            | ({"k n + 1": k * n + 1} if n > 1 else {}),
        )
        for (k, n), seen, _ in reversed(rows)
    ]
    return Verdict(
        checks=(
            *counts,
            same("difference between outputs", 0, max(seen - fewest for _, seen, fewest in rows), near={"one": 1}),
        ),
        why="Each layer multiplies the paths by k + 1, and in base k + 1 no two paths end at the same token.",
    )


def figure(result: Result) -> Figure:
    setup = result.setup
    drawing, (left, right) = panels(2, title="k heads and the residual: each layer multiplies what is seen by k + 1")
    _draw_tree(left, result)
    for heads, marker in zip(sorted({heads for heads, _ in setup.sizes}), MARKERS, strict=False):
        picked = [i for i, size in enumerate(setup.sizes) if size[0] == heads]
        depths = [setup.sizes[i][1] for i in picked]
        label = "predicted: (k + 1)^n" if heads == setup.sizes[0][0] else None
        right.semilogy(depths, [(heads + 1) ** n for n in depths], **PREDICTED | {"label": label})
        style = MEASURED | series(marker) | {"label": f"measured, k = {heads}"}
        right.semilogy(depths, [result.seen[i] for i in picked], **style)
        style = {"color": "0.55", "linestyle": "none", "marker": marker, "markersize": 3}
        label = "heads that look anywhere" if heads == setup.sizes[0][0] else None
        right.semilogy(depths, [result.seen_at_random[i] for i in picked], **style, label=label)
    counts = [2**power for power in range(1, 7)]
    right.set(xlabel="layers n", ylabel="tokens seen", yticks=counts, yticklabels=counts, ylim=(1.6, 1200))
    right.minorticks_off()
    right.legend(frameon=False, loc="upper left", ncols=2, columnspacing=0.6, handlelength=1.4, fontsize=7)
    return drawing


def _draw_tree(ax: Axes, result: Result) -> None:
    """The tokens that the last one depends on, layer by layer downwards, over the paths that lead there."""
    k, n = result.setup.drawn
    paths = [0]
    for depth in range(1, n + 1):
        steps = [head * (k + 1) ** (n - depth) for head in range(k + 1)]
        for start in paths:
            for step in steps:
                ax.plot([start, start + step], [depth - 1, depth], color="0.6", linestyle="--", linewidth=0.7, zorder=0)
        paths = [start + step for start in paths for step in steps]
    for depth, known in enumerate(result.by_depth):
        back = torch.nonzero(known.flip(0) > 0).flatten()
        ax.plot(back.numpy(), [depth] * len(back), **MEASURED | {"markersize": 3.5, "markerfacecolor": "black"})
    ax.set(xlabel="tokens back", ylabel="layers below the output", yticks=range(n + 1))
    ax.invert_xaxis()
    ax.invert_yaxis()
    ax.set_title(f"k = {k}, n = {n}: predicted paths, measured influence")


def _at_most(result: Result) -> str:
    (k, n), at_random = result.setup.sizes[-1], result.seen_at_random[-1]
    return (
        f"With k = {k} and n = {n}, heads that look h (k + 1)^l tokens back see {result.seen[-1]} tokens, and heads "
        f"that "
        f"look anywhere {at_random} at most, of {result.setup.n_tokens}."
    )


CLAIM = Claim(
    __name__,
    __doc__,
    document="EECS 182",
    question="2(a)",
    setup=Setup(),
    small=Setup(n_tokens=29, sizes=((1, 3), (2, 2), (2, 3)), drawn=(2, 2)),
    run=run,
    verdict=verdict,
    figure=figure,
    broken={
        "no residual connection": {"residual": False},
        "every layer looks at the same distances": {"distances": "the same in every layer"},
        "soft attention instead of the argmax": {"beta": 1.0},
    },
    confidence="Exact: tokens are counted.",
    errata=(
        Erratum(
            where="2(a), all three answers",
            printed=r"total size is $2^n$; $3^n$; $(k + 1)^n$",
            right=r"*at most* that: it takes heads whose paths end at different tokens, and a text that is long enough",
            measured=_at_most,
        ),
    ),
)
