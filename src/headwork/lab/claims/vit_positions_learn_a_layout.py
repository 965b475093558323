r"""A Vision Transformer learns the 2-D layout of its patches: codes of near patches become alike, if the images move.

The position codes start as noise, one for each position in the sequence, and nothing tells the model that position 0 is
beside position 1. What can tell it are the images. When they move about, the same stroke is seen now in one patch, now
in the next, and what is right for the one is right for the other: the gradients of neighbouring codes are alike, and so
the codes become alike, by their distance on the *image*. Without a layout the cosine of two centred codes is $-1/(n -
1)$ on average, at every distance.

To be sure that the layout comes from the images and not from the numbering, each model gets the patches in a random
order of its own, the same for all images. The codes have to find where the patches come from.

Random renumberings of the positions say what correlations chance would give. Digits that all stand in the middle of
their image teach almost no layout: each patch then has a meaning of its own.
"""

from dataclasses import dataclass, replace
from typing import Literal

import torch
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from headwork.batches import ImageBatch
from headwork.functional import image_from_patches, patches_from_image
from headwork.lab.digits import SIDE, Images, digits, evaluate, shift_images, small_vit, train_classifier
from headwork.lab.plots import MARKERS, MEASURED, PREDICTED, Figure, panels, series
from headwork.lab.toolkit import Claim, Experiment, Verdict, about, at_least, seeded
from headwork.layers import LearnedGrid
from headwork.models import VisionTransformer

PATCH = 2
N_RENUMBERINGS = 1_000
STANDARD_DEVIATIONS = 5


@dataclass(frozen=True, kw_only=True)
class Setup(Experiment):
    """A small Vision Transformer, trained on digits that move by several distances; the first is the claim's."""

    max_shifts: tuple[float, ...] = (3.0, 1.5, 0.0)
    """In pixels, along each axis; a patch has 2."""
    epochs: int = 40
    d_model: int = 32
    batch_size: int = 64
    lr: float = 3e-3
    n_runs: int = 3
    """So many models for each shift, whose mean correlation is judged."""
    trained: bool = True
    order: Literal["one for all images", "another for each image"] = "one for all images"


@dataclass(frozen=True)
class Result:
    """How alike the codes of any two patches are, and the distance of the patches."""

    setup: Setup
    order: Int[Tensor, "run token"]
    """From where on the image the patch at each position of the sequence comes; for each model of the first shift."""
    alike: Float[Tensor, "shift run token token"]
    """Cosines of centred codes, sorted by where the patches come from."""
    chance: float
    """The standard deviation of the correlation when the positions are renumbered at random."""
    accuracy: float

    @property
    def distance(self) -> Float[Tensor, "token token"]:
        n = round(self.order.shape[1] ** 0.5)
        positions = torch.cartesian_prod(torch.arange(n), torch.arange(n)).double()
        return torch.cdist(positions, positions)

    @property
    def on_image(self) -> list[float]:
        """The correlation of likeness and nearness on the image, the mean over the models."""
        return [_mean_correlation(alike, self.distance) for alike in self.alike]

    @property
    def in_sequence(self) -> float:
        """The same with nearness as if the patches were numbered row by row in the sequence."""
        return _mean_correlation(_renumber(self.alike[0], self.order), self.distance)


