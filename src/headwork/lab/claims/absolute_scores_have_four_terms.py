r"""Positions added to the tokens split each score into four terms: content and position of the query, times the key's.

With $A = (Z + P)\,W_q W_k^\top (Z + P)^\top$ and a sum on both sides,

$$A_{q,k} = Z_q W_q W_k^\top Z_k^\top + Z_q W_q W_k^\top P_k^\top
+ P_q W_q W_k^\top Z_k^\top + P_q W_q W_k^\top P_k^\top$$

The first term knows no position and the last one no content: the last one is a table that is the same for every
input, and the only one that tells near from far whatever is there. The two in the middle are content that looks for a
position, and a position that looks for content.

Without $P$ only the first term is left, and order is invisible: if the tokens are permuted by $\pi$, the scores become
$A_{\pi(q),\pi(k)}$, so the outputs are permuted in the same way. That is *equivariance*; invariance would mean that the
outputs do not change at all.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headwork.functional import absolute_scores, attention_scores, scaled_dot_product_attention, sinusoidal_positions
from headwork.lab.measuring import product_as_printed
from headwork.lab.plots import MEASURED, PREDICTED, Figure, panels
from headwork.lab.toolkit import Claim, Erratum, Experiment, Verdict, exact, largest_difference, same, seeded

NAMES = ("content, content", "content, position", "position, content", "position, position")


@dataclass(frozen=True, kw_only=True)
class Setup(Experiment, smallest={"n_tokens": 2}):
    """Random tokens at sinusoidal positions; which terms are added, and whether positions are there at all."""

    n_tokens: int = 16
    d_model: int = 32
    d_hid: int = 24
    terms: Literal["all four", "content and position apart"] = "all four"
    when_permuted: Literal["without positions", "with positions"] = "without positions"


@dataclass(frozen=True)
class Result:
    """The score, its four terms by the library and by hand, and what a permutation of the tokens does."""

    setup: Setup
    score: Float[Tensor, "query key"]
    terms: Float[Tensor, "term query key"]
    by_hand: Float[Tensor, "term query key"]
    moved_by_content: int
    """How many terms change with the tokens; and with the positions."""
    moved_by_position: int
    from_permuted: float
    """How far the output for permuted tokens is from the permuted output; and from the output as it was."""
    from_unchanged: float
    third_as_printed: str
    """P_q W_q W_k' Z_k with rows P_q and Z_k, as they stand."""


@seeded
def run(setup: Setup) -> Result:
    z, other_z = torch.randn(2, setup.n_tokens, setup.d_model, dtype=torch.float64)
    p = 2 * sinusoidal_positions(setup.n_tokens, setup.d_model).double()
    w_q = torch.randn(setup.d_model, setup.d_hid, dtype=torch.float64) / setup.d_model**0.5
    w_k = w_q + 0.5 * torch.randn_like(w_q) / setup.d_model**0.5
    terms = torch.stack(absolute_scores(z, p, w_q, w_k))
    pairs = ((a, b) for a in (z, p) for b in (z, p))
    by_hand = torch.stack([predict_term(a, b, w_q, w_k) for a, b in pairs])
    order = torch.arange(setup.n_tokens).roll(1)
    code = torch.zeros_like(p) if setup.when_permuted == "without positions" else p
    before, after = (_attend(x + code, w_q, w_k) for x in (z, z[order]))
    return Result(
        setup,
        attention_scores((z + p) @ w_q, (z + p) @ w_k),
        terms,
        by_hand,
        _changed(terms, torch.stack(absolute_scores(other_z, p, w_q, w_k))),
        _changed(terms, torch.stack(absolute_scores(z, p.flip(0), w_q, w_k))),
        largest_difference(after, before[order]),
        largest_difference(after, before),
        product_as_printed(p[:1] @ w_q @ w_k.T, z[:1]),
    )


def predict_term(a: Tensor, b: Tensor, w_q: Tensor, w_k: Tensor) -> Float[Tensor, "query key"]:
    """One term in NumPy, entry by entry."""
    left, right = a.numpy() @ w_q.numpy(), b.numpy() @ w_k.numpy()
    return torch.from_numpy(np.array([[sum(x * y for x, y in zip(q, k, strict=True)) for k in right] for q in left]))


