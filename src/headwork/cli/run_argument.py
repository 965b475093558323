"""The run that a command is about, and the user's own modules that its files may name."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, UseAppendAction, arg

if TYPE_CHECKING:
    from torch import nn

    from headwork.training import Run

IMPORT_HELP = "A module of your own whose classes the files of a run or model may name; can be given again."


@dataclass(frozen=True)
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
class OfRun:
    """The folder of a run."""

    run_folder: Annotated[Positional[Path], arg(name="run", help="The folder of a run.")]


def open_with(folder: Path, classes: list[type]) -> "tuple[Run, nn.Module]":
    """The run, and the best of its checkpoints."""
    from headwork.storage import load
    from headwork.training import open_run

    return open_run(folder, classes), load(folder, classes=classes)
