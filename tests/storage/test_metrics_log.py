"""What was logged is read as it was written; a line that a killed process left half written is left out."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwork.metric import MetricRow
from headwork.storage.metrics_log import append_row, forget_after, read_metrics


def write(path, *lines, end="\n"):
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines) + end)
    return path


def logged(step=1, split="train", **changes):
    return {"step": step, "epoch": step / 2, "split": split, "loss": 0.25, "accuracy": 0.5, "seconds": 3.5} | changes


@pytest.fixture
def path(tmp_path):
    return tmp_path / "metrics.jsonl"


def test_rows_are_read(path):
    write(path, logged(3), logged(3, "valid", bleu=17), "", logged(7, "test", loss=None))
    first, second, third = read_metrics(path)
    assert first == MetricRow(3, 1.5, "train", {"loss": 0.25, "accuracy": 0.5}, 3.5)
    assert second.values == {"loss": 0.25, "accuracy": 0.5, "bleu": 17.0}
    assert math.isnan(third.value("loss"))
    assert third.split == "test"


@pytest.mark.parametrize("loss", ["NaN", "Infinity", "-Infinity", "null"])
def test_what_is_not_a_number_is_nan(path, loss):
    write(path, json.dumps(logged()).replace("0.25", loss))
    (only,) = read_metrics(path)
    assert math.isnan(only.value("loss"))
    assert math.isnan(only.value("no such metric"))


@settings(max_examples=40, deadline=None)
@given(n_kept=st.integers(0, 300))
def test_a_file_cut_anywhere_gives_the_rows_that_were_whole(tmp_path_factory, n_kept):
    """A killed process leaves any prefix of the bytes behind."""
    path = tmp_path_factory.mktemp("cut") / "metrics.jsonl"
    whole = "".join(json.dumps(logged(step)) + "\n" for step in (1, 2, 3))
    path.write_bytes(whole.encode()[:n_kept])
    ends = [i for i, letter in enumerate(whole) if letter == "}"]
    assert [r.step for r in read_metrics(path)] == [1, 2, 3][: sum(end < n_kept for end in ends)]


def test_a_cut_inside_a_letter_is_a_cut_line(path):
    line = json.dumps(logged(2) | {"exactitude é": 1.0}, ensure_ascii=False).encode()
    path.write_bytes(json.dumps(logged(1)).encode() + b"\n" + line[: line.index("é".encode()) + 1])
    assert [r.step for r in read_metrics(path)] == [1]


def test_a_resumed_run_counts_the_later_row(path):
    write(path, logged(1), logged(2), logged(3, loss=9.0), logged(2, loss=0.125), logged(3, loss=0.0625), logged(4))
    assert [(r.step, r.value("loss")) for r in read_metrics(path)] == [(1, 0.25), (2, 0.125), (3, 0.0625), (4, 0.25)]


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"step": 1, "epo', "a row must be a JSON object"),
        ("[1, 2]", r"a row must be a JSON object, got \[1, 2\]"),
        (json.dumps(logged(split="tset")), "split must be one of train, valid, test, got 'tset'"),
        (json.dumps(logged(split=["train"])), "split must be one of"),
        (json.dumps(logged(step=1.5)), "step must be a whole number, got 1.5"),
        (json.dumps(logged(step=True)), "step must be a whole number, got True"),
        (json.dumps(logged(loss="low")), "loss must be a number, got 'low'"),
        (json.dumps(logged(accuracy=True)), "accuracy must be a number, got True"),
        (json.dumps(logged(epoch=None)), "epoch and seconds must be finite numbers, got nan and 3.5"),
        (json.dumps({k: v for k, v in logged().items() if k != "seconds"}), "a row needs the key 'seconds'"),
        (json.dumps(logged()).replace("0.25", "1" * 400), "line 2"),
        ("[" * 100_000, "line 2"),
    ],
)
def test_a_damaged_line_is_named(path, line, message):
    write(path, logged(1), line, logged(3))
    with pytest.raises(ValueError, match=message) as error:
        read_metrics(path)
    assert f"{path}, line 2: " in str(error.value)


def test_a_last_line_that_is_whole_but_wrong_is_no_cut(path):
    write(path, logged(1), logged(2, split="tset"), end="")
    with pytest.raises(ValueError, match="line 2"):
        read_metrics(path)
    write(path, logged(1), '{"step": 2, "ep', end="\n")
    with pytest.raises(ValueError, match="line 2"):
        read_metrics(path)


def test_a_file_that_is_not_there_and_an_empty_one(path):
    with pytest.raises(ValueError, match="metrics must be a file that exists, got "):
        read_metrics(path)
    path.write_text("")
    assert read_metrics(path) == []


# --- writing ---------------------------------------------------------------------------------------------------------


def rows(*steps_and_splits):
    return [MetricRow(step, step / 2, split, {"loss": 1 / step}, 0.5 * step) for step, split in steps_and_splits]


def test_what_is_written_is_read(path):
    written = rows((1, "train"), (1, "valid"), (3, "test"))
    for row in written:
        append_row(path, row)
    assert read_metrics(path) == written
    assert json.loads(path.read_text().splitlines()[0]) == {
        "step": 1,
        "epoch": 0.5,
        "split": "train",
        "loss": 1.0,
        "seconds": 0.5,
    }


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_value_that_is_no_number_is_written_as_null(path, value):
    append_row(path, MetricRow(1, 1.0, "valid", {"loss": value}, 0.5))
    assert json.loads(path.read_text(), parse_constant=pytest.fail)["loss"] is None


def test_a_run_that_goes_on_forgets_what_came_after_its_checkpoint(path):
    for row in rows((1, "train"), (1, "valid"), (2, "train"), (2, "valid"), (2, "test"), (3, "train")):
        append_row(path, row)
    path.write_text(path.read_text() + '{"step": 3, "ep')
    forget_after(path, 2)
    assert read_metrics(path) == rows((1, "train"), (1, "valid"), (2, "train"), (2, "valid"))
    forget_after(path.with_name("new.jsonl"), 0)
    assert read_metrics(path.with_name("new.jsonl")) == []
