"""Images as tensors `batch channel row column` with values from 0 to 1."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import BinaryIO

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headwork.checks import check_file, check_type
from headwork.data.folders import files_below
from headwork.extras import missing, need

try:
    from PIL import Image, ImageOps, UnidentifiedImageError
except ModuleNotFoundError as error:
    raise missing(error) from None

LARGEST_IMAGE = 2**31
"""Bytes of a file."""
LARGEST = 89_478_485
"""Pixels of an image: one of more is a mistake, or made to fill the memory. Up to here Pillow does not warn either."""
LONGEST_SIDE = 2**20
"""Pixels: what makes an image smaller needs a table for each row and column."""
IMAGE_ENDINGS = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")


def sample_digit(number: int = 0) -> Float[Tensor, "1 1 8 8"]:
    """One of the 1,797 handwritten digits (8 x 8, grey) that come with scikit-learn.

    >>> sample_digit(7).shape
    torch.Size([1, 1, 8, 8])
    """
    need("sklearn")
    from sklearn.datasets import load_digits

    check_type(int, "a whole number", number=number)
    images = load_digits().images
    if not 0 <= number < len(images):
        raise ValueError(f"number must lie in 0 .. {len(images) - 1}, got {number}")
    return torch.tensor(images[number] / 16, dtype=torch.float32)[None, None]


def sample_photo(size: tuple[int, int], n_channels: int = 3) -> Float[Tensor, "1 channel row column"]:
    """A photograph of a temple that comes with scikit-learn, at the given (rows, columns).

    >>> sample_photo((32, 48)).shape
    torch.Size([1, 3, 32, 48])
    """
    need("sklearn")
    from sklearn.datasets import load_sample_image

    return _as_tensor(Image.fromarray(load_sample_image("china.jpg")), size, n_channels)


def read_image(path: Path, size: tuple[int, int], n_channels: int) -> Float[Tensor, "1 channel row column"]:
    """An image file at the given (rows, columns), in colour (3 channels) or grey (1), turned as its EXIF data says."""
    _check_channels(n_channels)
    with open_image(path) as image:
        return _as_tensor(image, size, n_channels)


@contextmanager
def open_image(path: Path) -> Iterator[Image.Image]:
    """An image file with 8 bits for each number, turned as its EXIF data says, while the block lasts."""
    with _open_head(path) as image, _in_our_words(path):
        ImageOps.exif_transpose(image, in_place=True)
        yield _with_eight_bits(image) if image.mode[0] in "IF" else image


def stored_size(path: Path) -> tuple[int, int]:
    """The (rows, columns) of an image file as it is stored, from its head; raise for one that cannot be used."""
    with _open_head(path) as image:
        return image.height, image.width


def check_whole(path: Path) -> None:
    """Raise if an image cannot be decoded to its end; a JPEG is decoded at an eighth of its size, which is faster."""
    with _open_head(path) as image, _in_our_words(path):
        image.draft("L", (1, 1))
        image.load()


@contextmanager
def _open_head(path: Path) -> Iterator[Image.Image]:
    """An image file of which only the head was read; raise unless it is one picture that fits into memory."""
    check_file(path, "image", LARGEST_IMAGE)
    # By its name Pillow would map a TIFF into memory, and scramble one that its EXIF data turns.
    with path.open("rb") as file:
        with _in_our_words(path):
            image = _open_unlimited(file)
        with image:
            rows, columns = image.height, image.width
            longest = max(rows, columns)
            for n, most, what in ((rows * columns, LARGEST, "pixels"), (longest, LONGEST_SIDE, "pixels in a line")):
                if n > most:
                    got = f"{path} with {rows:,} x {columns:,}"
                    raise ValueError(f"image must have at most {most:,} {what}, got {got}: make it smaller")
            with _in_our_words(path):
                n_frames = getattr(image, "n_frames", 1)
            if n_frames > 1 and image.format != "MPO":  # a photo, and smaller copies of it
                raise ValueError(f"image must be one picture, got {path} with {n_frames} frames: save one of them")
            yield image


_opening = Lock()


def _open_unlimited(file: BinaryIO) -> Image.Image:
    """The head of an image of any size, without Pillow's warning or error for a large one."""
    with _opening:
        limit, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
        try:
            return Image.open(file)
        finally:
            Image.MAX_IMAGE_PIXELS = limit


@contextmanager
def _in_our_words(path: Path) -> Iterator[None]:
    try:
        yield
    except MemoryError:
        raise
    except UnidentifiedImageError:  # whose message shows an object of Python's
        raise ValueError(f"image must be a picture that can be read, got {path}, which is none") from None
    except Exception as error:  # a broken file can make Pillow raise anything
        raise ValueError(f"image must be a picture that can be read, got {path} ({error})") from None


def find_images(path: Path) -> list[Path]:
    """The image itself, or all images in a folder and below it by name."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise ValueError(f"images must be a file or a folder that exists, got {path}")
    found = files_below(path, IMAGE_ENDINGS).found
    if not found:
        raise ValueError(f"images must be a folder with files such as {', '.join(IMAGE_ENDINGS)}, got {path}")
    return found


def _on_paper(image: Image.Image) -> Image.Image:
    """What is transparent becomes black under light ink, and white under dark ink, so that the ink is seen."""
    ink, opacity = (np.asarray(channel, dtype=np.float64) for channel in image.convert("LA").split())
    is_light = (ink * opacity).sum() > 127.5 * opacity.sum()
    paper = Image.new("RGBA", image.size, "black" if is_light else "white")
    paper.alpha_composite(image)
    return paper


def _with_eight_bits(image: Image.Image) -> Image.Image:
    """Pillow would clip what has more: of 16 bits the upper 8 are kept, and numbers from 0 to 1 are scaled."""
    values = np.asarray(image, dtype=np.float64)
    low, high = values.min(), values.max()
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM")):
        brightest = 2**16 - 1  # older versions of Pillow have these in 32 bits
    elif image.mode == "F" and low >= 0 and high <= 1:
        brightest = 1
    else:
        rule = "have 8 or 16 bits, or numbers from 0 (black) to 1 (white)"
        raise ValueError(f"the pixels must {rule}, got mode {image.mode} with values from {low:g} to {high:g}")
    return Image.fromarray((255 * values / brightest).round().astype(np.uint8))


def _check_channels(n_channels: int) -> None:
    if n_channels not in (1, 3):
        raise ValueError(f"n_channels must be 1 (grey) or 3 (colour), got {n_channels}")


def _as_tensor(image: Image.Image, size: tuple[int, int], n_channels: int) -> Float[Tensor, "1 channel row column"]:
    _check_channels(n_channels)
    rows, columns = size
    if image.has_transparency_data:
        image = _on_paper(image.convert("RGBA"))
    resized = image.convert("L" if n_channels == 1 else "RGB").resize((columns, rows), Image.Resampling.BICUBIC)
    pixels = np.asarray(resized, dtype=np.float32).reshape(rows, columns, n_channels) / 255
    return torch.from_numpy(pixels).permute(2, 0, 1)[None].contiguous()
