"""The log of a run: what is read is what was written, up to the step from which the run goes on."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwork.metric import MetricRow
from headwork.storage import DamagedError
from headwork.storage.log_lines import append_lines
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


def flips(whole: bytes) -> Iterator[bytes]:
    for bit in range(8 * len(whole)):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        yield bytes(damaged)


@pytest.mark.slow
def test_every_flipped_bit_is_found_and_its_line_is_named(tmp_path: Path) -> None:
    """Or it says the same: JSON can write some things in two ways."""
    log, path = MetricsLog(tmp_path), tmp_path / "metrics.jsonl"
    for split in ("train", "test"):
        log.write(MetricRow(5, 1.0, split, {"loss": 0.5, "accuracy": 1e-7}, 1.5))
    whole, rows = path.read_bytes(), read_metrics(path)
    n_same = 0
    for damaged in flips(whole):
        path.write_bytes(damaged)
        said = ""
        try:
            assert read_metrics(path) == rows
        except DamagedError as error:
            said = str(error)
        n_same += not said
        assert not said or str(path) in said
    assert n_same < 10


def test_a_bad_line_is_named(tmp_path: Path) -> None:
    log, path = MetricsLog(tmp_path), tmp_path / "metrics.jsonl"
    for step in (5, 10, 15):
        log.write(MetricRow(step, step / 5, "train", {"loss": 0.5}, 0.5))
    path.write_text(path.read_text().replace('"step": 10', '"step": 11'))
    with pytest.raises(DamagedError, match=r"metrics\.jsonl, line 2 is damaged: .* Without that line"):
        read_metrics(path)
    with pytest.raises(DamagedError, match=r"metrics\.jsonl, line 2 is damaged"):
        MetricsLog(tmp_path, 15)


@pytest.mark.parametrize("row", [{}, {"step": 5}, {"step": True}, {"step": "5"}, {"split": "vlaid"}, {"loss": "low"}])
def test_rows_with_a_right_check_that_are_none(tmp_path: Path, row: dict[str, object]) -> None:
    whole = {"step": 5, "epoch": 1.0, "split": "valid", "loss": 0.5, "seconds": 1.0}
    append_lines(tmp_path / "metrics.jsonl", whole | row if row.keys() != {"step"} or row["step"] != 5 else row)
    if row:
        with pytest.raises(DamagedError, match=r"metrics\.jsonl, line 1 is damaged"):
            read_metrics(tmp_path / "metrics.jsonl")


def test_lines_are_not_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("a letter")
    (tmp_path / "log.jsonl").symlink_to(tmp_path / "victim")
    with pytest.raises(OSError, match=r"cannot write .*log\.jsonl"):
        append_lines(tmp_path / "log.jsonl", {"step": 5})
    assert (tmp_path / "victim").read_text() == "a letter"
