r"""Attention without residuals forgets what tells its tokens apart, cubically: ln of the difference triples per layer.

Write the tokens as their mean and a rest, $X = 1\bar x^\top + R$. A softmax does not see what is the same for all
keys, so with $A = W_Q W_K^\top$ the weights of query $i$ are those of the scores $\beta(\bar x + r_i)^\top A\,r_j$.
The part $\beta\bar x^\top A\,r_j$ is the same for every query: it gives the weights $\bar w_j$ of the mean token. What
differs from query to query is, for a small rest,

$$w_{ij} - \bar w_j = \beta\,\bar w_j\, r_i^\top A\,(r_j - \bar r) + O(R^4), \qquad
R_{out} = \beta\, R\, A\, C\, W_V\,(1 + O(R^2)), \qquad C = \sum_j \bar w_j (r_j - \bar r)(r_j - \bar r)^\top$$

where $\bar r = \sum_j \bar w_j r_j$, and $C \to R^\top R/n$ as the rest goes to 0
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

SD = {"slope": 0.045, "ratio": 0.075, "deep": 0.009}
"""Of a draw, over 400 of them; the first two are for a rest of size 1, and fall with its square."""


@dataclass(frozen=True, kw_only=True)
class Setup(Experiment):
    """Layers with random weights, and random tokens whose rest is scaled."""

    n_tokens: int = 32
    d_model: int = 16
    n_heads: int = 4
    scales: tuple[float, ...] = (0.1, 0.03, 0.01, 0.003, 0.001)
    n_layers: int = 3
    n_draws: int = 16
    """Of layers and tokens, whose mean is judged: a single one has heavy tails."""
    first_scale: float = 0.3
    gain: float = 4.0
    """Of the output projections: with it the cube of a rest has about its size, and more layers can be seen."""
    residual: bool = False


@dataclass(frozen=True)
class Result:
    """ln of the length of the rest after one layer, for each scale, and after each layer of a stack."""

    setup: Setup
    one_layer: Float[Tensor, "draw scale"]
    predicted: Float[Tensor, "draw scale"]
    stack: Float[Tensor, "draw layer"]
    """From before the first layer on."""
    predicted_stack: Float[Tensor, "draw layer"]


@seeded
@torch.no_grad()
def run(setup: Setup) -> Result:
    draws = [_draw(setup) for _ in range(setup.n_draws)]
    return Result(setup, *(torch.stack(lengths).log() for lengths in zip(*draws, strict=True)))


def _draw(setup: Setup) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Lengths of the rest: after one layer, as predicted, in a stack, as predicted."""
    mean = torch.randn(setup.d_model, dtype=torch.float64)
    rest = _rest(torch.randn(setup.n_tokens, setup.d_model, dtype=torch.float64))
    layers = [MultiHeadAttention(setup.d_model, setup.n_heads, bias=False).double() for _ in range(setup.n_layers)]
    for layer in layers:
        layer.out.weight *= setup.gain
    one = [_rest(_apply(setup, layers[0], mean + scale * rest)).norm() for scale in setup.scales]
    expected = [predict_layer(layers[0], mean, scale * rest)[1].norm() for scale in setup.scales]
    x, middle, small = mean + setup.first_scale * rest, mean, setup.first_scale * rest
    stack, predicted = [small.norm()], [small.norm()]
    for layer in layers:
        x, (middle, small) = _apply(setup, layer, x), predict_layer(layer, middle, small)
        stack.append(_rest(x).norm())
        predicted.append(small.norm())
    return torch.stack(one), torch.stack(expected), torch.stack(stack), torch.stack(predicted)


def _rest(x: Tokens) -> Tokens:
    return x - x.mean(0)


def _apply(setup: Setup, layer: MultiHeadAttention, x: Tokens) -> Tokens:
    out: Tensor = layer(x[None])
    return out[0] + x if setup.residual else out[0]


def predict_layer(
    layer: MultiHeadAttention, mean: Float[Tensor, "d_model"], rest: Tokens
) -> tuple[Float[Tensor, "d_model"], Tokens]:
    """The theory: mean and rest behind a layer, sums over the heads, from the weights alone."""
    h = layer.n_heads
    w_q, w_k, w_v = (
        rearrange(part.get_parameter("weight"), "(h d) model -> h model d", h=h)
        for part in (layer.query, layer.key, layer.value)
    )
    w_o = rearrange(layer.out.weight, "model (h d) -> h d model", h=h)
    scores = w_q @ w_k.mT / math.sqrt(w_q.shape[-1])
    of_mean = torch.softmax(einsum(mean, scores, rest, "i, h i j, token j -> h token"), -1)
    middle = of_mean @ rest
    away = rest - middle[:, None]
    covariance = einsum(of_mean, away, away, "h token, h token i, h token j -> h i j")
    new_mean = ((mean + middle)[:, None] @ w_v @ w_o).sum((0, 1))
    return new_mean, (rest @ scores @ covariance @ w_v @ w_o).sum(0)


def verdict(result: Result) -> Verdict:
    setup, (before, scale) = result.setup, result.setup.scales[-2:]
    n, h = setup.n_tokens, setup.n_heads
    slope, expected = (
        (lengths[:, -1] - lengths[:, -2]).mean().item() / math.log(scale / before)
        for lengths in (result.one_layer, result.predicted)
    )
    ratio = (result.one_layer - result.predicted)[:, -1].mean().exp().item()
    falls, expected_falls = (lengths[:, -1] - lengths[:, 0] for lengths in (result.stack, result.predicted_stack))
    deep = (falls / expected_falls).mean().item()
    of_mean = 1 / math.sqrt(setup.n_draws)
    cubes, squares = (sum(power**i for i in range(setup.n_layers)) for power in (3, 2))
    return Verdict(
        checks=(
            about(
                "exponent of the rest in one layer",
                expected,
                slope,
                sd=SD["slope"] * before**2 * of_mean,
                near={"a square": 2, "3 + 1/n": 3 + 1 / n},
            ),
            about(
                "rest after one layer, measured over beta R A C W",
                1,
                ratio,
                sd=SD["ratio"] * scale**2 * of_mean,
                near={"divided by n - 1": n / (n - 1), "beta of the whole width": math.sqrt(h)},
            ),
            about(
                f"ln of the rest after {setup.n_layers} layers, measured over predicted",
                1,
                deep,
                sd=SD["deep"] * of_mean,
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
    left.loglog(setup.scales, result.predicted[0].exp().numpy(), **PREDICTED | {"label": "predicted: as the cube"})
    left.loglog(setup.scales, result.one_layer[0].exp().numpy(), **MEASURED)
    left.set(xlabel="size of the rest before the layer", ylabel="length of the rest after it")
    left.legend(frameon=False, loc="upper left")
    layers = range(setup.n_layers + 1)
    right.semilogy(
        layers, result.predicted_stack[0].exp().numpy(), **PREDICTED | {"label": "predicted from the first rest"}
    )
    right.semilogy(layers, result.stack[0].exp().numpy(), **MEASURED)
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
    confidence="What is left is as small as the square of the rest: each tolerance is 5 standard deviations (SD) "
    "of the mean over the draws.",
)
