"""Runs side by side: one figure and one table."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from itertools import cycle

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from headwork.checks import nearest
from headwork.inspection.style import plot_style
from headwork.reports.curves import N_POINTS_MARKED, Row, best_row, last_row, metric_names, style_epochs
from headwork.reports.labels import shorten
from headwork.reports.page import Page
from headwork.reports.pictures import Picture
from headwork.tables import Table, show

DASHES = ("-", "--", ":", "-.")


@dataclass(frozen=True)
class Summary:
    """A run in numbers; None is what it has not logged or what was not a finite number."""

    name: str
    epochs: float
    steps: int
    best_valid: float | None
    best_epoch: float | None
    train_loss: float | None
    valid_loss: float | None
    test: float | None
    seconds: float | None


@dataclass(frozen=True)
class Comparison:
    """The runs and the metric they are compared by; None is the loss alone, and the note says why."""

    runs: dict[str, tuple[Row, ...]]
    metric: str | None
    note: str = ""

    @property
    def summaries(self) -> list[Summary]:
        return [_summarise(name, rows, self.by) for name, rows in self.runs.items()]

    @property
    def by(self) -> str:
        """What the best epoch is chosen by."""
        return self.metric or "loss"

    def table(self) -> Table:
        """A row for each run. The best is chosen on validation data; the losses are those logged last."""
        columns = (
            *("run", "epochs", "steps", f"best valid {self.by}", "at epoch"),
            *("train loss", "valid loss", f"test {self.by}", "seconds"),
        )
        return Table(columns, tuple(astuple(summary) for summary in self.summaries), self.note)

    def figure(self) -> Figure:
        """Validation curves of all runs; a ring is the best epoch of a run, a diamond its test result."""
        panels = ["loss"] if self.metric is None else ["loss", self.metric]
        n_across = min(3, len(self.runs))
        height = 2.9 + 0.17 * math.ceil(len(self.runs) / n_across)
        with plot_style():
            figure = Figure(figsize=(4.4 * len(panels), height), layout="constrained")
            for ax, name in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
                lines = _draw_runs(ax, self.runs, name, self.by)
            names = [shorten(name, 40) for name in self.runs]
            legend = figure.legend(lines, names, loc="outside lower center", ncols=n_across, frameon=False)
            for text in legend.get_texts():
                text.set_parse_math(False)
        return figure

    def page(self) -> Page:
        """Figure and table as a page."""
        page = Page("Runs side by side", self._headline())
        caption = (
            "Validation data by epoch. A ring is the epoch at which a run has its best validation "
            f"{self.by}, a diamond its test result."
        )
        page.add("", Picture(self.figure(), caption), self.table())
        return page

    def to_json(self) -> str:
        """The table for a program to read; null for what is not there."""
        runs = [asdict(summary) for summary in self.summaries]
        return json.dumps({"metric": self.by, "note": self.note, "runs": runs}, indent=2)

    def _headline(self) -> str:
        best = {name: row for name, rows in self.runs.items() if (row := best_row(rows, self.by)) is not None}
        winner = best_row(best.values(), self.by)
        if winner is None:
            return ""
        name = next(name for name, row in best.items() if row is winner)
        return f"{name} has the best validation {self.by}: {show(winner.value(self.by))}"


def compare(runs: Mapping[str, Sequence[Row]], metric: str | None = None) -> Comparison:
    """Put runs side by side, by a metric that all of them have measured on validation data (the first such, if None).

    If there is none, the loss alone is compared, and the note says so.

    >>> short = [Row(20, 1, "valid", 0.4, 2.5, {"accuracy": 0.90})]
    >>> long = [*short, Row(40, 2, "valid", 0.2, 5.0, {"accuracy": 0.95})]
    >>> print(compare({"short": short, "long": long}, "accuracy").table().text())
    run    epochs  steps  best valid accuracy  at epoch  train loss  valid loss  test accuracy  seconds
    short       1     20                  0.9         1           –         0.4              –      2.5
    long        2     40                 0.95         2           –         0.2              –        5
    """
    if not runs:
        raise ValueError("runs must hold at least one run, got none")
    for name, rows in runs.items():
        if not rows:
            raise ValueError(f"run {name!r} must have logged at least one step, got none")
    kept = {name: tuple(rows) for name, rows in runs.items()}
    measured = {name: metric_names(rows) for name, rows in runs.items()}
    known = list(dict.fromkeys(name for names in measured.values() for name in names))
    if metric == "loss" or not known:
        return Comparison(kept, None)
    if metric is not None and metric not in known:
        raise ValueError(f"metric {metric!r} is not known{nearest(metric, [*known, 'loss'])}")
    shared = [name for name in known if all(name in names for names in measured.values())]
    chosen = metric or next(iter(shared), None)
    if chosen in shared:
        return Comparison(kept, chosen)
    what = "no metric was" if metric is None else f"{metric} was not"
    has = "; ".join(f"{name}: {', '.join(names) or 'none'}" for name, names in measured.items())
    return Comparison(kept, None, f"Only the loss is compared: {what} measured in all runs ({has}).")


def _summarise(name: str, rows: Sequence[Row], by: str) -> Summary:
    best = best_row(rows, by)
    return Summary(
        name=name,
        epochs=max(row.epoch for row in rows),
        steps=max(row.step for row in rows),
        best_valid=_value(best, by),
        best_epoch=None if best is None else best.epoch,
        train_loss=_value(last_row(rows, "train"), "loss"),
        valid_loss=_value(last_row(rows, "valid"), "loss"),
        test=_value(last_row(rows, "test"), by),
        seconds=max(row.seconds for row in rows),
    )


def _value(row: Row | None, name: str) -> float | None:
    return None if row is None or math.isnan(row.value(name)) else row.value(name)


def _draw_runs(ax: Axes, runs: Mapping[str, Sequence[Row]], name: str, by: str) -> list[Line2D]:
    lines = []
    for number, (rows, dashes) in enumerate(zip(runs.values(), cycle(DASHES), strict=False)):
        color = f"C{number % 10}"
        valid = [row for row in rows if row.split == "valid"]
        marker = "." if len(valid) <= N_POINTS_MARKED else ""
        points = [row.epoch for row in valid], [row.value(name) for row in valid]
        lines += ax.plot(*points, color=color, linestyle=dashes, marker=marker, markersize=4)
        best, test = best_row(rows, by), last_row(rows, "test")
        if best is not None:
            ax.plot(best.epoch, best.value(name), "o", color=color, fillstyle="none", markersize=8)
        if test is not None:
            ax.plot(max(row.epoch for row in rows), test.value(name), "D", color=color, markersize=5)
    style_epochs(ax, "validation " + name.replace("_", " "))
    return lines
