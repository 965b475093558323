"""Labelled images, in training each moved a little, differently in each epoch."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int, UInt8
from numpy import ndarray
from torch import Tensor
from torch.nn import functional as F

from headwork.data.batches import ImageBatch
from headwork.data.examples import Dataset, choose, random_numbers
from headwork.data.splits import Split


@dataclass(frozen=True, eq=False)
class ImageExamples:
    """Images and their labels; in an epoch each image moves by up to `max_shift` pixels along each axis."""

    images: Float[Tensor, "example channel row column"]
    labels: Int[Tensor, "example"]
    max_shift: float = 0.0
    seed: int = 0

    def __len__(self) -> int:
        return len(self.images)

    def batch(self, indices: Sequence[int], epoch: int | None = None) -> ImageBatch:
        chosen = choose(indices, len(self))
        image = self.images[chosen]
        if epoch is not None and self.max_shift > 0:
            numbers = random_numbers(self.seed, epoch, len(self), 2)[chosen]
            image = shift_images(image, self.max_shift * (2 * numbers - 1).float())
        return ImageBatch(image, self.labels[chosen])


def shift_images(
    images: Float[Tensor, "batch channel row column"], shift: Float[Tensor, "batch 2"]
) -> Float[Tensor, "batch channel row column"]:
    """Each image moved by its own shift (row, column) in pixels, with zeros behind it; between pixels, a mix of four.

    >>> image = torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]])
    >>> shift_images(image, torch.tensor([[1.0, 0.0]]))
    tensor([[[[0., 0.],
              [1., 2.]]]])
    """
    _, _, n_rows, n_columns = images.shape
    # PyTorch's grid is (column, row), an image is 2 wide, and each pixel asks where it comes from.
    back = -2 * shift.flip(-1) / torch.tensor([n_columns, n_rows])
    where = torch.cat([torch.eye(2).expand(len(images), 2, 2), back[..., None]], dim=-1)
    grid = F.affine_grid(where, list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="zeros", align_corners=False)


def make_image_dataset(
    images: UInt8[ndarray, "example row column"],
    labels: Int[ndarray, "example"],
    *,
    brightest: int,
    split: Split,
    max_shift: float,
    seed: int,
) -> Dataset:
    """Grey images with values from 0 to `brightest`, as a data set whose training images move."""
    pixels = torch.from_numpy(images).float()[:, None] / brightest
    classes = torch.from_numpy(labels).long()
    return Dataset(
        train=ImageExamples(pixels[split.train], classes[split.train], max_shift, seed),
        valid=ImageExamples(pixels[split.valid], classes[split.valid]),
        test=ImageExamples(pixels[split.test], classes[split.test]),
        labels=tuple(str(label) for label in sorted(set(labels.tolist()))),
    )
