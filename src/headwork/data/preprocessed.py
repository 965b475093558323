"""Images as a pretrained model wants them: any image data set, through the preprocessing in the model's folder."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from einops import rearrange

from headwork import serialise
from headwork.batches import ImageBatch
from headwork.data.examples import DataConfig, Dataset, Examples
from headwork.extras import need
from headwork.hub import ImagePreprocessing


@dataclass(frozen=True, kw_only=True)
class PreprocessedImages(serialise.Checked):
    """The images of `data`, resized, in colour and scaled as `preprocessor_config.json` of the folder says."""

    data: DataConfig
    folder: str

    def load(self, seed: int = 0) -> Dataset:
        whole = self.data.load(seed)
        preprocessing = ImagePreprocessing.load(self.folder)
        train, valid, test = (
            PreprocessedExamples(part, preprocessing) for part in (whole.train, whole.valid, whole.test)
        )
        return replace(whole, train=train, valid=valid, test=test)


@dataclass(frozen=True, eq=False)
class PreprocessedExamples:
    """Images between 0 and 1, one after the other through Pillow."""

    examples: Examples
    preprocessing: ImagePreprocessing

    def __len__(self) -> int:
        return len(self.examples)

    def batch(self, indices: Sequence[int], epoch: int | None = None) -> ImageBatch:
        need("PIL")
        from PIL import Image

        images, *_, label = self.examples.batch(indices, epoch)
        if images.ndim != 4 or not images.is_floating_point():
            raise ValueError(f"data must be images for a model of images, got the shape {tuple(images.shape)}")
        pixels = (255 * images.clamp(0, 1)).round().byte().expand(-1, 3, -1, -1)
        made = [
            self.preprocessing(Image.fromarray(rearrange(image, "channel row column -> row column channel").numpy()))
            for image in pixels
        ]
        return ImageBatch(torch.cat(made), label)
