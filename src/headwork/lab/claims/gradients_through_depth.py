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
product of pre-norm telescopes, because the length of the residual stream grows as fast as the gradient does.

The first two are exact at every width, on average over the weights: the mean of $W_1^\top D W_1$ over the signs of the
rows is half of that of $W_1^\top W_1$, whatever the input. A norm is a ratio of random lengths, which leaves terms of
order $1/d$. With $S = 1 + g^2$, three effects add up: the squared length $1 + 2m + F$ below the ratio has the variance
$4g^2/d$ from $m = x \cdot f/d$ and $3.25\,g^4/d$ from $F = |f|^2/d$, of which the numerator shares $g^4/4d$ (both count
the active hidden units); the norm projects out two of the $d$ directions; and the gradient that is left is orthogonal
to the output $y$, along which $|(1 + A^\top) \hat y|^2 = (1 + 4g^2 + \frac52 g^4)/S$. To first order in $1/d$

$$\ln(\text{post-norm}) = \frac1d\Bigl(L\,\frac{2g^2 + \frac32 g^4}{S^2} - 2 + \frac{g^2}{S}\Bigr), \qquad
\ln(\text{final norm}) = \frac1d\Bigl(\sum_{l=1}^{L} \Bigl[\frac{3g^2}{m_l} - \frac{g^4}{m_l^2}\Bigr] - 2\Bigr)$$

$$\ln(\text{pre-norm}) = \ln m_L + \frac1d \sum_{l=1}^{L}
\Bigl[\Bigl(1 - \frac{m_l}{m_L}\Bigr)\Bigl(\frac{5g^2}{m_l} - \frac{g^4}{m_l^2}\Bigr) - \frac{2g^2}{m_l}\Bigr]$$

So post-norm gains a little in every layer: 1.11 after 32 layers of width 128, not 1. All of it holds at the start of
training, for feed-forward sublayers.
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
SD: dict[Kind, float] = {
    "plain": 0.66,
    "residual": 0.24,
    "post-norm": 0.62,
    "pre-norm": 0.15,
    "pre-norm, final norm": 0.22,
}
"""Of a stack with 64 tokens, relative to the mean, times sqrt(d / L): measured with 100 of each kind."""


@dataclass(frozen=True, kw_only=True)
class Setup(Experiment, smallest={"d_model": 32}):
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


@seeded
def run(setup: Setup) -> Result:
    measured = {}
    for kind in KINDS:
        rows = [[_squared_gradient(setup, kind, depth) for _ in range(N_DRAWN)] for depth in setup.depths[:-1]]
        deepest = [_squared_gradient(setup, kind, setup.depths[-1]) for _ in range(setup.n_stacks)]
        measured[kind] = torch.tensor([statistics.mean(row) for row in (*rows, deepest)], dtype=torch.float64)
    return Result(setup, measured)


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


def predict(kind: Kind, setup: Setup, depth: int) -> float:
    """The logarithm of the squared gradient through so many layers."""
    g, d = setup.gain, setup.d_model
    lengths = [1 + layer * g for layer in range(1, depth + 1)]
    match kind:
        case "plain":
            return depth * math.log(g)
        case "residual":
            return depth * math.log(1 + g)
        case "post-norm":
            return (depth * (2 * g + 1.5 * g**2) / (1 + g) ** 2 - 2 + g / (1 + g)) / d
        case "pre-norm, final norm":
            return (sum(3 * g / m - (g / m) ** 2 for m in lengths) - 2) / d
        case "pre-norm":
            terms = [(1 - m / lengths[-1]) * (5 * g / m - (g / m) ** 2) - 2 * g / m for m in lengths]
            return math.log(lengths[-1]) + sum(terms) / d


def predict_near(setup: Setup, depth: int) -> dict[Kind, dict[str, float]]:
    """The same with a constant or an exponent off."""
    gain = setup.gain
    half_norm = {
        "a norm that divides by half of what f adds": depth * math.log((1 + gain) / (1 + gain / 2)),
        "the residual passes, f does not": -depth * math.log(1 + gain),
    }
    three = (2 * 3 / 4) * (1 / 2) * (2 / 4)  # Glorot's variance is 2 / (d + 3 d)
    return {
        "plain": {"hidden layer 3 times as wide": depth * math.log(three * setup.strength**2)},
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
    near = predict_near(setup, deepest)
    of_mean = math.sqrt(deepest / setup.d_model / setup.n_stacks)
    safe_first = (setup.safe, *(kind for kind in KINDS if kind != setup.safe))
    return Verdict(
        checks=tuple(
            about(
                f"ln of the squared gradient through {deepest} layers, {kind}",
                predict("post-norm" if kind == setup.safe else kind, setup, deepest),
                result.measured[kind][-1].log().item(),
                sd=SD[kind] * of_mean,
                near=near["post-norm" if kind == setup.safe else kind],
            )
            for kind in safe_first
        ),
        why="A norm divides the gradient by just the length that the residual sum has added.",
    )


def figure(result: Result) -> Figure:
    setup = result.setup
    drawing, (ax,) = panels(
        title="Plain layers lose the gradient, residuals alone blow it up, norms keep it", height=3.4
    )
    fine = range(min(setup.depths), max(setup.depths) + 1)
    for index, (kind, marker) in enumerate(zip(KINDS, MARKERS, strict=False)):
        line = PREDICTED | {"label": "" if index else "predicted"}
        ax.semilogy(fine, [math.exp(predict(kind, setup, depth)) for depth in fine], **line)
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
    small=Setup(depths=(1, 6), d_model=48, n_stacks=16),
    run=run,
    verdict=verdict,
    figure=figure,
    broken={
        "plain layers": {"safe": "plain"},
        "residuals without a norm": {"safe": "residual"},
    },
    confidence="The tolerance is 5 standard deviations (SD) of the mean over the stacks, from 100 other stacks.",
)
