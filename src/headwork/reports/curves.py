"""What a run logged, read back and drawn: loss and metric over the epochs."""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from headwork.checks import check_one_of, nearest
from headwork.inspection.style import plot_style
from headwork.tables import show

SPLITS = ("train", "valid", "test")
LESS_IS_BETTER = frozenset({"loss", "perplexity", "bits_per_character", "bits_per_byte", "error", "word_error_rate"})
"""Of every other metric more is better."""

N_POINTS_MARKED = 40
N_ROWS_FOR_MEANS = 3
"""With more training rows than this in an epoch, the mean of the epoch is drawn over them."""


@dataclass(frozen=True)
class Row:
    """What was logged at one step: loss and metrics of one split, and the seconds since the run began.

    What is not a number is NaN.
    """

    step: int
    epoch: float
    split: str
    loss: float
    seconds: float
    metrics: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_one_of(SPLITS, split=self.split)

    def value(self, name: str) -> float:
        """The loss or a metric; NaN if it is not there or not finite.

        >>> Row(20, 1, "valid", 0.4, 2.5, {"accuracy": 0.9}).value("accuracy")
        0.9
        """
        value = self.loss if name == "loss" else self.metrics.get(name, math.nan)
        return value if math.isfinite(value) else math.nan


def read_metrics(path: Path) -> list[Row]:
    """The rows of a metrics.jsonl by step. A last line that was cut off, as by a killed process, is left out.

    A run that was stopped and resumed may have logged a step twice; the later row counts.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        raise ValueError(f"metrics must be a file that exists, got {path}") from None
    rows: dict[tuple[str, int], Row] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = _read_row(line)
        except (ValueError, OverflowError, RecursionError) as error:
            if number == len(lines) and not line.rstrip().endswith(b"}"):
                break
            raise ValueError(f"{path}, line {number}: {error}") from None
        rows[row.split, row.step] = row
    return sorted(rows.values(), key=lambda row: row.step)


def metric_names(rows: Iterable[Row]) -> list[str]:
    """The metrics that were measured on validation data, in the order in which they were logged.

    >>> metric_names([Row(20, 1, "valid", 0.4, 2.5, {"accuracy": 0.9})])
    ['accuracy']
    """
    return list(dict.fromkeys(name for row in rows if row.split == "valid" for name in row.metrics))


def best_row(rows: Iterable[Row], name: str) -> Row | None:
    """The validation row with the best metric (or loss), the first of equals; None if none has it.

    >>> best_row([Row(20, 1, "valid", 0.4, 2.5), Row(40, 2, "valid", 0.3, 5.0)], "loss").step
    40
    """
    measured = [row for row in rows if row.split == "valid" and not math.isnan(row.value(name))]
    if not measured:
        return None
    pick = min if name in LESS_IS_BETTER else max
    return pick(measured, key=lambda row: row.value(name))


def last_row(rows: Sequence[Row], split: str) -> Row | None:
    return next((row for row in reversed(rows) if row.split == split), None)


def draw_curves(rows: Sequence[Row], metric: str | None = None) -> Figure:
    """Loss on the left and the metric on the right, by epoch; the test result stands at the end, the best is ringed."""
    if not rows:
        raise ValueError("rows must hold at least one logged step, got none")
    panels = ["loss"] if metric in (None, "loss") else ["loss", str(metric)]
    known = {"loss", *(name for row in rows for name in row.metrics)}
    if panels[-1] not in known:
        raise ValueError(f"metric {metric!r} is not known{nearest(panels[-1], sorted(known))}")
    with plot_style():
        figure = Figure(figsize=(4.4 * len(panels), 2.9), layout="constrained")
        for ax, name in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
            _draw_panel(ax, rows, name, best_row(rows, metric or "loss"))
    return figure


def describe_curves(rows: Sequence[Row], metric: str | None = None) -> str:
    """The curves in words: the best epoch, the test result, and whether the loss was ever not a number."""
    name = metric or "loss"
    best, test, end = best_row(rows, name), last_row(rows, "test"), max(row.epoch for row in rows)
    spoken = name.replace("_", " ")
    words = ["Loss by epoch." if name == "loss" else f"Loss and {spoken} by epoch."]
    if best is not None:
        words.append(
            f"The best validation {spoken}, {show(best.value(name))}, "
            f"was reached at epoch {show(best.epoch)} of {show(end)}."
        )
    if test is not None and not math.isnan(test.value(name)):
        words.append(f"The test {spoken} is {show(test.value(name))}.")
    n_gaps = sum(math.isnan(row.value("loss")) for row in rows)
    if n_gaps:
        words.append(f"The loss was not a finite number in {n_gaps} of {len(rows)} rows: gaps in the curve.")
    return " ".join(words)


def _read_row(line: bytes) -> Row:
    try:
        data = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"a row must be a JSON object, got {error.msg} at column {error.colno}") from None
    if not isinstance(data, dict):
        raise ValueError(f"a row must be a JSON object, got {data!r}")
    for key in ("step", "epoch", "split", "loss", "seconds"):
        if key not in data:
            raise ValueError(f"a row needs the key {key!r}, which is missing")
    step, split = data.pop("step"), data.pop("split")
    if not isinstance(step, int) or isinstance(step, bool):
        raise ValueError(f"step must be a whole number, got {step!r}")
    check_one_of(SPLITS, split=split)
    numbers = {key: _read_number(key, value) for key, value in data.items()}
    epoch, loss, seconds = (numbers.pop(key) for key in ("epoch", "loss", "seconds"))
    if not math.isfinite(epoch) or not math.isfinite(seconds):
        raise ValueError(f"epoch and seconds must be finite numbers, got {epoch} and {seconds}")
    return Row(step, epoch, split, loss, seconds, numbers)


def _read_number(key: str, value: object) -> float:
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{key} must be a number, got {value!r}")
    return float(value)


def _draw_panel(ax: Axes, rows: Sequence[Row], name: str, best: Row | None) -> None:
    train, valid = ([row for row in rows if row.split == split] for split in ("train", "valid"))
    epochs = {math.ceil(row.epoch) for row in train}
    if len(train) > N_ROWS_FOR_MEANS * len(epochs):
        ax.plot(*_points(train, name), color="0.6", alpha=0.5, linewidth=0.8)
        _plot(ax, *_means(train, name), color="0.45", linestyle="--", label="train, mean of each epoch")
    else:
        _plot(ax, *_points(train, name), color="0.45", linestyle="--", label="train")
    _plot(ax, *_points(valid, name), color="tab:blue", linestyle="-", label="validation")
    if best is not None and not math.isnan(best.value(name)):
        label = f"best epoch ({show(best.epoch)}): {show(best.value(name))}"
        ax.plot(best.epoch, best.value(name), "o", color="black", fillstyle="none", markersize=8, label=label)
    test = last_row(rows, "test")
    if test is not None and not math.isnan(test.value(name)):
        end = max(row.epoch for row in rows)
        ax.plot(end, test.value(name), "D", color="tab:orange", label=f"test: {show(test.value(name))}", clip_on=False)
    style_epochs(ax, name.replace("_", " "))
    if ax.get_legend_handles_labels()[0]:
        ax.legend(frameon=False)


def style_epochs(ax: Axes, name: str) -> None:
    ax.set(xlabel="epoch", title=name)
    ax.title.set(fontweight="bold", parse_math=False)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis="y", color="0.6", alpha=0.25, linewidth=0.6)


def _plot(ax: Axes, epochs: list[float], values: list[float], *, color: str, linestyle: str, label: str) -> None:
    """A line with its points, if these are few; nothing, not even a name in the legend, if there is no number."""
    if not all(map(math.isnan, values)):
        marker = "." if len(values) <= N_POINTS_MARKED else ""
        ax.plot(epochs, values, color=color, linestyle=linestyle, marker=marker, markersize=4, label=label)


def _points(rows: Sequence[Row], name: str) -> tuple[list[float], list[float]]:
    return [row.epoch for row in rows], [row.value(name) for row in rows]


def _means(rows: Sequence[Row], name: str) -> tuple[list[float], list[float]]:
    """The mean of each epoch, at its last row; an epoch in which a value is missing has none."""
    by_epoch: dict[int, list[Row]] = {}
    for row in rows:
        by_epoch.setdefault(math.ceil(row.epoch), []).append(row)
    ends = [max(row.epoch for row in group) for group in by_epoch.values()]
    return ends, [sum(row.value(name) for row in group) / len(group) for group in by_epoch.values()]
