r"""Plain feed-forward layers shrink or blow up gradients exponentially with depth; residuals with norms keep them.

Let $f(x) = s\,W_2 \max(0, W_1 x)$ with random weights, and $g^2 = E|f(x)|^2 / |x|^2$. For Glorot's weights and a
hidden layer 4 times as wide, $g^2 = s^2 \cdot \frac85 \cdot \frac12 \cdot \frac25 = 0.32\,s^2$: it widens, loses half
to the ReLU, and narrows. The Jacobian scales a gradient by the same factor, $E|J^\top u|^2 = g^2 |u|^2$. So for $L$
wide layers the squared gradient at the input, over that at the output, is

| layer | factor of a layer | after $L$ layers |
|---|---|---|
| plain, $f(x)$ | $g^2$ | $g^{2L}$: vanishes, or explodes for $g > 1$ |
| residual alone, $x + f(x)$ | $1 + g^2$ | $(1 + g^2)^L$: explodes |
| post-norm, $N(x + f(x))$ | $(1 + g^2) / (1 + g^2)$ | 1 |
| pre-norm, $x + f(N(x))$ | $1 + g^2 / m_l$, mean square of $x_l$: $m_l = 1 + l g^2$ | $1 + L g^2$: grows slowly |
| pre-norm with its final norm | | 1 |

The norm divides by the length of what goes through it, and so divides the gradient: that tames the residual sum. The
product of pre-norm telescopes, because the length of the residual stream grows as fast as the gradient does. All of it
holds for one direction on average, at the start of training, and for wide layers, up to terms of order $L/d$.
"""

import math
import statistics
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from headwork.lab.plots import MARKERS, MEASURED, PREDICTED, Figure, panels, series
from headwork.lab.toolkit import Claim, Experiment, Verdict, about, seeded
from headwork.layers import FeedForward, LayerNorm

Kind = Literal["plain", "residual", "post-norm", "pre-norm", "pre-norm, final norm"]
KINDS: tuple[Kind, ...] = ("plain", "residual", "post-norm", "pre-norm", "pre-norm, final norm")
N_DRAWN = 2
"""Stacks of every other depth, which are drawn only."""


@dataclass(frozen=True, kw_only=True)
class Setup(Experiment):
    """Stacks of feed-forward layers of the library, as they start."""

    depths: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    d_model: int = 128
    n_tokens: int = 64
    n_stacks: int = 12
    """Of the deepest, which is judged."""
    strength: float = 1.0
    """Times what a layer adds, s."""
    safe: Kind = "post-norm"
    """The kind of layer whose gradient is expected to stay."""

    @property
    def gain(self) -> float:
        """The squared g of the docstring."""
        return 0.32 * self.strength**2


@dataclass(frozen=True)
class Result:
    """For each kind of layer and depth, the squared gradient at the input over that at the output."""

    setup: Setup
    measured: dict[Kind, Float[Tensor, "depth"]]
    sd: dict[Kind, float]
    """The standard deviation of ln of the deepest one, from the spread of the stacks."""


@seeded
def run(setup: Setup) -> Result:
    measured, sd = {}, {}
    for kind in KINDS:
        rows = [[_squared_gradient(setup, kind, depth) for _ in range(N_DRAWN)] for depth in setup.depths[:-1]]
        deepest = [_squared_gradient(setup, kind, setup.depths[-1]) for _ in range(setup.n_stacks)]
        measured[kind] = torch.tensor([statistics.mean(row) for row in (*rows, deepest)], dtype=torch.float64)
        sd[kind] = statistics.stdev(deepest) / statistics.mean(deepest) / math.sqrt(setup.n_stacks)
    return Result(setup, measured, sd)


