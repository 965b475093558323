"""`headwork compare`."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from headwork.cli.arguments import Imports, check_figure, save_figure

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
        from headwork.reports.compare import compare
        from headwork.storage.metrics_log import METRICS, read_metrics

        self.check()
        names = [run.resolve().name for run in self.runs]
        if len(set(names)) < len(names):
            names = [str(run) for run in self.runs]
        shared = shared_metrics(self.runs, self.own_classes)
        found = compare(
            {name: read_metrics(run / METRICS) for name, run in zip(names, self.runs, strict=True)},
            self.metric or next((metric.name for metric in shared), None),
            shared,
        )
        if self.figure is not None:
            save_figure(found.figure(), self.figure)
        if self.page is not None:
            found.page().write(self.page)
            print(f"written to {self.page}", file=sys.stderr)
        print(found.to_json() if self.json else found.table().text())
        if found.note and not self.json:
            print(found.note)

    def check(self) -> None:
        """Raise for what cannot be done, before any work is done."""
        if len(set(self.runs)) < max(len(self.runs), 1):
            raise ValueError(
                f"runs must be one or more different folders, got {', '.join(map(str, self.runs)) or 'none'}"
            )
        for run in self.runs:
            if run.exists() and not run.is_dir():
                raise ValueError(f"runs must be folders of runs, got the file {run}")
        check_figure(self.figure)
        if self.page is not None and self.page.suffix.lower() != ".html":
            raise ValueError(f"page must end in .html, got {self.page}")


def shared_metrics(folders: Sequence[Path], classes: Sequence[type] = ()) -> "tuple[Metric, ...]":
    """The metrics of the task, the first of which chose the best checkpoint, if they are the same in all runs."""
    from headwork.training import open_run
    from headwork.training.run import is_run

    metrics = {open_run(folder, classes).task.metrics if is_run(folder) else () for folder in folders}
    return metrics.pop() if len(metrics) == 1 else ()
