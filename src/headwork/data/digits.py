"""The 1,797 handwritten digits of scikit-learn: 8 x 8 pixels, grey, with the digit as the label."""

from dataclasses import dataclass

import numpy as np

from headwork import serialise
from headwork.data.examples import Dataset
from headwork.data.image_examples import Moves, make_image_dataset
from headwork.data.splits import check_sizes, split_by_label
from headwork.extras import need

N_DIGITS = 1797


@dataclass(frozen=True, kw_only=True)
class Digits(serialise.Checked):
    """How the digits are split; `augment` shifts, rotates and zooms each training image a little."""

    augment: bool = True
    n_valid: int = 300
    n_test: int = 300
    split_seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(N_DIGITS, self.n_valid, self.n_test, at_least=10)

    def load(self, seed: int = 0) -> Dataset:
        """The digits; `seed` drives the augmentation.

        >>> digits = Digits().load()
        >>> len(digits.train), digits.train.batch([0, 1]).image.shape
        (1197, torch.Size([2, 1, 8, 8]))
        """
        need("sklearn")
        from sklearn import datasets

        digits = datasets.load_digits()
        return make_image_dataset(
            digits.images.astype(np.uint8),
            digits.target,
            brightest=16,
            split=split_by_label(digits.target, self.n_valid, self.n_test, self.split_seed),
            moves=Moves(shift=0.4, rotation=10, zoom=0.1) if self.augment else None,
            seed=seed,
        )
