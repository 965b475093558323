"""Training images that vary: each is cropped, flipped, distorted, erased and mixed by random numbers of its own.

All of it is arithmetic on a batch of tensors. The numbers of an example are a function of the seed, the epoch and its
index, so whatever the batch it is in, and however often a run was stopped, it looks the same.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from headwork.checks import Probability, check_not_negative
from headwork.serialise import Checked

Images = Float[Tensor, "batch channel row column"]
PerImage = Float[Tensor, "batch"]


@dataclass(frozen=True, kw_only=True)
class Augmentation(Checked):
    """How training images vary; nothing does unless it is asked for."""

    crop: int = 0
    """Pixels of black around the image, from which a window of its size is cut."""
    flip: bool = False
    """Left and right are exchanged in half of the images."""
    rand_augment: int = 0
    """So many operations from `OPERATIONS` on each image. Cubuk et al., "RandAugment", 2020."""
    magnitude: Probability = 0.3
    """How strong these are at most, of what is possible."""
    erase: Probability = 0.0
    """The probability that a rectangle becomes grey. Zhong et al., "Random erasing", 2020."""
    mixup: float = 0.0
    """The alpha of Beta(alpha, alpha), by which an image and its label are mixed with another's. Zhang et al., 2018."""
    cutmix: float = 0.0
    """The same for a rectangle that is cut out of another image. Yun et al., 2019. With both, each has half."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_not_negative(crop=self.crop, rand_augment=self.rand_augment)
        for name, alpha in (("mixup", self.mixup), ("cutmix", self.cutmix)):
            if not 0 <= alpha < math.inf:
                raise ValueError(f"{name} must be 0 or more and finite, got {alpha}")

    @property
    def n_numbers(self) -> int:
        """Random numbers for each image: of crop 2, flip 1, erasing 5, of each operation 2, and of the mix 4."""
        return 8 + 2 * self.rand_augment + 4

    @property
    def mixes(self) -> bool:
        return self.mixup > 0 or self.cutmix > 0

    def vary(self, images: Images, numbers: Float[Tensor, "batch number"]) -> Images:
        """The images by themselves, before any is mixed with another; the numbers lie in [0, 1)."""
        numbers = numbers.to(images.dtype)
        if self.crop:
            shift = (numbers[:, :2] * (2 * self.crop + 1)).long() - self.crop
            images = shift_images(images, shift)
        if self.flip:
            images = torch.where((numbers[:, 2] < 0.5)[:, None, None, None], images.flip(-1), images)
        for number in range(self.rand_augment):
            which, how = numbers[:, 8 + 2 * number], numbers[:, 9 + 2 * number]
            images = distort(images, (which * len(OPERATIONS)).long(), (2 * how - 1) * self.magnitude)
        if self.erase:
            images = erase(images, numbers[:, 3:8], self.erase)
        return images

    def mix(
        self,
        images: Images,
        others: Images,
        labels: Float[Tensor, "batch class"],
        other_labels: Float[Tensor, "batch class"],
        numbers: Float[Tensor, "batch number"],
        shares: Float[Tensor, "batch 2"],
    ) -> tuple[Images, Float[Tensor, "batch class"]]:
        """Each image and label with another's: by `shares` of its own, from Beta(alpha, alpha) of mixup and cutmix."""
        which, row, column = numbers[:, -4:-1].to(images.dtype).unbind(1)
        cuts = which < (1.0 if not self.mixup else 0.5 if self.cutmix else 0.0)
        share = shares.to(images.dtype)
        boxes, of_cut = cut_boxes(images.shape[2:], share[:, 1], row, column)
        kept = torch.where(
            cuts[:, None, None, None], 1 - boxes[:, None].to(images.dtype), share[:, 0, None, None, None]
        )
        of_label = torch.where(cuts, of_cut, share[:, 0])[:, None]
        return kept * images + (1 - kept) * others, of_label * labels + (1 - of_label) * other_labels


