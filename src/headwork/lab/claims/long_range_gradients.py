r"""Recurrence takes a step for every token in between, and its gradient fades or explodes; attention takes one step.

A recurrent network passes a token on through every state in between. In its linear range, $h_t = W h_{t-1} + x_t$ with
$W = \rho\,O$ and $O$ orthogonal, so

$$\frac{\partial h_n}{\partial x_j} = W^{n-j}, \qquad \Big\|\frac{\partial h_n}{\partial x_j}\Big\| = \rho^{\,n-j}$$

in every direction: it vanishes for $\rho < 1$ and explodes for $\rho > 1$, exponentially in the distance. (Where
$\tanh$ saturates it only shrinks further.) Attention reads every token at once. With equal weights,

$$\frac{\partial h_n}{\partial x_j} = \frac1n W_O W_V$$

at *every* distance. It is the length of the text that dilutes it, as $1/n$, not the distance. The longest chain of
operations from an input to an output grows with $n$ in the one case ($n$ states, one after the other), and is the same
for all $n$ in the other: that is why one can be computed in parallel over the tokens, and the other cannot.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headwork import masks
from headwork.functional import alibi_bias
from headwork.lab.plots import MARKERS, MEASURED, PREDICTED, Figure, panels, series
from headwork.lab.toolkit import Claim, Experiment, Verdict, about, exact, largest_difference, same, seeded
from headwork.layers import MultiHeadAttention

ROUNDING = 2**20
"""In eps and relative, after hundreds of products."""


@dataclass(frozen=True, kw_only=True)
class Setup(Experiment, smallest={"lengths": 4, "n_texts": 20}):
    """Texts of several lengths, a recurrent network with several spectral radii, and an attention layer."""

    lengths: tuple[int, ...] = (16, 32, 64, 128)
    d_model: int = 16
    radii: tuple[float, ...] = (0.9, 1.1)
    n_texts: int = 128
    scores: Literal["content", "window", "fading with distance"] = "content"


@dataclass(frozen=True)
class Result:
    """The size of dh_n / dx_j, and the longest chain of operations behind h_n."""

    setup: Setup
    recurrent: Float[Tensor, "radius token"]
    """For the longest text, relative to the last token."""
    flat: Float[Tensor, "length"]
    """Attention with equal weights: the largest relative error of |W_O W_V| / n, over all tokens."""
    by_text: Float[Tensor, "text token"]
    """With random queries, the longest text, in units of |W_O W_V| / n."""
    chain: dict[str, list[int]]
    states: list[int]
    """How many states a token is handed on through, one after the other, on the longest way to the last one."""

    @property
    def attention(self) -> Float[Tensor, "token"]:
        return self.by_text.mean(0)

    @property
    def distance(self) -> Float[Tensor, "token"]:
        return torch.arange(max(self.setup.lengths) - 1, -1, -1).double()

    @property
    def slopes(self) -> Float[Tensor, "text"]:
        """The relative change of |dh/dx| along each text, by a straight line through all tokens but the last."""
        away = self.distance[:-1] - self.distance[:-1].mean()
        level = self.attention[:-1].mean()
        return self.by_text[:, :-1] @ away / away.square().sum() * max(self.setup.lengths) / level


@seeded
def run(setup: Setup) -> Result:
    longest, d = max(setup.lengths), setup.d_model
    layer = MultiHeadAttention(d, 1, bias=False).double()
    with torch.no_grad():
        through = (layer.out.weight @ layer.value.get_parameter("weight")).norm().item()
    random_queries = torch.stack([_reach_of_attention(setup, layer, longest) for _ in range(setup.n_texts)])
    cell = nn.RNNCell(d, d, bias=False).double()
    chain = {
        "recurrent": [_chain(_read(cell, _text(n, d))) for n in setup.lengths],
        "attention": [_chain(_attend(setup, layer, _text(n, d))[-1]) for n in setup.lengths],
    }
    nn.init.zeros_(layer.query.get_parameter("weight"))
    flat = [(_reach_of_attention(setup, layer, n) * n / through - 1).abs().max().item() for n in setup.lengths]
    return Result(
        setup,
        torch.stack([_reach_of_recurrence(cell, longest, radius) for radius in setup.radii]),
        torch.tensor(flat, dtype=torch.float64),
        random_queries * longest / through,
        chain,
        [_chain(_read(cell, _text(n, d)), "Tanh") for n in setup.lengths],
    )


def _text(n: int, d: int) -> Float[Tensor, "token d"]:
    return torch.randn(n, d, dtype=torch.float64, requires_grad=True)


def _attend(setup: Setup, layer: MultiHeadAttention, x: Float[Tensor, "token d"]) -> Float[Tensor, "token d"]:
    n = len(x)
    visible = masks.window(n, radius=4) if setup.scores == "window" else None
    bias = alibi_bias(1, n, n).to(x.dtype)[None] * 32 if setup.scores == "fading with distance" else None
    out: Tensor = layer(x[None], x[None], visible, bias=bias)
    return out[0]


def _reach_of_attention(setup: Setup, layer: MultiHeadAttention, n: int) -> Float[Tensor, "token"]:
    x = _text(n, setup.d_model)
    return _block_norms(_attend(setup, layer, x)[-1], x)


def _reach_of_recurrence(cell: nn.RNNCell, n: int, radius: float) -> Float[Tensor, "token"]:
    """Small inputs keep tanh in its linear range; PyTorch's cell does the rest."""
    d = cell.hidden_size
    with torch.no_grad():
        cell.weight_ih.copy_(torch.eye(d))
        cell.weight_hh.copy_(radius * torch.linalg.qr(torch.randn(d, d, dtype=torch.float64)).Q)
    x = (1e-12 * torch.randn(n, d, dtype=torch.float64)).requires_grad_()
    return _block_norms(_read(cell, x), x) / math.sqrt(d)


