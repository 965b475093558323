"""`headwork compare`."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from headwork.cli.arguments import Imports, check_figure, complain, save_figure
from headwork.tables import printable

if TYPE_CHECKING:
    from headwork.metric import Metric


@dataclass(frozen=True)
class Compare(Imports):
    """Put runs side by side: a table here, and a figure or a page if wanted."""

    runs: Annotated[Positional[tuple[Path, ...]], arg(help="Folders of runs, each with a metrics.jsonl.")] = ()
    metric: Annotated[str | None, arg(help="What to compare; what their best was chosen by, unless given.")] = None
    figure: Annotated[Path | None, arg(help="Also draw the curves to this file (.png, .svg, .pdf).")] = None
    page: Annotated[Path | None, arg(help="Also write figure and table to this page (.html).")] = None
    json: Annotated[bool, arg(help="Print JSON for a program to read.")] = False

    def run(self) -> None:
        from headwork.metric import LOSS
        from headwork.reports.compare import compare
        from headwork.storage.metrics_log import METRICS, read_metrics
        from headwork.storage.models import CONFIG

        self.check()
        names = [run.resolve().name for run in self.runs]
        if len(set(names)) < len(names):
            names = [str(run) for run in self.runs]
        folders = dict(zip(names, self.runs, strict=True))
        with_config = {name: folder for name, folder in folders.items() if (folder / CONFIG).exists()}
        settings = {name: read_settings(folder, self.own_classes) for name, folder in with_config.items()}
        of_tasks = {metrics for _, metrics in settings.values()} if len(settings) == len(names) else set()
        if None in of_tasks and self.metric is None:
            complain("the loss is compared: a task is of your own, and --import my_module says what its best is")
            of_tasks = {(LOSS,)}
        shared = (of_tasks.pop() if len(of_tasks) == 1 else None) or ()  # the first of them chose the best checkpoint
        found = compare(
            {name: read_metrics(folder / METRICS) for name, folder in folders.items()},
            self.metric or next((metric.name for metric in shared), None),
            shared,
            {name: config for name, (config, _) in settings.items()},
        )
        if self.figure is not None:
            save_figure(found.figure(), self.figure)
        if self.page is not None:
            found.page().write(self.page)
            print(printable(f"written to {self.page}"), file=sys.stderr)
        print(found.to_json() if self.json else found.table().text())
        if found.note and not self.json:
            print(found.note)
        if not self.json and (differ := found.differences()).rows:
            print(f"\nWhat differs:\n{differ.text()}")

    def check(self) -> None:
        """Raise for what cannot be done, before any work is done."""
        if len(set(self.runs)) < max(len(self.runs), 1):
            raise ValueError(
                f"runs must be one or more different folders, got {', '.join(map(str, self.runs)) or 'none'}"
            )
        for run in self.runs:
            if run.exists() and not run.is_dir():
                raise ValueError(f"runs must be folders of runs, got the file {run}")
            if not run.exists():
                raise ValueError(f"run must be the folder of a run (written by `headwork train`), got {run}")
        check_figure(self.figure)
        if self.page is not None and self.page.suffix.lower() != ".html":
            raise ValueError(f"page must end in .html, got {self.page}")


def read_settings(folder: Path, classes: list[type]) -> "tuple[dict[str, Any], tuple[Metric, ...] | None]":
    """The config of a run, and what its task measures; None for a task of the user's own that was not imported.

    Nothing is built of a model or of data of the user's own: the file says enough.
    """
    from headwork.serialise import config_from_dict, config_to_dict
    from headwork.storage.models import CONFIG, check_passed, read_own_config
    from headwork.storage.sealed_json import DamagedError
    from headwork.tasks import TASKS, Task
    from headwork.training import open_run

    try:
        run = open_run(folder, classes)
    except DamagedError:
        raise
    except ValueError:
        about = read_own_config(folder / CONFIG)
        if "run" not in about or "task" not in about:
            raise
    else:
        return config_to_dict(run.config), run.task.metrics
    try:
        check_passed(about, TASKS, classes)
        task: object = config_from_dict(about["task"], TASKS, classes)
    except ValueError:
        task = None
    return about["run"], task.metrics if isinstance(task, Task) else None
