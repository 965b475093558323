"""How an image becomes the numbers that a model was trained on: `preprocessor_config.json` of a ViT."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headwork.hub.download import find_folder
from headwork.hub.settings import Settings
from headwork.hub.weights import read_json

if TYPE_CHECKING:
    from PIL.Image import Image

FILE = "preprocessor_config.json"
HARMLESS = ("image_processor_type", "feature_extractor_type", "processor_class", "do_convert_rgb", "crop_size")


@dataclass(frozen=True, kw_only=True)
class ImagePreprocessing:
    """Resize to (rows, columns) by one of Pillow's filters, multiply, subtract the mean and divide by the deviation.

    >>> from PIL import Image
    >>> ImagePreprocessing(size=(8, 6), mean=(0.5,) * 3, deviation=(0.5,) * 3)(Image.new("RGB", (20, 30))).unique()
    tensor([-1.])
    """

    size: tuple[int, int] | None
    resample: int = 2
    scale: float = 1 / 255
    mean: tuple[float, ...] = (0.0,) * 3
    deviation: tuple[float, ...] = (1.0,) * 3

    @classmethod
    def load(cls, folder: Path | str) -> "ImagePreprocessing":
        """What the folder says, with the defaults of Hugging Face's ViT."""
        path = find_folder(folder) / FILE
        settings = Settings(read_json(path))
        try:
            made = cls._read(settings)
            settings.close()
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        return made

    @classmethod
    def _read(cls, settings: Settings) -> "ImagePreprocessing":
        settings.only(do_center_crop=False, do_pad=False)
        settings.harmless(*HARMLESS)
        scale = settings.number("rescale_factor", 1 / 255)
        mean, deviation = (_numbers(settings, name) for name in ("image_mean", "image_std"))
        size, normalised = _size(settings), settings.flag("do_normalize", True)
        resample = settings.value("resample", 2)
        if resample not in range(6):
            raise ValueError(f"resample must be one of Pillow's filters, 0 .. 5, got {resample!r}")
        return cls(
            size=size if settings.flag("do_resize", True) else None,
            resample=int(str(resample)),
            scale=scale if settings.flag("do_rescale", True) else 1.0,
            mean=mean if normalised else (0.0,) * 3,
            deviation=deviation if normalised else (1.0,) * 3,
        )

    def __call__(self, image: "Image") -> Float[Tensor, "1 channel row column"]:
        colours = image.convert("RGB")
        if self.size is not None:
            rows, columns = self.size
            colours = colours.resize((columns, rows), self.resample)
        pixels = np.asarray(colours).astype(np.float64) * self.scale
        numbers = (pixels - np.array(self.mean)) / np.array(self.deviation)
        return torch.from_numpy(numbers.astype(np.float32)).permute(2, 0, 1)[None].contiguous()


def _size(settings: Settings) -> tuple[int, int]:
    """One number in old folders, and height and width in others."""
    size = settings.value("size", 224)
    if not isinstance(size, dict):
        side = settings.count("size", 224)
        return side, side
    sides = Settings(size)
    rows, columns = sides.count("height", 224), sides.count("width", 224)
    sides.close()
    return rows, columns


def _numbers(settings: Settings, name: str) -> tuple[float, ...]:
    values = settings.value(name, [0.5, 0.5, 0.5])
    if not isinstance(values, list) or len(values) != 3 or not all(isinstance(value, int | float) for value in values):
        raise ValueError(f"{name} must be three numbers, got {values!r}")
    if name == "image_std" and not all(values):
        raise ValueError(f"{name} must not be 0, got {values!r}")
    return tuple(map(float, values))
