"""`headwork predict`."""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from headwork.cli.text_input import lines_of_stdin

if TYPE_CHECKING:
    from headwork.data import ImageBatch, TextBatch
    from headwork.training import Run


@dataclass(frozen=True)
class Predict:
    """Let the best checkpoint of a run label images or texts."""

    run_folder: Annotated[Positional[Path], arg(name="run", help="The folder of a run.")]
    files: Annotated[
        Positional[tuple[Path, ...]], arg(help="Images or texts; a folder of images; - for a text from stdin.")
    ]
    top: Annotated[int, arg(help="How many labels to name for each.")] = 3
    skip_bad: Annotated[bool, arg(help="Count files that cannot be read instead of stopping at the first.")] = False
    json: Annotated[bool, arg(help="Print a line of JSON for each file.")] = False

    def run(self) -> None:
        from headwork.checks import check_positive
        from headwork.storage import load
        from headwork.tasks import ImageClassification, TextClassification, probabilities
        from headwork.training import open_run

        check_positive(top=self.top)
        if not self.files:
            raise ValueError("files must name at least one file, got none")
        run = open_run(self.run_folder)
        task = run.task
        if not isinstance(task, ImageClassification | TextClassification):
            raise ValueError(f"run must be one of a classifier; use generate or translate, got {run.config.name}")
        if isinstance(task, ImageClassification) and Path("-") in self.files:
            raise ValueError("files must be images for this run: - reads a text from stdin, got -")
        model = load(self.run_folder)
        n_bad = n_good = 0
        for path in self.inputs(is_image=isinstance(task, ImageClassification)):
            try:
                batch = read_input(run, path)
            except ValueError as error:
                if not self.skip_bad:
                    raise
                n_bad += 1
                print(f"skipped: {error}", file=sys.stderr)
                continue
            n_good += 1
            print(self.say(path, probabilities(task, model, batch)[0].tolist(), task.labels), flush=True)
        if n_bad:
            print(f"skipped {n_bad} of {n_bad + n_good} files", file=sys.stderr)
        if not n_good:
            raise RuntimeError("no file could be read")

    def inputs(self, *, is_image: bool) -> Iterator[Path]:
        from headwork.data import find_images

        for path in self.files:
            if is_image and path.is_dir():
                yield from find_images(path)
            else:
                yield path

    def say(self, path: Path, shares: list[float], labels: tuple[str, ...]) -> str:
        best = sorted(zip(labels, shares, strict=True), key=lambda pair: -pair[1])[: self.top]
        if self.json:
            return json.dumps({"file": str(path), "labels": [{"label": name, "probability": p} for name, p in best]})
        return f"{path}: " + ", ".join(f"{name} {100 * share:.1f} %" for name, share in best)


def read_input(run: "Run", path: Path) -> "ImageBatch | TextBatch":
    """One image or one text as a batch of its own."""
    import torch

    from headwork.data import Digits, ImageBatch, Mnist5k, Reviews, TextBatch, encode_starts, read_image, read_text
    from headwork.models import EncoderConfig, GaussianImageEncoderConfig, ResNetConfig, VisionTransformerConfig

    nothing = torch.zeros(1, dtype=torch.long)
    match run.config.model:
        case VisionTransformerConfig() | GaussianImageEncoderConfig() as model:
            return ImageBatch(read_image(path, model.image, model.n_channels), nothing)
        case ResNetConfig() as model:
            data = run.config.data
            assert isinstance(data, Digits | Mnist5k)
            return ImageBatch(read_image(path, data.image, model.n_channels), nothing)
        case EncoderConfig():
            assert run.tokenizer is not None
            text = "\n".join(lines_of_stdin()) if str(path) == "-" else read_text(path)
            limit = run.config.data.max_tokens if isinstance(run.config.data, Reviews) else 512
            n_tokens, n_read = len(run.tokenizer.encode(text)), limit - 1  # BEGIN comes before them
            if not n_tokens:
                raise ValueError(f"text must not be empty, got {path}")
            if n_tokens > n_read:
                print(f"headwork: of {path} the first {n_read} of {n_tokens} tokens are read", file=sys.stderr)
            ids = torch.tensor(encode_starts([text], run.tokenizer, limit))
            return TextBatch(ids, torch.ones_like(ids, dtype=torch.bool), nothing)
        case model:
            raise AssertionError(model)
