"""Images in idx files, as MNIST has them: 60,000 and 10,000 of 28 x 28 pixels, grey."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from jaxtyping import UInt8
from numpy import ndarray

from headwork.checks import check_file
from headwork.data.augmentation import Augmentation
from headwork.data.download import KnownSet, Remote
from headwork.data.known_images import ImageSet, KnownImages, LabelledImages
from headwork.data.packed import PACKED, open_bytes

LARGEST = 2**31
"""Bytes of an idx file."""
FILES = tuple(f"{part}-{what}-ubyte" for part in ("train", "t10k") for what in ("images-idx3", "labels-idx1"))


def _known(name: str, folders: tuple[str, ...], home: str, checks: tuple[tuple[str, int], ...]) -> KnownSet:
    """A set of the four files, with the MD5 and the size of each as it is packed."""
    remotes = (Remote(f"{home}/{file}.gz", f"md5:{md5}", size) for file, (md5, size) in zip(FILES, checks, strict=True))
    return KnownSet(name, folders, FILES, tuple(remotes), packed=True)


MNIST = _known(
    "MNIST",
    ("mnist", "MNIST", "MNIST/raw"),
    "https://ossci-datasets.s3.amazonaws.com/mnist",
    (
        ("f68b3c2dcbeaaa9fbdd348bbdeb94873", 9_912_422),
        ("d53e105ee54ea40749a09fcbcd1e9432", 28_881),
        ("9fb629c4189551a2d022fa330f9573f3", 1_648_877),
        ("ec29112dd5afa0611ce80d1b7f02629c", 4_542),
    ),
)
FASHION = _known(
    "Fashion-MNIST",
    ("fashion-mnist", "FashionMNIST", "FashionMNIST/raw"),
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
    (
        ("8d4fb7e6c68d591d4c3dfef9ec88bf0d", 26_421_880),
        ("25c81989df183df01b3e8a0aad5dffbe", 29_515),
        ("bef4ecab320f06d8554ea6380940ec79", 4_422_102),
        ("bb300cfdad3c16e7a12a480ee83cd310", 5_148),
    ),
)
CLOTHES = ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")


@dataclass(frozen=True, kw_only=True)
class IdxImages(KnownImages):
    """Grey images in four idx files."""

    augment: Augmentation = Augmentation(crop=2)

    size: ClassVar[tuple[int, int]] = (28, 28)
    n_images: ClassVar[tuple[int, int]] = (60_000, 10_000)
    known: ClassVar[KnownSet] = MNIST
    classes: ClassVar[tuple[str, ...]] = tuple("0123456789")

    def read(self) -> ImageSet:
        folder = self.known.find(self.directory)
        train, test = (read_labelled(*(folder / name for name in names)) for names in (FILES[:2], FILES[2:]))
        return ImageSet(train, test, self.classes, folder)


def read_labelled(of_images: Path, of_labels: Path) -> LabelledImages:
    images, labels = read_idx(of_images), read_idx(of_labels)
    if images.ndim != 3 or labels.shape != (len(images),):
        raise ValueError(
            f"{of_labels} must have a label for each image, got the shape {labels.shape} for images of the "
            f"shape {images.shape}"
        )
    return LabelledImages(images[:, None], labels.astype(np.int64))


@dataclass(frozen=True, kw_only=True)
class Mnist(IdxImages):
    """Handwritten digits. LeCun, Cortes and Burges, 1998."""


@dataclass(frozen=True, kw_only=True)
class FashionMnist(IdxImages):
    """Clothes, in files of the same form. Xiao, Rasul and Vollgraf, 2017."""

    augment: Augmentation = Augmentation(crop=2, flip=True)

    known: ClassVar[KnownSet] = FASHION
    classes: ClassVar[tuple[str, ...]] = CLOTHES


def find_idx(folder: Path) -> list[Path]:
    """The idx files of images in a folder, packed or not, such as `train-images-idx3-ubyte` of MNIST."""
    return sorted(path for path in folder.iterdir() if is_idx(path) and path.is_file())


def is_idx(path: Path) -> bool:
    return "images" in path.name and "idx3" in path.name


def labels_of_idx(images: Path) -> Path:
    """The file of the labels beside one of images."""
    labels = images.with_name(images.name.replace("images", "labels").replace("idx3", "idx1"))
    if not labels.exists():
        raise ValueError(f"idx files of images must have their labels beside them, got {images} without {labels.name}")
    return labels


def read_idx(path: Path) -> UInt8[ndarray, "..."]:
    """The bytes of an idx file, packed or not: two zeros, the type 8, the number of axes, their sizes, the values."""
    file = path if path.exists() else path.with_name(f"{path.name}{PACKED}")
    check_file(file, "data", LARGEST)
    with open_bytes(file) as opened:
        content = opened.read()
    if len(content) < 4 or content[:3] != b"\x00\x00\x08" or len(content) < 4 + 4 * content[3]:
        raise ValueError(f"{path} must be an idx file of bytes, got the beginning {content[:4]!r}")
    shape = tuple(np.frombuffer(content, ">u4", content[3], offset=4).tolist())
    values = np.frombuffer(content, np.uint8, offset=4 + 4 * content[3])
    if len(values) != np.prod(shape, dtype=np.int64):
        raise ValueError(f"{path} must have {' x '.join(map(str, shape))} values, got {len(values):,}: fetch it again")
    return values.reshape(shape).copy()
