"""Images as tensors `batch channel row column` with values from 0 to 1."""

from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headwork.extras import missing, need

try:
    from PIL import Image, UnidentifiedImageError
except ModuleNotFoundError as error:
    raise missing(error) from None

IMAGE_ENDINGS = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")


def sample_digit(number: int = 0) -> Float[Tensor, "1 1 8 8"]:
    """One of the 1,797 handwritten digits (8 x 8, grey) that come with scikit-learn.

    >>> sample_digit(7).shape
    torch.Size([1, 1, 8, 8])
    """
    need("sklearn")
    from sklearn.datasets import load_digits

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
    """An image file at the given (rows, columns), in colour (3 channels) or grey (1)."""
    try:
        with Image.open(path) as image:
            return _as_tensor(image, size, n_channels)
    except FileNotFoundError:
        raise ValueError(f"image must be a file that exists, got {path}") from None
    except (UnidentifiedImageError, Image.DecompressionBombError, OSError) as error:
        raise ValueError(f"image must be a picture that can be read, got {path} ({error})") from None


def find_images(path: Path) -> list[Path]:
    """The image itself, or all images in a folder (not below it) by name."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise ValueError(f"images must be a file or a folder that exists, got {path}")
    found = sorted(
        file
        for file in path.iterdir()
        if file.suffix.lower() in IMAGE_ENDINGS and not file.name.startswith(".") and file.is_file()
    )
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


def _as_tensor(image: Image.Image, size: tuple[int, int], n_channels: int) -> Float[Tensor, "1 channel row column"]:
    if n_channels not in (1, 3):
        raise ValueError(f"n_channels must be 1 (grey) or 3 (colour), got {n_channels}")
    rows, columns = size
    if image.has_transparency_data:
        image = _on_paper(image.convert("RGBA"))
    resized = image.convert("L" if n_channels == 1 else "RGB").resize((columns, rows), Image.Resampling.BICUBIC)
    pixels = np.asarray(resized, dtype=np.float32).reshape(rows, columns, n_channels) / 255
    return torch.from_numpy(pixels).permute(2, 0, 1)[None].contiguous()