def _squared_gradient(setup: Setup, kind: Kind, depth: int) -> float:
    """The mean over random tokens and random directions of the output."""
    d = setup.d_model
    x = LayerNorm(d)(torch.randn(1, setup.n_tokens, d)).requires_grad_()
    y: Tensor = x
    for _ in range(depth):
        f = FeedForward(d, 4 * d, activation="relu", bias=False)
        match kind:
            case "plain":
                y = setup.strength * f(y)
            case "residual":
                y = y + setup.strength * f(y)
            case "post-norm":
                y = LayerNorm(d)(y + setup.strength * f(y))
            case "pre-norm" | "pre-norm, final norm":
                y = y + setup.strength * f(LayerNorm(d)(y))
    if kind == "pre-norm, final norm":
        y = LayerNorm(d)(y)
    direction = torch.randn_like(y)
    (gradient,) = torch.autograd.grad(y, x, direction)
    return (gradient.square().sum() / direction.square().sum()).item()


def predict(kind: Kind, gain: float, depth: Float[Tensor, "depth"]) -> Float[Tensor, "depth"]:
    match kind:
        case "plain":
            return gain**depth
        case "residual":
            return (1 + gain) ** depth
        case "pre-norm":
            return 1 + depth * gain
        case _:
            return torch.ones_like(depth)


def predict_near(gain: float, depth: int) -> dict[Kind, dict[str, float]]:
    """What ln of the squared gradient would be with a constant or an exponent off."""
    half_norm = {
        "a norm that divides by half of what f adds": depth * math.log((1 + gain) / (1 + gain / 2)),
        "the residual passes, f does not": -depth * math.log(1 + gain),
    }
    return {
        "plain": {"hidden layer 3 times as wide": depth * math.log(3 / 4 * 3 / 2 * 1 / 2 * gain / 0.32)},
        "residual": {"1 + g^2 / 2 for each layer": depth * math.log(1 + gain / 2)},
        "post-norm": half_norm,
        "pre-norm": {
            "1 + L g^2 / 2": math.log(1 + depth * gain / 2),
            "1 + 2 L g^2": math.log(1 + 2 * depth * gain),
        },
        "pre-norm, final norm": half_norm | {"no final norm": math.log(1 + depth * gain)},
    }


def verdict(result: Result) -> Verdict:
    setup, deepest = result.setup, result.setup.depths[-1]
    depths = torch.tensor(setup.depths, dtype=torch.float64)
    near = predict_near(setup.gain, deepest)
    return Verdict(
        checks=(
            about(
                f"ln of the squared gradient through {deepest} layers, {setup.safe}",
                0,
                result.measured[setup.safe][-1].log().item(),
                sd=result.sd[setup.safe],
                near=near["post-norm"],
            ),
            *(
                about(
                    f"the same, {kind}",
                    predict(kind, setup.gain, depths)[-1].log().item(),
                    result.measured[kind][-1].log().item(),
                    sd=result.sd[kind],
                    near=near[kind],
                )
                for kind in KINDS
                if kind != setup.safe
            ),
        ),
        why="A norm divides the gradient by just the length that the residual sum has added.",
    )


def figure(result: Result) -> Figure:
    setup = result.setup
    drawing, (ax,) = panels(
        title="Plain layers lose the gradient, residuals alone blow it up, norms keep it", height=3.4
    )
    fine = torch.linspace(min(setup.depths), max(setup.depths), 100, dtype=torch.float64)
    for index, (kind, marker) in enumerate(zip(KINDS, MARKERS, strict=False)):
        line = PREDICTED | {"label": "" if index else "predicted"}
        ax.semilogy(fine.numpy(), predict(kind, setup.gain, fine).numpy(), **line)
        style = MEASURED | series(marker) | {"label": f"measured, {kind}"}
        beside = [depth + 0.25 * (index - 2) for depth in setup.depths]  # no marker hides another
        ax.semilogy(beside, result.measured[kind].numpy(), **style)
    ax.set(xlabel="layers", ylabel="squared gradient, input over output", xticks=setup.depths)
    ax.legend(frameon=False, loc="lower left")
    return drawing


CLAIM = Claim(
    __name__,
    __doc__,
    document="NYU",
    question="1.4(e)",
    setup=Setup(),
    small=Setup(depths=(1, 6), d_model=48, n_tokens=16, n_stacks=12),
    run=run,
    verdict=verdict,
    figure=figure,
    broken={
        "plain layers": {"safe": "plain"},
        "residuals without a norm": {"safe": "residual"},
    },
    confidence="The tolerance is 5 standard deviations (SD) of the mean over the stacks, from their own spread.",
)
