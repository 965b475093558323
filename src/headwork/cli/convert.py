"""`headwork convert`."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import Positional, arg

from headwork.cli.arguments import Imports, load_model, without_denormals

if TYPE_CHECKING:
    from torch import Tensor, nn

    from headwork.convert import Converted

MOST_IMAGES = 10_000


@dataclass(frozen=True)
class Convert(Imports):
    """Convert convolutions to attention or Gaussian heads to convolutions, or write a model in another layout.

    `--to huggingface` writes the folder of a run or model as transformers reads it, `--to headwork` one of theirs as
    ours.
    """

    folder: Annotated[Positional[Path], arg(help="The folder of a model or run.")]
    out: Annotated[Path, arg(help="A new folder for the converted model.")]
    to: Annotated[
        Literal["attention", "convolution", "huggingface", "headwork"] | None,
        arg(help="The direction or layout; the direction that is possible for the model, unless given."),
    ] = None
    tolerance: Annotated[
        float | None,
        arg(help="How far each layer may be off, for inputs in [-1, 1] (to attention); 1e-6 unless given."),
    ] = None
    kernel_size: Annotated[
        tuple[int, int] | None, arg(help="Rows and columns of each kernel (to convolution); 3 3 unless given.")
    ] = None
    images: Annotated[int, arg(help="Images on which the two models are compared.")] = 64
    image: Annotated[
        tuple[int, int] | None,
        arg(help="Rows and columns of the images, for a model of any size without a run; 32 32 unless given."),
    ] = None
    json: Annotated[bool, arg(help="Print JSON for a program to read.")] = False

    @without_denormals()
    def run(self) -> None:
        from headwork.checks import check_positive
        from headwork.convert import compare
        from headwork.storage.models import save_with
        from headwork.training.run import is_run, open_run

        check_positive(images=self.images)
        if self.images > MOST_IMAGES:
            raise ValueError(f"images must be at most {MOST_IMAGES:,}, got {self.images}")
        if self.out.exists():
            raise ValueError(f"out must be a new folder, got {self.out}, which exists")
        if self.to in ("huggingface", "headwork"):
            self.write_as(self.to)
            return
        model = load_model(self.folder, self.own_classes)
        images, source = self.find_images(model)
        converted = self.convert(model, (images.shape[2], images.shape[3]))
        comparison = compare(model, converted.model, images)
        files = open_run(self.folder, self.own_classes).files() if is_run(self.folder) else {}
        save_with(converted.model, self.out, files)
        if self.json:
            summary = {"out": str(self.out), "images": source, **asdict(comparison), **converted.to_dict()}
            print(json.dumps(summary, indent=2))
        else:
            print(f"{converted}\non {source}, {comparison}\nwritten to {self.out}")

    def write_as(self, layout: Literal["huggingface", "headwork"]) -> None:
        """The same model in another layout; low-rank adaptations are merged for Hugging Face."""
        from headwork.hub import is_pretrained, save
        from headwork.training.run import is_run, open_run

        for name, value in (("tolerance", self.tolerance), ("kernel_size", self.kernel_size), ("image", self.image)):
            if value is not None:
                raise ValueError(f"{name} is for the directions attention and convolution, got {value} to {layout}")
        theirs = is_pretrained(self.folder)
        if theirs == (layout == "huggingface") and self.folder.is_dir():
            raise ValueError(f"to must be another layout than the folder has, got {layout} for {self.folder}")
        model, like, labels = load_model(self.folder, self.own_classes), None, None
        if layout == "huggingface" and is_run(self.folder):
            run = open_run(self.folder, self.own_classes)
            labels, like = getattr(run.task, "labels", None), origin_of(run.config.data)
        save(model, self.out, format=layout, like=like, labels=labels)
        along = "" if like is None else f", with the tokenizer or preprocessing of {like}"
        summary = {"out": str(self.out), "format": layout, "like": None if like is None else str(like)}
        print(json.dumps(summary) if self.json else f"written to {self.out} in the layout of {layout}{along}")

    def convert(self, model: "nn.Module", image: tuple[int, int]) -> "Converted":
        from headwork.convert import possible_directions, to_attention, to_convolution
        from headwork.models import describe

        possible = possible_directions(model)
        if not possible:
            raise ValueError(
                f"model must have an nn.Conv2d or Gaussian heads to convert, got {type(model).__name__} without either"
            )
        if self.to is None and len(possible) > 1:
            raise ValueError(f"to must be given for a model that allows both, {' and '.join(possible)}, got None")
        if (self.to or possible[0]) == "attention":
            if self.kernel_size is not None:
                raise ValueError(f"kernel_size is for the direction convolution, got {self.kernel_size} to attention")
            return to_attention(model, 1e-6 if self.tolerance is None else self.tolerance)
        if self.tolerance is not None:
            raise ValueError(f"tolerance is for the direction attention, got {self.tolerance} to convolution")
        description = describe(model)
        grid = image if description is None or description.grid is None else description.grid
        return to_convolution(model, self.kernel_size or (3, 3), grid)

    def find_images(self, model: "nn.Module") -> "tuple[Tensor, str]":
        """Test images of the run, or random ones of the model's size, and which they are."""
        import torch

        from headwork.checks import check_positive, with_article
        from headwork.models import describe
        from headwork.training.run import is_run, open_run

        description = describe(model)
        if description is None or description.input != "image" or description.n_channels is None:
            raise ValueError(f"folder must hold a model of images, got {with_article(type(model).__name__)}")
        if self.image is not None:
            check_positive(image_rows=self.image[0], image_columns=self.image[1])
            if is_run(self.folder) or description.image is not None:
                raise ValueError(f"image is for a model of any size without a run, got {self.image} for {self.folder}")
        if is_run(self.folder):
            test = open_run(self.folder, self.own_classes).load_data().test
            batch = test.batch(range(min(self.images, len(test))))
            return batch[0], "the run's test images"
        rows, columns = description.image or self.image or (32, 32)
        generator = torch.Generator().manual_seed(0)
        images = torch.rand(self.images, description.n_channels, rows, columns, generator=generator)
        return images, f"random images of {rows} x {columns} pixels"


def origin_of(data: object) -> Path | None:
    """The folder of the pretrained model that a run began with, if its data has the tokens or preprocessing of one."""
    from headwork.hub import is_pretrained

    for part in (data, getattr(data, "tokenizer", None), getattr(getattr(data, "text", None), "tokenizer", None)):
        folder = getattr(part, "folder", None)
        if isinstance(folder, str) and Path(folder).is_dir() and is_pretrained(folder):
            return Path(folder)
    return None
