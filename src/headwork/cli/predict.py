"""`headwork predict`: the best checkpoint of a run, on files."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from headwork.cli.answers import OUT_HELP, Answers, beside, check_finite, to_json
from headwork.cli.arguments import OfRunOrModel, complain, lines_of_stdin, without_denormals
from headwork.cli.asked import COLUMN_HELP, Columns, find_asked, is_text, read_asked
from headwork.tables import one_line

if TYPE_CHECKING:
    from torch import Tensor, nn

    from headwork.cli.label_texts import TextLabeller
    from headwork.data import AnyTokenizer, ImageBatch, TextBatch
    from headwork.models import Description
    from headwork.tasks import LabelTask
    from headwork.training import Run

Read = Callable[[Any], Any]
"""How a file (a path), or a text itself, becomes a batch of one example; its label is 0, and nobody looks at it."""
LONGEST_TEXT = 10**7
"""Characters from stdin."""
N_COMPARED = 1000
"""Images of the run whose brightness is compared with that of a file."""

TOP = 3
"""Labels of a file that are named unless it is said otherwise."""


@dataclass(frozen=True)
class Predict(OfRunOrModel):
    """Label images or texts with the best checkpoint of a run, or a model that was made from it.

    Images also with a folder of Hugging Face's.
    """

    files: Annotated[
        Positional[tuple[str, ...]],
        arg(help="Images, texts or tables of texts; folders of these; a text in quotes; - for a text from stdin."),
    ] = ()
    top: Annotated[int | None, arg(help="How many labels to name for each file; 3 unless given.")] = None
    invert: Annotated[bool, arg(help="Swap black and white: for dark ink, if the run has seen light ink.")] = False
    skip_bad: Annotated[bool, arg(help="Count what cannot be read instead of stopping at the first.")] = False
    column: Annotated[str | None, arg(help=COLUMN_HELP)] = None
    out: Annotated[Path | None, arg(help=OUT_HELP)] = None
    json: Annotated[bool, arg(help="Print a line of JSON for each file.")] = False

    @without_denormals()
    def run(self) -> None:
        from headwork.checks import check_positive, with_article
        from headwork.hub import find_folder, is_pretrained
        from headwork.models import describe
        from headwork.tasks import LabelTask

        check_positive(top=self.top)
        if not self.files:
            raise ValueError("files must name at least one file, got none")
        if self.like is None and is_pretrained(folder := find_folder(str(self.run_folder))):
            if self.invert:
                raise ValueError(f"invert is for runs, got it for {folder}, which says itself how images are read")
            self.predict_pretrained(folder)
            return
        run, model = self.open()
        description = describe(model)
        if not isinstance(run.task, LabelTask) or description is None or description.input not in ("image", "text"):
            what = f"{with_article(type(model).__name__)} for the task {type(run.task).__name__}"
            if description is None:
                what += ", without a description that says what it reads"
            raise ValueError(f"run must be one of a classifier of images or texts, got {self.run_folder}: {what}")
        if description.n_outputs != len(run.task.labels):
            rule = f"have an output for each of the {len(run.task.labels)} labels of {run.folder}"
            raise ValueError(f"run must {rule}, got {self.run_folder} with {description.n_outputs}")
        is_image = description.input == "image"
        if is_image and "-" in self.files:
            raise ValueError("files must be images for this run: - reads a text from stdin, got -")
        if self.invert and not is_image:
            raise ValueError(f"invert is for images, got it for {self.run_folder}, which reads texts")
        if is_image:
            if self.column is not None:
                raise ValueError(
                    f"column is for tables of texts, got {self.column!r} for {self.run_folder}, which reads images"
                )
            self.predict_all(model, run.task, image_reader(run, description, invert=self.invert), is_image=True)
            return
        from headwork.cli.label_texts import TextLabeller

        of_run = getattr(run.config.data, "text", None)
        labeller = TextLabeller(model, run.task, tokenizer_of(run), text_limit(run, description), self.skip_bad)
        self.predict_texts(labeller, text_reader(run, description), of_run if isinstance(of_run, str) else None)

    def predict_pretrained(self, folder: Path) -> None:
        """With a folder of Hugging Face's: labels, what a mask stands for, or how alike texts are."""
        from headwork.cli import pretrained
        from headwork.cli.label_texts import TextLabeller

        opened = pretrained.open_model(folder)
        if opened.output == "class" and opened.input == "image":
            self.predict_all(opened.model, opened.task(), opened.reader(), is_image=True)
        elif opened.output == "class":
            limit = opened.description.max_tokens
            labeller = TextLabeller(opened.model, opened.task(), opened.tokenizer(), limit, self.skip_bad)
            self.predict_texts(labeller, opened.reader(), None)
        elif opened.output == "masked token":
            for path in self.texts_or_paths():
                for line in opened.fill(path, self.top or TOP, as_json=self.json):
                    print(one_line(line), flush=True)
        else:
            for line in opened.similarities(self.texts_or_paths(), as_json=self.json):
                print(one_line(line), flush=True)

    def predict_texts(self, labeller: "TextLabeller", read: Read, of_run: str | None) -> None:
        """The label of every text, or of every row of tables: the row, and what it is taken for."""
        from headwork.data.table_files import is_table
        from headwork.data.text_table import TEXT_COLUMNS

        files = self.find_files(is_image=False)
        tables = [file for file in files if isinstance(file, Path) and is_table(file)]
        if not tables:
            if self.column is not None:
                raise ValueError(f"column is for tables, got {self.column!r} for {files[0]}")
            self.predict_all(labeller.model, labeller.task, read, is_image=False, files=files)
            return
        if len(tables) < len(files):
            raise ValueError(f"files must be tables or texts, not both, got {', '.join(self.files)}")
        if self.top is not None:
            raise ValueError(f"top is for single texts; of a row the first label is given, got {self.top} for a table")
        columns = Columns(self.column, TEXT_COLUMNS if of_run is None else (of_run.strip().lower(), *TEXT_COLUMNS))
        with Answers(self.out) as answers:
            for asked, label, probability in labeller.label(
                each for file in tables for each in read_asked(file, columns)
            ):
                row = {"place": asked.place, "predicted": label, "probability": probability}
                said = f"{asked.place}: {label} {100 * probability:.1f} %"
                answers.add(row, to_json(beside(asked.row, row)) if self.json else said, asked.row)
        labeller.complain()
        if labeller.bad.n and not labeller.n:
            raise RuntimeError("no text could be read")

    def predict_all(
        self, model: "nn.Module", task: "LabelTask", read: Read, *, is_image: bool, files: Sequence[Path | str] = ()
    ) -> None:
        """The labels of each file."""
        import torch

        from headwork.batches import call_model

        n_bad = n_good = 0
        with Answers(self.out) as answers:
            for path in files or self.find_files(is_image=is_image):
                try:
                    batch = read(path)
                except ValueError as error:
                    if not self.skip_bad:
                        raise
                    n_bad += 1
                    complain(f"skipped: {error}")
                    continue
                n_good += 1
                with torch.no_grad():
                    probabilities = task.probabilities(call_model(model, batch))[0].tolist()
                check_finite(path, dict(zip(task.labels, probabilities, strict=True)))
                best = max(zip(probabilities, task.labels, strict=True))
                row = {what(path): str(path), "predicted": best[1], "probability": best[0]}
                answers.add(row, self.say(path, probabilities, task.labels))
        if n_bad:
            complain(f"skipped {n_bad} of {n_bad + n_good} files")
        if not n_good:
            raise RuntimeError("no file could be read")

    def texts_or_paths(self) -> list[Path | str]:
        """Each argument as the file that it names, or as the text that it is."""
        return [word if is_text(word) else Path(word) for word in self.files]

    def find_files(self, *, is_image: bool) -> list[Path | str]:
        from headwork.data.bundled_text import TEXT_ENDINGS
        from headwork.data.images import IMAGE_ENDINGS
        from headwork.data.table_files import TABLE_ENDINGS

        if not is_image:
            return [
                file
                for each in self.texts_or_paths()
                for file in ([each] if isinstance(each, str) else find_asked(each, TABLE_ENDINGS, TEXT_ENDINGS))
            ]
        return [file for path in self.files for file in find_asked(folder_of_images(Path(path)), IMAGE_ENDINGS)]

    def say(self, path: Path | str, probabilities: list[float], labels: tuple[str, ...]) -> str:
        best = sorted(zip(labels, probabilities, strict=True), key=lambda pair: -pair[1])[: self.top or TOP]
        if self.json:
            return json.dumps(
                {what(path): str(path), "labels": [{"label": name, "probability": p} for name, p in best]}
            )
        return f"{path}: " + ", ".join(f"{name} {100 * probability:.1f} %" for name, probability in best)


