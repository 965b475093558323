"""Runs side by side: one figure and one table."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field
from functools import partial

from headwork.checks import nearest
from headwork.figures import Figure, Picture, draw_comparison
from headwork.metric import LOSS, Metric, MetricRow, best_row, last_row
from headwork.reports.page import Page
from headwork.serialise import config_to_dict, flatten
from headwork.tables import Table


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
    """The runs and the metric they are compared by; if that is the loss for want of another, the note says why."""

    runs: dict[str, tuple[MetricRow, ...]]
    metric: Metric = LOSS
    note: str = ""
    configs: Mapping[str, object] = field(default_factory=dict)
    """The config of each run, itself or as its file has it, of those that have one."""

    @property
    def summaries(self) -> list[Summary]:
        return [_summarise(name, rows, self.metric) for name, rows in self.runs.items()]

    def table(self) -> Table:
        """A row for each run. The best is chosen on validation data; the losses are those logged last."""
        columns = (
            *("run", "epochs", "steps", f"best validation {self.metric.label}", "at epoch"),
            *("training loss", "validation loss", f"test {self.metric.label}", "seconds"),
        )
        return Table(columns, tuple(astuple(summary) for summary in self.summaries), self.note)

    def differences(self) -> Table:
        """The settings that are not the same in all runs: a row for each, with its value in every run."""
        settings = {
            name: flatten(config if isinstance(config, Mapping) else config_to_dict(config))
            for name, config in self.configs.items()
        }
        names = dict.fromkeys(name for values in settings.values() for name in values)
        rows = [(name, *(str(values.get(name, "–")) for values in settings.values())) for name in names]
        return Table(("setting", *settings), tuple(row for row in rows if len(set(row[1:])) > 1))

    def figure(self) -> Figure:
        return draw_comparison(self.runs, self.metric)

    def page(self) -> Page:
        """Figure and table as a page."""
        page = Page("Comparison of runs", self._headline())
        caption = (
            "Validation curves by epoch. A ring marks the epoch with the best validation "
            f"{self.metric.label} of a run, a diamond its test result."
        )
        marks = "The best epoch is chosen on validation data; the losses are those logged last; – means not logged."
        page.add("", Picture(self.figure(), caption), self.table(), marks)
        if len(self.configs) > 1:
            differ = self.differences()
            page.add("What differs", differ if differ.rows else "All settings of the runs are the same.")
        return page

    def to_json(self) -> str:
        """The table for a program to read; null for what is not there."""
        runs = [asdict(summary) for summary in self.summaries]
        differ = {name: dict(zip(self.configs, values, strict=True)) for name, *values in self.differences().rows}
        about = {"metric": self.metric.name, "note": self.note, "runs": runs, "differences": differ}
        return json.dumps(about, indent=2)

    def _headline(self) -> str:
        best = {name: row for name, rows in self.runs.items() if (row := best_row(rows, self.metric)) is not None}
        winner = best_row(best.values(), self.metric)
        if winner is None:
            return ""
        name = next(name for name, row in best.items() if row is winner)
        value = self.metric.show(winner.value(self.metric.name))
        return f"{name} has the best validation {self.metric.label}: {value}"


def compare(
    runs: Mapping[str, Sequence[MetricRow]],
    metric: str | None = None,
    metrics: Sequence[Metric] = (),
    configs: Mapping[str, object] | None = None,
) -> Comparison:
    """Put runs side by side, by a metric that all of them have measured on validation data (the first such, if None).

    `metrics` says of the names which direction is better; of others that is more. If the runs share no metric, the loss
    alone is compared, and the note says so. `configs` are those of the runs, or what their files
    say: what differs between them is listed.

    >>> short = [MetricRow(20, 1, "valid", {"loss": 0.4, "accuracy": 0.90}, 2.5)]
    >>> long = [*short, MetricRow(40, 2, "valid", {"loss": 0.2, "accuracy": 0.95}, 5.0)]
    >>> compare({"short": short, "long": long}, "accuracy").table().rows[1]
    ('long', 2, 40, 0.95, 2, None, 0.2, None, 5.0)
    """
    if not runs:
        raise ValueError("runs must hold at least one run, got none")
    for name, rows in runs.items():
        if not rows:
            raise ValueError(f"run {name!r} must have logged at least one step, got none")
    kept = partial(Comparison, {name: tuple(rows) for name, rows in runs.items()}, configs=configs or {})
    measured = {name: metric_names(rows) for name, rows in runs.items()}
    known = list(dict.fromkeys(name for names in measured.values() for name in names))
    if metric == "loss" or not known:
        return kept()
    if metric is not None and metric not in known:
        raise ValueError(f"metric {metric!r} is not known{nearest(metric, [*known, 'loss'])}")
    shared = [name for name in known if all(name in names for names in measured.values())]
    chosen = metric or next(iter(shared), None)
    if chosen is not None and chosen in shared:
        return kept(next((each for each in metrics if each.name == chosen), Metric(chosen)))
    what = "no metric was" if metric is None else f"{metric} was not"
    has = "; ".join(f"{name}: {', '.join(names) or 'none'}" for name, names in measured.items())
    return kept(note=f"Only the loss is compared: {what} measured in all runs ({has}).")


def metric_names(rows: Iterable[MetricRow]) -> list[str]:
    """The metrics beside the loss that were measured on validation data, in the order in which they were logged.

    >>> metric_names([MetricRow(20, 1, "valid", {"loss": 0.4, "accuracy": 0.9}, 2.5)])
    ['accuracy']
    """
    names = dict.fromkeys(name for row in rows if row.split == "valid" for name in row.values)
    return [name for name in names if name != "loss"]


def _summarise(name: str, rows: Sequence[MetricRow], by: Metric) -> Summary:
    best = best_row(rows, by)
    return Summary(
        name=name,
        epochs=max(row.epoch for row in rows),
        steps=max(row.step for row in rows),
        best_valid=_value(best, by.name),
        best_epoch=None if best is None else best.epoch,
        train_loss=_value(last_row(rows, "train"), "loss"),
        valid_loss=_value(last_row(rows, "valid"), "loss"),
        test=_value(last_row(rows, "test"), by.name),
        seconds=max(row.seconds for row in rows),
    )


def _value(row: MetricRow | None, name: str) -> float | None:
    return None if row is None or math.isnan(row.value(name)) else row.value(name)