def _attend(x: Float[Tensor, "token d"], w_q: Tensor, w_k: Tensor) -> Float[Tensor, "token d"]:
    return scaled_dot_product_attention(x @ w_q, x @ w_k, x, beta=1.0)


def _changed(terms: Float[Tensor, "term query key"], others: Float[Tensor, "term query key"]) -> int:
    return sum(not a.equal(b) for a, b in zip(terms, others, strict=True))


def _sum(result: Result) -> Float[Tensor, "query key"]:
    terms = result.by_hand if result.setup.terms == "all four" else result.by_hand[[0, 3]]
    return terms.sum(0)


def verdict(result: Result) -> Verdict:
    return Verdict(
        checks=(
            exact(
                "the score against the sum of the terms",
                largest_difference(result.score, _sum(result)),
                near={
                    f"without {name}": largest_difference(result.score, result.by_hand.sum(0) - term)
                    for name, term in zip(NAMES, result.by_hand, strict=True)
                },
            ),
            exact(
                "each term against its product by hand",
                largest_difference(result.terms, result.by_hand),
                near={"W_q and W_k exchanged": largest_difference(result.terms, result.by_hand[[0, 2, 1, 3]].mT)},
            ),
            same("terms that change with the tokens", 3, result.moved_by_content, near={"all": 4, "content's own": 1}),
            same("terms that change with the positions", 3, result.moved_by_position, near={"all": 4, "its own": 1}),
            exact(
                "permuted tokens against the permuted output",
                result.from_permuted,
                near={"invariant: the output as it was": result.from_unchanged},
            ),
        ),
        why="A product of two sums has four terms; without positions one is left, and it does not know the order.",
    )


def figure(result: Result) -> Figure:
    title = "A score with absolute positions is the sum of four tables; the last is the same for every input"
    drawing, axes = panels(5, width=9.6, height=2.5, title=title)
    largest = result.terms.abs().max().item()
    for ax, name, term in zip(axes, NAMES, result.terms, strict=False):
        ax.imshow(term.numpy(), cmap="Greys", vmin=-largest, vmax=largest)
        ax.set_title(name)
        ax.set(xlabel="key", xticks=[], yticks=[])
    axes[0].set_ylabel("query")
    low, high = result.score.min().item(), result.score.max().item()
    axes[4].plot([low, high], [low, high], **PREDICTED | {"label": "predicted: equal"})
    axes[4].plot(_sum(result).flatten().numpy(), result.score.flatten().numpy(), **MEASURED | {"markersize": 2.5})
    axes[4].set(xlabel="sum of the terms", ylabel="score")
    axes[4].legend(frameon=False, loc="upper left", fontsize=7)
    return drawing


def _equivariant(result: Result) -> str:
    return (
        f"Permuting {result.setup.n_tokens} tokens without positions gives the permuted output up to "
        f"{result.from_permuted:.0e}, and differs from the output as it was by {result.from_unchanged:.2f}."
    )


CLAIM = Claim(
    __name__,
    __doc__,
    document="ETH",
    question="(4), (5)",
    setup=Setup(),
    small=Setup(n_tokens=5, d_model=8, d_hid=3),
    run=run,
    verdict=verdict,
    figure=figure,
    broken={
        "no terms between content and position": {"terms": "content and position apart"},
        "a permutation of tokens that have positions": {"when_permuted": "with positions"},
    },
    confidence="Exact up to rounding.",
    errata=(
        Erratum(
            where="equation (5), third term",
            printed=r"$P_{q,:} W_q W_k^\top Z_{k,:}$",
            right=r"$P_{q,:} W_q W_k^\top Z_{k,:}^\top$: $Z_{k,:}$ is a row",
            measured=lambda result: f"As printed, {result.third_as_printed}.",
        ),
        Erratum(
            where="1(a), before equation (4)",
            printed="self-attention as defined in Equation 1 is permutation invariant",
            right="it is permutation *equivariant*: the outputs are permuted as the tokens are",
            measured=_equivariant,
        ),
    ),
)
