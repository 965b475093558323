r"""The convolution of a moved image is the moved convolution (equivariant); only a pooled mean is the same (invariant).

With $T$ a shift, a convolution without borders has $f(Tx) = T f(x)$, exactly. Invariance would be $f(Tx) = f(x)$, and
that fails by a known amount. For white noise the outputs at two places $t$ apart have the correlation of the kernel
with itself,

$$\rho(t) = \frac{\sum_u w_u w_{u+t}}{\sum_u w_u^2}, \qquad
\frac{\mathbb E\,|f(Tx) - f(x)|^2}{\mathbb E\,|f(x)|^2} = 2\,(1 - \rho(t))$$

which is 2 as soon as the shift is as large as the kernel: the two outputs have nothing to do with each other. The
mean over all places is the same before and after; pooling makes a network invariant, not convolution. With a stride
of $s$ equivariance is left for shifts by multiples of $s$, and a Vision Transformer's patches (stride $P$) keep it
for whole patches only. The sheet writes "translation invariance" twice (1.5(a), 1.5(d)), and "translation
equivariance", which is right, in between.

It stops being true when zeros are padded: a border of $K - 1$ pixels then knows where it is.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from headwork.functional import embed_patches
from headwork.lab.plots import COLOURS, MARKERS, MEASURED, PREDICTED, PRINTED, Figure, legend_outside, panels
from headwork.lab.toolkit import Claim, Erratum, Experiment, Verdict, about, exact, seeded


@dataclass(frozen=True, kw_only=True)
class Setup(Experiment):
    """White noise on a ring of pixels, a random kernel, shifts along a row, and a patch for comparison."""

    side: int = 24
    kernel: int = 5
    n_images: int = 400
    shifts: tuple[int, ...] = (1, 2, 3, 4, 6)
    patch: int = 4
    stride: int = 1
    padding: Literal["circular", "zeros"] = "circular"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kernel % 2 == 0:
            raise ValueError(f"kernel must be odd, so that it has a middle, got {self.kernel}")


@dataclass(frozen=True)
class Result:
    """Squared change of the output relative to its square, for each shift; and the kernel's correlation with itself."""

    setup: Setup
    equivariance: Float[Tensor, "shift"]
    """Moved output against output of the moved image, the largest difference."""
    invariance: Float[Tensor, "shift 2"]
    """Output against output of the moved image, relative square, with its standard error."""
    pooled: float
    correlation: Float[Tensor, "shift"]
    patches: Float[Tensor, "shift 2"]
    """Of embedded patches: the relative change that is left after a shift by whole patches."""
    patches_predicted: Float[Tensor, "shift"]


