r"""Linear attention over examples (x, y) predicts as linear regression does after one gradient step; k layers take k.

One step of gradient descent on $\frac1{2N}\sum_i (w^\top x_i - y_i)^2$ from $w = 0$ gives $w = \frac{\eta}{N} \sum_i
y_i x_i$, and for a new $x$ the prediction $\frac{\eta}{N} \sum_i (x^\top x_i)\, y_i$: attention without the softmax,
with query $x$, keys $x_i$ and values $y_i$. If a residual layer subtracts this from the $y$ of every token, the
examples hold the residuals $y_i - w^\top x_i$, which are all that the next step needs: $k$ layers are $k$ steps.

How good is it? Let $y_i = w_*^\top x_i$ with $x$ and $w_*$ normal. After one step the error is $(I - \eta C)\,w_*$
with $C = \frac1N \sum_i x_i x_i^\top$, for which $\mathbb E\,C = I$ and $\mathbb E\,C^2 = (1 + \frac{d+1}{N})\,I$
(the fourth moments of the normal distribution). So

$$\frac{\mathbb E\,(\hat y - y)^2}{d} = 1 - 2\eta + \eta^2\Bigl(1 + \frac{d+1}{N}\Bigr), \qquad
\text{smallest at } \eta = \frac{N}{N + d + 1}:\quad \frac{d+1}{N + d + 1}$$

A softmax instead makes it a kernel smoother, which does not step along the gradient.

It stops being true when the layer has a softmax or a norm, and for targets that are not linear in $x$.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from headwork.functional import attention_scores, softargmax
from headwork.lab.plots import COLOURS, MARKERS, MEASURED, PREDICTED, Figure, panels
from headwork.lab.toolkit import Claim, Experiment, Verdict, about, exact, largest_difference, seeded


@dataclass(frozen=True, kw_only=True)
class Setup(Experiment):
    """Many linear problems with examples in a text, several rates of learning, and a number of layers."""

    d: int = 8
    n_examples: int = 24
    n_problems: int = 6_000
    rates: tuple[float, ...] = (0.6, 0.8, 1.0, 1.2)
    n_layers: int = 4
    attention: Literal["linear", "softmax", "wrong sign"] = "linear"


@dataclass(frozen=True)
class Result:
    """Layers of attention against steps of gradient descent, and the error of one layer for each rate."""

    setup: Setup
    difference: Float[Tensor, "layer"]
    """The largest of all problems, after each layer."""
    off_by_one: float
    """How far the last layer is from the step before it."""
    half_rate: float
    """How far it is from as many steps with half the rate."""
    error: Float[Tensor, "rate 2"]
    """Mean squared, in units of d, with its standard error."""


@seeded
def run(setup: Setup) -> Result:
    n, d = setup.n_problems, setup.d
    x = torch.randn(n, setup.n_examples + 1, d, dtype=torch.float64)
    y = torch.einsum("pid,pd->pi", x, torch.randn(n, d, dtype=torch.float64))
    rate = 0.5
    steps, slower = (predict_by_descent(x, y, r, setup.n_layers) for r in (rate, rate / 2))
    layers = _layers(setup, x, y, rate)
    errors = []
    for r in setup.rates:
        square = (_layers(setup, x, y, r)[0] - y[:, -1]).square() / d
        errors.append(torch.stack([square.mean(), square.std() / n**0.5]))
    return Result(
        setup,
        torch.stack([(a - b).abs().max() for a, b in zip(layers, steps, strict=True)]),
        largest_difference(layers[-1], steps[-2]),
        largest_difference(layers[-1], slower[-1]),
        torch.stack(errors),
    )


def _layers(setup: Setup, x: Tensor, y: Tensor, rate: float) -> list[Float[Tensor, "problem"]]:
    """What each layer has written into the y of the query (the last token), which was 0, with its sign turned."""
    tokens = torch.cat([y[:, :-1], torch.zeros_like(y[:, -1:])], 1)
    start, found = tokens[:, -1], []
    for _ in range(setup.n_layers):
        scores = attention_scores(x, x[:, :-1])
        weights = softargmax(scores) if setup.attention == "softmax" else scores / setup.n_examples
        step = rate * (weights @ tokens[:, :-1, None])[..., 0]
        tokens = tokens + step if setup.attention == "wrong sign" else tokens - step
        found.append(start - tokens[:, -1])
    return found


def predict_by_descent(x: Tensor, y: Tensor, rate: float, n_steps: int) -> list[Float[Tensor, "problem"]]:
    """Gradient descent on the squared error of the examples by PyTorch's autograd; its predictions for the last x."""
    w = torch.zeros(len(x), x.shape[2], dtype=torch.float64, requires_grad=True)
    examples, wanted = x[:, :-1], y[:, :-1]
    found = []
    for _ in range(n_steps):
        loss = ((examples * w[:, None]).sum(-1) - wanted).square().mean(1).sum() / 2
        (gradient,) = torch.autograd.grad(loss, w)
        w = (w - rate * gradient).detach().requires_grad_()
        found.append((x[:, -1] * w.detach()).sum(-1))
    return found


