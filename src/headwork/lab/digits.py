"""Small classifiers of scikit-learn's 8 x 8 digits, as several claims train them.

>>> train, test = digits("train", first=64), digits("valid", "test")
>>> model = small_vit(d_model=8, n_layers=1)
>>> optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
>>> curve = train_classifier(model, train, optimiser, epochs=2, batch_size=32, scored_on=(test,))
>>> len(curve), curve[-1][0]._fields
(3, ('loss', 'accuracy'))
"""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import OneCycleLR

from headwork import choices
from headwork.batches import ImageBatch
from headwork.data import Digits
from headwork.data.image_examples import ImageExamples, move_images
from headwork.models import VisionTransformer, VisionTransformerConfig
from headwork.models.model import evaluation_mode

N_CLASSES = 10
SIDE = 8
"""Pixels of an image along each axis."""

Images = Float[Tensor, "example 1 row column"]


class Score(NamedTuple):
    """How good a classifier is on some images."""

    loss: float
    accuracy: float


def digits(*splits: Literal["train", "valid", "test"], first: int | None = None) -> ImageBatch:
    """The images and labels of these splits together, or the first ones only."""
    data = Digits(augment=False).load()
    parts = [part for split in splits for part in (getattr(data, split),) if isinstance(part, ImageExamples)]
    images, labels = (
        torch.cat(tensors)[:first] for tensors in zip(*((p.images, p.labels) for p in parts), strict=True)
    )
    return ImageBatch(images, labels)


def shift_images(images: Images, shift: Float[Tensor, "example 2"]) -> Images:
    """Each image moved by its own number of rows and columns; what comes in from outside is 0."""
    return move_images(images, shift, torch.zeros(len(images)), torch.ones(len(images)))


def small_vit(
    *,
    d_model: int,
    n_layers: int,
    n_heads: int = 4,
    patch: int = 2,
    pooling: choices.ImagePooling = choices.MeanPooling(),
) -> VisionTransformer:
    """A Vision Transformer for the digits, whose feed-forward networks are twice as wide as its tokens."""
    return VisionTransformer(
        VisionTransformerConfig(
            n_classes=N_CLASSES,
            image=(SIDE, SIDE),
            n_channels=1,
            patch=(patch, patch),
            d_model=d_model,
            n_layers=n_layers,
            heads=choices.Heads(n_heads=n_heads),
            feed_forward=choices.FeedForward(d_ff=2 * d_model),
            pooling=pooling,
        )
    )


def train_classifier(
    model: nn.Module,
    train: ImageBatch,
    optimiser: torch.optim.Optimizer,
    *,
    epochs: int,
    batch_size: int,
    one_cycle: float | None = None,
    batches_per_epoch: int | None = None,
    change: Callable[[Images], Images] = lambda images: images,
    scored_on: Sequence[ImageBatch] = (),
) -> list[tuple[Score, ...]]:
    """Minimise the cross-entropy on shuffled batches; returns scores at the start and after each epoch.

    `one_cycle` is the peak of a learning rate that rises and falls again; `batches_per_epoch` ends an epoch early;
    `change` alters the images of each batch.
    """
    n_batches = batches_per_epoch or -(-len(train.label) // batch_size)
    schedule = OneCycleLR(optimiser, one_cycle, total_steps=epochs * n_batches) if one_cycle else None
    curve = [tuple(evaluate(model, images) for images in scored_on)]
    for _ in range(epochs):
        for batch in torch.split(torch.randperm(len(train.label)), batch_size)[:n_batches]:
            optimiser.zero_grad()
            loss = F.cross_entropy(model(change(train.image[batch])), train.label[batch])
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            if schedule is not None:
                schedule.step()
        curve.append(tuple(evaluate(model, images) for images in scored_on))
    return curve


@torch.no_grad()
def evaluate(model: nn.Module, batch: ImageBatch) -> Score:
    """Loss and accuracy on images, all at once and in evaluation mode."""
    with evaluation_mode(model):
        logits = model(batch.image)
    right = logits.argmax(-1) == batch.label
    return Score(F.cross_entropy(logits, batch.label).item(), right.double().mean().item())
