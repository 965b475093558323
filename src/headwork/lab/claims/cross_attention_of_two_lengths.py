r"""Cross-attention joins sequences of different lengths, and of different widths: only queries and keys have to match.

Queries come from $x_1$ with $n_1$ tokens, keys and values from $x_2$ with $n_2$:

$$H = \operatorname{softmax}\left(\frac{(x_1W_q)(x_2W_k)^\top}{\sqrt{d_k}}\right) x_2W_v$$

The table of weights is $n_1 \times n_2$ and the output has $n_1$ tokens. What has to agree is the width of $x_1W_q$ and
$x_2W_k$, the axis of their product. The widths of $x_1$ and $x_2$ do not: $W_q$ and $W_k$ have as many rows as their
own input has features.

In self-attention every output depends on every token of its sequence. Here output $i$ depends on token $i$ of $x_1$ and
no other one, and on all of $x_2$, in whatever order these are.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headwork.functional import attention_scores
from headwork.inspection import record
from headwork.lab.measuring import exists, influence
from headwork.lab.plots import Figure, outline, panels
from headwork.lab.toolkit import Claim, Erratum, Experiment, Verdict, exact, largest_difference, same, seeded
from headwork.layers import MultiHeadAttention


@dataclass(frozen=True, kw_only=True)
class Setup(Experiment):
    """Two sequences that differ in length and width, one layer, and where its keys and values come from."""

    n_queries: int = 6
    n_keys: int = 13
    d_model: int = 12
    d_memory: int = 7
    n_heads: int = 3
    attention: Literal["cross", "self"] = "cross"


@dataclass(frozen=True)
class Result:
    """The layer beside PyTorch's, the weights of its first head, and who depends on whom."""

    setup: Setup
    from_pytorch: float
    from_reordered: float
    """How far the output for a memory in another order is from the output."""
    weights: Float[Tensor, "query key"]
    by_query: Float[Tensor, "out_token token"]
    by_memory: Float[Tensor, "out_token memory_token"]
    widths_that_fit: str
    from_other_keys: float
    """How far PyTorch's layer is for a memory without its last token."""


@seeded
def run(setup: Setup) -> Result:
    layer = MultiHeadAttention(setup.d_model, setup.n_heads, d_memory=setup.d_memory).double().requires_grad_(False)
    x = torch.randn(setup.n_queries, setup.d_model, dtype=torch.float64)
    memory = torch.randn(setup.n_keys, setup.d_memory, dtype=torch.float64)
    to_memory = torch.randn(setup.d_model, setup.d_memory, dtype=torch.float64)

    def attend(x: Tensor, memory: Tensor) -> Float[Tensor, "query d_model"]:
        """Self-attention takes its memory from x."""
        return layer(x[None], (memory if setup.attention == "cross" else x @ to_memory)[None])[0]

    with record(layer, "weights") as seen:
        out = attend(x, memory)
        weights = seen["weights"][0, 0]
    return Result(
        setup,
        largest_difference(out, _pytorch(layer, x, memory)),
        largest_difference(out, attend(x, memory.flip(0))),
        weights,
        influence(lambda x: attend(x, memory), x),
        influence(lambda memory: attend(x, memory) + 0 * memory.sum(), memory),
        _widths_that_fit(setup),
        largest_difference(out, _pytorch(layer, x, memory[:-1])),
    )


def _pytorch(layer: MultiHeadAttention, x: Tensor, memory: Tensor) -> Float[Tensor, "query d_model"]:
    """PyTorch's layer with the same numbers."""
    d, d_memory = layer.d_model, layer.d_memory
    theirs = nn.MultiheadAttention(d, layer.n_heads, kdim=d_memory, vdim=d_memory, batch_first=True).double()
    ours = layer.state_dict()
    theirs.load_state_dict(
        {
            "q_proj_weight": ours["query.weight"],
            "k_proj_weight": ours["key.weight"],
            "v_proj_weight": ours["value.weight"],
            "in_proj_bias": torch.cat([ours["query.bias"], ours["key.bias"], ours["value.bias"]]),
            "out_proj.weight": ours["out.weight"],
            "out_proj.bias": ours["out.bias"],
        }
    )
    with torch.no_grad():
        out: Tensor = theirs(x[None], memory[None], memory[None])[0][0]
    return out


