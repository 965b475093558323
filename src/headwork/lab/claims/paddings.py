r"""Bare Gaussian heads are the convolution with replicate padding; with other paddings they need tokens for it.

A head that looks past the border finds no key there. Its weights still sum to 1, so it cannot see nothing: a sharp
Gaussian head takes the pixel nearest to where it looks, which is the one that *replicate* padding repeats. So the layer
is the convolution with replicate padding, with as many tokens as pixels. Self-attention, with one query for each pixel,
has the size of output that a padding of $(K - 1)/2$ gives ("same"), for odd $K$; with any other size there are more or
fewer outputs than pixels, and queries at positions of their own. There the heads agree too, as they do without padding.

A padding with zeros (or any other value, reflected or from the other side) has to be there as tokens, for heads that
see by distance: a frame of $(H + 2p)(W + 2p) - HW$ more keys. (For zeros alone a single key with the value 0, to which
heads turn that look outside, would do as well.) Without them the outputs whose window touches the frame differ, and
only $(H - K + 1)(W - K + 1)$ of $(H + 2p - K + 1)(W + 2p - K + 1)$ agree. (This is about heads that see by distance.
Scores by the distance *around* the image, $-\alpha|(k - q - \Delta) \bmod (H, W)|^2$, would give circular padding
without tokens.)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headwork.convert import ConvolutionAsAttention, attention_from_convolution
from headwork.lab.plots import MARKERS, MEASURED, PREDICTED, Figure, panels, series, whole_ticks
from headwork.lab.toolkit import Claim, Erratum, Experiment, Verdict, at_most, exact, largest_difference, same, seeded

Mode = Literal["replicate", "zeros", "reflect", "circular"]
MODES: tuple[Mode, ...] = ("replicate", "zeros", "reflect", "circular")


@dataclass(frozen=True, kw_only=True)
class Setup(Experiment):
    """Images with pixels in [-1, 1], a convolution, and paddings of several sizes."""

    n_rows: int = 12
    n_columns: int = 15
    kernel: int = 3
    channels: int = 2
    n_out: int = 3
    sizes: tuple[int, ...] = (1, 2, 3, 4)
    tolerance: float = 1e-9
    padding: Literal["as tokens", "none"] = "as tokens"


@dataclass(frozen=True)
class Result:
    """For each kind and size of padding: with tokens for it the difference, without them the share that agrees."""

    setup: Setup
    difference: dict[Mode, Float[Tensor, "size"]]
    agreeing: dict[Mode, Float[Tensor, "size"]]
    added: dict[Mode, list[int]]
    """Tokenizer for the padding."""
    without: float
    """The difference without any padding."""
    map: Float[Tensor, "row column"]
    """Where bare heads differ from zero padding, at the first size."""
    row_sums: tuple[float, float]
    """The smallest and the largest sum of the weights of a query, for bare heads."""
    bare: dict[Mode, float]
    """The largest difference of bare heads from each kind of padding."""
    outside: float
    """The share of pairs of a query and a head that looks past the border."""


@seeded
def run(setup: Setup) -> Result:
    image = 2 * torch.rand(2, setup.channels, setup.n_rows, setup.n_columns, dtype=torch.float64) - 1
    first = nn.Conv2d(setup.channels, setup.n_out, setup.kernel).double().requires_grad_(False)
    difference: dict[Mode, list[float]] = {mode: [] for mode in MODES}
    agreeing: dict[Mode, list[float]] = {mode: [] for mode in MODES}
    added: dict[Mode, list[int]] = {mode: [] for mode in MODES}
    maps: list[Tensor] = []
    bare_gap: dict[Mode, float] = {}
    for size in setup.sizes:
        bare = attention_from_convolution(_convolution(setup, first, size, "replicate"), setup.tolerance)
        for mode in MODES:
            conv = _convolution(setup, first, size, mode)
            attention = attention_from_convolution(conv, setup.tolerance) if setup.padding == "as tokens" else bare
            wanted = conv(image)
            gap = (bare(image) - wanted).abs().amax((0, 1))
            difference[mode].append(largest_difference(attention(image), wanted))
            agreeing[mode].append((gap < 1e3 * setup.tolerance).double().mean().item())
            rows, columns = attention.token_grid((setup.n_rows, setup.n_columns))
            added[mode].append(rows * columns - setup.n_rows * setup.n_columns)
            maps.append(gap)
            bare_gap[mode] = max(bare_gap.get(mode, 0.0), gap.max().item())
    sums, outside = _past_the_border(setup, first)
    return Result(
        setup,
        {mode: torch.tensor(gaps) for mode, gaps in difference.items()},
        {mode: torch.tensor(shares, dtype=torch.float64) for mode, shares in agreeing.items()},
        added,
        largest_difference(attention_from_convolution(first, setup.tolerance)(image), first(image)),
        maps[MODES.index("zeros")],
        sums,
        bare_gap,
        outside,
    )


def _convolution(setup: Setup, like: nn.Conv2d, size: int, mode: Mode) -> nn.Conv2d:
    conv = nn.Conv2d(setup.channels, setup.n_out, setup.kernel, padding=size, padding_mode=mode).double()
    conv.load_state_dict(like.state_dict())
    return conv.requires_grad_(False)


def _past_the_border(setup: Setup, conv: nn.Conv2d) -> tuple[tuple[float, float], float]:
    """Heads around a query on every pixel: what their weights sum to, and how many look outside."""
    same_size = _convolution(setup, conv, setup.kernel // 2, "replicate")
    bare: ConvolutionAsAttention = attention_from_convolution(same_size, setup.tolerance)
    grid = setup.n_rows, setup.n_columns
    rows, columns = (corners.double() for corners in bare.corners(grid))
    sums = bare.attention.table(grid, (rows, columns)).sum((-1, -2))
    inside = [
        ((start[:, None] + torch.tensor(offsets) >= 0) & (start[:, None] + torch.tensor(offsets) < n)).double().mean()
        for start, offsets, n in zip((rows, columns), bare.offsets(), grid, strict=True)
    ]
    return (sums.min().item(), sums.max().item()), 1 - (inside[0] * inside[1]).item()


def predict_share(setup: Setup, size: int) -> float:
    fits = [n - setup.kernel + 1 for n in (setup.n_rows, setup.n_columns)]
    return fits[0] * fits[1] / ((fits[0] + 2 * size) * (fits[1] + 2 * size))


def predict_frame(setup: Setup, size: int) -> int:
    return (setup.n_rows + 2 * size) * (setup.n_columns + 2 * size) - setup.n_rows * setup.n_columns


def verdict(result: Result) -> Verdict:
    setup = result.setup
    off = {
        f"bare heads for {mode} padding": at_most("", setup.tolerance, gap)
        for mode, gap in result.bare.items()
        if mode != "replicate"
    }
    checks = [
        at_most(f"attention against convolution, padding: {mode}", setup.tolerance, gaps.max().item(), near=off)
        for mode, gaps in result.difference.items()
    ]
    checks.append(
        at_most("attention against convolution, no padding", setup.tolerance, result.without, near=off),
    )
    for mode in MODES:
        bare = mode == "replicate"
        frames, wider = ([predict_frame(setup, size + more) for size in setup.sizes] for more in (0, 1))
        inner, less = (
            torch.tensor([predict_share(setup, size + more) for size in setup.sizes], dtype=torch.float64)
            for more in (0, 1)
        )
        share = torch.ones_like(inner) if bare else inner
        checks.append(
            same(
                f"tokens for {mode} padding of {_words(setup.sizes)}",
                _words([0] * len(frames) if bare else frames),
                _words(result.added[mode]),
                near={"a frame all the same": _words(frames)} if bare else {"a frame one wider": _words(wider)},
            )
        )
        checks.append(
            exact(
                f"share of the outputs where bare heads agree with {mode} padding, against the formula",
                largest_difference(result.agreeing[mode], share),
                near={
                    "inside alone" if bare else "a frame one wider": largest_difference(
                        result.agreeing[mode], inner if bare else less
                    )
                },
            )
        )
    return Verdict(
        checks=tuple(checks),
        why="The weights of a head sum to 1, so past the border it sees the nearest pixel and never a zero.",
    )


def _words(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def figure(result: Result) -> Figure:
    setup = result.setup
    title = "Bare Gaussian heads repeat the border; other paddings need tokens"
    drawing, (left, right) = panels(2, title=title)
    table = left.imshow(result.map.numpy(), cmap="Greys", vmin=0)
    p, reach = setup.sizes[0], setup.kernel - 1
    rows, columns = result.map.shape
    left.plot(
        [p - 0.5, columns - p - 0.5, columns - p - 0.5, p - 0.5, p - 0.5],
        [p - 0.5, p - 0.5, rows - p - 0.5, rows - p - 0.5, p - 0.5],
        **PREDICTED | {"label": "predicted: 0 inside"},
    )
    left.set(xlabel="output column", ylabel="output row", title=f"zero padding of {p}, kernel {reach + 1}")
    whole_ticks(left, "both")
    left.text(columns / 2, rows / 2, "predicted: 0", ha="center", va="center")
    drawing.colorbar(table, ax=left, label="measured difference, bare heads", shrink=0.9)
    right.plot(setup.sizes, [predict_share(setup, size) for size in setup.sizes], **PREDICTED)
    right.axhline(1, **PREDICTED | {"label": None})
    for mode, marker in zip(MODES, MARKERS, strict=False):
        style = MEASURED | series(marker) | {"label": f"measured, {mode}"}
        beside = [size + 0.09 * (MODES.index(mode) - 1.5) for size in setup.sizes]  # no marker hides another
        right.plot(beside, result.agreeing[mode].numpy(), **style)
    right.set(xlabel="padding", ylabel="share of outputs that agree", xticks=setup.sizes, ylim=(0, 1.05))
    right.legend(frameon=False, loc="lower left")
    return drawing


def _border(result: Result) -> str:
    setup, (low, high) = result.setup, result.row_sums
    return (
        f"For K = {setup.kernel} on {setup.n_rows} x {setup.n_columns} pixels, {result.outside:.1%} of the pairs of a "
        f"query and a head look past the border; the weights of every one sum to {low:.6f} .. {high:.6f}."
    )


CLAIM = Claim(
    __name__,
    __doc__,
    document="ETH",
    question="1(e.1)",
    setup=Setup(),
    small=Setup(n_rows=7, n_columns=8, channels=1, n_out=2, sizes=(1, 2)),
    run=run,
    verdict=verdict,
    figure=figure,
    broken={"no tokens for the padding": {"padding": "none"}},
    confidence="Within the tolerance of the conversion, a bound that is proven, not fitted; shares and tokens are "
    "exact.",
    errata=(
        Erratum(
            where="Theorem 1, equation (10), 'for any input tensor'",
            printed="a softmax that is 0 for every key with $f(h) \\ne q - k$",
            right="possible only where the key at that shift exists: at the border it does not, and a softmax cannot "
            "be 0 everywhere; there the layer is the convolution with replicate padding, or it needs tokens for it",
            measured=_border,
        ),
    ),
)