@seeded
@torch.no_grad()
def run(setup: Setup) -> Result:
    images = torch.randn(setup.n_images, 1, setup.side, setup.side, dtype=torch.float64)
    layer = nn.Conv2d(
        1, 1, setup.kernel, stride=setup.stride, padding=setup.kernel // 2, padding_mode=setup.padding, bias=False
    ).double()
    still = layer(images)
    patch = torch.randn(6, 1, setup.patch, setup.patch, dtype=torch.float64)
    moved, change, pooled, of_patches = [], [], 0.0, []
    for shift in setup.shifts:
        out = layer(images.roll(shift, 3))
        moved.append((out - still.roll(shift // setup.stride, 3)).abs().max())
        change.append(_ratio((out - still).square().mean((1, 2, 3)), still.square().mean((1, 2, 3))))
        pooled = max(pooled, (out.mean((2, 3)) - still.mean((2, 3))).abs().max().item())
        of_patches.append(_change_of_patches(setup, images, patch, shift))
    return Result(
        setup,
        torch.stack(moved),
        torch.stack(change),
        pooled,
        torch.tensor([predict_correlation(layer.weight[0, 0], t) for t in setup.shifts], dtype=torch.float64),
        torch.stack(of_patches),
        torch.tensor([predict_of_patches(patch, shift) for shift in setup.shifts], dtype=torch.float64),
    )


def _ratio(above: Float[Tensor, "image"], below: Float[Tensor, "image"]) -> Float[Tensor, "2"]:
    """Of the means, with its standard error."""
    ratio = above.mean() / below.mean()
    return torch.stack([ratio, (above - ratio * below).std() / below.mean() / len(above) ** 0.5])


def _change_of_patches(setup: Setup, images: Tensor, weight: Tensor, shift: int) -> Float[Tensor, "2"]:
    grid = setup.side // setup.patch
    still, out = (
        rearrange(embed_patches(x, weight), "n (row column) d -> n row column d", row=grid)
        for x in (images, images.roll(shift, 3))
    )
    moved = still.roll(shift // setup.patch, 2)
    return _ratio((out - moved).square().mean((1, 2, 3)), still.square().mean((1, 2, 3)))


def predict_of_patches(weight: Float[Tensor, "d 1 row column"], shift: int) -> float:
    """2 (1 - rho) for what is left of the shift after whole patches."""
    return 2 * (1 - predict_correlation(weight.flatten(0, 2), shift % weight.shape[3]))


def predict_correlation(kernel: Float[Tensor, "row column"], shift: int) -> float:
    """Of the kernel with itself, moved along its rows; 0 if it is moved out of itself."""
    if shift >= kernel.shape[1]:
        return 0.0
    return ((kernel[:, shift:] * kernel[:, : kernel.shape[1] - shift]).sum() / kernel.square().sum()).item()


def verdict(result: Result) -> Verdict:
    setup = result.setup
    changes = [
        about(
            f"change if the image moves by {shift}, relative square",
            2 * (1 - rho),
            seen,
            sd=error,
            near={"1 - rho": 1 - rho, "invariance": 0.0},
        )
        for shift, rho, (seen, error) in zip(
            setup.shifts, result.correlation.tolist(), result.invariance.tolist(), strict=True
        )
    ]
    least = min(seen for seen, _ in result.invariance.tolist()) ** 0.5
    patches = [
        about(
            f"patches, image moved by {shift}, less whole patches",
            expected,
            seen,
            **({"sd": error} if shift % setup.patch else {}),
            near={"equivariance": 0.0} if shift % setup.patch else {"invariance": 2.0},
        )
        for shift, expected, (seen, error) in zip(
            setup.shifts, result.patches_predicted.tolist(), result.patches.tolist(), strict=True
        )
    ]
    return Verdict(
        checks=(
            exact(
                "convolution of the moved image against the moved convolution",
                result.equivariance.max().item(),
                near={"invariance": least},
            ),
            *changes,
            exact("mean over all places, before and after", result.pooled, near={"not pooled": least}),
            *patches,
        ),
        why="The same kernel is at every place, so what is seen at one place is seen elsewhere after a shift.",
    )


def figure(result: Result) -> Figure:
    setup = result.setup
    drawing, (ax,) = panels(title="A convolution moves with the image; it does not stay as it is")
    ax.axhline(0, **PRINTED | {"label": "printed: invariance"})
    ax.plot(setup.shifts, (2 * (1 - result.correlation)).numpy(), **PREDICTED | {"label": "predicted: 2 (1 - rho)"})
    style = MEASURED | {"color": COLOURS[0], "label": "measured, against its own output"}
    ax.plot(setup.shifts, result.invariance[:, 0].numpy(), **style)
    style = MEASURED | {"color": COLOURS[1], "marker": MARKERS[1], "label": "measured, against the moved output"}
    ax.plot([t - 0.08 for t in setup.shifts], result.equivariance.numpy(), **style)
    style = MEASURED | {
        "color": COLOURS[2],
        "marker": MARKERS[2],
        "label": f"measured, patches of {setup.patch}, moved",
    }
    ax.plot([t + 0.08 for t in setup.shifts], result.patches[:, 0].numpy(), **style)
    style = PREDICTED | {"marker": "_", "linestyle": "none", "markersize": 12, "label": "predicted, patches"}
    ax.plot([t + 0.08 for t in setup.shifts], result.patches_predicted.numpy(), **style)
    ax.set(
        xlabel="shift of the image (pixels)", xticks=setup.shifts, ylabel="change, relative square", ylim=(-0.15, None)
    )
    legend_outside(ax)
    return drawing


CLAIM = Claim(
    __name__,
    __doc__,
    document="NYU",
    question="1.5(a)",
    also=("NYU 1.5(d)",),
    setup=Setup(),
    small=Setup(side=12, kernel=3, n_images=100, shifts=(1, 3, 4)),
    run=run,
    verdict=verdict,
    figure=figure,
    broken={"a stride of 2": {"stride": 2}, "zeros around the image": {"padding": "zeros"}},
    confidence="Equivariance is exact up to rounding; changes are within 5 standard deviations (SD) of the "
    "mean over the images.",
    errata=(
        Erratum(
            where="1.5(d), convolutions",
            printed="strong inductive biases like locality and translation invariance",
            right="translation equivariance, as 1.5(a) calls it; pooling makes it invariant",
            measured=lambda result: (
                f"An image moved by {result.setup.shifts[-1]} pixels changes the output of a convolution by "
                f"{result.invariance[-1, 0]:.2f} of its square; against the moved output the largest difference is "
                f"{result.equivariance[-1]:.0e}."
            ),
        ),
    ),
)
