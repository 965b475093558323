"""Labelled images, in training each moved a little, differently in each epoch."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int, UInt8
from numpy import ndarray
from torch import Tensor
from torch.nn import functional as F

from headwork.batches import ImageBatch
from headwork.data.examples import Dataset, Split, check_seed, choose, random_numbers
from headwork.tasks import Classification


@dataclass(frozen=True)
class Moves:
    """How far a training image may go, either way: pixels along each axis, degrees, and a share of its size."""

    shift: float
    rotation: float = 0.0
    zoom: float = 0.0


@dataclass(frozen=True, eq=False)
class ImageExamples:
    """Images and their labels; in an epoch each image is moved at random, within `moves`."""

    images: Float[Tensor, "example channel row column"]
    labels: Int[Tensor, "example"]
    moves: Moves | None = None
    seed: int = 0

    def __len__(self) -> int:
        return len(self.images)

    def batch(self, indices: Sequence[int], epoch: int | None = None) -> ImageBatch:
        chosen = choose(indices, len(self))
        image = self.images[chosen]
        if epoch is not None and self.moves is not None:
            numbers = 2 * random_numbers(self.seed, epoch, len(self), 4)[chosen].float() - 1
            shift = self.moves.shift * numbers[:, :2]
            rotation = math.radians(self.moves.rotation) * numbers[:, 2]
            zoom = 1 + self.moves.zoom * numbers[:, 3]
            image = move_images(image, shift, rotation, zoom)
        return ImageBatch(image, self.labels[chosen])


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
