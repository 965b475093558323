r"""Behind a window of radius r an output mixes 2r + 1 tokens; with scores of the shift alone that is a convolution.

The mask leaves the keys with $|j - i| \le r$, so

$$h_i = \sum_{j = i - r}^{i + r} \alpha_{ij} v_j, \qquad \sum_j \alpha_{ij} = 1$$

and $L$ such layers on top of each other reach $2rL + 1$ tokens, as convolutions of size $2r + 1$ do. If the scores
depend on the shift alone, $s_{ij} = b_{j - i}$ (a relative position bias), then
$\alpha_{ij} = e^{b_{j-i}} / \sum_\delta e^{b_\delta}$ is the same at every position: a convolution with a positive
kernel of sum 1. At the borders the rest of the kernel is scaled up to sum 1 again, where a convolution would pad with
zeros.

With queries and keys the kernel depends on the content, and differs from position to position: local as a convolution,
but not the same filter everywhere.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from headwork import masks
from headwork.functional import attention_weights, distance
from headwork.lab.measuring import influence
from headwork.lab.plots import MARKERS, MEASURED, PREDICTED, Figure, outline, panels, series
from headwork.lab.toolkit import Claim, Erratum, Experiment, Verdict, exact, largest_difference, same, seeded


@dataclass(frozen=True, kw_only=True)
class Setup(Experiment):
    """A sequence, windows of several radii, and stacks of several depths."""

    n_tokens: int = 41
    d_model: int = 4
    radii: tuple[int, ...] = (1, 2, 3)
    depths: tuple[int, ...] = (1, 2, 3, 4, 5)
    mask: Literal["window", "one token too wide", "after the softmax"] = "window"

    def __post_init__(self) -> None:
        super().__post_init__()
        reached = 2 * max(self.radii) * max(self.depths) + 1
        if self.n_tokens < reached:
            raise ValueError(f"n_tokens must be 2 r L + 1 = {reached} or more, got {self.n_tokens}")


@dataclass(frozen=True)
class Result:
    """How far the window is from a convolution, what a stack reaches, and how much the kernel changes with content."""

    setup: Setup
    kernel: Float[Tensor, "shift"]
    weights: Float[Tensor, "shift"]
    """In the middle of the sequence, for the largest radius."""
    from_convolution: Float[Tensor, "radius"]
    from_zero_padding: float
    """From a convolution with the same kernel that pads with zeros at the border."""
    reach: Float[Tensor, "radius depth"]
    influence: Float[Tensor, "out_token token"]
    """One layer with content, the largest radius."""
    changes_by_position: float
    changes_by_content: float

    @property
    def allowed(self) -> Bool[Tensor, "query key"]:
        place = torch.arange(self.setup.n_tokens)
        return (place[:, None] - place).abs() <= self.setup.radii[-1]


@seeded
def run(setup: Setup) -> Result:
    n, middle, radius = setup.n_tokens, setup.n_tokens // 2, setup.radii[-1]
    x = torch.randn(n, setup.d_model, dtype=torch.float64)
    nothing = torch.zeros_like(x)
    from_convolution = []
    for r in setup.radii:
        b = torch.randn(2 * r + 1, dtype=torch.float64)
        weights = _weights(setup, nothing, r, b)
        from_convolution.append(largest_difference(weights @ x, predict(x, b)))
    reach = [[_reach(setup, x, r, depth) for depth in setup.depths] for r in setup.radii]
    by_content = _weights(setup, 2 * x, radius, b)
    window = slice(middle - radius, middle + radius + 1)
    return Result(
        setup,
        torch.softmax(b, 0),
        weights[middle, window],
        torch.tensor(from_convolution, dtype=torch.float64),
        largest_difference(weights @ x, F.conv1d(x.mT[:, None], b.softmax(0)[None, None], padding="same")[:, 0].mT),
        torch.tensor(reach, dtype=torch.float64),
        influence(lambda x: _weights(setup, x, radius) @ x, x),
        _change(weights, radius),
        _change(by_content, radius),
    )


def _weights(
    setup: Setup, x: Float[Tensor, "token d"], radius: int, b: Float[Tensor, "shift"] | None = None
) -> Float[Tensor, "query key"]:
    """Self-attention with a bias for each shift from -radius to radius."""
    shift = distance(len(x), len(x))
    bias = None if b is None else b[shift.clamp(-radius, radius) + radius]
    window = masks.window(len(x), radius=radius)
    match setup.mask:
        case "window":
            return attention_weights(x, x, visible=window, bias=bias)
        case "one token too wide":
            return attention_weights(x, x, visible=masks.window(len(x), radius=radius + 1), bias=bias)
        case "after the softmax":
            return attention_weights(x, x, bias=bias) * window


def predict(x: Float[Tensor, "token d"], b: Float[Tensor, "shift"]) -> Float[Tensor, "token d"]:
    """PyTorch's convolution with the kernel e^b, over the same convolution of ones."""
    kernel = b.exp()[None, None]
    mixed, total = (F.conv1d(t.mT[:, None], kernel, padding="same")[:, 0].mT for t in (x, torch.ones_like(x)))
    return mixed / total


