r"""Joining the heads and projecting them is a sum over the heads, each with its own matrix W^(h) = W_v^(h) W_out^(h).

Cut $W_{out}$ into $N_h$ blocks of $D_o$ rows, one below the other. Then the product with the joined heads is the sum of
the products with the blocks,

$$\operatorname{concat}_h[H^{(h)}]\,W_{out} = \sum_h H^{(h)} W_{out}^{(h)}, \qquad
H^{(h)} = \operatorname{softmax}(A^{(h)})\,Z\,W_v^{(h)}$$

so equation (11) holds with $W^{(h)} = W_v^{(h)} W_{out}^{(h)}$, and for one query pixel

$$\text{MultiHead}(Z)_q = \sum_h \Big(\sum_k \operatorname{softmax}(A^{(h)}_{q,:})_k\, Z_k\Big) W^{(h)} + b_{out}$$

The heads do not interact: each adds its own part to the output, and can be looked at, or left out, alone.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headwork.lab.measuring import product_as_printed
from headwork.lab.plots import FLOOR, MEASURED, PREDICTED, Figure, draw_rounding, on_log_axis, panels
from headwork.lab.toolkit import Claim, Erratum, Experiment, Verdict, exact, largest_difference, seeded
from headwork.layers import MultiHeadAttention


@dataclass(frozen=True, kw_only=True)
class Setup(Experiment):
    """One layer, as wide as its input, and which block of the output matrix goes with which head."""

    n_heads: int = 8
    n_tokens: int = 13
    d_in: int = 11
    d_hid: int = 5
    d_o: int = 3
    blocks: Literal["of the head", "of the next head"] = "of the head"


@dataclass(frozen=True)
class Result:
    """What the layer gives, and what each head adds to the bias."""

    setup: Setup
    layer: Float[Tensor, "token d_in"]
    bias: Float[Tensor, "d_in"]
    parts: Float[Tensor, "head token d_in"]
    as_printed: str
    """What becomes of equation (3) when it is computed as it stands."""

    @property
    def sums(self) -> Float[Tensor, "head token d_in"]:
        """The sum of the first heads, and the bias."""
        return self.parts.cumsum(0) + self.bias

    @property
    def missing(self) -> list[float]:
        """How far the sum of the first heads is from the layer."""
        return [largest_difference(so_far, self.layer) for so_far in self.sums]


@seeded
def run(setup: Setup) -> Result:
    layer = MultiHeadAttention(
        setup.d_in, setup.n_heads, d_head=setup.d_hid, d_value=setup.d_o, bias=False, out_bias=True, beta=1.0
    )
    layer = layer.double().requires_grad_(False)
    layer.out.bias.normal_()
    z = torch.randn(setup.n_tokens, setup.d_in, dtype=torch.float64)
    parts = torch.from_numpy(predict_parts(setup, layer, z.numpy()))
    head = torch.zeros(setup.n_tokens, setup.d_o, dtype=torch.float64)
    return Result(
        setup, layer(z[None], z[None])[0], layer.out.bias, parts, product_as_printed(head, layer.out.weight.T)
    )


def predict_parts(setup: Setup, layer: MultiHeadAttention, z: np.ndarray) -> np.ndarray:
    """Equation (11) in NumPy, one query at a time."""
    w_q, w_k, w_v = (
        np.split(part.weight.numpy().T, setup.n_heads, axis=1)  # type: ignore[operator]
        for part in (layer.query, layer.key, layer.value)
    )
    w_out = np.split(layer.out.weight.numpy().T, setup.n_heads)
    step = 0 if setup.blocks == "of the head" else 1
    parts = np.empty((setup.n_heads, setup.n_tokens, setup.d_in))
    for h in range(setup.n_heads):
        w = w_v[h] @ w_out[(h + step) % setup.n_heads]
        for q in range(setup.n_tokens):
            weights = np.exp(z[q] @ w_q[h] @ w_k[h].T @ z.T)
            parts[h, q] = (weights / weights.sum()) @ z @ w
    return parts


def verdict(result: Result) -> Verdict:
    missing = result.missing
    return Verdict(
        checks=(
            exact(
                "the layer against the sum over its heads",
                missing[-1],
                near={
                    "without the last head": missing[-2],
                    "without the bias": largest_difference(result.sums[-1] - result.bias, result.layer),
                    "the mean of the heads": largest_difference(result.parts.mean(0) + result.bias, result.layer),
                },
            ),
        ),
        why="A product with joined columns is the sum of the products with the blocks of rows.",
    )


def figure(result: Result) -> Figure:
    setup = result.setup
    drawing, (left, right) = panels(2, title="The heads of a layer add up: each has a matrix W^(h) of its own")
    low, high = result.layer.min().item(), result.layer.max().item()
    left.plot([low, high], [low, high], **PREDICTED | {"label": "predicted: equal"})
    left.plot(result.sums[-1].flatten().numpy(), result.layer.flatten().numpy(), **MEASURED)
    left.set(xlabel="sum over the heads, by hand", ylabel="output of the layer")
    n = range(1, setup.n_heads + 1)
    draw_rounding(right, "predicted for all heads: below")
    right.semilogy(n, on_log_axis(result.missing), **MEASURED)
    right.set(xlabel="heads in the sum", ylabel="largest difference from the layer", xticks=n, ylim=(FLOOR, 1e2))
    left.legend(frameon=False, loc="upper left")
    right.legend(frameon=False, loc="center left")
    return drawing


def _order(result: Result) -> str:
    return (
        f"As printed, {result.as_printed}; joined first and projected then, the layer agrees with equation (11) "
        f"up to {result.missing[-1]:.0e}."
    )


CLAIM = Claim(
    __name__,
    __doc__,
    document="ETH",
    question="1(c.1)",
    also=("ETH 1(a.2)",),
    setup=Setup(),
    small=Setup(n_heads=2, n_tokens=5, d_in=7, d_hid=3, d_o=2),
    run=run,
    verdict=verdict,
    figure=figure,
    broken={"each head with the block of the next": {"blocks": "of the next head"}},
    confidence="Exact up to rounding.",
    errata=(
        Erratum(
            where="equation (3)",
            printed=r"$\operatorname{concat}[\text{Self-Attention}_h(Z)\,W_{out}]_{h \in [N_h]}$",
            right=r"$\operatorname{concat}[\text{Self-Attention}_h(Z)]_{h \in [N_h]}\,W_{out}$: "
            r"$W_{out}$ has $N_h D_o$ rows, and only the joined heads have as many columns",
            measured=_order,
        ),
    ),
)
