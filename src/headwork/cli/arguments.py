"""What several commands take and say: a run, a model, texts on stdin, a file for a figure, the user's own modules."""

import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Annotated, Any, TextIO

from tyro.conf import Positional, UseAppendAction, arg

from headwork.checks import check_file
from headwork.tables import printable

if TYPE_CHECKING:
    from torch import Tensor, nn

    from headwork.data import AnyTokenizer
    from headwork.figures import Figure
    from headwork.training import Run

FIGURE_ENDINGS = (".png", ".svg", ".pdf")
LARGEST_SIZE = 10**7
LONGEST_LINE = 10**6
"""Characters of stdin, which may be a device that never ends a line."""
IMPORT_HELP = "A module of your own whose classes the files of a run or model may name; can be given again."
MODEL_HELP = (
    "A published model (see `headwork models`), a config.json file, or the folder of a model (ours or Hugging Face's) "
    "or run."
)


@contextmanager
def without_denormals() -> Iterator[None]:
    """For a command that computes: before PyTorch, which is imported here and not for help, starts its threads."""
    from headwork.functional.denormals import flush_denormals

    with flush_denormals():
        yield


@dataclass(frozen=True, kw_only=True)
class Imports:
    """Modules of the user's own."""

    own_modules: Annotated[UseAppendAction[tuple[str, ...]], arg(name="import", help=IMPORT_HELP)] = ()

    @property
    def own_classes(self) -> list[type]:
        if not self.own_modules:
            return []
        from headwork.recipes import own_classes

        return own_classes(self.own_modules)


@dataclass(frozen=True)
class OfRun(Imports):
    """The folder of a run."""

    run_folder: Annotated[Positional[Path], arg(name="run", help="The folder of a run.")]

    def open(self) -> "tuple[Run, nn.Module]":
        """The run, and the best of its checkpoints."""
        from headwork.storage import load
        from headwork.training import open_run

        return open_run(self.run_folder, self.own_classes), load(self.run_folder, classes=self.own_classes)


@dataclass(frozen=True)
class OfRunOrModel(OfRun):
    """The folder of a run, or of a model and the run whose data and task it shares."""

    run_folder: Annotated[
        Positional[Path], arg(name="run", help="The folder of a run or of a converted one; of any model with --like.")
    ]
    like: Annotated[
        Path | None, arg(help="A run whose data, task and tokenizer to use, for a model saved without them.")
    ] = None

    def open(self) -> "tuple[Run, nn.Module]":
        from headwork.training import open_run
        from headwork.training.run import is_run

        if self.like is None and self.run_folder.is_dir() and not is_run(self.run_folder):
            rule = "the folder of a run, or be given with --like RUN, whose data and task it shares"
            raise ValueError(f"run must be {rule}, got {self.run_folder}")
        run = open_run(self.like or self.run_folder, self.own_classes)
        return run, load_model(self.run_folder, self.own_classes)


