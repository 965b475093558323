r"""Where digits move about, a CNN leads a Vision Transformer after 400 steps on few images; in shuffled pixels less.

A convolution is given two things that are true of images: near pixels belong together, and a stroke means the same
wherever it is. A Vision Transformer has to learn both from the images; its patches and position codes know nothing of
neighbours. So when images are few, the CNN leads. Here each digit is moved by up to two pixels, once, so the same
stroke is met at many positions: the CNN needs to learn it once, the Vision Transformer once for every position. Each
has the learning rate that served it best of four on the validation images, and is
judged on the test images. (The Vision Transformer is far from converged after 400 steps, and its distance shrinks with
more of them: the lead is one of learning fast from little.)

The lead comes from that bias and not from the model being better as such: put the pixels of all moved images into one
random order, which loses no information, and a good part of the lead is gone. (With digits that all stand in the middle
there is little lead to explain: 0.05 with pixels in place, `headwork lab cnn-against-vit --set max_shift=0`, and 0.06
shuffled, with `pixels=shuffled` too; seed 0, 2026-11-20. A pixel then has a meaning of its own, and there is little to
share between pixels.)

That the Vision Transformer catches up and *overtakes* with hundreds of millions of images, as the sheet says too,
cannot be seen at this size and is not claimed: with all 1,197 images it is still behind.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor, nn

from headwork.batches import ImageBatch
from headwork.lab.digits import N_CLASSES, SIDE, digits, evaluate, shift_images, small_vit, train_classifier
from headwork.lab.plots import COLOURS, MARKERS, MEASURED, PREDICTED, Figure, panels, series
from headwork.lab.toolkit import N_SD, Claim, Experiment, Verdict, about, at_least, seeded
from headwork.models import ResNet, ResNetConfig

FEW = 400
"""Up to this number images are few: 40 for each digit."""
SPREAD = 0.035
"""The standard deviation of a lead over seeds, for one number of images: measured."""
SPREAD_TAKEN = 0.042
"""The same, of what shuffled pixels take of it."""

Kind = Literal["CNN", "ViT"]
LEARNING_RATES: dict[Kind, float] = {"CNN": 8e-3, "ViT": 1e-2}
"""The best of four on the validation images, for 400 images and seeds 0 and 1."""


@dataclass(frozen=True, kw_only=True)
class Setup(Experiment):
    """Numbers of images to learn from, and how long; at least one is few."""

    sizes: tuple[int, ...] = (200, 300, 400, 1197)
    n_steps: int = 400
    max_shift: float = 2
    """In pixels, along each axis; a patch has 2."""
    batch_size: int = 32
    d_model: int = 24
    widths: tuple[int, ...] = (8, 16)
    pixels: Literal["in place", "shuffled"] = "in place"

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.sizes) > FEW:
            raise ValueError(f"sizes must hold one of at most {FEW} images, got {self.sizes}")


@dataclass(frozen=True)
class Result:
    """The accuracy of both on the same images, which neither has seen."""

    setup: Setup
    accuracy: dict[Kind, Float[Tensor, "size"]]
    shuffled: dict[Kind, Float[Tensor, "few_size"]]
    """The same with shuffled pixels, for the few sizes."""
    n_weights: dict[Kind, int]

    @property
    def shuffled_lead(self) -> Float[Tensor, "few_size"]:
        return self.shuffled["CNN"] - self.shuffled["ViT"]

    @property
    def lead(self) -> Float[Tensor, "size"]:
        return self.accuracy["CNN"] - self.accuracy["ViT"]

    @property
    def few(self) -> list[int]:
        """Which of the sizes are few."""
        return [index for index, size in enumerate(self.setup.sizes) if size <= FEW]


@seeded
def run(setup: Setup) -> Result:
    train, unseen = digits("train"), digits("test")
    train = train._replace(image=_move(train.image, setup.max_shift))
    unseen = unseen._replace(image=_move(unseen.image, setup.max_shift))
    shuffle, order = torch.randperm(SIDE**2), torch.randperm(len(train.label))
    pixels = shuffle if setup.pixels == "shuffled" else torch.arange(SIDE**2)
    few = tuple(size for size in setup.sizes if size <= FEW)
    accuracy: dict[Kind, Tensor] = {}
    shuffled: dict[Kind, Tensor] = {}
    n_weights: dict[Kind, int] = {}
    for kind in LEARNING_RATES:
        accuracy[kind], n_weights[kind] = _learn(setup, kind, setup.sizes, train, unseen, order, pixels)
        shuffled[kind], _ = _learn(setup, kind, few, train, unseen, order, shuffle)
    return Result(setup, accuracy, shuffled, n_weights)


def _learn(
    setup: Setup,
    kind: Kind,
    sizes: tuple[int, ...],
    train: ImageBatch,
    unseen: ImageBatch,
    order: Int[Tensor, "example"],
    pixels: Int[Tensor, "pixel"],
) -> tuple[Float[Tensor, "size"], int]:
    """The accuracy on unseen images for each number of training images, and the weights of the model."""
    seen = []
    images, shown = _reorder(train.image, pixels), unseen._replace(image=_reorder(unseen.image, pixels))
    for size in sizes:
        model = _train(setup, kind, ImageBatch(images[order[:size]], train.label[order[:size]]))
        seen.append(evaluate(model, shown).accuracy)
    return torch.tensor(seen, dtype=torch.float64), sum(weight.numel() for weight in model.parameters())


def _move(images: Float[Tensor, "batch 1 row column"], most: float) -> Float[Tensor, "batch 1 row column"]:
    """Each by a whole number of pixels of its own."""
    shift = torch.randint(-int(most), int(most) + 1, (len(images), 2)).float()
    return shift_images(images, shift)


def _reorder(
    images: Float[Tensor, "batch 1 row column"], pixels: Int[Tensor, "pixel"]
) -> Float[Tensor, "batch 1 row column"]:
    flat = rearrange(images, "batch 1 row column -> batch (row column)")[:, pixels]
    return rearrange(flat, "batch (row column) -> batch 1 row column", row=images.shape[-2])


def _train(setup: Setup, kind: Kind, train: ImageBatch) -> nn.Module:
    """One batch after the other, each drawn from all images."""
    model = (
        ResNet(ResNetConfig(n_classes=N_CLASSES, n_channels=1, n_blocks=1, widths=setup.widths))
        if kind == "CNN"
        else small_vit(d_model=setup.d_model, n_layers=2)
    )
    train_classifier(
        model,
        train,
        torch.optim.AdamW(model.parameters(), weight_decay=0.05),
        epochs=setup.n_steps,
        batches_per_epoch=1,
        batch_size=setup.batch_size,
        one_cycle=LEARNING_RATES[kind],
    )
    return model


def verdict(result: Result) -> Verdict:
    n_few = len(result.few)
    few, shuffled = result.lead[result.few].mean().item(), result.shuffled_lead.mean().item()
    sd, sd_taken = (spread / math.sqrt(n_few) for spread in (SPREAD, SPREAD_TAKEN))
    checks = (
        at_least(
            f"lead of the CNN with at most {FEW} images, in accuracy ({N_SD} deviations)",
            N_SD * sd,
            few,
            near={"no lead": about("", 0, few, sd=sd)},
        ),
        at_least(
            f"what shuffled pixels take of it ({N_SD} deviations)",
            N_SD * sd_taken,
            few - shuffled,
            near={"nothing: the model is better as such": about("", 0, few - shuffled, sd=sd_taken)},
        ),
    )
    return Verdict(checks=checks, why="What a convolution learns at one position it knows everywhere.")


def figure(result: Result) -> Figure:
    setup = result.setup
    drawing, (left, right) = panels(2, title="Where digits move about, a CNN is ahead of a Vision Transformer")
    for (kind, accuracy), marker in zip(result.accuracy.items(), MARKERS, strict=False):
        label = f"measured, {kind} ({result.n_weights[kind]:,} weights)"
        style = MEASURED | series(marker) | {"label": label, "linestyle": "-", "linewidth": 0.6}
        left.semilogx(setup.sizes, accuracy.numpy(), **style)
    left.set(xlabel="images to learn from", ylabel="accuracy on 300 unseen images", ylim=(0, 1.25))
    left.legend(frameon=False, loc="upper left")
    right.semilogx(setup.sizes, result.lead.numpy(), **MEASURED | {"label": "measured, pixels in place"})
    few = [setup.sizes[index] for index in result.few]
    style = MEASURED | series("s") | {"color": COLOURS[1], "label": "measured, pixels shuffled"}
    right.semilogx(few, result.shuffled_lead.numpy(), **style)
    least = N_SD * SPREAD / math.sqrt(len(few))
    right.hlines(least, setup.sizes[0], few[-1], **PREDICTED | {"label": "predicted in place: mean above"})
    right.axhline(0, color="0.6", linewidth=0.8)
    top = max(0.2, 1.6 * result.lead.max().item())
    right.set(xlabel="images to learn from", ylabel="lead of the CNN in accuracy", ylim=(-0.05, top))
    for ax in (left, right):
        ax.set_xticks(setup.sizes, [str(size) for size in setup.sizes])
        ax.minorticks_off()
    right.legend(frameon=False, loc="upper left")
    return drawing


CLAIM = Claim(
    __name__,
    __doc__,
    document="NYU",
    question="1.5(d)",
    also=("C182 3(b)",),
    setup=Setup(),
    small=Setup(sizes=(200, 300, 400), n_steps=200, batch_size=16),
    run=run,
    verdict=verdict,
    figure=figure,
    broken={"pixels in a shuffled order, the same for all images": {"pixels": "shuffled"}},
    confidence="Near theories are rejected by 5 standard deviations (SD) of a lead over seeds; how large the lead "
    "is, is not "
    "predicted.",
)