def _widths_that_fit(setup: Setup) -> str:
    """Queries against keys of another number, and against keys of another width."""
    q = torch.zeros(setup.n_queries, setup.d_model)
    rows, columns = attention_scores(q, torch.zeros(setup.n_keys, setup.d_model)).shape
    fits = exists(lambda: attention_scores(q, torch.zeros(setup.n_queries, setup.d_memory)))
    other_width = "have scores too" if fits else "have no scores at all"
    return (
        f"{setup.n_queries} queries and {setup.n_keys} keys of the same width have {rows} x {columns} scores; "
        f"{setup.n_queries} queries of width {setup.d_model} and as many keys of width {setup.d_memory} {other_width}"
    )


def verdict(result: Result) -> Verdict:
    setup = result.setup
    n, m = setup.n_queries, setup.n_keys
    others = ~torch.eye(n, dtype=torch.bool)
    return Verdict(
        checks=(
            exact(
                "the layer against PyTorch's",
                result.from_pytorch,
                near={"x2 without its last token": result.from_other_keys},
            ),
            same("rows of the table of weights", n, result.weights.shape[0], near={"as many as x2 has": m}),
            same("columns of the table of weights", m, result.weights.shape[1], near={"as many as x1 has": n}),
            same(
                "other tokens of x1 that an output depends on",
                0,
                int((result.by_query > 0)[others].sum()),
                near={"its neighbours": 2 * (n - 1), "all, as in self-attention": n * (n - 1)},
            ),
            same(
                "pairs of an output and a token of x2 it depends on",
                n * m,
                int((result.by_memory > 0).sum()),
                near={"the token at its own place alone": min(n, m)},
            ),
            exact(
                "x2 in another order against x2",
                result.from_reordered,
                near={"x2 without its last token": result.from_other_keys},
            ),
        ),
        why="The product of queries and keys has a row for each query and a column for each key.",
    )


def figure(result: Result) -> Figure:
    setup = result.setup
    title = "Cross-attention: as many outputs as x1 has tokens, each a mean over all of x2"
    drawing, axes = panels(3, width=9.2, height=2.7, title=title)
    own, every = torch.eye(setup.n_queries, dtype=torch.bool), torch.ones_like(result.by_memory, dtype=torch.bool)
    for ax, table, allowed, below, name in (
        (
            axes[0],
            result.weights,
            torch.ones_like(result.weights, dtype=torch.bool),
            "key: token of x2",
            "weights of a head",
        ),
        (axes[1], result.by_memory, every, "token of x2", "influence; predicted: all"),
        (axes[2], result.by_query, own, "token of x1", "influence; predicted: own only"),
    ):
        shown = ax.imshow(table.numpy(), cmap="Greys", vmin=0)
        outline(ax, allowed)
        ax.set(xlabel=below, ylabel="query: token of x1", xticks=[], yticks=[])
        ax.set_title(f"measured {name}", fontsize=8)
        drawing.colorbar(shown, ax=ax, shrink=0.6)
    return drawing


CLAIM = Claim(
    __name__,
    __doc__,
    document="C182",
    question="4",
    also=("C182 1(c) i",),
    setup=Setup(),
    small=Setup(n_queries=3, n_keys=5, d_model=4, d_memory=7, n_heads=2),
    run=run,
    verdict=verdict,
    figure=figure,
    broken={"keys and values from the queries' own sequence": {"attention": "self"}},
    confidence="Exact: what an output does not depend on has an influence of 0; the layers agree up to rounding.",
    errata=(
        Erratum(
            where="4, cross attention",
            printed="their embedding/hidden dimensions must match",
            right="the widths of the projected queries and keys must match; those of the two inputs need not, "
            "as `kdim` and `vdim` of torch.nn.MultiheadAttention show",
            measured=lambda result: (
                f"Inputs of widths {result.setup.d_model} and {result.setup.d_memory} work, and agree with "
                f"PyTorch's layer up to {result.from_pytorch:.0e}."
            ),
        ),
        Erratum(
            where="1(c) i",
            printed="Due to the multiplication between keys and queries, they need to match in their number",
            right="they need to match in their *width*, $d_k = d_q$; their numbers may differ, as question 4 says",
            measured=lambda result: f"{result.widths_that_fit}.",
        ),
    ),
)
