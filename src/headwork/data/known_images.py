"""What the known sets of images share: their own test images, and some of the training images held out."""

import hashlib
from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from jaxtyping import Int, UInt8
from numpy import ndarray

from headwork import serialise
from headwork.checks import check_positive
from headwork.data.augmentation import Augmentation
from headwork.data.examples import Dataset, check_seed, take_apart
from headwork.data.found import say_published
from headwork.data.image_examples import ImageExamples
from headwork.tasks import Classification


class LabelledImages(NamedTuple):
    """Images as bytes, and the index of the class of each."""

    images: UInt8[ndarray, "example channel row column"]
    labels: Int[ndarray, "example"]


class ImageSet(NamedTuple):
    """A set as its files have it."""

    train: LabelledImages
    test: LabelledImages
    classes: tuple[str, ...]
    folder: Path


@dataclass(frozen=True, kw_only=True)
class KnownImages(serialise.Checked):
    """`n_valid` of the training images choose the best model; of the rest `n_train` are learned, or all.

    The files are in `directory`; without one they are looked for where HEADWORK_DATA says and in the cache, or fetched.
    """

    augment: Augmentation = Augmentation()
    n_train: int | None = None
    n_valid: int = 5000
    split_seed: int = 0
    directory: str | None = None

    size: ClassVar[tuple[int, int]]
    n_images: ClassVar[tuple[int, ...]] = ()
    """Of the training and the test part as published, if that is known."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(n_valid=self.n_valid, n_train=self.n_train)

    @abstractmethod
    def read(self) -> ImageSet: ...

    def load(self, seed: int = 0) -> Dataset:
        """The images; `seed` drives the augmentation."""
        check_seed(seed)
        train, test, classes, folder = self.read()
        for labels in (train.labels, test.labels):
            if not 0 <= labels.min() <= labels.max() < len(classes):
                found = f"{labels.min()} .. {labels.max()}"
                raise ValueError(f"labels of {folder} must lie in 0 .. {len(classes) - 1}, got {found}")
        if self.n_valid + (self.n_train or 1) > len(train.labels):
            raise ValueError(
                f"n_valid + n_train must be at most the {len(train.labels):,} training images of {folder}, "
                f"got n_valid={self.n_valid} and n_train={self.n_train}"
            )
        rest, valid = take_apart(train.labels, np.arange(len(train.labels)), self.n_valid, self.split_seed)
        if self.n_train is not None and self.n_train < len(rest):
            _, rest = take_apart(train.labels, rest, self.n_train, self.split_seed)

        def examples(part: LabelledImages, varied: Augmentation | None = None) -> ImageExamples:
            images, labels = (torch.from_numpy(array) for array in part)
            return ImageExamples(images, labels, varied, seed, len(classes))

        digest = hashlib.sha256()
        for array in (*train, *test):
            digest.update(np.ascontiguousarray(array).data)
        chosen, held_out = (LabelledImages(*(array[np.sort(part)] for array in train)) for part in (rest, valid))
        compared = (
            say_published("images", published, len(part.labels), f"the {name} part of {folder}")
            for name, published, part in zip(("training", "test"), self.n_images, (train, test), strict=False)
        )
        sizes = f"{len(rest):,} train, {len(valid):,} valid and {len(test.labels):,} test images"
        return Dataset(
            train=examples(chosen, self.augment),
            valid=examples(held_out),
            test=examples(test),
            task=Classification(classes),
            found=(f"{sizes} from {folder}", *(note for note in compared if note)),
            digest=digest.hexdigest(),
        )
