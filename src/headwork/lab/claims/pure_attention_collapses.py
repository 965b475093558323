r"""Attention without residuals forgets what tells its tokens apart, cubically: ln of the difference triples per layer.

Write the tokens as their mean and a rest, $X = 1\bar x^\top + R$. A softmax does not see what is the same for all
keys, so with $A = W_Q W_K^\top$ the weights of query $i$ are those of the scores $\beta(\bar x + r_i)^\top A\,r_j$.
The part $\beta\bar x^\top A\,r_j$ is the same for every query. What differs from query to query is, for a small rest,

$$w_{ij} - \bar w_j = \frac{\beta}{n}\, r_i^\top A\, r_j\,(1 + O(R)), \qquad
R_{out} = \beta\, R\, A\, \frac{R^\top R}{n}\, W_V\,(1 + O(R))$$

(of several heads, the sum, each with its own $A$ and $W_V W_O$). Three factors $R$: a rest of one tenth becomes one
of a thousandth, then of a billionth. The logarithm of the rest triples from layer to layer, so the tokens become the
same doubly exponentially in the depth. The output loses its rank, not its size: the mean stays.

It stops being true when residual connections add $R$ itself back, and for scores so large that the weights are hard:
a head that picks other tokens for other queries keeps them apart.
"""

import math
from dataclasses import dataclass

import torch
from einops import einsum, rearrange
from jaxtyping import Float
from torch import Tensor

from headwork.lab.plots import MEASURED, PREDICTED, Figure, panels
from headwork.lab.toolkit import Claim, Experiment, Verdict, about, seeded
from headwork.layers import MultiHeadAttention

Tokens = Float[Tensor, "token d_model"]

SD = {"slope": 3.5e-4, "ratio": 0.19, "deep": 0.03}
"""Over 20 seeds; that of the ratio is for a rest of size 1, and falls with it."""


@dataclass(frozen=True, kw_only=True)
class Setup(Experiment):
    """Layers with random weights, and random tokens whose rest is scaled."""

    n_tokens: int = 32
    d_model: int = 16
    n_heads: int = 4
    scales: tuple[float, ...] = (0.1, 0.03, 0.01, 0.003, 0.001)
    n_layers: int = 3
    first_scale: float = 0.3
    gain: float = 4.0
    """Of the output projections: with it the cube of a rest has about its size, and more layers can be seen."""
    residual: bool = False


@dataclass(frozen=True)
class Result:
    """The length of the rest after one layer, for each scale, and after each layer of a stack."""

    setup: Setup
    one_layer: Float[Tensor, "scale"]
    predicted: Float[Tensor, "scale"]
    stack: Float[Tensor, "layer"]
    """From before the first layer on."""
    predicted_stack: Float[Tensor, "layer"]


@seeded
@torch.no_grad()
def run(setup: Setup) -> Result:
    mean = torch.randn(setup.d_model, dtype=torch.float64)
    rest = _rest(torch.randn(setup.n_tokens, setup.d_model, dtype=torch.float64))
    layers = [MultiHeadAttention(setup.d_model, setup.n_heads, bias=False).double() for _ in range(setup.n_layers)]
    for layer in layers:
        layer.out.weight *= setup.gain
    one = [_rest(_apply(setup, layers[0], mean + scale * rest)).norm() for scale in setup.scales]
    expected = [predict_rest(layers[0], scale * rest).norm() for scale in setup.scales]
    x, small = mean + setup.first_scale * rest, setup.first_scale * rest
    stack, predicted = [small.norm()], [small.norm()]
    for layer in layers:
        x, small = _apply(setup, layer, x), predict_rest(layer, small)
        stack.append(_rest(x).norm())
        predicted.append(small.norm())
    return Result(setup, torch.stack(one), torch.stack(expected), torch.stack(stack), torch.stack(predicted))


def _rest(x: Tokens) -> Tokens:
    return x - x.mean(0)