def what(path: Path | str) -> str:
    """What an answer calls that which it answers."""
    return "text" if isinstance(path, str) else "file"


def folder_of_images(path: Path) -> Path:
    """The path itself; of Parquet files the folder to which their images were written."""
    from headwork.data.parquet_images import find_image_folder

    if not path.exists():
        return path
    folder, notes = find_image_folder(str(path))
    for note in notes:
        complain(note)
    return folder


def image_reader(run: "Run", description: "Description", *, invert: bool = False) -> Read:
    """Images of the size that the model is made for or, if it takes any, that the data of the run has."""
    import torch

    from headwork.data import ImageBatch, PreprocessedImages, read_image

    if isinstance(run.config.data, PreprocessedImages):
        if invert:
            raise ValueError(f"invert is for images as they are, got it for {run.folder}, whose model has its own way")
        from headwork.cli.pretrained import image_reader as read_as_folder

        return read_as_folder(Path(run.config.data.folder))
    seen = images_of(run)
    size, n_channels = (
        description.image or (None if seen is None else (seen.shape[2], seen.shape[3])),
        description.n_channels,
    )
    if size is None:
        raise ValueError(f"run must have data that can be read, to know the size of its images, got {run.folder}")
    assert n_channels is not None

    def read(path: Path) -> "ImageBatch":
        image = read_image(path, size, n_channels)
        image = 1 - image if invert else image
        warn_of_paper(path, image, seen)
        return ImageBatch(image, torch.tensor([0]))

    return read


