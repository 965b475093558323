"""CIFAR-10 and CIFAR-100: 50,000 and 10,000 images of 32 x 32 pixels in colour. Krizhevsky, 2009."""

import io
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy import ndarray

from headwork.data.augmentation import Augmentation
from headwork.data.download import KnownSet, Remote
from headwork.data.known_images import ImageSet, KnownImages, LabelledImages

HOME = "https://www.cs.toronto.edu/~kriz"
BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
N_PIXELS = 3 * 32 * 32
CIFAR10 = KnownSet(
    "CIFAR-10",
    ("cifar-10-batches-bin",),
    tuple(f"{name}.bin" for name in (*BATCHES, "test_batch")),
    (
        Remote(
            f"{HOME}/cifar-10-binary.tar.gz",
            "md5:c32a1d4ab5d03f1284b67883e8d87530",
            170_052_171,
            tuple(f"{name}.bin" for name in (*BATCHES, "test_batch")),
        ),
    ),
)
CIFAR100 = KnownSet(
    "CIFAR-100",
    ("cifar-100-binary",),
    ("train.bin", "test.bin", "fine_label_names.txt"),
    (
        Remote(
            f"{HOME}/cifar-100-binary.tar.gz",
            "md5:03b5dce01913d631647c71ecec9e9cb8",
            168_513_733,
            ("train.bin", "test.bin", "fine_label_names.txt"),
        ),
    ),
)
CIFAR10_PICKLES = KnownSet("CIFAR-10", ("cifar-10-batches-py",), (*BATCHES, "test_batch"), ())
CIFAR100_PICKLES = KnownSet("CIFAR-100", ("cifar-100-python",), ("train", "test", "meta"), ())


@dataclass(frozen=True, kw_only=True)
class Cifar10(KnownImages):
    """10 classes, from the folder of binary files or that of Python's."""

    augment: Augmentation = Augmentation(crop=4, flip=True)

    size: ClassVar[tuple[int, int]] = (32, 32)
    n_images: ClassVar[tuple[int, int]] = (50_000, 10_000)

    def read(self) -> ImageSet:
        parts = BATCHES, ("test_batch",)
        pickles = CIFAR10_PICKLES.find_here(self.directory)
        if pickles is not None and CIFAR10.find_here(self.directory) is None:
            train, test = (read_pickles([pickles / name for name in names], b"labels") for names in parts)
            return ImageSet(train, test, CLASSES, pickles)
        folder = CIFAR10.find(self.directory)
        train, test = (read_binary([folder / f"{name}.bin" for name in names]) for names in parts)
        return ImageSet(train, test, CLASSES, folder)


@dataclass(frozen=True, kw_only=True)
class Cifar100(KnownImages):
    """100 classes, the fine labels."""

    augment: Augmentation = Augmentation(crop=4, flip=True)

    size: ClassVar[tuple[int, int]] = (32, 32)
    n_images: ClassVar[tuple[int, int]] = (50_000, 10_000)

    def read(self) -> ImageSet:
        pickles = CIFAR100_PICKLES.find_here(self.directory)
        if pickles is not None and CIFAR100.find_here(self.directory) is None:
            names = tuple(name.decode() for name in read_pickle(pickles / "meta")[b"fine_label_names"])
            train, test = (read_pickles([pickles / part], b"fine_labels") for part in ("train", "test"))
            return ImageSet(train, test, names, pickles)
        folder = CIFAR100.find(self.directory)
        names = tuple((folder / "fine_label_names.txt").read_text(encoding="utf-8").split())
        train, test = (read_binary([folder / f"{part}.bin"], n_labels=2) for part in ("train", "test"))
        return ImageSet(train, test, names, folder)


def read_binary(files: list[Path], n_labels: int = 1) -> LabelledImages:
    """Records of `n_labels` bytes, the last of which is the label, and the pixels in planes of red, green and blue."""
    records = []
    for file in files:
        content = np.fromfile(file, dtype=np.uint8)
        if not len(content) or len(content) % (n_labels + N_PIXELS):
            raise ValueError(
                f"{file} must be records of {n_labels + N_PIXELS:,} bytes, got {len(content):,} bytes: fetch it again"
            )
        records.append(content.reshape(-1, n_labels + N_PIXELS))
    table = np.concatenate(records)
    return LabelledImages(table[:, n_labels:].reshape(-1, 3, 32, 32), table[:, n_labels - 1].astype(np.int64))


def read_pickles(files: list[Path], label: bytes) -> LabelledImages:
    """The same from Python's files."""
    images, labels = [], []
    for file in files:
        content = read_pickle(file)
        pixels, these = content.get(b"data"), content.get(label)
        if (
            not isinstance(pixels, ndarray)
            or not isinstance(these, list)
            or pixels.dtype != np.uint8
            or pixels.shape != (len(these), N_PIXELS)
        ):
            raise ValueError(
                f"{file} must hold data of {N_PIXELS:,} bytes for each of the {label.decode()}, got another"
            )
        images.append(pixels.reshape(-1, 3, 32, 32))
        labels += these
    return LabelledImages(np.concatenate(images), np.array(labels, dtype=np.int64))


class _Unpickler(pickle.Unpickler):
    """Arrays, lists, dicts, texts and numbers, and nothing else: a pickle may name any function to be called."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in (
            *((f"numpy.{core}.multiarray", "_reconstruct") for core in ("core", "_core")),
            *(("numpy", name) for name in ("ndarray", "dtype")),
            ("_codecs", "encode"),
        ):
            return super().find_class(module.replace("numpy.core", "numpy._core"), name)
        raise pickle.UnpicklingError(f"it names {module}.{name}, which is no array")


def read_pickle(file: Path) -> dict[bytes, Any]:
    try:
        content = _Unpickler(io.BytesIO(file.read_bytes()), encoding="bytes").load()
    except Exception as error:  # bytes that are no pickle raise almost anything
        raise ValueError(f"{file} must be a pickle of CIFAR's, got one that cannot be read ({error})") from None
    if not isinstance(content, dict):
        raise ValueError(f"{file} must be a pickle of CIFAR's, got {type(content).__name__}")
    return content
