r"""A head that gets a slice of the token is a head that projects the whole token, with zeros outside its block.

Usually head $i$ projects the whole token, $XW_i$ with $W_i \in \mathbb{R}^{d \times d/h}$. The sheet cuts the token
first, $X_iW_i$ with $X_i = X[:, i\,d_k : (i+1)\,d_k]$ and $W_i \in \mathbb{R}^{d/h \times d/h}$. Since

$$X_i W_i = X \begin{pmatrix} 0 \\ W_i \\ 0 \end{pmatrix}$$

splitting is projecting with block-diagonal matrices: everything it can do, projecting can do too. The converse is not
true. The scores of a head that splits know only its own slice, and the three projections have $3d^2/h$ numbers in place
of $3d^2$. (With $W^o$ both have $d^2$ more.) So the number of parameters does not stay the same when heads are added:
only heads that project the whole token keep it.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from headwork.inspection import record
from headwork.lab.plots import MARKERS, MEASURED, PREDICTED, Figure, outline, panels, series
from headwork.lab.toolkit import Claim, Erratum, Experiment, Verdict, exact, largest_difference, same, seeded
from headwork.layers import MultiHeadAttention, SplitHeadAttention

Heads = Literal["split", "project"]


@dataclass(frozen=True, kw_only=True)
class Setup(Experiment):
    """Layers that split and layers that project, and which of them is called the one that splits."""

    d_model: int = 24
    n_heads: tuple[int, ...] = (1, 2, 3, 4, 6, 8, 12)
    shown_heads: int = 4
    n_tokens: int = 7
    splits: Heads = "split"
    zeros_outside: bool = True
    """Whether the matrices that project are zero outside the blocks."""


@dataclass(frozen=True)
class Result:
    """Parameters by the number of heads, which features the scores of a head know, and how far the two are apart."""

    setup: Setup
    parameters: dict[Heads, tuple[int, ...]]
    known: Float[Tensor, "head feature"]
    """The influence of a feature on the scores of a head that splits; and of one that projects."""
    known_when_projecting: Float[Tensor, "head feature"]
    from_blocks: float
    from_more: float
    """How far the two are apart if the matrices are not zero outside the blocks."""


@seeded
def run(setup: Setup) -> Result:
    d, n = setup.d_model, setup.shown_heads
    x = torch.randn(1, setup.n_tokens, d, dtype=torch.float64)
    split = SplitHeadAttention(d, n, bias=False).double()
    projecting = MultiHeadAttention(d, n, bias=False).double()
    known = {"split": _known(split, x), "project": _known(projecting, x)}
    with torch.no_grad():
        _copy_blocks(split, projecting, keep_the_rest=True)
        from_more = largest_difference(split(x, x), projecting(x, x))
        _copy_blocks(split, projecting, keep_the_rest=not setup.zeros_outside)
        from_blocks = largest_difference(split(x, x), projecting(x, x))
    return Result(
        setup,
        {
            "split": tuple(_count(SplitHeadAttention(d, h, bias=False)) for h in setup.n_heads),
            "project": tuple(_count(MultiHeadAttention(d, h, bias=False)) for h in setup.n_heads),
        },
        known[setup.splits],
        known["project"],
        from_blocks,
        from_more,
    )


def _count(layer: MultiHeadAttention) -> int:
    return sum(parameter.numel() for parameter in layer.parameters())


def _known(layer: MultiHeadAttention, x: Float[Tensor, "1 token d"]) -> Float[Tensor, "head feature"]:
    """How much the scores of each head change with each feature of the tokens."""
    x = x.clone().requires_grad_()
    with record(layer, "scores") as seen:
        layer(x, x)
    rows = []
    for scores in seen["scores"][0]:
        (of_scores,) = torch.autograd.grad(scores.square().sum(), x, retain_graph=True)
        rows.append(of_scores[0].square().sum(0).sqrt())
    return torch.stack(rows)


@torch.no_grad()
def _copy_blocks(split: SplitHeadAttention, projecting: MultiHeadAttention, *, keep_the_rest: bool) -> None:
    """The matrices of the heads that split, along the diagonal of those that project."""
    for name in ("query", "key", "value"):
        blocks, whole = split.get_parameter(f"{name}.weight"), projecting.get_parameter(f"{name}.weight")
        diagonal = torch.block_diag(*blocks)  # type: ignore[no-untyped-call]
        whole.copy_(torch.where(diagonal == 0, whole, diagonal) if keep_the_rest else diagonal)
    projecting.out.weight.copy_(split.out.weight)


def _own_slice(setup: Setup) -> Bool[Tensor, "head feature"]:
    head, feature = torch.arange(setup.shown_heads), torch.arange(setup.d_model)
    return head[:, None] == feature[None, :] // (setup.d_model // setup.shown_heads)


def predict(setup: Setup, heads: Heads, n: int) -> int:
    return 3 * setup.d_model**2 // (n if heads == "split" else 1) + setup.d_model**2


def verdict(result: Result) -> Verdict:
    setup, own = result.setup, _own_slice(result.setup)
    counts = [
        same(
            f"parameters of {n} heads that {heads}",
            predict(setup, heads, n),
            count,
            near={"without W^o": predict(setup, heads, n) - setup.d_model**2}
            | (
                {"the other kind of heads": predict(setup, "project" if heads == "split" else "split", n)}
                if n > 1
                else {}
            ),
        )
        for heads, of in result.parameters.items()
        for n, count in zip(setup.n_heads, of, strict=True)
    ]
    everything = own.numel()
    return Verdict(
        checks=(
            exact(
                "splitting against projecting with zeros outside the blocks",
                result.from_blocks,
                near={"anything outside the blocks": result.from_more},
            ),
            same(
                "features of other slices that scores know, splitting",
                0,
                int((result.known > 0)[~own].sum()),
                near={"one each": setup.shown_heads},
            ),
            same(
                "features of the own slice that scores know, splitting",
                setup.d_model,
                int((result.known > 0)[own].sum()),
                near={"all but one": setup.d_model - 1},
            ),
            same(
                "features that scores know, projecting",
                everything,
                int((result.known_when_projecting > 0).sum()),
                near={"the own slice": setup.d_model},
            ),
            *counts,
        ),
        why="A product with a slice is a product with the whole and a matrix that is zero elsewhere.",
    )


def figure(result: Result) -> Figure:
    setup, own = result.setup, _own_slice(result.setup)
    title = "A head that splits knows its slice only, and has fewer parameters"
    drawing, (left, middle, right) = panels(3, width=9.2, height=2.7, title=title)
    for ax, known, name, allowed in (
        (left, result.known, "splitting", own),
        (middle, result.known_when_projecting, "projecting", torch.ones_like(own)),
    ):
        ax.imshow(known.numpy(), cmap="Greys", vmin=0, aspect="auto")
        outline(ax, allowed)
        ax.set(xlabel="feature of the tokens", ylabel="head", yticks=range(setup.shown_heads))
        ax.set_title(f"measured: what scores know, {name}", fontsize=8)
    for (heads, counts), marker in zip(result.parameters.items(), MARKERS, strict=False):
        line = [predict(setup, heads, n) for n in setup.n_heads]
        right.plot(setup.n_heads, line, **PREDICTED | {"label": "predicted" if heads == "split" else None})
        right.plot(setup.n_heads, counts, **MEASURED | series(marker) | {"label": f"measured, {heads}"})
    right.set(
        xlabel="heads", ylabel="parameters", xticks=setup.n_heads, ylim=(0, 1.6 * max(result.parameters["project"]))
    )
    right.legend(frameon=False, loc="upper right")
    return drawing


def _fewer(result: Result) -> str:
    setup = result.setup
    (split, project), n = ((of[-1] for of in result.parameters.values()), setup.n_heads[-1])
    return (
        f"At d = {setup.d_model}, {n} heads that split the input have {split:,} parameters, heads that project all of "
        f"it {project:,}, as many as one head has."
    )


CLAIM = Claim(
    __name__,
    __doc__,
    document="C182",
    question="0.2",
    setup=Setup(),
    small=Setup(d_model=8, n_heads=(1, 2, 4), shown_heads=2, n_tokens=3),
    run=run,
    verdict=verdict,
    figure=figure,
    broken={
        "heads that project, taken for heads that split": {"splits": "project"},
        "matrices that are not zero outside the blocks": {"zeros_outside": False},
    },
    confidence="Exact: what a head does not know has an influence of 0, and the two agree up to rounding.",
    errata=(
        Erratum(
            where="section 0.2 against 1(c) iii",
            printed=r"$\text{head}_i = \text{Attention}(X_iW_i^q, \dots)$ with slices $X_i$, "
            "and 'maintain the same number of parameters'",
            right=r"$\text{Attention}(XW_i^q, \dots)$ with the whole $X$ keeps the number of parameters; "
            r"with slices the three projections shrink to $3d^2/h$",
            measured=_fewer,
        ),
    ),
)
