r"""Cutting an image into patches and projecting each is a convolution whose kernel and stride are the patch.

A patch is the $C \cdot P \cdot P$ numbers of one cell of a grid, and its embedding $W \operatorname{vec}(patch) + b$.
That is what a convolution computes at one position, with row $e$ of $W$ read as the kernel of output channel $e$;
with a stride of $P$ the positions are the cells. So a Vision Transformer does begin with a convolution: the sheet
says both, that ViT "does not use convolutional layers in its pure form", and that a convolution "is used for
projecting raw image patches". What it lacks is overlap and depth: with a stride of $s < P$ each pixel would be read
$(P/s)^2$ times, with $s = P$ exactly once.

The layer has $E(CP^2 + 1)$ parameters and costs $2CP^2E$ operations for each of the $(H/P)(W/P)$ tokens, either way.
(What is called convolution in this field is a correlation: the kernel is not flipped.)

It stops being true when the patch does not divide the image, which the library refuses, and a convolution cuts off.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from headwork.functional import embed_patches, patches_from_image
from headwork.lab.plots import COLOURS, MARKERS, MEASURED, Figure, draw_rounding, on_log_axis, panels
from headwork.lab.toolkit import Claim, Experiment, Verdict, exact, same, seeded


@dataclass(frozen=True, kw_only=True)
class Setup(Experiment):
    """Random images, patches of several sizes, and the stride of the convolution, in parts of a patch."""

    patches: tuple[int, ...] = (2, 4, 6)
    grid: int = 4
    channels: int = 3
    d_model: int = 10
    n_images: int = 5
    strides_in_a_patch: int = 1


@dataclass(frozen=True)
class Result:
    """How far the embedded patches are from convolutions, for each size of a patch; and counts."""

    setup: Setup
    right: Float[Tensor, "patch"]
    gradient: Float[Tensor, "patch"]
    """Of the weights, by the same loss through both; and through the flipped kernel."""
    gradient_flipped: Float[Tensor, "patch"]
    flipped: Float[Tensor, "patch"]
    transposed: Float[Tensor, "patch"]
    by_columns: Float[Tensor, "patch"]
    readings: list[float]
    """How often a pixel in the middle is read."""
    flops: list[int]


@seeded
def run(setup: Setup) -> Result:
    rows, readings, flops = [], [], []
    for patch in setup.patches:
        side, stride = patch * setup.grid, max(1, patch // setup.strides_in_a_patch)
        images = torch.randn(setup.n_images, setup.channels, side, side, dtype=torch.float64)
        weight = torch.randn(setup.d_model, setup.channels, patch, patch, dtype=torch.float64, requires_grad=True)
        bias = torch.randn(setup.d_model, dtype=torch.float64)
        tokens = embed_patches(images, weight, bias)
        grids = {
            "right": predict_by_convolution(images, weight, bias, stride),
            "flipped": predict_by_convolution(images, weight.flip(2, 3), bias, stride),
            "transposed": predict_by_convolution(images, weight.mT, bias, stride),
            "by columns": predict_by_convolution(images, weight, bias, stride).mT,
        }
        off = [_difference(tokens, grid) for grid in grids.values()]
        gradient, right, flipped = (
            torch.autograd.grad(out.square().sum(), weight, retain_graph=True)[0]
            for out in (tokens, grids["right"], grids["flipped"])
        )
        relative = [(gradient - other).abs().max() / right.abs().max() for other in (right, flipped)]
        rows.append(torch.stack([off[0], *relative, *off[1:]]))
        readings.append(_readings(patch, side, stride))
        with FlopCounterMode(display=False) as counter:
            embed_patches(images, weight, bias)
        flops.append(counter.get_total_flops())
    right, gradient, gradient_flipped, flipped, transposed, by_columns = torch.stack(rows, 1).detach()
    return Result(setup, right, gradient, gradient_flipped, flipped, transposed, by_columns, readings, flops)


def _difference(tokens: Float[Tensor, "batch token d"], grid: Float[Tensor, "batch d row column"]) -> Tensor:
    """The largest, or 1 if there are not as many places."""
    places = grid.flatten(2).mT
    return (tokens - places).abs().max() if places.shape == tokens.shape else tokens.new_ones(())


def _readings(patch: int, side: int, stride: int) -> float:
    """By the gradient of a sum of all patches; those of the library for a stride of a patch, else by unfolding."""
    image = torch.zeros(1, 1, side, side, dtype=torch.float64, requires_grad=True)
    cut = patches_from_image(image, (patch, patch)) if stride == patch else F.unfold(image, patch, stride=stride)
    return torch.autograd.grad(cut.sum(), image)[0][0, 0, side // 2, side // 2].item()


def predict_by_convolution(
    images: Tensor, weight: Tensor, bias: Tensor, stride: int
) -> Float[Tensor, "batch d row column"]:
    """PyTorch's convolution, with the kernel as it is."""
    return F.conv2d(images, weight, bias, stride=stride)


def verdict(result: Result) -> Verdict:
    setup = result.setup
    near = {
        "a flipped kernel": result.flipped.min().item(),
        "rows and columns of the kernel exchanged": result.transposed.min().item(),
        "places read column by column": result.by_columns.min().item(),
    }
    gradient = {"through a flipped kernel": result.gradient_flipped.min().item()}
    n, d, channels = setup.n_images, setup.d_model, setup.channels
    counts = []
    for patch, readings, flops in zip(setup.patches, result.readings, result.flops, strict=True):
        expected = 2 * n * setup.grid**2 * channels * patch**2 * d
        counts += [
            same(
                f"FLOPs, patch {patch}",
                expected,
                flops,
                near={"an overlap of one pixel": expected * (patch + 1) ** 2 // patch**2},
            ),
            same(f"times that a pixel is read, patch {patch}", 1, readings, near={"an overlap of half a patch": 4}),
        ]
    return Verdict(
        checks=(
            exact("embedded patches against the convolution", result.right.max().item(), near=near),
            exact("gradients of both, relative", result.gradient.max().item(), near=gradient),
            *counts,
        ),
        why="A convolution with a stride is one linear map, applied to each cell.",
    )


def figure(result: Result) -> Figure:
    setup = result.setup
    drawing, (ax,) = panels(title="Embedded patches are a convolution with a stride; the kernel is not flipped")
    series = (
        ("measured, as it is", result.right),
        ("measured, kernel flipped", result.flipped),
        ("measured, kernel transposed", result.transposed),
        ("measured, by columns", result.by_columns),
    )
    for shift, ((label, seen), marker, colour) in enumerate(zip(series, MARKERS, COLOURS, strict=False)):
        places = [patch + 0.12 * (shift - 1.5) for patch in setup.patches]
        ax.semilogy(places, on_log_axis(seen), **MEASURED | {"marker": marker, "color": colour, "label": label})
    draw_rounding(ax)
    ax.set(xlabel="side of a patch (pixels)", xticks=setup.patches, ylabel="largest difference to a convolution")
    ax.set_ylim(1e-17, 1e4)
    ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5), fontsize=7)
    return drawing


CLAIM = Claim(
    __name__,
    __doc__,
    document="NYU",
    question="1.5(a)",
    setup=Setup(),
    small=Setup(patches=(2, 4), grid=3, d_model=4, n_images=2),
    run=run,
    verdict=verdict,
    figure=figure,
    broken={"strides of half a patch, which overlap": {"strides_in_a_patch": 2}},
    confidence="Exact up to rounding.",
)
