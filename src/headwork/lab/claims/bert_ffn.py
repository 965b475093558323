r"""The second half of a BERT layer is LayerNorm(x + W2 GELU(W1 x + b1) + b2): with 4d it holds two thirds of the layer.

`BertFFN` of the sheet takes what the attention half gives, widens each token to $d_{ff}$, applies the GELU (the one
with the error function), narrows it again, adds the token itself and normalises the sum. The norm comes *last*
(post-norm), so every token leaves with mean 0 and variance 1 (before scale and shift), whatever came in. The order
matters: normalising before the network (pre-norm, as in GPT-2), or the network's output alone, gives something else.

It has $2\,d\,d_{ff} + d_{ff} + d$ parameters and $2d$ of the norm; the attention half has $4d^2 + 4d$ and $2d$. With
$d_{ff} = 4d$ that is 8 of 12 parts. `hw.sheets.BertFFN` is this class, and so is the second half of the library's
`EncoderLayer(norm_order="post")` with the same weights.

It stops being true when the model is GPT-like, where the norm comes first and the GELU is the one with tanh.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headwork import choices
from headwork.lab.plots import COLOURS, MARKERS, MEASURED, Figure, draw_rounding, on_log_axis, panels
from headwork.lab.toolkit import Claim, Experiment, Verdict, exact, same, seeded
from headwork.layers import EncoderLayer, FeedForward
from headwork.sheets import BertFFN

BERT_EPS = 1e-12
"""Of the norms of BERT."""
Order = Literal["post-norm", "pre-norm", "norm of the network alone", "GELU by tanh", "eps 1e-5"]


@dataclass(frozen=True, kw_only=True)
class Setup(Experiment):
    """Widths of tokens, with networks four times as wide, and which norm order and activation the layer has."""

    widths: tuple[int, ...] = (4, 8, 16)
    n_tokens: int = 7
    norm_order: Literal["post", "pre"] = "post"
    activation: Literal["gelu", "gelu_tanh", "relu"] = "gelu"


@dataclass(frozen=True)
class Result:
    """`BertFFN` against the formula and near ones, for each width; and its parameters."""

    setup: Setup
    off: dict[Order, Float[Tensor, "width"]]
    layer_off: float
    """The second half of an encoder layer with the same weights, against the formula."""
    mean: float
    """The largest of all tokens, behind a norm without scale and shift; and if no norm came last."""
    mean_without_norm: float
    parameters: list[tuple[int, int]]
    """Of the second half, and of the whole layer."""


@seeded
@torch.no_grad()
def run(setup: Setup) -> Result:
    off: dict[Order, list[float]] = {}
    parameters, layer_off, mean, without_norm = [], 0.0, 0.0, 0.0
    for d in setup.widths:
        layer = EncoderLayer(
            d,
            heads=choices.Heads(n_heads=2),
            feed_forward=choices.FeedForward(d_ff=4 * d, activation=setup.activation),
            norm_order=setup.norm_order,
            norm=choices.LayerNorm(eps=BERT_EPS),
        ).double()
        layer.feed_forward_norm.weight.uniform_(0.5, 1.5)
        for name, parameter in layer.feed_forward_norm.named_parameters():
            if name == "bias":
                parameter.uniform_(-1, 1)
        x = torch.randn(1, setup.n_tokens, d, dtype=torch.float64)
        layer.attention.out.weight.zero_()  # the attention half then passes its norm alone
        bias = layer.attention.out.bias
        if bias is not None:
            bias.zero_()
        middle = layer.attention_norm(x) if setup.norm_order == "post" else x
        ffn = BertFFN(d, 4 * d).double()
        assert isinstance(layer.feed_forward, FeedForward)
        ffn.feed_forward = layer.feed_forward
        ffn.norm.load_state_dict(layer.feed_forward_norm.state_dict())
        out, of_layer = ffn(middle)[0].numpy(), layer(x)[0].numpy()
        weights = [
            t.numpy() for part in (ffn.feed_forward.up, ffn.feed_forward.down, ffn.norm) for t in part.parameters()
        ]
        formulas = predict_bert_ffn(middle[0].numpy(), weights)
        for order, expected in formulas.items():
            off.setdefault(order, []).append(float(np.abs(out - expected).max()))
        layer_off = max(layer_off, float(np.abs(of_layer - formulas["post-norm"]).max()))
        plain = (out - weights[5]) / weights[4]
        mean = max(mean, float(np.abs(plain.mean(-1)).max()))
        without_norm = max(without_norm, float(np.abs(formulas["pre-norm"].mean(-1)).max()))
        of_half, of_whole = (sum(p.numel() for p in part.parameters()) for part in (ffn, layer))
        parameters.append((of_half, of_whole))
    return Result(
        setup,
        {order: torch.tensor(rows, dtype=torch.float64) for order, rows in off.items()},
        layer_off,
        mean,
        without_norm,
        parameters,
    )


def predict_bert_ffn(x: np.ndarray, weights: list[np.ndarray]) -> dict[Order, np.ndarray]:
    """From the formula, in NumPy, with the error function of Python; and four that are near."""
    w1, b1, w2, b2, scale, shift = weights

    def norm(y: np.ndarray, eps: float = BERT_EPS) -> np.ndarray:
        centred = y - y.mean(-1, keepdims=True)
        return scale * centred / np.sqrt((centred**2).mean(-1, keepdims=True) + eps) + shift

    def network(y: np.ndarray, *, by_tanh: bool = False) -> np.ndarray:
        wide = y @ w1.T + b1
        if by_tanh:
            return 0.5 * wide * (1 + np.tanh(math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3))) @ w2.T + b2
        return 0.5 * wide * (1 + np.vectorize(math.erf)(wide / math.sqrt(2))) @ w2.T + b2

    return {
        "post-norm": norm(x + network(x)),
        "pre-norm": x + network(norm(x)),
        "norm of the network alone": x + norm(network(x)),
        "GELU by tanh": norm(x + network(x, by_tanh=True)),
        "eps 1e-5": norm(x + network(x), 1e-5),
    }


def verdict(result: Result) -> Verdict:
    setup = result.setup
    near: dict[str, float] = {order: off.min().item() for order, off in result.off.items() if order != "post-norm"}
    counts = []
    for d, (half, whole) in zip(setup.widths, result.parameters, strict=True):
        expected = 2 * d * 4 * d + 4 * d + d + 2 * d
        counts += [
            same(
                f"parameters of the second half, d = {d}", expected, half, near={"without the norm": expected - 2 * d}
            ),
            same(
                f"parameters of the layer, d = {d}", expected + 4 * d**2 + 6 * d, whole, near={"no biases": 12 * d**2}
            ),
        ]
    return Verdict(
        checks=(
            exact("BertFFN against the formula", result.off["post-norm"].max().item(), near=near),
            exact("the layer's second half against the formula", result.layer_off, near=near),
            exact(
                "mean of a token before scale and shift",
                result.mean,
                near={"pre-norm, no norm at the end": result.mean_without_norm},
            ),
            *counts,
        ),
        why="It is one formula; the norm at the end sees the sum.",
    )


def figure(result: Result) -> Figure:
    setup = result.setup
    drawing, (ax,) = panels(title="BertFFN is a network, a residual and a norm, in this order")
    for shift, ((order, off), marker, colour) in enumerate(zip(result.off.items(), MARKERS, COLOURS, strict=False)):
        places = [i + 0.1 * (shift - 2) for i in range(len(setup.widths))]
        ax.semilogy(
            places, on_log_axis(off), **MEASURED | {"marker": marker, "color": colour, "label": f"measured, {order}"}
        )
    draw_rounding(ax)
    ax.set_xticks(range(len(setup.widths)), [str(d) for d in setup.widths])
    ax.set(xlabel="width of a token d", ylabel="largest difference to the formula", ylim=(1e-17, 1e3))
    ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5), fontsize=7)
    return drawing


CLAIM = Claim(
    __name__,
    __doc__,
    document="ETH",
    question="2(d)",
    setup=Setup(),
    small=Setup(widths=(4, 6), n_tokens=3),
    run=run,
    verdict=verdict,
    figure=figure,
    broken={"pre-norm": {"norm_order": "pre"}, "ReLU": {"activation": "relu"}},
    confidence="Exact up to rounding.",
)
