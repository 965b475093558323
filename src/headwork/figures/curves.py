"""Loss and metric over the epochs: of one run, or of several side by side."""

import math
from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, PercentFormatter

from headwork.checks import nearest
from headwork.figures.style import plot_style, shorten
from headwork.metric import LOSS, Metric, MetricRow, best_row, last_row

N_POINTS_MARKED = 40
N_ROWS_FOR_MEANS = 3
"""With more training rows than this in an epoch, the mean of the epoch is drawn over them."""

DASHES = ("-", "--", ":", "-.")
THIN: dict[str, Any] = {"linewidth": 0.8, "alpha": 0.6}
"""The curves in training, beside those of validation."""


def draw_curves(rows: Sequence[MetricRow], metric: Metric = LOSS) -> Figure:
    """Loss on the left and the metric on the right, by epoch; the test result stands at the end, the best is ringed."""
    if not rows:
        raise ValueError("rows must hold at least one logged step, got none")
    known = {name for row in rows for name in row.values}
    if metric.name not in known:
        raise ValueError(f"metric {metric.name!r} is not known{nearest(metric.name, sorted(known))}")
    with plot_style():
        figure, axes = _panels(metric, 2.9)
        for ax, of in axes.items():
            _draw_run(ax, rows, of, best_row(rows, metric))
    return figure


def describe_curves(rows: Sequence[MetricRow], metric: Metric = LOSS, label_smoothing: float = 0.0) -> str:
    """The curves in words: the best epoch, the test result, and what a reader may wonder at."""
    best, test, end = best_row(rows, metric), last_row(rows, "test"), max(row.epoch for row in rows)
    words = ["Loss by epoch." if metric == LOSS else f"Loss and {metric.label} by epoch."]
    if best is not None:
        words.append(
            f"The best validation {metric.label}, {metric.show(best.value(metric.name))}, "
            f"was reached at epoch {best.epoch:.4g} of {end:.4g}."
        )
    if test is not None and not math.isnan(test.value(metric.name)):
        words.append(f"The test {metric.label} is {metric.show(test.value(metric.name))}.")
    if label_smoothing:
        words.append(
            f"The training loss is computed with label smoothing ({label_smoothing:g}), the validation loss without: "
            "the training loss can therefore lie above the validation loss."
        )
    n_gaps = sum(math.isnan(row.value("loss")) for row in rows)
    if n_gaps:
        words.append(f"The loss was not a finite number in {n_gaps} of {len(rows)} rows: gaps in the curve.")
    return " ".join(words)


def draw_comparison(runs: Mapping[str, Sequence[MetricRow]], metric: Metric = LOSS) -> Figure:
    """Curves of all runs, thin in training; a ring is the best epoch of a run, a diamond its test result."""
    n_across = min(3, len(runs))
    with plot_style():
        figure, axes = _panels(metric, 2.9 + 0.17 * math.ceil(len(runs) / n_across))
        for ax, of in axes.items():
            lines = _draw_together(ax, runs, of, metric)
        names = [shorten(name, 40) for name in runs]
        if any(row.split == "train" for rows in runs.values() for row in rows):
            lines.append(Line2D([], [], color="black", **THIN))
            names.append("in training")
        if any(best_row(rows, metric) is not None for rows in runs.values()):
            lines.append(Line2D([], [], color="black", marker="o", fillstyle="none", linestyle="none"))
            names.append("best epoch")
        if any(last_row(rows, "test") is not None for rows in runs.values()):
            lines.append(Line2D([], [], color="black", marker="D", linestyle="none"))
            names.append("test result")
        legend = figure.legend(lines, names, loc="outside lower center", ncols=n_across, frameon=False)
        for text in legend.get_texts():
            text.set_parse_math(False)
    return figure


def _panels(metric: Metric, height: float) -> tuple[Figure, dict[Axes, Metric]]:
    metrics = [LOSS] if metric == LOSS else [LOSS, metric]
    figure = Figure(figsize=(4.4 * len(metrics), height), layout="constrained")
    return figure, dict(zip(figure.subplots(1, len(metrics), squeeze=False)[0], metrics, strict=True))


