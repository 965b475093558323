"""The log of a run: what is read is what was written, up to the step from which the run goes on."""

import json
from pathlib import Path

import pytest

from headwork.metric import MetricRow
from headwork.storage.metrics_log import MetricsLog, read_metrics


def test_rows_come_back(tmp_path: Path) -> None:
    rows = [MetricRow(5, 1.0, split, {"loss": 0.5, "accuracy": 0.25}, 1.5) for split in ("train", "valid", "test")]
    log = MetricsLog(tmp_path)
    for row in rows:
        log.write(row)
    assert read_metrics(tmp_path / "metrics.jsonl") == rows


def test_a_log_that_goes_on_forgets_what_came_after(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path)
    for step in (5, 10, 15):
        log.write(MetricRow(step, step / 5, "train", {"loss": 1 / step}, 0.5))
    log.write(MetricRow(5, 1.0, "test", {"loss": 0.1}, 0.5))
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 5, "epo')  # cut off by a kill
    MetricsLog(tmp_path, 10)
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [(row["step"], row["split"]) for row in rows] == [(5, "train"), (10, "train")]


def test_a_metric_that_is_not_finite_is_not_written(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path)
    with pytest.raises(ValueError, match="not JSON compliant"):
        log.write(MetricRow(5, 1.0, "valid", {"loss": float("nan")}, 0.5))
    assert (tmp_path / "metrics.jsonl").read_text() == ""