def verdict(result: Result) -> Verdict:
    setup = result.setup
    d, n = setup.d, setup.n_examples
    near = {"a step less": result.off_by_one, "half the rate": result.half_rate}
    errors = [
        about(
            f"error after one step with rate {rate:g}",
            1 - 2 * rate + rate**2 * (1 + (d + 1) / n),
            seen,
            sd=error,
            near={
                "2d instead of d + 1": 1 - 2 * rate + rate**2 * (1 + 2 * d / n),
                "no noise in C": (1 - rate) ** 2,
            },
        )
        for rate, (seen, error) in zip(setup.rates, result.error.tolist(), strict=True)
    ]
    return Verdict(
        checks=(
            exact(
                f"{setup.n_layers} layers of attention against as many gradient steps",
                result.difference.max().item(),
                near=near,
            ),
            *errors,
        ),
        why="The gradient of a squared error is a sum of examples times residuals, and so is attention "
        "without softmax.",
    )


def figure(result: Result) -> Figure:
    setup = result.setup
    drawing, (left, right) = panels(2, title="Linear attention takes gradient steps on the examples in its text")
    fine = torch.linspace(0, 1.15 * max(setup.rates), 100)
    curve = 1 - 2 * fine + fine**2 * (1 + (setup.d + 1) / setup.n_examples)
    left.plot(fine.numpy(), curve.numpy(), **PREDICTED)
    left.plot(
        setup.rates, result.error[:, 0].numpy(), **MEASURED | {"color": COLOURS[0], "label": "measured, one layer"}
    )
    best = setup.n_examples / (setup.n_examples + setup.d + 1)
    left.axvline(best, color="0.7", linewidth=0.8, zorder=0)
    left.text(best, 0.02, " N / (N + d + 1)", va="bottom", transform=left.get_xaxis_transform())
    left.set(
        xlabel="rate of learning", ylabel="squared error, in units of d", ylim=(0, 1.15), xlim=(0, fine[-1].item())
    )
    left.legend(frameon=False, loc="upper right")
    layers = range(1, setup.n_layers + 1)
    right.axhline(1e-12, **PREDICTED | {"label": "predicted: below"})
    style = MEASURED | {"color": COLOURS[1], "marker": MARKERS[1], "label": "measured, layers against steps"}
    right.semilogy(layers, result.difference.clamp(min=1e-17).numpy(), **style)
    right.set(xlabel="layers", xticks=layers, ylabel="largest difference", ylim=(1e-17, 1e-8))
    right.legend(frameon=False, loc="upper left")
    return drawing


CLAIM = Claim(
    __name__,
    __doc__,
    document="beyond",
    question="",
    paper="von Oswald et al. 2023, Transformers learn in-context by gradient descent (arXiv:2212.07677)",
    setup=Setup(),
    small=Setup(n_problems=1_500, rates=(0.8,), n_layers=2),
    run=run,
    verdict=verdict,
    figure=figure,
    broken={"softmax attention": {"attention": "softmax"}, "the wrong sign": {"attention": "wrong sign"}},
    confidence="Layers against steps are exact up to rounding; errors are within 5 standard deviations (SD) "
    "of the mean "
    "over the problems.",
)
