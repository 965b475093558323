r"""Attention can be an identity or any permutation of the tokens, exactly, if queries and keys carry positions.

Let a token be its content and a one-hot code of its position, $x_i = (c_i, e_i)$. Build one layer by hand: keys
$k_j = e_j$, queries $q_i = e_{\pi(i)}$, values $v_j = c_j$. Then $q_i \cdot k_j$ is 1 for $j = \pi(i)$ and 0 elsewhere,
so

$$h_i = w\,c_{\pi(i)} + (1 - w)\,\bar c, \qquad w = \frac{1}{1 + (n - 1)\,e^{-\beta}}$$

with $\bar c$ the mean of the other contents. The error falls as $e^{-\beta}$ and is exactly 0 for hard attention. It is
the *difference* of the scores that counts: nothing has to be very negative. With $\pi$ the identity it is an identity
layer. Several heads can share the work: head $i$ moves its own slice of the content.

An identity needs no positions if all tokens are equally long: $x_i \cdot x_i \ge x_i \cdot x_j$ by Cauchy and Schwarz,
and two tokens that tie are the same. A permutation does need them: otherwise attention cannot tell positions apart.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from headwork.functional import scaled_dot_product_attention
from headwork.inspection import record
from headwork.lab.plots import MEASURED, PREDICTED, Figure, on_log_axis, panels
from headwork.lab.toolkit import Claim, Erratum, Experiment, Verdict, exact, largest_difference, seeded
from headwork.layers import MultiHeadAttention


@dataclass(frozen=True, kw_only=True)
class Setup(Experiment, smallest={"n_tokens": 2}):
    """Random contents at numbered positions, and layers of several sharpnesses beta."""

    n_tokens: int = 16
    d_content: int = 24
    n_heads: int = 3
    betas: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0, 12.0, 16.0, 20.0, 24.0, 28.0)
    addressed_by: Literal["position", "content"] = "position"
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
    """The error of hard attention, for the identity without positions; and for tokens of unequal length."""
    by_content_unequal: float
    wrong: dict[str, dict[str, float]]
    """How far off theories are that are wrong by a little."""


@seeded
def run(setup: Setup) -> Result:
    n, d = setup.n_tokens, setup.d_content
    contents = torch.randn(n, d, dtype=torch.float64)
    x = torch.cat([contents, torch.eye(n, dtype=torch.float64)], dim=-1)[None]
    order = torch.randperm(n)
    wanted = contents[order]
    with torch.no_grad():
        layers = [_build(setup, order, 1, beta) for beta in setup.betas]
        error = torch.tensor(
            [largest_difference(layer(x, x)[0, :, :d], wanted) for layer in layers], dtype=torch.float64
        )
        with record(layers[len(layers) // 2]) as seen:
            layers[len(layers) // 2](x, x)
        hard = _build(setup, order, setup.n_heads, math.inf)(x, x)[0, :, :d]
        identity = _build(setup, torch.arange(n), setup.n_heads, math.inf)(x, x)[0, :, :d]
    predicted = predict_errors(contents, setup.betas)
    return Result(
        setup,
        order,
        seen["weights"][0, 0],
        error,
        predicted,
        largest_difference(hard, wanted),
        largest_difference(identity, contents),
        _identity_by_content(setup.lengths, contents),
        _identity_by_content("unequal", contents),
        {
            "permutation": {
                "the token after pi(i)": largest_difference(hard, contents[(order + 1) % n]),
                "the inverse of pi": largest_difference(hard, contents[order.argsort()]),
            },
            "identity": {
                "each head moves the slice of the next": largest_difference(
                    identity, contents.roll(d // setup.n_heads, 1)
                )
            },
            "error": {
                "n instead of n - 1": largest_difference(error, predict_errors(contents, setup.betas, extra=1)),
                "all contents instead of the others": largest_difference(error, predicted * (n - 1) / n),
            },
        },
    )


def _build(setup: Setup, order: Int[Tensor, "token"], n_heads: int, beta: float) -> MultiHeadAttention:
    """A layer whose weights are written by hand; every head asks for the same position and moves its slice."""
    n, d = setup.n_tokens, setup.d_content
    layer = MultiHeadAttention(d + n, n_heads, d_head=n, d_value=d // n_heads, bias=False, beta=beta).double()
    codes = torch.cat([torch.zeros(n, d), torch.eye(n)], dim=-1)
    if setup.addressed_by == "content":
        codes = torch.cat([torch.randn(n, d), torch.zeros(n, n)], dim=-1)
    content = torch.cat([torch.eye(d), torch.zeros(d, n)], dim=-1)
    back_to_front = torch.empty_like(order).scatter_(0, order, torch.arange(n))
    for linear, weight in (
        (layer.query, codes[back_to_front].repeat(n_heads, 1)),
        (layer.key, codes.repeat(n_heads, 1)),
        (layer.value, content),
        (layer.out, content.mT),
    ):
        nn.init.zeros_(linear.get_parameter("weight")).add_(weight)
    return layer


def predict_errors(
    contents: Float[Tensor, "token d"], betas: tuple[float, ...], extra: int = 0
) -> Float[Tensor, "beta"]:
    """The largest entry of (1 - w) (mean of the others - content), for each beta."""
    n, beta = len(contents), torch.tensor(betas, dtype=torch.float64)
    taken = (n - 1 + extra) * (-beta).exp()
    others = (contents.sum(0) - contents) / (n - 1)
    return taken / (1 + taken) * (others - contents).abs().max()


def _identity_by_content(lengths: Literal["equal", "unequal"], contents: Float[Tensor, "token d"]) -> float:
    """Tokens that ask for themselves, x_i . x_j, with no position anywhere."""
    x = nn.functional.normalize(contents, dim=-1) if lengths == "equal" else contents * contents[:, :1].exp()
    return largest_difference(scaled_dot_product_attention(x, x, x, beta=math.inf), x)


def verdict(result: Result) -> Verdict:
    return Verdict(
        checks=(
            exact("permuted contents, hard attention", result.hard, eps=0, near=result.wrong["permutation"]),
            exact("identity of several heads, hard attention", result.identity, eps=0, near=result.wrong["identity"]),
            exact(
                "identity by content, tokens of equal length",
                result.by_content,
                eps=0,
                near={"of any length": result.by_content_unequal},
            ),
            exact(
                "error at every beta, formula against layer",
                largest_difference(result.error, result.predicted),
                near=result.wrong["error"],
            ),
        ),
        why="A score that leads for one key only makes the weights a table of 0 and 1, and a one-hot code can lead.",
    )


def figure(result: Result) -> Figure:
    setup, n = result.setup, result.setup.n_tokens
    title = "Attention by position is any permutation, up to an error that falls as exp(-beta)"
    drawing, (left, right) = panels(2, title=title)
    table = left.imshow(result.weights.numpy(), cmap="Greys", vmin=0, vmax=1)
    style = MEASURED | {"markersize": 3, "markeredgecolor": "0.5", "label": "predicted: pi(i)"}
    left.plot(result.order.numpy(), range(n), **style)
    left.set(xlabel="key token", ylabel="query token i", xticks=range(0, n, 3), yticks=range(0, n, 3))
    left.set_title(f"white dots: predicted pi(i), beta = {setup.betas[len(setup.betas) // 2]:g}")
    drawing.colorbar(table, ax=left, label="measured weight", shrink=0.9)
    right.semilogy(setup.betas, result.predicted.numpy(), **PREDICTED)
    right.semilogy(setup.betas, on_log_axis(result.error), **MEASURED)
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


def _rows_or_columns(_: Result) -> str:
    table, values = torch.tensor([[1.0, 1.0], [0.0, 0.0]]), torch.tensor([[3.0, 5.0]])
    kept = (values @ table).tolist()[0]
    return (
        "With keys x queries every column is a softargmax and sums to 1; a single 1 in each row too makes it a "
        "permutation, as printed. With queries x keys it is each row that sums to 1, and a single 1 in each is no more "
        f"than hard attention: [[1, 1], [0, 0]], transposed, turns the values [3, 5] into {kept}, and 5 is lost."
    )


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
            where="1.3(c), permutation layer, beside the layout of 1.3(d) and (e)",
            printed="a permutation matrix, where each row contains a single 1 and zeros elsewhere",
            right=r"right for $\alpha$ of 1.3(a), keys $\times$ queries, whose columns sum to 1; in the layout of "
            "1.3(d) and (e), queries first, it is each *column* that has to contain a single 1; the sheet mixes both",
            measured=_rows_or_columns,
        ),
    ),
)
