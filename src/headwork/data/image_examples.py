"""Labelled images, in training each varied a little, differently in each epoch."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int, UInt8
from numpy import ndarray
from torch import Tensor
from torch.nn import functional as F

from headwork.batches import ImageBatch
from headwork.data.augmentation import Augmentation, beta_numbers
from headwork.data.examples import Dataset, Split, check_seed, choose, random_numbers
from headwork.tasks import Classification


@dataclass(frozen=True)
class Moves:
    """How far a training image may go, either way: pixels along each axis, degrees, and a share of its size."""

    shift: float
    rotation: float = 0.0
    zoom: float = 0.0

    n_numbers: ClassVar[int] = 4
    mixes: ClassVar[bool] = False

    def vary(
        self, images: Float[Tensor, "batch channel row column"], numbers: Float[Tensor, "batch 4"]
    ) -> Float[Tensor, "batch channel row column"]:
        numbers = 2 * numbers.float() - 1
        zoom = 1 + self.zoom * numbers[:, 3]
        return move_images(images, self.shift * numbers[:, :2], math.radians(self.rotation) * numbers[:, 2], zoom)


@runtime_checkable
class ImageSource(Protocol):
    """Images that are read when they are asked for, such as those of a folder."""

    def __len__(self) -> int: ...

    def __getitem__(self, chosen: Int[Tensor, "batch"]) -> UInt8[Tensor, "batch channel row column"]: ...


@dataclass(frozen=True, eq=False)
class ImageExamples:
    """Images (numbers from 0 to 1, or bytes) and their labels; in an epoch each varies at random, as `augment` says.

    Images that are mixed have a row of probabilities as their label, one for each of the `n_classes`.
    """

    images: Tensor | ImageSource
    labels: Int[Tensor, "example"]
    augment: Moves | Augmentation | None = None
    seed: int = 0
    n_classes: int | None = None
    files: tuple[str, ...] | None = None
    """Where each image is, if it is in a file of its own."""

    def __len__(self) -> int:
        return len(self.images)

    def pixels(self, chosen: Int[Tensor, "batch"]) -> Float[Tensor, "batch channel row column"]:
        image = self.images[chosen]
        return image.float() / 255 if image.dtype == torch.uint8 else image

    def batch(self, indices: Sequence[int], epoch: int | None = None) -> ImageBatch:
        chosen = choose(indices, len(self))
        image, label = self.pixels(chosen), self.labels[chosen]
        if epoch is None or self.augment is None:
            return ImageBatch(image, label)
        table = random_numbers(self.seed, epoch, len(self), self.augment.n_numbers)
        image = self.augment.vary(image, table[chosen])
        if not self.augment.mixes:
            return ImageBatch(image, label)
        assert isinstance(self.augment, Augmentation)
        partner = (table[chosen, -1] * len(self)).long()
        other = self.augment.vary(self.pixels(partner), table[partner])
        shares = beta_numbers(self.seed, epoch, len(self), (self.augment.mixup, self.augment.cutmix))
        n_classes = self.n_classes or int(self.labels.max()) + 1
        one, two = (F.one_hot(self.labels[each], n_classes).float() for each in (chosen, partner))
        return ImageBatch(*self.augment.mix(image, other, one, two, table[chosen], shares[chosen]))


def move_images(
    images: Float[Tensor, "batch channel row column"],
    shift: Float[Tensor, "batch 2"],
    rotation: Float[Tensor, "batch"],
    zoom: Float[Tensor, "batch"],
) -> Float[Tensor, "batch channel row column"]:
    """Each image zoomed and rotated (in radians, from the rows to the columns) about its middle, then shifted.

    Where nothing was, there are zeros; between pixels, a mix of four.

    >>> image = torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]])
    >>> move_images(image, torch.tensor([[1.0, 0.0]]), torch.zeros(1), torch.ones(1))
    tensor([[[[0., 0.],
              [1., 2.]]]])
    """
    _, _, n_rows, n_columns = images.shape
    rotation, zoom = rotation[:, None, None], zoom[:, None, None]
    # Each pixel asks where it comes from. No matrix product: its rounding depends on where in memory the numbers lie.
    row = torch.arange(n_rows)[:, None] - (n_rows - 1) / 2 - shift[:, 0, None, None]
    column = torch.arange(n_columns) - (n_columns - 1) / 2 - shift[:, 1, None, None]
    from_row = (rotation.cos() * row + rotation.sin() * column) / zoom
    from_column = (rotation.cos() * column - rotation.sin() * row) / zoom
    # PyTorch's grid is (column, row), and an image is 2 wide.
    grid = torch.stack([2 * from_column / n_columns, 2 * from_row / n_rows], -1)
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="zeros", align_corners=False)


def make_image_dataset(
    images: UInt8[ndarray, "example row column"],
    labels: Int[ndarray, "example"],
    split: Split,
    *,
    brightest: int,
    moves: Moves | None,
    seed: int,
) -> Dataset:
    """Grey images with values from 0 to `brightest`, as a data set whose training images move."""
    check_seed(seed)
    pixels = torch.from_numpy(images).float()[:, None] / brightest
    classes = torch.from_numpy(labels).long()
    return Dataset(
        train=ImageExamples(pixels[split.train], classes[split.train], moves, seed),
        valid=ImageExamples(pixels[split.valid], classes[split.valid]),
        test=ImageExamples(pixels[split.test], classes[split.test]),
        task=Classification(tuple(str(label) for label in sorted(set(labels.tolist())))),
    )
