r"""Where digits move about, a CNN is far ahead of a Vision Transformer with the same few images.

A convolution is given two things that are true of images: near pixels belong together, and a stroke means the same
wherever it is. A Vision Transformer has to learn both from the images; its patches and position codes know nothing of
neighbours. So when images are few, the CNN leads. Here each digit is moved by up to two pixels, once, so the same
stroke is met at many positions: the CNN needs to learn it once, the Vision Transformer once for every position. Both
get better with more images; each has the learning rate that served it best of a few.

The lead comes from that bias and not from the model being better as such: put the pixels of all moved images into one
random order, which loses no information, and most of the lead is gone. (With digits that all stand in the middle there
is little lead to explain: 0.03 with pixels in place, `headwork lab cnn-against-vit --set max_shift=0`, and 0.07
shuffled, with `pixels=shuffled` too; seed 0, 2026-11-16. A pixel then has a meaning of its own, and there is little to
share between pixels.)

That the Vision Transformer catches up and *overtakes* with hundreds of millions of images, as the sheet says too,
cannot be seen at this size and is not claimed: with all 1,197 images it is still behind.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor, nn

from headwork.batches import ImageBatch
from headwork.lab.digits import N_CLASSES, SIDE, digits, evaluate, shift_images, small_vit, train_classifier
from headwork.lab.plots import MARKERS, MEASURED, PREDICTED, Figure, panels
from headwork.lab.toolkit import Check, Claim, Experiment, Verdict, at_least, seeded
from headwork.models import ResNet, ResNetConfig

FEW = 400
"""Up to this number images are few: 40 for each digit."""
LEAD = 0.14
"""What the CNN has to be ahead with few images, in accuracy: between what it is with pixels in place and shuffled."""

NOISE = 0.06
"""Two standard errors of an accuracy on 600 images, and of its training."""

Kind = Literal["CNN", "ViT"]
LEARNING_RATES: dict[Kind, float] = {"CNN": 4e-3, "ViT": 1e-2}


@dataclass(frozen=True, kw_only=True)
class Setup(Experiment):
    """Numbers of images to learn from, and how long; at least one is few."""

    sizes: tuple[int, ...] = (100, 200, 400, 800, 1197)
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
    n_weights: dict[Kind, int]

    @property
    def lead(self) -> Float[Tensor, "size"]:
        return self.accuracy["CNN"] - self.accuracy["ViT"]

    @property
    def few(self) -> list[int]:
        """Which of the sizes are few."""
        return [index for index, size in enumerate(self.setup.sizes) if size <= FEW]


@seeded
def run(setup: Setup) -> Result:
    train, unseen = digits("train"), digits("valid", "test")
    images = _move(unseen.image, setup.max_shift)
    pixels = torch.randperm(SIDE**2) if setup.pixels == "shuffled" else torch.arange(SIDE**2)
    order = torch.randperm(len(train.label))
    train = ImageBatch(_reorder(_move(train.image, setup.max_shift), pixels), train.label)
    unseen = ImageBatch(_reorder(images, pixels), unseen.label)
    accuracy: dict[Kind, Tensor] = {}
    n_weights: dict[Kind, int] = {}
    for kind in LEARNING_RATES:
        seen = []
        for size in setup.sizes:
            few = order[:size]
            model = _train(setup, kind, ImageBatch(train.image[few], train.label[few]))
            seen.append(evaluate(model, unseen).accuracy)
        accuracy[kind] = torch.tensor(seen, dtype=torch.float64)
        n_weights[kind] = sum(weight.numel() for weight in model.parameters())
    return Result(setup, accuracy, n_weights)


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
    sizes = result.setup.sizes
    few = result.lead[result.few].mean().item()
    checks: tuple[Check, ...] = (at_least(f"lead of the CNN with at most {FEW} images, in accuracy", LEAD, few),)
    for kind, accuracy in result.accuracy.items() if len(sizes) > 1 else ():
        gained = (accuracy[-1] - accuracy[0]).item()
        checks += (
            at_least(f"what {sizes[-1]:,} images bring the {kind} over {sizes[0]}, in accuracy", 0, gained, NOISE),
        )
    return Verdict(checks=checks, why="What a convolution learns at one position it knows everywhere.")


def figure(result: Result) -> Figure:
    setup = result.setup
    drawing, (left, right) = panels(2, title="Where digits move about, a CNN is ahead of a Vision Transformer")
    for (kind, accuracy), marker in zip(result.accuracy.items(), MARKERS, strict=False):
        label = f"measured, {kind} ({result.n_weights[kind]:,} weights)"
        style = MEASURED | {"marker": marker, "label": label, "linestyle": "-", "linewidth": 0.6}
        left.semilogx(setup.sizes, accuracy.numpy(), **style)
    left.set(xlabel="images to learn from", ylabel="accuracy on 600 unseen images", ylim=(0, 1.25))
    left.legend(frameon=False, loc="upper left")
    right.semilogx(setup.sizes, result.lead.numpy(), **MEASURED | {"label": "measured"})
    few = [setup.sizes[index] for index in result.few]
    right.plot([few[0], few[-1]], [LEAD, LEAD], **PREDICTED | {"label": "predicted with few images: above"})
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
    also=("NYU 1.5(a)",),
    setup=Setup(),
    small=Setup(sizes=(400,), n_steps=150, batch_size=16),
    run=run,
    verdict=verdict,
    figure=figure,
    broken={"pixels in a shuffled order, the same for all images": {"pixels": "shuffled"}},
    confidence="Accuracies vary by about 0.04 from seed to seed; the mean lead with few images is about 0.2.",
)