def _apply(setup: Setup, layer: MultiHeadAttention, x: Tokens) -> Tokens:
    out: Tensor = layer(x[None])
    return out[0] + x if setup.residual else out[0]


def predict_rest(layer: MultiHeadAttention, rest: Tokens) -> Tokens:
    """The theory: the sum over the heads of beta R A (R'R / n) W_V W_O, from the weights alone."""
    h = layer.n_heads
    w_q, w_k, w_v = (
        rearrange(part.get_parameter("weight"), "(h d) model -> h model d", h=h)
        for part in (layer.query, layer.key, layer.value)
    )
    w_o = rearrange(layer.out.weight, "model (h d) -> h d model", h=h)
    covariance = einsum(rest, rest, "token i, token j -> i j") / len(rest)
    return ((rest @ w_q @ w_k.mT) @ (covariance @ w_v @ w_o)).sum(0) / math.sqrt(w_q.shape[-1])


def verdict(result: Result) -> Verdict:
    setup, scale = result.setup, result.setup.scales[-1]
    n, h = setup.n_tokens, setup.n_heads
    slope = (result.one_layer[-1] / result.one_layer[-2]).log().item() / math.log(scale / setup.scales[-2])
    ratio = (result.one_layer[-1] / result.predicted[-1]).item()
    predicted = result.predicted_stack.log()
    deep = ((result.stack[-1].log() - predicted[0]) / (predicted[-1] - predicted[0])).item()
    cubes, squares = (sum(power**i for i in range(setup.n_layers)) for power in (3, 2))
    return Verdict(
        checks=(
            about(
                "exponent of the rest in one layer",
                3,
                slope,
                sd=SD["slope"],
                near={"a square": 2, "3 + 1/n": 3 + 1 / n},
            ),
            about(
                "rest after one layer, measured over beta R A (R'R/n) W",
                1,
                ratio,
                sd=SD["ratio"] * scale,
                near={"divided by n - 1": n / (n - 1), "beta of the whole width": math.sqrt(h)},
            ),
            about(
                f"ln of the rest after {setup.n_layers} layers, measured over predicted",
                1,
                deep,
                sd=SD["deep"],
                near={
                    "a square in each layer": squares / cubes,
                    "a layer less": (cubes - 3 ** (setup.n_layers - 1)) / cubes,
                },
            ),
        ),
        why="Only the product of query, key and value tells the tokens apart, and each of the three is a rest.",
    )


def figure(result: Result) -> Figure:
    setup = result.setup
    drawing, (left, right) = panels(2, title="Without residuals the difference between tokens is cubed by each layer")
    left.loglog(setup.scales, result.predicted.numpy(), **PREDICTED | {"label": "predicted: as the cube"})
    left.loglog(setup.scales, result.one_layer.numpy(), **MEASURED)
    left.set(xlabel="size of the rest before the layer", ylabel="length of the rest after it")
    left.legend(frameon=False, loc="upper left")
    layers = range(setup.n_layers + 1)
    right.semilogy(layers, result.predicted_stack.numpy(), **PREDICTED | {"label": "predicted from the first rest"})
    right.semilogy(layers, result.stack.numpy(), **MEASURED)
    right.set(xlabel="layers", xticks=layers, ylabel="length of the rest")
    right.legend(frameon=False, loc="lower left")
    return drawing


CLAIM = Claim(
    __name__,
    __doc__,
    document="beyond",
    question="",
    paper="Dong, Cordonnier and Loukas 2021, Attention is not all you need: pure attention loses rank doubly "
    "exponentially with depth (arXiv:2103.03404)",
    setup=Setup(),
    small=Setup(scales=(0.003, 0.001)),
    run=run,
    verdict=verdict,
    figure=figure,
    broken={"residual connections": {"residual": True}},
    confidence="The next term is as small as the rest itself: each tolerance is 5 standard deviations (SD) "
    "over 20 seeds.",
)