def _draw_run(ax: Axes, rows: Sequence[MetricRow], metric: Metric, best: MetricRow | None) -> None:
    train, valid = ([row for row in rows if row.split == split] for split in ("train", "valid"))
    epochs, name = {math.ceil(row.epoch) for row in train}, metric.name
    steps = [row for row in rows if row.split == "step" and name in row.values]
    if steps:
        ax.plot(*_points(steps, name), color="0.6", alpha=0.7, linewidth=0.8, label="single steps")
    if len(train) > N_ROWS_FOR_MEANS * len(epochs):
        ax.plot(*_points(train, name), color="0.6", alpha=0.5, linewidth=0.8)
        _plot(ax, *_means(train, name), color="0.45", linestyle="--", label="training, mean of each epoch")
    else:
        _plot(ax, *_points(train, name), color="0.45", linestyle="--", label="training")
    _plot(ax, *_points(valid, name), color="tab:blue", linestyle="-", label="validation")
    if best is not None and not math.isnan(best.value(name)):
        label = f"best epoch ({best.epoch:.4g}): {metric.show(best.value(name))}"
        ax.plot(best.epoch, best.value(name), "o", color="black", fillstyle="none", markersize=8, label=label)
    test = last_row(rows, "test")
    if test is not None and not math.isnan(test.value(name)):
        end, label = max(row.epoch for row in rows), f"test: {metric.show(test.value(name))}"
        ax.plot(end, test.value(name), "D", color="tab:orange", label=label, clip_on=False)
    _style(ax, metric.label, metric)
    if ax.get_legend_handles_labels()[0]:
        ax.legend(frameon=False)


def _draw_together(ax: Axes, runs: Mapping[str, Sequence[MetricRow]], metric: Metric, by: Metric) -> list[Line2D]:
    lines = []
    for number, (rows, dashes) in enumerate(zip(runs.values(), cycle(DASHES), strict=False)):
        color = f"C{number % 10}"
        train, valid = ([row for row in rows if row.split == split] for split in ("train", "valid"))
        marker = "." if len(valid) <= N_POINTS_MARKED else ""
        ax.plot(*_points(train, metric.name), color=color, linestyle=dashes, **THIN)
        lines += ax.plot(*_points(valid, metric.name), color=color, linestyle=dashes, marker=marker, markersize=4)
        best, test = best_row(rows, by), last_row(rows, "test")
        if best is not None:
            ax.plot(best.epoch, best.value(metric.name), "o", color=color, fillstyle="none", markersize=8)
        if test is not None:
            ax.plot(max(row.epoch for row in rows), test.value(metric.name), "D", color=color, markersize=5)
    _style(ax, metric.label, metric)
    return lines


def _style(ax: Axes, title: str, metric: Metric) -> None:
    ax.set(xlabel="epoch", title=title)
    ax.title.set(fontweight="bold", parse_math=False)
    if ax.dataLim.x1 < 1:  # within the first epoch its parts count
        ax.set_xlim(left=0)
    else:
        ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    if metric.percent:
        ax.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis="y", color="0.6", alpha=0.25, linewidth=0.6)


def _plot(ax: Axes, epochs: list[float], values: list[float], *, color: str, linestyle: str, label: str) -> None:
    """A line with its points, if these are few; nothing, not even a name in the legend, if there is no number."""
    if not all(map(math.isnan, values)):
        marker = "." if len(values) <= N_POINTS_MARKED else ""
        ax.plot(epochs, values, color=color, linestyle=linestyle, marker=marker, markersize=4, label=label)


def _points(rows: Sequence[MetricRow], name: str) -> tuple[list[float], list[float]]:
    return [row.epoch for row in rows], [row.value(name) for row in rows]


def _means(rows: Sequence[MetricRow], name: str) -> tuple[list[float], list[float]]:
    """The mean of each epoch, at its last row; an epoch in which a value is missing has none."""
    by_epoch: dict[int, list[MetricRow]] = {}
    for row in rows:
        by_epoch.setdefault(math.ceil(row.epoch), []).append(row)
    ends = [max(row.epoch for row in group) for group in by_epoch.values()]
    return ends, [sum(row.value(name) for row in group) / len(group) for group in by_epoch.values()]
