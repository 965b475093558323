r"""A perturbed key reaches every output, a perturbed query its own alone; each block of the Jacobian has a closed form.

With $h_i = \sum_j \alpha_{ij} v_j$ and $\alpha_{ij} = \operatorname{softargmax}_j(\beta\,q_i \cdot k_j)$, a score
moves the weights by $\partial\alpha_{il} / \partial s_{ij} = \beta\,\alpha_{il}(\delta_{lj} - \alpha_{ij})$, so that

$$\frac{\partial h_i}{\partial k_j} = \beta\,\alpha_{ij}\,(v_j - h_i)\,q_i^\top, \qquad
\frac{\partial h_i}{\partial q_l} = \delta_{il}\,\beta\sum_j \alpha_{ij}\,(v_j - h_i)\,k_j^\top, \qquad
\frac{\partial h_i}{\partial v_j} = \alpha_{ij}\,I$$

No weight is exactly 0, so a key reaches all $n$ outputs, and a query only one. The first block is 0 where the value is
what the output is already.

The effect of a key is *not* confined to its own contribution $\alpha_{ij} v_j$: the weights of a query sum to 1, so the
other weights together give up exactly what $\alpha_{ij}$ gains.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor
from torch.autograd.functional import jacobian

from headwork.functional import attention_weights, scaled_dot_product_attention
from headwork.lab.plots import MEASURED, PREDICTED, Figure, outline, panels, whole_ticks
from headwork.lab.toolkit import Claim, Erratum, Experiment, Verdict, about, exact, largest_difference, same, seeded


@dataclass(frozen=True, kw_only=True)
class Setup(Experiment, smallest={"n_keys": 2}):
    """Random queries, keys and values, each a number of its own."""

    n_queries: int = 11
    n_keys: int = 13
    d_head: int = 17
    d_value: int = 7
    normalised_over: Literal["keys", "queries"] = "keys"
    queries: Literal["their own", "mixed with each other"] = "their own"


@dataclass(frozen=True)
class Result:
    """The norm of each block of the Jacobian, and the largest difference of any entry from its formula."""

    setup: Setup
    of_key: Float[Tensor, "query key"]
    of_query: Float[Tensor, "query query"]
    predicted_of_key: Float[Tensor, "query key"]
    difference: dict[str, float]
    wrong: dict[str, dict[str, float]]
    """The same for formulas with one thing wrong."""
    own_weight: float
    """How far the weight of the perturbed key moves, all queries and keys together."""
    other_weights: float
    """How far the weights of the other keys move."""


@seeded
def run(setup: Setup) -> Result:
    q = torch.randn(setup.n_queries, setup.d_head).double()
    k = torch.randn(setup.n_keys, setup.d_head).double()
    v = torch.randn(setup.n_keys, setup.d_value).double()

    measured = jacobian(lambda q, k, v: _attend(setup, q, k, v), (q, k, v), vectorize=True)  # type: ignore[no-untyped-call]
    predicted = predict(q, k, v)
    without_mean = predict(q, k, v, mean=0.0)
    of_weights = jacobian(lambda k: attention_weights(q, k), k, vectorize=True)  # type: ignore[no-untyped-call]
    moved = of_weights.norm(dim=-1)
    own = moved.diagonal(dim1=1, dim2=2)
    return Result(
        setup,
        _block_norms(measured[1]),
        _block_norms(measured[0]),
        _block_norms(predicted[1]),
        {
            name: largest_difference(seen, formula)
            for name, seen, formula in zip(("query", "key", "value"), measured, predicted, strict=True)
        },
        {
            "query": {"without h_i": largest_difference(measured[0], without_mean[0])},
            "key": {"without h_i": largest_difference(measured[1], without_mean[1])},
            "value": {"the keys in reverse": largest_difference(measured[2], predicted[2].flip(2))},
        },
        own.sum().item(),
        (moved.sum() - own.sum()).item(),
    )


def _attend(setup: Setup, q: Tensor, k: Tensor, v: Tensor) -> Float[Tensor, "query d_value"]:
    if setup.queries == "mixed with each other":
        q = q - q.mean(0)
    if setup.normalised_over == "queries":
        return attention_weights(k, q).mT @ v
    return scaled_dot_product_attention(q, k, v)


def predict(
    q: Float[Tensor, "query d"], k: Float[Tensor, "key d"], v: Float[Tensor, "key t"], mean: float = 1.0
) -> tuple[Float[Tensor, "query t query d"], Float[Tensor, "query t key d"], Float[Tensor, "query t key t"]]:
    """The three blocks of the docstring, for all i, j and l at once."""
    beta = q.shape[-1] ** -0.5
    weights = torch.softmax(beta * q @ k.mT, dim=-1)
    away = v[None] - mean * (weights @ v)[:, None]  # v_j - h_i
    of_key = beta * einsum(weights, away, q, "i j, i j t, i d -> i t j d")
    own = beta * einsum(weights, away, k, "i j, i j t, j d -> i t d")
    of_query = einsum(torch.eye(len(q)).double(), own, "i l, i t d -> i t l d")
    of_value = einsum(weights, torch.eye(v.shape[-1]).double(), "i j, t s -> i t j s")
    return of_query, of_key, of_value


def _block_norms(blocks: Float[Tensor, "out t token d"]) -> Float[Tensor, "out token"]:
    return blocks.square().sum((1, 3)).sqrt()


def verdict(result: Result) -> Verdict:
    setup = result.setup
    return Verdict(
        checks=(
            same(
                "outputs that a query reaches",
                1,
                int((result.of_query > 0).sum(0).max()),
                near={"its neighbours too": 3},
            ),
            same(
                "outputs that a key reaches",
                setup.n_queries,
                int((result.of_key > 0).sum(0).min()),
                near={"one": 1, "all but one": setup.n_queries - 1},
            ),
            *(
                exact(
                    f"entries of the Jacobian for a {name}, autograd against formula",
                    difference,
                    near=result.wrong[name],
                )
                for name, difference in result.difference.items()
            ),
            about(
                "how far all other weights move, as a share of the perturbed one",
                1,
                result.other_weights / result.own_weight,
                near={"not at all": 0, "each as far": setup.n_keys - 1},
            ),
        ),
        why="All queries ask the same keys, and no query asks another query.",
    )


def figure(result: Result) -> Figure:
    setup = result.setup
    title = "A key reaches every output, a query only its own"
    drawing, (left, middle, right) = panels(3, title=title, width=8.2, height=2.8)
    top = max(result.of_key.max().item(), result.of_query.max().item())
    for ax, table, name in ((left, result.of_key, "key"), (middle, result.of_query, "query")):
        ax.imshow(table.clamp(min=1e-9).log10().numpy(), cmap="Greys", vmin=-4, vmax=torch.tensor(top).log10().item())
        ax.set(xlabel=f"perturbed {name}", ylabel="output of query")
        whole_ticks(ax, "both")
        ax.set_title(f"measured, a {name}")
    outline(middle, torch.eye(setup.n_queries) > 0)
    middle.text(setup.n_queries - 1, 0, "predicted:\nonly the diagonal", ha="right", va="top")
    keys = torch.arange(setup.n_keys)
    right.plot(keys.numpy(), result.predicted_of_key[0].numpy(), **PREDICTED)
    right.plot(keys.numpy(), result.of_key[0].numpy(), **MEASURED)
    right.set(xlabel="perturbed key", ylabel="|dh / dk| of query 0", ylim=(0, None))
    right.set_title("one row, with its formula")
    whole_ticks(right)
    right.legend(frameon=False)
    return drawing


def _others_move(result: Result) -> str:
    return (
        f"Per unit of perturbation the weight of the perturbed key moves by {result.own_weight:.4f}, "
        f"and those of the other keys together by {result.other_weights:.4f} (sums over all queries and keys)."
    )


CLAIM = Claim(
    __name__,
    __doc__,
    document="NYU",
    question="1.1(e)",
    also=("NYU 1.1(f)",),
    setup=Setup(),
    small=Setup(n_queries=3, n_keys=5, d_head=7, d_value=2),
    run=run,
    verdict=verdict,
    figure=figure,
    broken={
        "weights that sum to 1 over the queries": {"normalised_over": "queries"},
        "queries from which their mean is subtracted": {"queries": "mixed with each other"},
    },
    confidence="Exact up to rounding; which blocks are 0 is exact.",
    errata=(
        Erratum(
            where="1.1(e), last line",
            printed="the effect is localized to the contributions from the perturbed key",
            right="the weights of a query sum to 1, so what the perturbed key gains all other keys lose: "
            r"$d\alpha_{il} = -\beta\,\alpha_{il}\,\alpha_{ij}\,q_i \cdot \epsilon$ for $l \ne j$",
            measured=_others_move,
        ),
    ),
)
