"""`headwork evaluate` and `headwork predict`: the best checkpoint of a run, on its own data or on files."""

import json
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, arg

from headwork.cli.arguments import OfRun, lines_of_stdin, without_denormals

if TYPE_CHECKING:
    from torch import nn

    from headwork.data import ImageBatch, TextBatch
    from headwork.models import Description
    from headwork.tasks import LabelTask
    from headwork.training import Run

Read = Callable[[Path], Any]
"""How a file becomes a batch of one example; its label is 0, and nobody looks at it."""


@dataclass(frozen=True)
class Evaluate(OfRun):
    """Measure the best checkpoint of a run on a split of its data."""

    split: Annotated[Literal["train", "valid", "test"], arg(help="Which examples.")] = "test"
    batch_size: Annotated[int, arg(help="Examples at once.")] = 64
    json: Annotated[bool, arg(help="Print JSON for a program to read.")] = False

    @without_denormals()
    def run(self) -> None:
        from headwork.checks import check_positive
        from headwork.training.display import show
        from headwork.training.plan import ordered_batches

        check_positive(batch_size=self.batch_size)
        run, model = self.open()
        examples = getattr(run.load_data(), self.split)
        metrics = run.task.evaluate(model, ordered_batches(examples, self.batch_size)).metrics
        check_finite(self.run_folder, metrics)
        if self.json:
            print(json.dumps({"run": str(self.run_folder), "split": self.split, "examples": len(examples), **metrics}))
        else:
            print(f"{run.config.name} on {len(examples)} {self.split} examples: {show(metrics, run.task)}")


@dataclass(frozen=True)
class Predict(OfRun):
    """Label images or texts with the best checkpoint of a run; images also with a folder of Hugging Face's."""

    files: Annotated[
        Positional[tuple[Path, ...]], arg(help="Images or texts; a folder of images; - for a text from stdin.")
    ] = ()
    top: Annotated[int, arg(help="How many labels to name for each.")] = 3
    skip_bad: Annotated[bool, arg(help="Count files that cannot be read instead of stopping at the first.")] = False
    json: Annotated[bool, arg(help="Print a line of JSON for each file.")] = False

    @without_denormals()
    def run(self) -> None:
        from headwork.checks import check_positive
        from headwork.hub import find_folder, is_pretrained
        from headwork.models import describe
        from headwork.tasks import LabelTask
        from headwork.training import open_run

        check_positive(top=self.top)
        if not self.files:
            raise ValueError("files must name at least one file, got none")
        if is_pretrained(folder := find_folder(str(self.run_folder))):
            self.predict_all(*open_classifier(folder), is_image=True)
            return
        run = open_run(self.run_folder, self.own_classes)
        description = describe(run.config.model)
        if not isinstance(run.task, LabelTask) or description is None or description.input not in ("image", "text"):
            raise ValueError(f"run must be one of a classifier of images or texts, got {run.config.name}")
        is_image = description.input == "image"
        if is_image and Path("-") in self.files:
            raise ValueError("files must be images for this run: - reads a text from stdin, got -")
        read = image_reader(run, description) if is_image else text_reader(run, description)
        self.predict_all(self.open()[1], run.task, read, is_image=is_image)

    def predict_all(self, model: "nn.Module", task: "LabelTask", read: Read, *, is_image: bool) -> None:
        import torch

        from headwork.batches import call_model

        n_bad = n_good = 0
        for path in self.find_files(is_image=is_image):
            try:
                batch = read(path)
            except ValueError as error:
                if not self.skip_bad:
                    raise
                n_bad += 1
                print(f"skipped: {error}", file=sys.stderr)
                continue
            n_good += 1
            with torch.no_grad():
                probabilities = task.probabilities(call_model(model, batch))[0].tolist()
            check_finite(path, dict(zip(task.labels, probabilities, strict=True)))
            print(self.say(path, probabilities, task.labels), flush=True)
        if n_bad:
            print(f"skipped {n_bad} of {n_bad + n_good} files", file=sys.stderr)
        if not n_good:
            raise RuntimeError("no file could be read")

    def find_files(self, *, is_image: bool) -> list[Path]:
        from headwork.data import find_images

        return [file for path in self.files for file in (find_images(path) if is_image and path.is_dir() else [path])]

    def say(self, path: Path, probabilities: list[float], labels: tuple[str, ...]) -> str:
        best = sorted(zip(labels, probabilities, strict=True), key=lambda pair: -pair[1])[: self.top]
        if self.json:
            return json.dumps({"file": str(path), "labels": [{"label": name, "probability": p} for name, p in best]})
        return f"{path}: " + ", ".join(f"{name} {100 * probability:.1f} %" for name, probability in best)


def check_finite(what: Path, numbers: dict[str, float]) -> None:
    """Raise instead of printing what is no number, and no JSON either."""
    from headwork.training import NonFiniteError

    for name, number in numbers.items():
        if not math.isfinite(number):
            raise NonFiniteError(f"{what} gives {number} for {name}: the numbers in the model grow too large")


def open_classifier(folder: Path) -> "tuple[nn.Module, LabelTask, Read]":
    """A classifier of images in a folder of Hugging Face's, its labels, and its own way to read an image."""
    import torch

    from headwork.data import ImageBatch
    from headwork.hub import ImagePreprocessing, labels_of, load_pretrained, note_of_unverified
    from headwork.models import describe
    from headwork.tasks import Classification

    model = load_pretrained(folder, dtype=torch.float32)
    description = describe(model)
    if description is None or (description.input, description.output) != ("image", "class"):
        raise ValueError(f"run must be one of a classifier of images, got {folder}")
    if note := note_of_unverified(folder):
        print(f"headwork: {note}", file=sys.stderr)
    preprocessing = ImagePreprocessing.load(folder)
    task = Classification(labels_of(folder, description.n_outputs))
    return model, task, lambda path: ImageBatch(preprocessing.read(path), torch.tensor([0]))


def image_reader(run: "Run", description: "Description") -> Read:
    """Images of the size that the model is made for or, if it takes any, that the data of the run has."""
    import torch

    from headwork.data import ImageBatch, image_size, read_image

    size, n_channels = description.image or image_size(run.load_data().test), description.n_channels
    assert size is not None
    assert n_channels is not None

    def read(path: Path) -> "ImageBatch":
        return ImageBatch(read_image(path, size, n_channels), torch.tensor([0]))

    return read


def text_reader(run: "Run", description: "Description") -> Read:
    """BEGIN and the first tokens of a text, as many as the model and the data have."""
    import torch

    from headwork.data import TextBatch, encode_starts, read_text

    tokenizer = run.tokenizer
    limits = (description.max_tokens, getattr(run.config.data, "max_tokens", None))
    limit = min((limit for limit in limits if limit is not None), default=512)
    if tokenizer is None:
        raise ValueError(f"run must have a tokenizer to read texts, got {run.config.name}, which has none")

    def read(path: Path) -> "TextBatch":
        text = "\n".join(lines_of_stdin()) if str(path) == "-" else read_text(path)
        n_tokens, n_read = len(tokenizer.encode(text)), limit - 1  # BEGIN comes before them
        if not n_tokens:
            raise ValueError(f"text must not be empty, got {path}")
        if n_tokens > n_read:
            print(f"headwork: of {path} the first {n_read} of {n_tokens} tokens are read", file=sys.stderr)
        ids = torch.tensor(encode_starts([text], tokenizer, limit))
        return TextBatch(ids, torch.ones_like(ids, dtype=torch.bool), torch.tensor([0]))

    return read