def shift_images(images: Images, shift: Int[Tensor, "batch 2"]) -> Images:
    """Each image moved down and right by so many pixels; where nothing was, there are zeros.

    >>> shift_images(torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]]), torch.tensor([[1, 0]]))
    tensor([[[[0., 0.],
              [1., 2.]]]])
    """
    n_rows, n_columns = images.shape[2:]
    row = torch.arange(n_rows) - shift[:, 0, None]
    column = torch.arange(n_columns) - shift[:, 1, None]
    inside = ((row >= 0) & (row < n_rows))[:, :, None] & ((column >= 0) & (column < n_columns))[:, None]
    batch = torch.arange(len(images))[:, None, None]
    moved = images.permute(0, 2, 3, 1)[
        batch, row.clamp(0, n_rows - 1)[:, :, None], column.clamp(0, n_columns - 1)[:, None]
    ]
    return (moved * inside[..., None]).permute(0, 3, 1, 2).contiguous()


def erase(images: Images, numbers: Float[Tensor, "batch 5"], probability: float) -> Images:
    """A rectangle of 2 % to 33 % of the image, 0.3 to 3.3 times as high as wide, becomes the mean of the image."""
    n_rows, n_columns = images.shape[2:]
    area = (0.02 + 0.31 * numbers[:, 1]) * n_rows * n_columns
    ratio = torch.exp((2 * numbers[:, 2] - 1) * math.log(3.3))
    height = (area * ratio).sqrt().round().clamp(1, n_rows)
    width = (area / ratio).sqrt().round().clamp(1, n_columns)
    top = (numbers[:, 3] * (n_rows - height + 1)).floor()
    left = (numbers[:, 4] * (n_columns - width + 1)).floor()
    inside = _rectangle(images.shape[2:], top, top + height, left, left + width)
    erased = inside & (numbers[:, 0] < probability)[:, None, None]
    return torch.where(erased[:, None], images.mean((1, 2, 3), keepdim=True), images)


def cut_boxes(
    size: torch.Size | tuple[int, int], share: PerImage, row: PerImage, column: PerImage
) -> tuple[Tensor, PerImage]:
    """The rectangles of CutMix, and the share of each image that is left outside of its own.

    A rectangle has sqrt(1 - share) of the height and width, and its middle anywhere in the image (`row` and `column` in
    [0, 1)), so its border may cut it.
    """
    n_rows, n_columns = size
    half_height, half_width = ((n * (1 - share).sqrt()).floor().div(2, rounding_mode="floor") for n in size)
    middle, centre = (row * n_rows).floor(), (column * n_columns).floor()
    top, bottom = (middle - half_height).clamp(min=0), (middle + half_height).clamp(max=n_rows)
    left, right = (centre - half_width).clamp(min=0), (centre + half_width).clamp(max=n_columns)
    inside = _rectangle(size, top, bottom, left, right)
    return inside, 1 - (bottom - top) * (right - left) / (n_rows * n_columns)


def _rectangle(size: torch.Size | tuple[int, int], top: Tensor, bottom: Tensor, left: Tensor, right: Tensor) -> Tensor:
    row, column = torch.arange(size[0]), torch.arange(size[1])
    rows = (row >= top[:, None]) & (row < bottom[:, None])
    columns = (column >= left[:, None]) & (column < right[:, None])
    return rows[:, :, None] & columns[:, None]


@lru_cache(maxsize=4)
def beta_numbers(seed: int, epoch: int, n_examples: int, alphas: tuple[float, ...]) -> Float[Tensor, "example alpha"]:
    """For each example a number from Beta(alpha, alpha); an alpha of 0 gives 1.

    >>> beta_numbers(0, 1, 1000, (0.8, 0.0)).mean(0).round(decimals=1)
    tensor([0.5000, 1.0000], dtype=torch.float64)
    """
    generator = np.random.default_rng([seed, epoch, *b"mix"])
    columns = [generator.beta(alpha, alpha, n_examples) if alpha else np.ones(n_examples) for alpha in alphas]
    return torch.from_numpy(np.stack(columns, 1))


