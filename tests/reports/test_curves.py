"""What was logged is read and drawn as it was; what is not a number is a gap."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwork.reports.curves import Row, best_row, describe_curves, draw_curves, metric_names, read_metrics


def row(step=1, split="train", loss=0.5, epoch=None, **metrics):
    return Row(step, step if epoch is None else epoch, split, loss, 2.0 * step, metrics)


def write(path, *lines, end="\n"):
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines) + end)
    return path


def logged(step=1, split="train", **changes):
    return {"step": step, "epoch": step / 2, "split": split, "loss": 0.25, "accuracy": 0.5, "seconds": 3.5} | changes


@pytest.fixture
def path(tmp_path):
    return tmp_path / "metrics.jsonl"


# --- reading ---------------------------------------------------------------------------------------------------------


def test_rows_are_read(path):
    write(path, logged(3), logged(3, "valid", bleu=17), "", logged(7, "test", loss=None))
    first, second, third = read_metrics(path)
    assert first == Row(3, 1.5, "train", 0.25, 3.5, {"accuracy": 0.5})
    assert second.metrics == {"accuracy": 0.5, "bleu": 17.0}
    assert math.isnan(third.loss)
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
    assert [(r.step, r.loss) for r in read_metrics(path)] == [(1, 0.25), (2, 0.125), (3, 0.0625), (4, 0.25)]


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


# --- choosing --------------------------------------------------------------------------------------------------------


def test_the_best_is_chosen_on_validation_data_only():
    rows = [
        row(1, "train", accuracy=1.0),
        row(1, "valid", accuracy=0.7),
        row(2, "valid", accuracy=0.8),
        row(3, "valid", accuracy=0.8),
        row(4, "valid", accuracy=math.nan),
        row(4, "test", accuracy=0.9),
    ]
    assert best_row(rows, "accuracy").step == 2
    assert best_row(rows, "bleu") is None


@pytest.mark.parametrize(("name", "best"), [("loss", 2), ("perplexity", 2), ("bleu", 1)])
def test_of_some_less_is_better(name, best):
    rows = [row(1, "valid", loss=3.0, perplexity=20.0, bleu=30.0), row(2, "valid", loss=2.0, perplexity=7.0, bleu=20.0)]
    assert best_row(rows, name).step == best


def test_metrics_are_those_of_validation_data():
    assert metric_names([row(1, "train", speed=3.0), row(1, "valid", bleu=1.0), row(2, "valid", chrf=2.0)]) == [
        "bleu",
        "chrf",
    ]


# --- drawing ---------------------------------------------------------------------------------------------------------


def line(ax, label):
    (found,) = [line for line in ax.lines if line.get_label().startswith(label)]
    return found


def test_the_curves_are_what_was_logged():
    rows = [
        row(s, split, 1 / s + (split == "valid"), accuracy=s / 10) for s in (1, 2, 3) for split in ("train", "valid")
    ]
    rows.append(row(3, "test", 0.875, accuracy=0.25))
    loss, metric = draw_curves(rows, "accuracy").axes
    assert (loss.get_title(), metric.get_title()) == ("loss", "accuracy")
    assert line(loss, "train").get_xydata().tolist() == [[1, 1], [2, 1 / 2], [3, 1 / 3]]
    assert line(loss, "validation").get_xydata().tolist() == [[1, 2], [2, 1.5], [3, 1 + 1 / 3]]
    assert line(metric, "validation").get_xydata().tolist() == [[1, 0.1], [2, 0.2], [3, 0.3]]
    assert line(metric, "best epoch (3): 0.3").get_xydata().tolist() == [[3, 0.3]]
    assert line(loss, "best epoch (3): 1.333").get_xydata().tolist() == [[3, 1 + 1 / 3]]
    assert line(metric, "test: 0.25").get_xydata().tolist() == [[3, 0.25]]
    assert [text.get_text() for text in metric.get_legend().get_texts()] == [
        "train",
        "validation",
        "best epoch (3): 0.3",
        "test: 0.25",
    ]


def test_train_and_validation_differ_without_colour():
    loss = draw_curves([row(s, split) for s in (1, 2) for split in ("train", "valid")]).axes[0]
    assert line(loss, "train").get_linestyle() != line(loss, "validation").get_linestyle()


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_a_number_is_a_gap(bad, tmp_path):
    rows = [row(s, "valid", bad if s in (2, 5) else float(s)) for s in (1, 2, 3, 4, 5)]
    figure = draw_curves(rows)
    y = line(figure.axes[0], "validation").get_ydata()
    np.testing.assert_array_equal(np.isnan(y), [False, True, False, False, True])
    figure.savefig(tmp_path / "curves.png")
    assert "not a finite number in 2 of 5 rows" in describe_curves(rows)
    assert "best validation loss, 1, was reached at epoch 1 of 5" in describe_curves(rows)


def test_nothing_but_gaps_is_drawn_as_nothing(tmp_path):
    rows = [row(s, split, math.nan) for s in (1, 2) for split in ("train", "valid", "test")]
    figure = draw_curves(rows)
    assert figure.axes[0].get_legend() is None
    figure.savefig(tmp_path / "curves.png")
    assert describe_curves(rows).startswith("Loss by epoch. The loss was not a finite number in 6 of 6 rows")


def test_many_steps_are_drawn_with_the_mean_of_each_epoch():
    rows = [row(step, loss=float(step), epoch=step / 5) for step in range(1, 11)]
    mean = line(draw_curves(rows).axes[0], "train, mean")
    assert mean.get_xydata().tolist() == [[1, 3], [2, 8]]


def test_an_epoch_with_a_gap_has_no_mean():
    rows = [row(step, loss=math.nan if step == 2 else 1.0, epoch=step / 5) for step in range(1, 11)]
    assert np.isnan(line(draw_curves(rows).axes[0], "train, mean").get_ydata()).tolist() == [True, False]


def test_one_row_can_be_seen():
    assert line(draw_curves([row(1, "valid")]).axes[0], "validation").get_marker() == "."


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="rows must hold at least one logged step, got none"):
        draw_curves([])
    with pytest.raises(ValueError, match="metric 'acuracy' is not known; did you mean 'accuracy'"):
        draw_curves([row(1, "valid", accuracy=0.5)], "acuracy")
    with pytest.raises(ValueError, match="split must be one of"):
        row(1, "validation")