@seeded
def run(setup: Setup) -> Result:
    train, test = digits("train"), digits("test")
    n_tokens = (SIDE // PATCH) ** 2
    tables, accuracy = [], []
    for index, max_shift in enumerate(setup.max_shifts):
        of_shift = torch.stack([torch.randperm(n_tokens) for _ in range(setup.n_runs)])
        models = [_train(setup, train, order, max_shift) for order in of_shift]
        tables.append(torch.stack([_alike(model, order) for model, order in zip(models, of_shift, strict=True)]))
        if index == 0:
            orders = of_shift
            for model, order in zip(models, orders, strict=True):
                reordered = test._replace(image=_reorder(test.image, order.expand(len(test.image), -1)))
                accuracy.append(evaluate(model, reordered).accuracy)
    result = Result(setup, orders, torch.stack(tables), 0.0, sum(accuracy) / len(accuracy))
    return replace(result, chance=_chance(result))


def _alike(model: VisionTransformer, order: Int[Tensor, "token"]) -> Float[Tensor, "token token"]:
    """The cosines of the centred codes, sorted by where the patches come from."""
    assert isinstance(model.positions, LearnedGrid)
    codes = rearrange(model.positions.table.detach(), "row column d -> (row column) d")[order.argsort()]
    centred = codes - codes.mean(0)
    return F.cosine_similarity(centred[:, None], centred[None], dim=-1).double()


def _train(setup: Setup, train: ImageBatch, order: Int[Tensor, "token"], max_shift: float) -> VisionTransformer:
    def change(images: Images) -> Images:
        """Each image moved by a shift of its own, then its patches put into the order."""
        images = shift_images(images, max_shift * (2 * torch.rand(len(images), 2) - 1))
        own = torch.rand(len(images), len(order)).argsort(-1)
        return _reorder(images, own if setup.order == "another for each image" else order.expand_as(own))

    model = small_vit(d_model=setup.d_model, n_layers=1, patch=PATCH)
    train_classifier(
        model,
        train,
        torch.optim.AdamW(model.parameters(), lr=setup.lr),
        epochs=setup.epochs if setup.trained else 0,
        batch_size=setup.batch_size,
        change=change,
    )
    return model


def _reorder(images: Images, order: Int[Tensor, "example token"]) -> Images:
    """The same patches, the one at `order[i]` of the image as token i."""
    patches = patches_from_image(images, (PATCH, PATCH))
    moved = patches.gather(1, order[..., None].expand_as(patches))
    return image_from_patches(moved, (PATCH, PATCH), (SIDE // PATCH, SIDE // PATCH))


def _correlation(alike: Float[Tensor, "token token"], distance: Float[Tensor, "token token"]) -> float:
    row, column = torch.triu_indices(len(alike), len(alike), 1)
    return torch.corrcoef(torch.stack([alike[row, column], -distance[row, column]]))[0, 1].item()


def _mean_correlation(alike: Float[Tensor, "run token token"], distance: Float[Tensor, "token token"]) -> float:
    return sum(_correlation(each, distance) for each in alike) / len(alike)


def _renumber(
    alike: Float[Tensor, "run token token"], order: Int[Tensor, "run token"]
) -> Float[Tensor, "run token token"]:
    return torch.stack([each[own][:, own] for each, own in zip(alike, order, strict=True)])


def _chance(result: Result) -> float:
    drawn = []
    for _ in range(N_RENUMBERINGS):
        others = torch.rand(result.order.shape).argsort(-1)
        drawn.append(_mean_correlation(_renumber(result.alike[0], others), result.distance))
    return torch.tensor(drawn).std().item()


def verdict(result: Result) -> Verdict:
    return Verdict(
        checks=(
            at_least(
                f"correlation of likeness and nearness on the image ({STANDARD_DEVIATIONS} deviations of chance)",
                STANDARD_DEVIATIONS * result.chance,
                result.on_image[0],
                near={"no layout": about("", 0, result.on_image[0], sd=result.chance)},
            ),
            about(
                "the same for nearness in the sequence, order by chance",
                0,
                result.in_sequence,
                sd=result.chance,
                near={"the sequence is the layout": result.on_image[0]},
            ),
        ),
        why="Images that move show the same stroke in neighbouring patches, so neighbours learn the same.",
    )


def figure(result: Result) -> Figure:
    setup, distance = result.setup, result.distance
    side = round(len(distance) ** 0.5)
    tables = result.alike.mean(1)
    drawing, (left, right) = panels(
        2, title="Position codes learn where their patch is: near patches get codes that are alike"
    )
    tiles = rearrange(tables[0], "(r c) (row column) -> r c row column", r=side, row=side)
    gap = F.pad(tiles, (0, 1, 0, 1), value=float("nan"))
    mosaic = rearrange(gap, "r c row column -> (r row) (c column)")[:-1, :-1]
    table = left.imshow(mosaic.numpy(), cmap="Greys", vmin=-0.6, vmax=1)
    middle = [tile * (side + 1) + (side - 1) / 2 for tile in range(side)]
    left.set_xticks(middle, [str(column) for column in range(side)])
    left.set_yticks(middle, [str(row) for row in range(side)])
    left.spines[["left", "bottom"]].set_visible(False)
    left.set(xlabel="column of the patch", ylabel="row of the patch")
    left.set_title("one tile for each patch: its code against all")
    drawing.colorbar(table, ax=left, label="measured cosine", shrink=0.9)
    apart = torch.tensor(sorted(set(distance.flatten().tolist()) - {0.0}), dtype=torch.float64)
    for max_shift, marker, alike, correlation in zip(setup.max_shifts, MARKERS, tables, result.on_image, strict=False):
        means = torch.stack([alike[distance == d].mean() for d in apart])
        style = MEASURED | series(marker) | {"label": f"measured, images move {max_shift:g} px ({correlation:.2f})"}
        right.plot(apart.numpy(), means.numpy(), **style)
    nothing = -1 / (len(distance) - 1)
    right.axhline(nothing, **PREDICTED | {"label": "predicted without a layout"})
    right.set(xlabel="distance of the patches", ylabel="mean cosine of their codes", ylim=(-0.7, 1.15))
    right.legend(frameon=False, loc="upper right", fontsize=7)
    return drawing


CLAIM = Claim(
    __name__,
    __doc__,
    document="NYU",
    question="1.5(b)",
    setup=Setup(),
    small=Setup(max_shifts=(3.0,), epochs=8, batch_size=32, lr=5e-3),
    run=run,
    verdict=verdict,
    figure=figure,
    broken={
        "images that stand still": {"max_shifts": (0.0,)},
        "patches in another order for each image": {"order": "another for each image"},
        "codes that are not trained": {"trained": False},
    },
    confidence=f"At least {STANDARD_DEVIATIONS} standard deviations of what renumbering the positions at random gives; "
    "the full run has about thirteen.",
)
