r"""Attention can be an identity or any permutation of the tokens, exactly, if queries and keys carry places.

Let a token be its content and a one-hot code of its place, $x_i = (c_i, e_i)$. Build one layer by hand: keys
$k_j = e_j$, queries $q_i = e_{\pi(i)}$, values $v_j = c_j$. Then $q_i \cdot k_j$ is 1 for $j = \pi(i)$ and 0 elsewhere,
so

$$h_i = w\,c_{\pi(i)} + (1 - w)\,\bar c, \qquad w = \frac{1}{1 + (n - 1)\,e^{-\beta}}$$

with $\bar c$ the mean of the other contents. The error falls as $e^{-\beta}$ and is exactly 0 for hard attention. It is
the *difference* of the scores that counts: nothing has to be very negative. With $\pi$ the identity it is an identity
layer. Several heads can share the work: head $i$ moves its own slice of the content.

An identity needs no places if all tokens are equally long: $x_i \cdot x_i \ge x_i \cdot x_j$ by Cauchy and Schwarz, and
two tokens that tie are the same. A permutation does need them: without places attention cannot tell positions apart.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from headwork.figures import MEASURED, PREDICTED, Figure, panels
from headwork.functional import scaled_dot_product_attention
from headwork.inspection import record
from headwork.lab.claim import Claim, Erratum, Experiment, seeded
from headwork.lab.measuring import largest_difference
from headwork.lab.verdict import Verdict, about
from headwork.layers import MultiHeadAttention

ROUNDING = 1e-12


@dataclass(frozen=True, kw_only=True)
class Setup(Experiment):
    """Random contents on numbered places, and layers of several sharpnesses beta."""

    n_tokens: int = 16
    d_content: int = 24
    n_heads: int = 3
    betas: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0, 12.0, 16.0, 20.0, 24.0, 28.0)
    addressed_by: Literal["place", "content"] = "place"
    lengths: Literal["equal", "unequal"] = "equal"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.d_content % self.n_heads:
            raise ValueError(
                f"n_heads must divide d_content, got n_heads={self.n_heads} and d_content={self.d_content}"
            )


@dataclass(frozen=True)
class Result:
    """The weights of the permutation layer, and how far its outputs are from the permuted contents."""

    setup: Setup
    order: Int[Tensor, "token"]
    weights: Float[Tensor, "query key"]
    """With the beta in the middle."""
    error: Float[Tensor, "beta"]
    predicted: Float[Tensor, "beta"]
    hard: float
    """The error of hard attention, for the permutation."""
    identity: float
    """The error of hard attention, for the identity, several heads."""
    by_content: float
    """The error of hard attention, for the identity without places."""


@seeded
def run(setup: Setup) -> Result:
    n, d = setup.n_tokens, setup.d_content
    contents = torch.randn(n, d, dtype=torch.float64)
    x = torch.cat([contents, torch.eye(n, dtype=torch.float64)], dim=-1)[None]
    order = torch.randperm(n)
    wanted = contents[order]
    with torch.no_grad():
        layers = [_build(setup, order, 1, beta) for beta in setup.betas]
        error = [largest_difference(layer(x, x)[0, :, :d], wanted) for layer in layers]
        with record(layers[len(layers) // 2]) as seen:
            layers[len(layers) // 2](x, x)
        hard = _build(setup, order, setup.n_heads, math.inf)(x, x)[0, :, :d]
        identity = _build(setup, torch.arange(n), setup.n_heads, math.inf)(x, x)[0, :, :d]
    return Result(
        setup,
        order,
        seen["weights"][0, 0],
        torch.tensor(error, dtype=torch.float64),
        torch.tensor([_formula(contents, order, beta) for beta in setup.betas], dtype=torch.float64),
        largest_difference(hard, wanted),
        largest_difference(identity, contents),
        _identity_by_content(setup, contents),
    )


def _build(setup: Setup, order: Int[Tensor, "token"], n_heads: int, beta: float) -> MultiHeadAttention:
    """A layer whose weights are written by hand; every head asks for the same place and moves its slice of content."""
    n, d = setup.n_tokens, setup.d_content
    layer = MultiHeadAttention(d + n, n_heads, d_head=n, d_value=d // n_heads, bias=False, beta=beta).double()
    places = torch.cat([torch.zeros(n, d), torch.eye(n)], dim=-1)
    if setup.addressed_by == "content":
        places = torch.cat([torch.randn(n, d), torch.zeros(n, n)], dim=-1)
    content = torch.cat([torch.eye(d), torch.zeros(d, n)], dim=-1)
    back_to_front = torch.empty_like(order).scatter_(0, order, torch.arange(n))
    for linear, weight in (
        (layer.query, places[back_to_front].repeat(n_heads, 1)),
        (layer.key, places.repeat(n_heads, 1)),
        (layer.value, content),
        (layer.out, content.mT),
    ):
        nn.init.zeros_(linear.get_parameter("weight")).add_(weight)
    return layer


def _formula(contents: Float[Tensor, "token d"], order: Int[Tensor, "token"], beta: float) -> float:
    """The largest entry of (1 - w) (mean of the others - content)."""
    n = len(contents)
    lost = (n - 1) * math.exp(-beta) / (1 + (n - 1) * math.exp(-beta))
    others = (contents.sum(0) - contents) / (n - 1)
    return (lost * (others - contents)).abs().max().item()


def _identity_by_content(setup: Setup, contents: Float[Tensor, "token d"]) -> float:
    """Tokens that ask for themselves, x_i . x_j, with no place anywhere."""
    x = nn.functional.normalize(contents, dim=-1) if setup.lengths == "equal" else contents * contents[:, :1].exp()
    return largest_difference(scaled_dot_product_attention(x, x, x, beta=math.inf), x)


def verdict(result: Result) -> Verdict:
    return Verdict(
        checks=(
            about("permuted contents, hard attention", 0, result.hard, 0.0),
            about("identity of several heads, hard attention", 0, result.identity, 0.0),
            about("identity by content, tokens of equal length", 0, result.by_content, 0.0),
            about(
                "error at every beta, formula against layer",
                0,
                largest_difference(result.error, result.predicted),
                ROUNDING,
            ),
        ),
        why="A score that leads for one key only makes the weights a table of 0 and 1, and a one-hot place can lead.",
    )


def figure(result: Result) -> Figure:
    setup, n = result.setup, result.setup.n_tokens
    title = "Attention by place is any permutation, up to an error that falls as exp(-beta)"
    drawing, (left, right) = panels(2, title=title)
    table = left.imshow(result.weights.numpy(), cmap="Greys", vmin=0, vmax=1)
    style = MEASURED | {"markersize": 3, "markeredgecolor": "0.5", "label": "predicted: pi(i)"}
    left.plot(result.order.numpy(), range(n), **style)
    left.set(xlabel="key token", ylabel="query token i", xticks=range(0, n, 3), yticks=range(0, n, 3))
    left.set_title(f"white dots: predicted pi(i), beta = {setup.betas[len(setup.betas) // 2]:g}")
    drawing.colorbar(table, ax=left, label="measured weight", shrink=0.9)
    right.semilogy(setup.betas, result.predicted.numpy(), **PREDICTED)
    right.semilogy(setup.betas, result.error.clamp(min=1e-17).numpy(), **MEASURED)
    right.set(xlabel="beta", ylabel="largest error of the output")
    right.text(0.05, 0.08, f"measured for beta = inf: {result.hard:g}", transform=right.transAxes)
    right.legend(frameon=False)
    return drawing


def _not_square(result: Result) -> str:
    d, h = result.setup.d_content, result.setup.n_heads
    return (
        f"With e = {d} and h = {h} heads, W_V^i has the shape {d // h} x {d} and is no identity. "
        f"Slices of the identity in the heads and W_O = I give H = C with an error of {result.identity:g}."
    )


def _rows_alone(_: Result) -> str:
    rows = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    kept = (rows @ torch.tensor([3.0, 5.0])).tolist()
    return f"The table [[1, 0], [1, 0]] has a single 1 in each row, and turns the values [3, 5] into {kept}."


CLAIM = Claim(
    __name__,
    __doc__,
    document="NYU",
    question="1.3(c)",
    setup=Setup(),
    small=Setup(n_tokens=7, d_content=6, n_heads=2, betas=(1.0, 5.0, 25.0)),
    run=run,
    verdict=verdict,
    figure=figure,
    broken={
        "queries and keys from the content alone": {"addressed_by": "content"},
        "identity by content of tokens of unequal length": {"lengths": "unequal"},
    },
    confidence="Hard attention is exact to the last bit, the error of soft attention up to rounding.",
    errata=(
        Erratum(
            where="1.3(c), identity layer, together with the shapes of 1.3(a)",
            printed=r"if the projection matrices are identity matrices ($W_V^i = I$), then $H = C$",
            right=r"$W_V^i \in \mathbb{R}^{e/h \times e}$ can be an identity for one head only, and $W_O$ has a say: "
            r"what is needed is $W_O\,[W_V^1; \dots; W_V^h] = I$",
            measured=_not_square,
        ),
        Erratum(
            where="1.3(c), permutation layer",
            printed="a permutation matrix, where each row contains a single 1 and zeros elsewhere",
            right="each row *and each column* contains a single 1: with rows alone two queries may take the same "
            "value, and another is lost",
            measured=_rows_alone,
        ),
    ),
)
