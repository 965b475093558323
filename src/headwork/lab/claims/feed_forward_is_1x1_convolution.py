r"""The position-wise feed-forward network is two 1 x 1 convolutions: one network, shared, each token for itself.

A convolution with a kernel of size 1 has one matrix for every position, $y_p = W x_p + b$: just what a linear map does
to each token. So

$$\operatorname{FFN}(x)_p = W_2 \max(0, W_1 x_p + b_1) + b_2$$

is two 1 x 1 convolutions with the activation between, on a sequence (positions in a row) as on an image (positions in a
grid), with the same weights and the same numbers. No term joins two tokens: $\partial y_p / \partial x_r = 0$ for
$p \ne r$, and the tokens may come in any order. Only attention moves information from token to token.

What it is for: without the activation the two maps would be one, $W_2 W_1 x + W_2 b_1 + b_2$, and the wide layer in the
middle would add nothing. The non-linearity is what attention, a mean of values, does not have.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from headwork.lab.measuring import influence
from headwork.lab.plots import FLOOR, MARKERS, MEASURED, Figure, draw_rounding, on_log_axis, outline, panels, series
from headwork.lab.toolkit import Claim, Experiment, Verdict, exact, largest_difference, same, seeded
from headwork.layers import FeedForward

Kernel = Literal["one token", "three tokens"]
PUBLISHED: dict[Kernel, int] = {"one token": 1, "three tokens": 3}


@dataclass(frozen=True, kw_only=True)
class Setup(Experiment):
    """A grid of tokens, which is a sequence too, and a feed-forward network with each of several widths."""

    grid: tuple[int, int] = (3, 5)
    d_model: int = 16
    widths: tuple[int, ...] = (16, 32, 64, 128, 256)
    kernel: Kernel = "one token"


@dataclass(frozen=True)
class Result:
    """How far the network is from the convolutions, and which outputs depend on which tokens."""

    setup: Setup
    on_sequence: Float[Tensor, "width"]
    on_image: Float[Tensor, "width"]
    n_weights: list[tuple[int, int]]
    """Of the network and of the convolutions."""
    reordered: float
    influence: Float[Tensor, "out_token token"]
    """Of the convolutions."""
    wrong: dict[str, float]
    """How far the network is from convolutions with one thing wrong."""
    without_activation: float
    """How far the two maps without an activation are from one map, the product of their matrices; and with it."""
    with_activation: float


@seeded
def run(setup: Setup) -> Result:
    n_rows, n_columns = setup.grid
    x = torch.randn(1, n_rows * n_columns, setup.d_model, dtype=torch.float64)
    order = torch.randperm(x.shape[1])
    on_sequence, on_image, n_weights = [], [], []
    with torch.no_grad():
        for d_ff in setup.widths:
            network = FeedForward(setup.d_model, d_ff, activation="relu").double()
            for bias in (network.up.bias, network.down.bias):
                bias.normal_()
            line, plane = (_convolutions(setup, network, kind) for kind in (nn.Conv1d, nn.Conv2d))
            y = network(x)
            on_sequence.append(largest_difference(y, _on_sequence(line, x)))
            image = rearrange(x, "1 (row column) d -> 1 d row column", row=n_rows)
            on_image.append(largest_difference(y, rearrange(plane(image), "1 d row column -> 1 (row column) d")))
            n_weights.append((_count(network), _count(line)))
        reordered = largest_difference(network(x[:, order]), y[:, order])
        wrong = {
            "the tokens one place later": largest_difference(y, _on_sequence(line, x).roll(1, 1)),
            "without the second bias": largest_difference(y, _on_sequence(line, x) - network.down.bias),
            "without the activation": largest_difference(y, _on_sequence(nn.Sequential(line[0], line[2]), x)),
        }
        product = network.down.weight @ network.up.weight
        one_map = x @ product.mT + network.down.weight @ network.up.bias + network.down.bias
        two_maps = network.down(network.up(x))
    reach = influence(lambda x: _on_sequence(line, x[None])[0], x[0])
    return Result(
        setup,
        torch.tensor(on_sequence).double(),
        torch.tensor(on_image).double(),
        n_weights,
        reordered,
        reach,
        wrong,
        largest_difference(two_maps, one_map),
        largest_difference(y, one_map),
    )


def _on_sequence(line: nn.Sequential, x: Float[Tensor, "batch token d"]) -> Float[Tensor, "batch token d"]:
    out: Tensor = line(x.mT)
    return out.mT


def _convolutions(setup: Setup, network: FeedForward, kind: type[nn.Conv1d] | type[nn.Conv2d]) -> nn.Sequential:
    """The network's weights in convolutions; a wider kernel has them in its middle and small ones around."""
    size = PUBLISHED[setup.kernel]
    up, down = (
        kind(linear.in_features, linear.out_features, size, padding="same").double()
        for linear in (network.up, network.down)
    )
    for conv, linear in ((up, network.up), (down, network.down)):
        conv.weight.flatten(2)[..., size ** (conv.weight.ndim - 2) // 2] = linear.weight
        conv.bias.copy_(linear.bias)  # type: ignore[union-attr]
    return nn.Sequential(up, nn.ReLU(), down)


def _count(module: nn.Module) -> int:
    return sum(weight.numel() for weight in module.parameters())


def verdict(result: Result) -> Verdict:
    n_tokens, d, d_ff = len(result.influence), result.setup.d_model, result.setup.widths[-1]
    of_network, of_convolutions = result.n_weights[-1]
    count = 2 * d * d_ff + d_ff + d
    reach = result.influence > 0
    return Verdict(
        checks=(
            exact(
                "network against 1 x 1 convolutions of a sequence", result.on_sequence.max().item(), near=result.wrong
            ),
            exact("network against 1 x 1 convolutions of an image", result.on_image.max().item(), near=result.wrong),
            same(
                "pairs of different tokens with influence",
                0,
                int(reach.sum() - reach.diagonal().sum()),
                near={"neighbours": 2 * (n_tokens - 1)},
            ),
            same(
                "tokens that reach their own output",
                n_tokens,
                int(reach.diagonal().sum()),
                near={"all but the first": n_tokens - 1},
            ),
            exact(
                "tokens in another order, then the network, or after it",
                result.reordered,
                near={"the outputs in the old order": result.wrong["the tokens one place later"]},
            ),
            exact(
                "without an activation two maps are one",
                result.without_activation,
                near={"with the activation too": result.with_activation},
            ),
            same(f"weights of the network, d_ff = {d_ff}", count, of_network, near={"no biases": 2 * d * d_ff}),
            same(f"weights of the convolutions, d_ff = {d_ff}", count, of_convolutions, near={"kernel 3": count * 3}),
        ),
        why="A kernel of size 1 is a matrix that every position shares, and so is a linear map of the tokens.",
    )


def figure(result: Result) -> Figure:
    setup = result.setup
    drawing, (left, right) = panels(2, title="A position-wise network is two 1 x 1 convolutions: no token sees another")
    table = left.imshow(result.influence.clamp(min=1e-9).log10().numpy(), cmap="Greys", vmin=-2)
    outline(left, torch.eye(len(result.influence)) > 0)
    left.text(len(result.influence) - 1, 0, "predicted:\nno influence", ha="right", va="top")
    every_fourth = range(0, len(result.influence), 4)
    left.set(xlabel="input token", ylabel="output token", xticks=every_fourth, yticks=every_fourth)
    left.set_title(f"kernel: {setup.kernel}")
    drawing.colorbar(table, ax=left, label="measured influence, log10 |dy/dx|", shrink=0.9)
    for name, marker, difference in zip(
        ("sequence", "image"), MARKERS, (result.on_sequence, result.on_image), strict=False
    ):
        style = MEASURED | series(marker) | {"label": f"measured, on a{'n' if name == 'image' else ''} {name}"}
        beside = [width * (1.12 if name == "image" else 1) for width in setup.widths]  # no marker hides another
        right.loglog(beside, on_log_axis(difference), **style)
    draw_rounding(right)
    right.set(xlabel="d_ff", ylabel="network against convolutions", ylim=(FLOOR, 1e-8), xticks=setup.widths)
    right.set_xticklabels(str(width) for width in setup.widths)
    right.minorticks_off()
    right.legend(frameon=False)
    return drawing


CLAIM = Claim(
    __name__,
    __doc__,
    document="NYU",
    question="1.4(d)",
    also=("ETH 2(d)",),
    setup=Setup(),
    small=Setup(grid=(2, 3), d_model=5, widths=(7, 11)),
    run=run,
    verdict=verdict,
    figure=figure,
    broken={"a kernel of three tokens": {"kernel": "three tokens"}},
    confidence="Exact up to rounding; the influence of other tokens is 0, not small.",
)