# --- operations, each on images with values from 0 to 1 and by an amount from -1 to 1 for each ----------------------


def _blend(images: Images, others: Images, amount: PerImage) -> Images:
    """Pillow's enhancements: others + (1 + amount) (images - others), within 0 .. 1."""
    return (others + (1 + amount[:, None, None, None]) * (images - others)).clamp(0, 1)


def _grey(images: Images) -> Float[Tensor, "batch 1 row column"]:
    if images.shape[1] != 3:
        return images.mean(1, keepdim=True)
    return (images * images.new_tensor([0.299, 0.587, 0.114])[:, None, None]).sum(1, keepdim=True)


def brightness(images: Images, amount: PerImage) -> Images:
    return _blend(images, torch.zeros_like(images), amount)


def colour(images: Images, amount: PerImage) -> Images:
    return _blend(images, _grey(images).expand_as(images), amount)


def contrast(images: Images, amount: PerImage) -> Images:
    return _blend(images, _grey(images).mean((1, 2, 3), keepdim=True).expand_as(images), amount)


def posterize(images: Images, amount: PerImage) -> Images:
    """Fewer levels of brightness: 8 bits become 8 - 4 |amount|."""
    levels = 2.0 ** (8 - (4 * amount.abs()).round())[:, None, None, None]
    return ((images * 255).round() * levels / 256).floor() * (256 / levels) / 255


def solarize(images: Images, amount: PerImage) -> Images:
    """What is brighter than 1 - |amount| is turned around."""
    return torch.where(images >= 1 - amount.abs()[:, None, None, None], 1 - images, images)


def auto_contrast(images: Images, amount: PerImage) -> Images:
    """Each channel from 0 to 1, if it has more than one value."""
    low, high = images.amin((2, 3), keepdim=True), images.amax((2, 3), keepdim=True)
    return torch.where(high > low, (images - low) / (high - low).clamp(min=1e-6), images)


@dataclass(frozen=True)
class Affine:
    """Where each pixel comes from, as far as the amount says: shifts in shares of the image, shears, and radians."""

    row: float = 0.0
    column: float = 0.0
    row_shear: float = 0.0
    column_shear: float = 0.0
    rotation: float = 0.0

    def __call__(self, images: Images, amount: PerImage) -> Images:
        _, _, n_rows, n_columns = images.shape
        amount = amount[:, None, None]
        row = torch.arange(n_rows, dtype=images.dtype)[:, None] - (n_rows - 1) / 2
        column = torch.arange(n_columns, dtype=images.dtype) - (n_columns - 1) / 2
        turn = self.rotation * amount
        from_row = turn.cos() * row + turn.sin() * column - amount * (self.row * n_rows + self.row_shear * column)
        from_column = (
            turn.cos() * column - turn.sin() * row - amount * (self.column * n_columns + self.column_shear * row)
        )
        # PyTorch's grid is (column, row), and an image is 2 wide.
        grid = torch.stack([2 * from_column / n_columns, 2 * from_row / n_rows], -1)
        return F.grid_sample(images, grid, mode="bilinear", padding_mode="zeros", align_corners=False)


def identity(images: Images, amount: PerImage) -> Images:
    return images


OPERATIONS: tuple[Callable[[Images, PerImage], Images], ...] = (
    identity,
    Affine(row=0.45),
    Affine(column=0.45),
    Affine(row_shear=1.0),
    Affine(column_shear=1.0),
    Affine(rotation=math.radians(90)),
    brightness,
    colour,
    contrast,
    posterize,
    solarize,
    auto_contrast,
)
"""What RandAugment chooses from."""


def distort(images: Images, which: Int[Tensor, "batch"], amount: PerImage) -> Images:
    """One operation on each image, by its amount from -1 to 1."""
    changed = images.clone()
    for number, operation in enumerate(OPERATIONS):
        (chosen,) = (which == number).nonzero(as_tuple=True)
        if number and len(chosen):
            changed[chosen] = operation(images[chosen], amount[chosen])
    return changed
