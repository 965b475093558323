"""Images of a user's own, in a folder for each class."""

import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

import torch
from jaxtyping import Int, UInt8
from torch import Tensor

from headwork import serialise
from headwork.checks import Probability, Size, check_one_of
from headwork.data.augmentation import Augmentation
from headwork.data.examples import Dataset, check_seed
from headwork.data.folders import files_below
from headwork.data.found import say_classes, say_duplicates, say_skipped, say_split
from headwork.data.image_examples import ImageExamples
from headwork.data.images import IMAGE_ENDINGS, check_whole, read_image, stored_size
from headwork.data.parquet_images import find_image_folder
from headwork.data.splitting import HeldOut, by_part, part_of, share_out
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
        by_class = find_classes(root)
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


class ImagesByClass(NamedTuple):
    """The images of a folder, the class and the part of each, and what belongs to no class."""

    files: list[Path]
    names: list[str]
    given: list[str | None]
    others: list[Path]
    """Files that are no images."""
    without_class: list[Path]
    """Images beside the folders of the classes."""

    def skipped(self) -> list[str]:
        """What is left out, in lines to be shown."""
        kinds = (
            (self.others, "files that are no images"),
            (self.without_class, "images that are in no folder of a class"),
        )
        return [line for paths, what in kinds if (line := say_skipped(len(paths), what, str(next(iter(paths), ""))))]


def find_classes(root: Path) -> ImagesByClass:
    """The images in the folders of the classes, or of the classes of each part; raise for an empty class."""
    if not root.is_dir():
        raise ValueError(f"data must be a folder with a folder of images for each class, got the file {root}")
    folders = _subfolders(root)
    if not folders:
        raise ValueError(f"data must be a folder with a folder of images for each class, got no folder in {root}")
    images, others = files_below(root, IMAGE_ENDINGS)
    parts = _folders_of_parts(root, folders, images)
    inside: dict[Path, list[Path]] = {folder: [] for of_part in parts.values() for folder in of_part}
    found = ImagesByClass([], [], [], others, [])
    depth = len(root.parts) + (1 if "" in parts else 2)
    for path in images:
        inside.get(Path(*path.parts[:depth]), found.without_class).append(path)
    for part, classes in parts.items():
        for folder in classes:
            if not inside[folder]:
                endings = ", ".join(IMAGE_ENDINGS)
                raise ValueError(f"every class must have images ({endings}), got none in {folder}")
            found.files.extend(inside[folder])
            found.names.extend([folder.name] * len(inside[folder]))
            found.given.extend([part or None] * len(inside[folder]))
    return found


def _folders_of_parts(root: Path, folders: Sequence[Path], images: Sequence[Path]) -> dict[str, list[Path]]:
    """The class folders of each part; of the part "", if no part is named; raise if that cannot be told.

    A folder is a part if its name says so and it has folders in it: a class may be called `train`.
    """
    named = [folder for folder in folders if part_of(folder) is not None]
    nested = [folder for folder in named if _subfolders(folder)]
    if not nested and len(named) < len(folders):
        return {"": list(folders)}
    with_images = {Path(*path.parts[: len(root.parts) + 1]) for path in images}
    for folder in folders:
        if folder not in nested and folder in with_images:
            rule = "the parts (train, valid or dev, test), each with a folder of images for each class, or the classes"
            beside = f" beside {nested[0].name}" if nested else ""
            what = "has images and no folders" if folder in named else "names no part"
            raise ValueError(f"the folders of {root} must be {rule}, got {folder.name}{beside}, which {what}")
    return {
        part: [each for path in paths for each in _subfolders(path)] for part, paths in by_part(nested, root).items()
    }


def _subfolders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))


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
