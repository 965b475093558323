r"""Behind a causal mask no output depends on a later token, so a stream read in chunks gives what the whole gives.

The mask sets the score of every later key to $-\infty$ *before* the softmax:

$$\alpha_{ij} = \frac{e^{s_{ij}}}{\sum_{k \le i} e^{s_{ik}}} \quad (j \le i), \qquad \alpha_{ij} = 0 \quad (j > i)$$

so $h_i = \sum_{j \le i} \alpha_{ij} v_j$ contains no later token, neither in a value nor in the sum below the line, and
$\partial h_i / \partial x_j$ is exactly 0 for $j > i$. A stack of such layers inherits it: every path from an input to
an output runs forward in time. What a token needs is therefore known when it arrives, and its outputs never have to be
computed again: keep the keys and values of the past, and read on.

Setting the weights of later keys to 0 *after* the softmax looks the same and leaks: the sum below the line has already
seen the future.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from headwork import masks
from headwork.functional import attention_weights, distance
from headwork.lab.measuring import influence
from headwork.lab.plots import FLOOR, MARKERS, MEASURED, Figure, draw_rounding, on_log_axis, outline, panels, series
from headwork.lab.toolkit import Claim, Experiment, Verdict, exact, largest_difference, same, seeded

Mask = Literal["causal", "one token ahead", "after the softmax"]
MASKS: tuple[Mask, ...] = ("causal", "one token ahead", "after the softmax")
Past = list[tuple[Tensor, Tensor]]


@dataclass(frozen=True, kw_only=True)
class Setup(Experiment):
    """A stack of residual attention layers, a mask, and the sizes of the chunks to read in."""

    n_tokens: int = 17
    d_model: int = 8
    n_layers: int = 3
    chunks: tuple[int, ...] = (1, 2, 3, 5, 8, 13)
    mask: Mask = "causal"


@dataclass(frozen=True)
class Result:
    """How much each output depends on each input, and for every mask how far each chunk size is from the whole."""

    setup: Setup
    influence: Float[Tensor, "out_token token"]
    difference: dict[Mask, Float[Tensor, "chunk"]]


@seeded
def run(setup: Setup) -> Result:
    shape = (setup.n_layers, 3, setup.d_model, setup.d_model)
    projections = torch.randn(shape, dtype=torch.float64) / setup.d_model**0.5
    x = torch.randn(setup.n_tokens, setup.d_model, dtype=torch.float64)

    def read(x: Tensor, mask: Mask) -> Tensor:
        return _read(x, projections, mask, _nothing(projections))

    difference = {
        mask: torch.tensor(
            [largest_difference(read(x, mask), _read_in_chunks(x, projections, mask, chunk)) for chunk in setup.chunks]
        )
        for mask in MASKS
    }
    return Result(setup, influence(lambda x: read(x, setup.mask), x), difference)


def _read_in_chunks(x: Float[Tensor, "token d"], projections: Tensor, mask: Mask, chunk: int) -> Tensor:
    past = _nothing(projections)
    return torch.cat([_read(new, projections, mask, past) for new in torch.split(x, chunk)])


def _read(
    x: Float[Tensor, "token d"], projections: Float[Tensor, "layer 3 d d"], mask: Mask, past: Past
) -> Float[Tensor, "token d"]:
    """The outputs of the new tokens; their keys and values join the past."""
    for layer, of_layer in enumerate(projections):
        q, new_k, new_v = x @ of_layer
        k, v = (torch.cat(pair) for pair in zip(past[layer], (new_k, new_v), strict=True))
        past[layer] = k, v
        x = x + _weights(q, k, mask) @ v
    return x


def _weights(q: Float[Tensor, "query d"], k: Float[Tensor, "key d"], mask: Mask) -> Float[Tensor, "query key"]:
    n_query, n_key = len(q), len(k)
    match mask:
        case "causal":
            return attention_weights(q, k, visible=masks.causal(n_query, n_key))
        case "one token ahead":
            return attention_weights(q, k, visible=distance(n_query, n_key) <= 1)
        case "after the softmax":
            return attention_weights(q, k) * masks.causal(n_query, n_key)


def _nothing(projections: Float[Tensor, "layer 3 d d"]) -> Past:
    none = projections.new_zeros(0, projections.shape[-1])
    return [(none, none) for _ in projections]


def _past(setup: Setup) -> Bool[Tensor, "token token"]:
    return torch.ones(setup.n_tokens, setup.n_tokens, dtype=torch.bool).tril()


def verdict(result: Result) -> Verdict:
    setup, depends, n = result.setup, result.influence > 0, result.setup.n_tokens
    past = _past(setup)
    return Verdict(
        checks=(
            exact(
                "reading in chunks against the whole",
                result.difference[setup.mask].max().item(),
                near={
                    f"a mask that is wrong by a little: {mask}": result.difference[mask].max().item()
                    for mask in MASKS[1:]
                },
            ),
            same(
                "pairs of an output and a later input with influence",
                0,
                int((depends & ~past).sum()),
                near={"the next token is seen": n - 1},
            ),
            same(
                "pairs of an output and an input not later with influence",
                n * (n + 1) // 2,
                int((depends & past).sum()),
                near={"only previous ones, without itself": n * (n - 1) // 2, "all": n**2},
            ),
        ),
        why="No path leads from a token back in time, so a chunk already has all it needs when it arrives.",
    )


def figure(result: Result) -> Figure:
    setup = result.setup
    drawing, (left, right) = panels(2, title="Behind a causal mask nothing leaks, and a stream can be read in chunks")
    table = left.imshow(result.influence.clamp(min=1e-4).log10().numpy(), cmap="Greys")
    outline(left, _past(setup))
    every_fourth = range(0, setup.n_tokens, 4)
    left.set(xlabel="input token", ylabel="output token", xticks=every_fourth, yticks=every_fourth)
    left.set_title(f"mask: {setup.mask}")
    left.text(setup.n_tokens - 1, 0, "predicted:\nno influence", ha="right", va="top")
    drawing.colorbar(table, ax=left, label="measured influence, log10 |dy/dx|", shrink=0.9)
    for mask, marker in zip(MASKS, MARKERS, strict=False):
        style = MEASURED | series(marker) | {"label": f"measured, mask: {mask}"}
        right.semilogy(setup.chunks, on_log_axis(result.difference[mask]), **style)
    draw_rounding(right, "predicted for causal: below")
    right.set(xlabel="tokens in a chunk", ylabel="largest difference from the whole", ylim=(FLOOR, 1e2))
    right.legend(frameon=False, loc="center", bbox_to_anchor=(0.55, 0.62))
    return drawing


CLAIM = Claim(
    __name__,
    __doc__,
    document="NYU",
    question="1.3(e)",
    setup=Setup(),
    small=Setup(n_tokens=7, d_model=5, n_layers=2, chunks=(1, 3)),
    run=run,
    verdict=verdict,
    figure=figure,
    broken={
        "a mask that lets the next token through": {"mask": "one token ahead"},
        "a mask applied after the softmax": {"mask": "after the softmax"},
    },
    confidence="Exact: the influence of the future is 0, not small; chunks agree up to rounding.",
)
