"""The metrics of a run in `metrics.jsonl`, a row for each evaluation and logged step: written here, and read here."""

import math
from pathlib import Path
from typing import Any

from headwork.checks import check_one_of
from headwork.metric import LOGGED, MetricRow
from headwork.storage.log_lines import append_lines, keep_lines, read_lines
from headwork.storage.sealed_json import DamagedError

METRICS = "metrics.jsonl"


class MetricsLog:
    """Appends rows; a run that is resumed at a step forgets what came after it."""

    def __init__(self, folder: Path, step: int = 0) -> None:
        self.path = folder / METRICS
        if self.path.exists():
            read_metrics(self.path)
        # The test row comes last of all, so a run that goes on will write it again.
        keep_lines(self.path, lambda row: row["step"] <= step and row["split"] != "test")

    def write(self, *rows: MetricRow) -> None:
        append_lines(self.path, *map(_line, rows))


def read_metrics(path: Path) -> list[MetricRow]:
    """The rows of a metrics.jsonl by step.

    A run that was stopped and resumed may have logged a step twice; the later row counts.
    """
    if not path.exists():
        raise ValueError(f"metrics must be a file that exists, got {path}")
    rows: dict[tuple[str, int], MetricRow] = {}
    for place, data in read_lines(path):
        try:
            row = _read_row(data)
        except (ValueError, OverflowError) as error:
            raise DamagedError(f"{place} is damaged: {error}") from None
        rows[row.split, row.step] = row
    return sorted(rows.values(), key=lambda row: row.step)


def _line(row: MetricRow) -> dict[str, object]:
    data = {"step": row.step, "epoch": round(row.epoch, 4), "split": row.split, **row.values}
    return {**data, "seconds": round(row.seconds, 3)}


def _read_row(data: dict[str, Any]) -> MetricRow:
    for key in ("step", "epoch", "split", "loss", "seconds"):
        if key not in data:
            raise ValueError(f"a row needs the key {key!r}, which is missing")
    step, split = data.pop("step"), data.pop("split")
    if not isinstance(step, int) or isinstance(step, bool):
        raise ValueError(f"step must be a whole number, got {step!r}")
    check_one_of(LOGGED, split=split)
    numbers = {key: _read_number(key, value) for key, value in data.items()}
    epoch, seconds = numbers.pop("epoch"), numbers.pop("seconds")
    if not math.isfinite(epoch) or not math.isfinite(seconds):
        raise ValueError(f"epoch and seconds must be finite numbers, got {epoch} and {seconds}")
    return MetricRow(step, epoch, split, numbers, seconds)


def _read_number(key: str, value: object) -> float:
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{key} must be a number, got {value!r}")
    return float(value)