def images_of(run: "Run") -> "Tensor | None":
    """Some images of the run, if its data can be read here: to predict, nobody needs it."""
    from headwork.extras import MissingExtraError

    if run.config.data is None:
        return None
    try:
        test = run.load_data().test
    except (ValueError, OSError, RuntimeError, MissingExtraError):
        return None
    return test.batch(range(min(len(test), N_COMPARED)))[0]


def warn_of_paper(path: Path, image: "Tensor", seen: "Tensor | None") -> None:
    """Say that an image is brighter or darker than any of the run, and would not be with black and white swapped."""
    if seen is None or seen.min() < 0 or seen.max() > 1:
        return
    means, mean = seen.flatten(1).mean(1), float(image.mean())
    low, high = float(means.min()), float(means.max())
    if not low <= mean <= high and low <= 1 - mean <= high:
        ink = "dark ink on light paper" if mean > high else "light ink on dark paper"
        complain(
            f"{path} looks like {ink}, which the run has not seen (mean brightness {mean:.2f}, there {low:.2f} to "
            f"{high:.2f}): --invert swaps black and white"
        )


def text_limit(run: "Run", description: "Description") -> int:
    """The tokens of a text that are read, BEGIN among them."""
    limits = (description.max_tokens, getattr(run.config.data, "max_tokens", None))
    return min((limit for limit in limits if limit is not None), default=512)


def tokenizer_of(run: "Run") -> "AnyTokenizer":
    if run.tokenizer is None:
        raise ValueError(f"run must have a tokenizer to read texts, got {run.folder}, which has none")
    return run.tokenizer


def text_reader(run: "Run", description: "Description") -> Read:
    """BEGIN and the first tokens of a text, as many as the model and the data have."""
    import torch

    from headwork.data import TextBatch, encode_starts, read_text
    from headwork.data.unknown import say_mostly_unknown

    tokenizer, limit = tokenizer_of(run), text_limit(run, description)

    def read(path: Path | str) -> "TextBatch":
        text = path if isinstance(path, str) else text_of_stdin() if str(path) == "-" else read_text(path)
        n_tokens, n_read = len(tokenizer.encode(text)), limit - 1  # BEGIN comes before them
        if not n_tokens:
            raise ValueError(f"text must not be empty, got {str(path)!r}")
        if n_tokens > n_read:
            complain(f"of {path} the first {n_read} of {n_tokens} tokens are read")
        ids = encode_starts([text], tokenizer, limit)
        if note := say_mostly_unknown(ids[0], tokenizer, str(path)):
            complain(note)
        batch = torch.tensor(ids)
        return TextBatch(batch, torch.ones_like(batch, dtype=torch.bool), torch.tensor([0]))

    return read


def text_of_stdin() -> str:
    lines, n_letters = [], 0
    for line in lines_of_stdin():
        lines.append(line)
        n_letters += len(line) + 1
        if n_letters > LONGEST_TEXT:
            raise ValueError(f"stdin must be a text of at most {LONGEST_TEXT:,} characters, got a longer one")
    return "\n".join(lines)