def _read(cell: nn.RNNCell, x: Float[Tensor, "token d"]) -> Float[Tensor, "d"]:
    state = torch.zeros_like(x[0])
    for token in x:
        state = cell(token, state)
    return state


def _block_norms(out: Float[Tensor, "d"], x: Float[Tensor, "token d"]) -> Float[Tensor, "token"]:
    """The norm of d out / d x_j for each token j."""
    rows = torch.autograd.grad(out, x, torch.eye(len(out), dtype=out.dtype), is_grads_batched=True)[0]
    return rows.square().sum((0, 2)).sqrt()


def _chain(out: Tensor, kind: str = "") -> int:
    """The most operations (of a kind) between input and output, counted in PyTorch's own graph of the computation."""
    order, depth, found = [out.grad_fn], {out.grad_fn: int(_is_a(out.grad_fn, kind))}, 0
    while order:
        node = order.pop()
        found = max(found, depth[node])
        for below, _ in node.next_functions if node is not None else ():
            if below is not None and depth.get(below, -1) < depth[node] + _is_a(below, kind):
                depth[below] = depth[node] + _is_a(below, kind)
                order.append(below)
    return found


def _is_a(node: object, kind: str) -> bool:
    return kind in type(node).__name__


def verdict(result: Result) -> Verdict:
    setup, d = result.setup, result.distance
    predicted = torch.stack([radius**d for radius in setup.radii])
    one_more = torch.stack([radius ** (d + 1) for radius in setup.radii])
    lengths, of_attention = setup.lengths, result.chain["attention"]
    slopes = result.slopes
    return Verdict(
        checks=(
            exact(
                "recurrent: |dh/dx| against rho^distance, relative",
                _relative(result.recurrent, predicted),
                eps=ROUNDING,
                near={"rho^(distance + 1)": _relative(result.recurrent, one_more)},
            ),
            exact(
                "attention, equal weights: |dh/dx| against |W_O W_V| / n",
                result.flat.max().item(),
                eps=ROUNDING,
                near={"1/(n + 1)": 1 / min(lengths)},
            ),
            about(
                "attention: relative change of |dh/dx| from near to far",
                0,
                slopes.mean().item(),
                sd=(slopes.std() / math.sqrt(len(slopes))).item(),
                near={"half as much at the far end": -2 / 3, "twice as much at the far end": 2 / 3},
            ),
            same(
                f"attention: longest chain of operations, {lengths[-1]} tokens as for {lengths[0]}",
                of_attention[0],
                of_attention[-1],
                near={"one more for each doubling": of_attention[0] + math.log2(lengths[-1] / lengths[0])},
            ),
            same(
                f"recurrent: states that a token is handed on through, {lengths[-1]} tokens",
                lengths[-1],
                result.states[-1],
                near={"one less": lengths[-1] - 1, "as many for every length": result.states[0]},
            ),
        ),
        why="A state has to be handed on from token to token; attention has an edge between every two of them.",
    )