@dataclass(frozen=True)
class OfModel(Imports):
    """A model, and the size of its input."""

    model: Annotated[Positional[str], arg(help=MODEL_HELP)] = "digits-vit"
    tokens: Annotated[int | None, arg(help="Length of each sequence (text models; 16 unless given).")] = None
    batch: Annotated[int, arg(help="Sequences or images at once.")] = 1
    json: Annotated[bool, arg(help="Print JSON for a program to read.")] = False

    def find_config(self) -> Any:
        """The config of a published model, or what a file describes: a config, or a model of the user's own."""
        from headwork.hub import is_pretrained, read_config
        from headwork.models import CLASSES, published
        from headwork.serialise import config_from_dict
        from headwork.storage.models import CONFIG, check_passed, explain_config, read_own_config
        from headwork.storage.sealed_json import LARGEST_JSON, DamagedError

        path = Path(self.model)
        if is_pretrained(path):
            return read_config(path)
        if (path / CONFIG).is_file():
            path = path / CONFIG
        elif path.suffix != ".json":
            if path.exists() or len(path.parts) > 1:
                rule = f"a published model, a config file (.json) that exists, or a folder with a {CONFIG}"
                raise ValueError(f"model must be {rule}, got {path}")
            return published(self.model)
        check_file(path, "model", LARGEST_JSON, "a config file")
        try:
            data = read_own_config(path)
        except DamagedError as error:
            raise ValueError(f"model must be a config file in JSON that is whole, got {path} ({error})") from None
        with explain_config(path):
            check_passed(data, CLASSES, self.own_classes)
            return config_from_dict(data.get("model", data), CLASSES, self.own_classes)

    @contextmanager
    def fake_model(self) -> "Iterator[tuple[nn.Module, list[Tensor]]]":
        """The model and its input without their numbers: shapes and costs need none, so any size fits on a laptop."""
        from torch._subclasses.fake_tensor import FakeTensorMode

        converted = self.load_converted()
        without_numbers = FakeTensorMode(allow_non_fake_inputs=converted is not None)
        with without_numbers:
            config = self.find_config()
        image = self.find_image_size(config)
        with without_numbers:
            model = converted or (config.build() if hasattr(config, "build") else config)
            yield model, self.make_inputs(config, image)

    def load_converted(self) -> "nn.Module | None":
        """The model in a folder if it was converted, which changes its weights and not its config."""
        from headwork.storage import load
        from headwork.storage.models import CONFIG
        from headwork.storage.sealed_json import DamagedError, read_json

        folder = Path(self.model)
        try:
            is_converted = "conversions" in read_json(folder / CONFIG)
        except DamagedError:  # there is none, or it is read once more and explained
            return None
        return load(folder, classes=self.own_classes) if is_converted else None

    def find_image_size(self, config: object) -> tuple[int, int]:
        """For a model that takes images of any size: those that its run was trained on, or 32 x 32."""
        from headwork.models import describe

        found, folder = describe(config), Path(self.model)
        if found is None or found.input != "image" or found.image is not None or not folder.is_dir():
            return 32, 32
        from headwork.data import image_size
        from headwork.training.run import is_run, open_run

        size = image_size(open_run(folder, self.own_classes).load_data().test) if is_run(folder) else None
        return size or (32, 32)

    def make_inputs(self, config: object, image: tuple[int, int]) -> "list[Tensor]":
        """Inputs of the right shape: ids of 0, or images of 0."""
        from headwork.checks import check_positive
        from headwork.models import describe, example_inputs

        check_positive(tokens=self.tokens, batch=self.batch)
        if max(self.tokens or 0, self.batch) > LARGEST_SIZE:
            raise ValueError(f"tokens and batch must be at most {LARGEST_SIZE:,}, got {self.tokens} and {self.batch}")
        description = describe(config)
        if description is None:
            raise ValueError(
                f"model must have a description, which says what it reads, got {self.model}, which has none; "
                "in Python hw.trace(model, x) and hw.cost(model, x) need none"
            )
        if self.tokens is not None and description.input == "image":
            raise ValueError(f"tokens is for text models, got {self.tokens} for {self.model}")
        return example_inputs(description, batch=self.batch, n_tokens=self.tokens or 16, image=image)


def load_model(folder: Path | str, classes: Iterable[type] = ()) -> "nn.Module":
    """The model in a folder of either kind; that one is not verified is said in a line."""
    from headwork.hub import load

    with warnings_in_lines():
        return load(folder, classes=classes)


@contextmanager
def warnings_in_lines() -> "Iterator[None]":
    """Say each warning in a line of the command, without the place in the code."""
    with warnings.catch_warnings(record=True, action="always", category=UserWarning) as notes:
        yield
    for note in notes:
        complain(str(note.message))


class Terminal:
    """A terminal that shows control characters instead of obeying them: a file or a model may have any."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        return self.stream.write(printable(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def complain(text: str) -> None:
    """Say something that is not the answer; a further line of it never looks like one of ours."""
    print(f"headwork: {indent(printable(text), '  ').lstrip()}", file=sys.stderr)


def lines_of_stdin() -> Iterator[str]:
    """Line by line as they come, without their ends."""
    try:
        while line := sys.stdin.readline(LONGEST_LINE + 1):
            if len(line) > LONGEST_LINE:
                raise ValueError(f"stdin must have lines of at most {LONGEST_LINE:,} characters, got a longer one")
            line.encode()  # some locales let through what is not a character
            yield line.rstrip("\r\n")
    except (UnicodeDecodeError, UnicodeEncodeError) as error:
        wrong = error.object[error.start]
        byte = wrong if isinstance(wrong, int) else ord(wrong) & 0xFF
        raise ValueError(f"stdin must be UTF-8, got the byte 0x{byte:02x}") from None


def warn_of_unknown(tokenizer: "AnyTokenizer", text: str) -> None:
    """Say how many characters or words of a text the model was never shown, instead of dropping them in silence."""
    n_unknown = tokenizer.encode(text).count(tokenizer.unknown)
    if n_unknown:
        complain(f"{n_unknown} tokens of {text[:40]!r} are not known to the model")


def check_figure(path: Path | None) -> None:
    """Raise unless a figure can be drawn to such a file."""
    if path is not None and path.suffix.lower() not in FIGURE_ENDINGS:
        raise ValueError(f"figure must end in one of {', '.join(FIGURE_ENDINGS)}, got {path}")


def save_figure(figure: "Figure", path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    print(printable(f"drawn to {path}"), file=sys.stderr)
