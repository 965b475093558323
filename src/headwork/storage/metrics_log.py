"""`metrics.jsonl`, the log of a run: one JSON object in a line for each evaluation of each split.

{"step": 20, "epoch": 1.0, "split": "valid", "loss": 0.4, "accuracy": 0.9, "seconds": 2.5}
"""

import json
import math
from pathlib import Path

from headwork.checks import check_one_of
from headwork.metric import SPLITS, MetricRow
from headwork.storage.folders import append_to_file, replace_file

METRICS = "metrics.jsonl"


def append_row(path: Path, row: MetricRow) -> None:
    """Add a line to the log."""
    append_to_file(path, _line(row))


def forget_after(path: Path, step: int) -> None:
    """Remove the rows of later steps, and the test rows: a run that goes on from this step writes them again."""
    rows = read_metrics(path) if path.exists() else []
    replace_file(path, "".join(_line(row) for row in rows if row.step <= step and row.split != "test"))


def read_metrics(path: Path) -> list[MetricRow]:
    """The rows of a metrics.jsonl by step. A last line that was cut off, as by a killed process, is left out.

    A run that was stopped and resumed may have logged a step twice; the later row counts.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        raise ValueError(f"metrics must be a file that exists, got {path}") from None
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
    """Epochs with four decimals, seconds with three, and null for what is not a finite number."""
    values = {name: value if math.isfinite(value) else None for name, value in row.values.items()}
    data = {"step": row.step, "epoch": round(row.epoch, 4), "split": row.split, **values}
    return json.dumps({**data, "seconds": round(row.seconds, 3)}) + "\n"


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
    values = {key: _read_number(key, value) for key, value in data.items()}
    epoch, seconds = values.pop("epoch"), values.pop("seconds")
    if not math.isfinite(epoch) or not math.isfinite(seconds):
        raise ValueError(f"epoch and seconds must be finite numbers, got {epoch} and {seconds}")
    return MetricRow(step, epoch, split, values, seconds)


def _read_number(key: str, value: object) -> float:
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{key} must be a number, got {value!r}")
    return float(value)