def _relative(measured: Tensor, predicted: Tensor) -> float:
    return largest_difference(measured / predicted, torch.ones_like(predicted))


def figure(result: Result) -> Figure:
    setup, distance = result.setup, result.distance
    title = "Far tokens: the gradient of recurrence fades or explodes, that of attention stays"
    drawing, (left, right) = panels(2, title=title)
    every = max(1, len(distance) // 12)
    for row, (radius, marker) in enumerate(zip(setup.radii, MARKERS, strict=False)):
        line = PREDICTED | {"label": "" if row else "predicted"}
        left.semilogy(distance.numpy(), (radius**distance).numpy(), **line)
        style = MEASURED | series(marker) | {"markevery": every, "label": f"measured, rho = {radius:g}"}
        left.semilogy(distance.numpy(), result.recurrent[row].numpy(), **style)
    style = (
        MEASURED
        | series("D")
        | {
            "markerfacecolor": "0.6",
            "markevery": every,
            "label": "measured, attention, times n",
        }
    )
    left.semilogy(distance.numpy(), result.attention.numpy(), **style)
    top = 1e7 * result.recurrent.max().item()
    left.set(xlabel="distance to the last token", ylabel="|dh_n / dx_j|", ylim=(result.recurrent.min().item() / 3, top))
    left.legend(frameon=False, loc="upper left", fontsize=7)
    lengths = torch.tensor(setup.lengths)
    for name, marker in (("recurrent", "o"), ("attention", "D")):
        chain = result.chain[name]
        slope = (chain[1] - chain[0]) / (setup.lengths[1] - setup.lengths[0]) if name == "recurrent" else 0.0
        expected = chain[0] + slope * (lengths - lengths[0])
        label = "predicted: as n, as 1" if name == "recurrent" else ""
        right.loglog(lengths.numpy(), expected.numpy(), **PREDICTED | {"label": label})
        style = MEASURED | series(marker) | {"label": f"measured, {name}"}
        right.loglog(setup.lengths, chain, **style)
    right.set(xlabel="tokens n", ylabel="longest chain of operations", ylim=(1, 10 * max(result.chain["recurrent"])))
    right.set_xticks(setup.lengths, [str(n) for n in setup.lengths])
    right.minorticks_off()
    right.legend(frameon=False, loc="upper left")
    return drawing


CLAIM = Claim(
    __name__,
    __doc__,
    document="NYU",
    question="1.4(a)",
    also=("NYU 1.4(b)",),
    setup=Setup(),
    small=Setup(lengths=(8, 16), d_model=6, n_texts=320),
    run=run,
    verdict=verdict,
    figure=figure,
    broken={
        "attention in a window of 9 tokens": {"scores": "window"},
        "scores that fade with distance": {"scores": "fading with distance"},
    },
    confidence="Recurrence and equal weights are exact up to rounding; with random queries the change from near to far "
    "is within 5 standard deviations (SD) of its mean over the texts.",
)
