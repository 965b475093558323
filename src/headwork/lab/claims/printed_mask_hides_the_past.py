r"""In the sheet's layout, keys by queries, the printed mask (j > i) hides the past: a token sees itself and the future.

The sheet defines $S = K^\top Q$, so row $i$ of $S$ is a *key* and column $j$ a *query*, and $H = V\alpha$ with
columns of $\alpha$ that sum to 1 (1.1(a), 1.2(a), 1.3(a)). In 1.3(e) it writes $s_{ij} = k_j^\top q_i/\sqrt{d_k}$,
query first, and hides $j > i$. Put into the $S$ of 1.3(a), "$-\infty$ if $j > i$" hides key $i$ from every later
query $j$: query $j$ is left with the keys $i \ge j$, itself and the *future*. Both masks let $n(n+1)/2$ pairs pass,
so a count does not tell them apart. What does is a text whose next token cannot be guessed: behind the right mask it
is guessed with probability $1/V$; behind the other one a head that looks one token ahead knows all of them but the
last.

In keys by queries the right mask is "$-\infty$ if $i > j$". It stops being true when the scores are laid out query
first, as in most libraries: there $j > i$ is right.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from headwork.functional import scaled_dot_product_attention, softargmax
from headwork.lab.plots import Figure, outline, panels
from headwork.lab.toolkit import Claim, Erratum, Experiment, Verdict, about, same, seeded

Layout = Literal["keys x queries", "queries x keys"]


@dataclass(frozen=True, kw_only=True)
class Setup(Experiment, smallest={"n_tokens": 2, "n_texts": 100}):
    """A text of random tokens, and the layout that the printed mask is put into."""

    n_tokens: int = 6
    vocab: int = 5
    n_texts: int = 4_000
    layout: Layout = "keys x queries"


@dataclass(frozen=True)
class Result:
    """Which value reaches which output, and how often a head that looks ahead knows the next token."""

    setup: Setup
    reaches: Bool[Tensor, "output value"]
    right_mask: Bool[Tensor, "output value"]
    """By the library's causal attention."""
    knows: float
    """Of all tokens but the first, behind the printed mask."""
    knows_behind_right: float
    error: float
    """The standard error of the second."""


@seeded
def run(setup: Setup) -> Result:
    n = setup.n_tokens
    q, k, v = torch.randn(3, n, 4, dtype=torch.float64).unbind()
    v.requires_grad_()
    out = _attend(setup, q @ k.mT, v)
    causal = scaled_dot_product_attention(q, k, v, causal=True)
    ahead = torch.eye(n, dtype=torch.float64).roll(1, 1) * 1e3  # query i asks for key i + 1
    text = torch.randint(setup.vocab, (setup.n_texts, n))
    tokens = F.one_hot(text, setup.vocab).double()
    guess = torch.stack([_attend(setup, ahead, each) for each in tokens])[:, :-1].argmax(-1)
    visible = torch.ones(n, n).tril().bool()
    honest = (softargmax(ahead, visible=visible) @ tokens)[:, :-1].argmax(-1)
    known, guessed = ((found == text[:, 1:]).double() for found in (guess, honest))
    per_text = guessed.mean(1)
    return Result(
        setup,
        _reaches(out, v),
        _reaches(causal, v),
        known.mean().item(),
        per_text.mean().item(),
        (per_text.std() / setup.n_texts**0.5).item(),
    )


def _attend(setup: Setup, scores: Float[Tensor, "query key"], v: Float[Tensor, "key d"]) -> Float[Tensor, "query d"]:
    """The printed mask, -inf where the column is larger than the row, in one of the two layouts."""
    n = len(scores)
    hidden = torch.arange(n)[None, :] > torch.arange(n)[:, None]
    if setup.layout == "queries x keys":
        return softargmax(scores, visible=~hidden) @ v
    alpha = scores.mT.masked_fill(hidden, -torch.inf).softmax(0)  # S = K'Q: columns sum to 1
    return (v.mT @ alpha).mT


def _reaches(out: Float[Tensor, "output d"], v: Float[Tensor, "value d"]) -> Bool[Tensor, "output value"]:
    rows = [torch.autograd.grad(token.sum(), v, retain_graph=True)[0].abs().sum(-1) > 0 for token in out]
    return torch.stack(rows)


def verdict(result: Result) -> Verdict:
    setup, n = result.setup, result.setup.n_tokens
    index = torch.arange(n)
    future = index[None, :] >= index[:, None]
    wrong = int((result.reaches != future).sum())
    return Verdict(
        checks=(
            same(
                "pairs where the printed mask does not show itself and the future",
                0,
                wrong,
                near={"itself hidden": n, "the past": n * (n - 1)},
            ),
            same(
                "outputs that the first value reaches",
                1,
                int(result.reaches[:, 0].sum()),
                near={"all, as the past should": n},
            ),
            same(
                "pairs that pass",
                n * (n + 1) // 2,
                int(result.reaches.sum()),
                near={"without itself": n * (n - 1) // 2},
            ),
            same(
                "pairs where causal attention does not show itself and the past",
                0,
                int((result.right_mask != future.mT).sum()),
                near={"as printed": n * (n - 1)},
            ),
            same("next tokens known behind the printed mask", 1.0, result.knows, near={"by chance": 1 / setup.vocab}),
            about(
                "next tokens known behind the right mask",
                1 / setup.vocab,
                result.knows_behind_right,
                sd=result.error,
                near={"V - 1 instead of V": 1 / (setup.vocab - 1)},
            ),
        ),
        why="The index that comes first is the key in one half of the sheet and the query in the other.",
    )


def figure(result: Result) -> Figure:
    n = result.setup.n_tokens
    drawing, axes = panels(2, height=3.2, title="The printed mask in the sheet's own layout shows the future")
    index = torch.arange(n)
    tables = (
        ("printed: -inf if j > i, S = K'Q", result.reaches, index[None, :] >= index[:, None]),
        ("causal attention", result.right_mask, index[None, :] <= index[:, None]),
    )
    for ax, (name, table, expected) in zip(axes, tables, strict=True):
        ax.imshow(table.int().numpy(), cmap="Blues", vmin=0, vmax=1.6)
        outline(ax, expected)
        ax.set(title=name, xlabel="value of token", ylabel="output of token", xticks=range(n), yticks=range(n))
    axes[0].text(0.02, -0.3, "filled: measured; inside the line: predicted", transform=axes[0].transAxes, va="top")
    return drawing


CLAIM = Claim(
    __name__,
    __doc__,
    document="NYU",
    question="1.3(e)",
    also=("NYU 1.3(a)",),
    setup=Setup(),
    small=Setup(n_tokens=4, vocab=4, n_texts=1_000),
    run=run,
    verdict=verdict,
    figure=figure,
    broken={"the mask in a layout of queries by keys": {"layout": "queries x keys"}},
    confidence="Exact; guesses are within 5 standard deviations (SD) of the mean over the texts.",
    errata=(
        Erratum(
            where="1.3(e), with S of 1.3(a)",
            printed=r"$S = K^\top Q$ and a mask that sets $s_{ij} = -\infty$ if $j > i$",
            right=r"in keys by queries, $-\infty$ if $i > j$; or query first throughout, as 1.3(d) and 1.3(e) do",
            measured=lambda result: (
                f"With S as it is defined, value 1 of {result.setup.n_tokens} reaches "
                f"{int(result.reaches[:, 0].sum())} output, "
                f"its own, and the last value all {int(result.reaches[:, -1].sum())}; the next token is known in "
                f"{result.knows:.0%} of the places of a random text."
            ),
        ),
    ),
)
