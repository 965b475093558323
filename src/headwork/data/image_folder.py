"""Images of a user's own, in a folder for each class."""

import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Int, UInt8
from torch import Tensor

from headwork import serialise
from headwork.checks import Probability, Size, check_one_of
from headwork.data.augmentation import Augmentation
from headwork.data.examples import Dataset, check_seed
from headwork.data.found import say_classes, say_duplicates, say_skipped, say_split
from headwork.data.image_examples import ImageExamples
from headwork.data.images import IMAGE_ENDINGS, open_image, read_image
from headwork.data.parquet_images import find_image_folder
from headwork.data.splitting import NAMES, HeldOut, by_part, part_of, share_out
from headwork.data.text_table import check_classes, check_trained, sort_labels
from headwork.tasks import Classification

LARGEST = 10**8
"""Pixels of an image: one of more is a mistake, or made to fill the memory."""
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
        if not root.is_dir():
            raise ValueError(f"data must be a folder with a folder of images for each class, got the file {root}")
        files, names, given, others = find_classes(root)
        classes = sort_labels(set(names))
        check_classes(classes, len(files), str(root))
        index = {name: i for i, name in enumerate(classes)}
        labels = [index[name] for name in names]
        keys = digests(files)
        split = share_out(labels, keys, given, HeldOut(self.valid_share, self.test_share), self.split_seed)
        check_trained(labels, split.train, classes, str(root))
        n_bytes = len(files) * self.size[0] * self.size[1] * self.n_channels
        source = ImageFiles(tuple(files), self.size, self.n_channels)
        whole = source[torch.arange(len(files))] if n_bytes <= IN_MEMORY else None
        train, valid, test = (
            ImageExamples(
                source.only(part) if whole is None else whole[torch.tensor(part)],
                torch.tensor(labels)[torch.tensor(part)],
                self.augment if part is split.train else None,
                seed,
                len(classes),
            )
            for part in split
        )
        found = (
            f"{len(files):,} images in {root}, {say_sizes(files)}",
            f"read as {self.size[0]} x {self.size[1]} pixels, {'grey' if self.n_channels == 1 else 'in colour'}",
            *notes,
            say_skipped(len(others), "files that are no images", str(others[0]) if others else ""),
            say_classes(labels, classes),
            say_duplicates("images", keys, labels, split),
            say_split(split, given=given, seed=self.split_seed, labels=labels, names=classes),
            None
            if whole is not None
            else f"images are decoded for each batch: more than {IN_MEMORY // 2**20} MB of them",
        )
        about = "\n".join(f"{file.relative_to(root)} {key}" for file, key in zip(files, keys, strict=True))
        digest = hashlib.sha256(about.encode()).hexdigest()
        lines = tuple(line for line in found if line)
        return Dataset(train, valid, test, Classification(classes), found=lines, digest=digest)


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


def find_classes(root: Path) -> tuple[list[Path], list[str], list[str | None], list[Path]]:
    """The images, the class and the part of each, and the files that are no images; raise for an empty class."""
    folders = sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
    if not folders:
        raise ValueError(f"data must be a folder with a folder of images for each class, got no folder in {root}")
    if {part_of(folder) for folder in folders} <= {*NAMES} and all(_only_folders(folder) for folder in folders):
        parts = {
            part: [each for path in paths for each in _subfolders(path)]
            for part, paths in by_part(folders, root).items()
        }
    else:
        parts = {"": folders}
    files, names, given, others = list[Path](), list[str](), list[str | None](), list[Path]()
    for part, classes in parts.items():
        for folder in classes:
            inside = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
            images = [path for path in inside if path.suffix.lower() in IMAGE_ENDINGS]
            if not images:
                endings = ", ".join(IMAGE_ENDINGS)
                raise ValueError(f"every class must have images ({endings}), got none in {folder}")
            files += images
            names += [folder.name] * len(images)
            given += [part or None] * len(images)
            others += [path for path in inside if path.suffix.lower() not in IMAGE_ENDINGS]
    return files, names, given, others


def _subfolders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))


def _only_folders(folder: Path) -> bool:
    return bool(_subfolders(folder)) and not any(path.suffix.lower() in IMAGE_ENDINGS for path in folder.iterdir())


def digests(files: Sequence[Path]) -> list[str]:
    """A hash of each file: two with the same bytes are the same image."""

    def digest(path: Path) -> str:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "blake2b").hexdigest()

    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(digest, files))


def say_sizes(files: Sequence[Path]) -> str:
    """The sizes of the images as they are, from the heads of the files; raise for one that cannot be used."""

    def size(path: Path) -> tuple[int, int]:
        with open_image(path) as image:
            rows, columns, n_frames = image.height, image.width, getattr(image, "n_frames", 1)
        if n_frames > 1:
            raise ValueError(f"image must be one picture, got {path} with {n_frames} frames")
        if rows * columns > LARGEST:
            raise ValueError(f"image must have at most {LARGEST:,} pixels, got {path} with {rows:,} x {columns:,}")
        return rows, columns

    with ThreadPoolExecutor(4) as pool:
        sizes = set(pool.map(size, files))
    if len(sizes) == 1:
        rows, columns = next(iter(sizes))
        return f"all of {rows} x {columns} pixels"
    low, high = (" x ".join(str(pick(side)) for side in zip(*sizes, strict=True)) for pick in (min, max))
    return f"of {low} to {high} pixels"
