"""Images of a user's own, in a folder for each class."""

import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch
from jaxtyping import Int, UInt8
from torch import Tensor

from headwork import serialise
from headwork.checks import Probability, Size, check_one_of
from headwork.data.augmentation import Augmentation
from headwork.data.class_folders import find_classes
from headwork.data.examples import Dataset, check_seed
from headwork.data.found import say_classes, say_duplicates, say_split
from headwork.data.image_examples import ImageExamples
from headwork.data.images import IMAGE_ENDINGS, check_whole, read_image, stored_size
from headwork.data.parquet_images import find_image_folder
from headwork.data.splitting import HeldOut, share_out
from headwork.data.text_table import check_classes, check_trained, sort_labels
from headwork.tasks import Classification

T = TypeVar("T")
IN_MEMORY = 2**30
"""Bytes of images that are decoded once and kept; more are decoded for each batch, by the loader's workers."""


@dataclass(frozen=True, kw_only=True)
class ImageFolder(serialise.Checked):
    """A folder with a folder of images for each class, or with such folders in `train`, `valid` and `test`.

    Or Parquet files with columns of images and labels, or the id of a data set on the Hub.
    Every image is resized to `size` (rows, columns), and is grey with `n_channels=1` and in colour with 3.
    """

    path: str
    size: Size
    n_channels: int = 3
    augment: Augmentation = Augmentation()
    valid_share: Probability = 0.1
    test_share: Probability = 0.1
    split_seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_one_of(("1", "3"), n_channels=str(self.n_channels))

    def load(self, seed: int = 0) -> Dataset:
        """The images; `seed` drives the augmentation."""
        check_seed(seed)
        root, notes = find_image_folder(self.path)
        by_class = find_classes(root, IMAGE_ENDINGS, "images")
        files, names, given = by_class.files, by_class.names, by_class.given
        classes = sort_labels(set(names))
        check_classes(classes, len(files), str(root))
        sizes = say_sizes(files)
        index = {name: i for i, name in enumerate(classes)}
        labels = [index[name] for name in names]
        keys = for_each(digest, files)
        split = share_out(labels, keys, given, HeldOut(self.valid_share, self.test_share), self.split_seed)
        check_trained(labels, split.train, classes, str(root))
        n_bytes = len(files) * self.size[0] * self.size[1] * self.n_channels
        source = ImageFiles(tuple(files), self.size, self.n_channels)
        whole = source[torch.arange(len(files))] if n_bytes <= IN_MEMORY else None
        if whole is None:  # else a broken image would end the training
            for_each(check_whole, files)
        train, valid, test = (
            ImageExamples(
                source.only(part) if whole is None else whole[torch.tensor(part)],
                torch.tensor(labels)[torch.tensor(part)],
                self.augment if part is split.train else None,
                seed,
                len(classes),
                tuple(str(files[i]) for i in part),
            )
            for part in split
        )
        found = (
            f"{len(files):,} images in {root}, {sizes}",
            f"read as {self.size[0]} x {self.size[1]} pixels, {'grey' if self.n_channels == 1 else 'in colour'}",
            *notes,
            *by_class.skipped(),
            say_classes(labels, classes),
            say_duplicates("images", keys, labels, split),
            say_split(split, given=given, seed=self.split_seed, labels=labels, names=classes),
            None
            if whole is not None
            else f"images are decoded for each batch: more than {IN_MEMORY // 2**20} MB of them",
        )
        about = "\n".join(f"{file.relative_to(root)} {key}" for file, key in zip(files, keys, strict=True))
        of_all = hashlib.sha256(about.encode()).hexdigest()
        lines = tuple(line for line in found if line)
        return Dataset(train, valid, test, Classification(classes), found=lines, digest=of_all)


@dataclass(frozen=True, eq=False)
class ImageFiles:
    """Image files, decoded and resized when they are asked for."""

    files: tuple[Path, ...]
    size: tuple[int, int]
    n_channels: int

    def __len__(self) -> int:
        return len(self.files)

    def only(self, chosen: Sequence[int]) -> "ImageFiles":
        return ImageFiles(tuple(self.files[i] for i in chosen), self.size, self.n_channels)

    def __getitem__(self, chosen: Int[Tensor, "batch"]) -> UInt8[Tensor, "batch channel row column"]:
        with ThreadPoolExecutor(4) as pool:  # Pillow decodes several at a time
            return torch.cat(list(pool.map(self._read, chosen.tolist())))

    def _read(self, index: int) -> UInt8[Tensor, "1 channel row column"]:
        return (read_image(self.files[index], self.size, self.n_channels) * 255).round().byte()


def for_each(do: Callable[[Path], T], files: Sequence[Path]) -> list[T]:
    """What is found of each file, some at a time."""
    with ThreadPoolExecutor(4) as pool:  # Pillow decodes several at a time, and so are they hashed
        return list(pool.map(do, files))


def digest(path: Path) -> str:
    """A hash of a file: two with the same bytes are the same image."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()


def say_sizes(files: Sequence[Path]) -> str:
    """The sizes of the images as they are stored; raise, before any is decoded, for one that cannot be used."""
    sizes = set(for_each(stored_size, files))
    if len(sizes) == 1:
        rows, columns = next(iter(sizes))
        return f"all of {rows} x {columns} pixels"
    low, high = (" x ".join(str(pick(side)) for side in zip(*sizes, strict=True)) for pick in (min, max))
    return f"of {low} to {high} pixels"
