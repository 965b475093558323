"""The metrics of a run in `metrics.jsonl`, one row for each evaluation of a split: written here, and read here."""

import json
import math
from pathlib import Path

from headwork.checks import check_file, check_one_of
from headwork.metric import SPLITS, MetricRow
from headwork.storage.folders import append_to_file, replace_file

METRICS = "metrics.jsonl"
LARGEST_METRICS = 10**9
"""Bytes."""


class MetricsLog:
    """Appends rows; a run that is resumed at a step forgets what came after it."""

    def __init__(self, folder: Path, step: int = 0) -> None:
        self.path = folder / METRICS
        rows = read_metrics(self.path) if self.path.exists() else []
        # The test row comes last of all, so a run that goes on will write it again.
        kept = [row for row in rows if row.step <= step and row.split != "test"]
        replace_file(self.path, "".join(map(_line, kept)))

    def write(self, row: MetricRow) -> None:
        append_to_file(self.path, _line(row))


def read_metrics(path: Path) -> list[MetricRow]:
    """The rows of a metrics.jsonl by step. A last line that was cut off, as by a killed process, is left out.

    A run that was stopped and resumed may have logged a step twice; the later row counts.
    """
    check_file(path, "metrics", LARGEST_METRICS)
    lines = path.read_bytes().split(b"\n")
    rows: dict[tuple[str, int], MetricRow] = {}
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


def _line(row: MetricRow) -> str:
    data = {"step": row.step, "epoch": round(row.epoch, 4), "split": row.split, **row.values}
    return json.dumps({**data, "seconds": round(row.seconds, 3)}, allow_nan=False) + "\n"


def _read_row(line: bytes) -> MetricRow:
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