def _reach(setup: Setup, x: Float[Tensor, "token d"], radius: int, depth: int) -> int:
    """How many tokens the output in the middle of the sequence depends on."""

    def stack(x: Tensor) -> Tensor:
        for _ in range(depth):
            x = _weights(setup, x, radius) @ x
        return x

    return int((influence(stack, x)[len(x) // 2] > 0).sum())


def _change(weights: Float[Tensor, "query key"], radius: int) -> float:
    """The largest difference of the kernels at two positions, borders left out."""
    inside = range(radius + 1, len(weights) - radius - 1)
    kernels = torch.stack([weights[i, i - radius : i + radius + 1] for i in inside])
    return (kernels.amax(0) - kernels.amin(0)).max().item()


def predict_reach(setup: Setup) -> Float[Tensor, "radius depth"]:
    radii, depths = (torch.tensor(sizes, dtype=torch.float64) for sizes in (setup.radii, setup.depths))
    return 2 * radii[:, None] * depths + 1


def verdict(result: Result) -> Verdict:
    setup = result.setup
    return Verdict(
        checks=(
            exact(
                "attention by shift in a window against the convolution",
                result.from_convolution.max().item(),
                near={"zeros at the border, as convolutions pad": result.from_zero_padding},
            ),
            same(
                f"tokens that {setup.depths[-1]} layers of radius {setup.radii[-1]} reach",
                2 * setup.radii[-1] * setup.depths[-1] + 1,
                int(result.reach[-1, -1].item()),
                near={
                    "(2r + 1) L": (2 * setup.radii[-1] + 1) * setup.depths[-1],
                    "r L + 1": setup.radii[-1] * setup.depths[-1] + 1,
                },
            ),
            exact(
                "error of 2rL + 1, all radii and depths",
                largest_difference(result.reach, predict_reach(setup)),
                eps=0,
                near={"2rL": 1},
            ),
            same(
                "pairs outside of the window with influence",
                0,
                int((result.influence[~result.allowed] > 0).sum()),
                near={"a radius of one more": 2 * (setup.n_tokens - setup.radii[-1] - 1)},
            ),
            exact(
                "change of the kernel from position to position, by shift",
                result.changes_by_position,
                near={"with content too": result.changes_by_content},
            ),
        ),
        why="The mask limits the sum to the window before the weights are made to sum to 1.",
    )


def figure(result: Result) -> Figure:
    setup, r = result.setup, result.setup.radii[-1]
    title = "A window makes attention local; with scores of the shift alone it is a convolution"
    drawing, (left, middle, right) = panels(3, title=title, width=8.2, height=2.8)
    left.imshow(result.influence.clamp(min=1e-9).log10().numpy(), cmap="Greys", vmin=-4)
    outline(left, result.allowed)
    left.text(setup.n_tokens - 1, 0, "predicted:\nno influence", ha="right", va="top")
    left.set(xlabel="input token", ylabel="output token")
    left.set_title(f"measured influence, radius {r}")
    shifts = range(-r, r + 1)
    middle.plot(shifts, result.kernel.numpy(), **PREDICTED | {"label": "predicted: kernel"})
    middle.plot(shifts, result.weights.numpy(), **MEASURED | {"label": "measured weights"})
    middle.set(xlabel="shift j - i", ylabel="weight", ylim=(0, 1.4 * result.kernel.max().item()))
    middle.legend(frameon=False, loc="upper left")
    for row, (radius, marker) in enumerate(zip(setup.radii, MARKERS, strict=False)):
        depths = torch.tensor(setup.depths)
        line = PREDICTED | {"label": "" if row else "predicted: 2rL + 1"}
        right.plot(depths.numpy(), (2 * radius * depths + 1).numpy(), **line)
        style = MEASURED | series(marker) | {"label": f"measured, r = {radius}"}
        right.plot(depths.numpy(), result.reach[row].numpy(), **style)
    right.set(xlabel="layers L", ylabel="tokens in reach", xticks=setup.depths)
    right.set_ylim(0, 1.5 * result.reach.max().item())
    right.legend(frameon=False, loc="upper left")
    return drawing


def _window_size(result: Result) -> str:
    k, reached = result.setup.radii[-1], int(result.reach[-1, 0].item())
    return f"For k = {k} an output depends on {reached} tokens."


CLAIM = Claim(
    __name__,
    __doc__,
    document="NYU",
    question="1.3(d)",
    setup=Setup(),
    small=Setup(n_tokens=17, d_model=2, radii=(1, 3), depths=(1, 2)),
    run=run,
    verdict=verdict,
    figure=figure,
    broken={
        "a window one token too wide": {"mask": "one token too wide"},
        "a mask applied after the softmax": {"mask": "after the softmax"},
    },
    confidence="Exact up to rounding; what is outside of the window has an influence of 0.",
    errata=(
        Erratum(
            where=r"1.3(d), below $h_i = \sum_{j=i-k}^{i+k} v_j \alpha_{ij}$",
            printed=r"where $k$ is the window size (kernel size)",
            right=r"$k$ is the radius; the window, and the kernel, have the size $2k + 1$, as the next line says",
            measured=_window_size,
        ),
    ),
)
