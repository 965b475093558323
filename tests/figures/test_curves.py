"""What was logged is drawn as it was; what is not a number is a gap."""

import math

import numpy as np
import pytest

from headwork.figures import describe_curves, draw_curves
from headwork.metric import Metric, MetricRow

ACCURACY = Metric("accuracy", percent=True)


def row(step=1, split="train", loss=0.5, epoch=None, **metrics):
    return MetricRow(step, step if epoch is None else epoch, split, {"loss": loss, **metrics}, 2.0 * step)


def line(ax, label):
    (found,) = [line for line in ax.lines if line.get_label().startswith(label)]
    return found


def test_the_curves_are_what_was_logged():
    rows = [
        row(s, split, 1 / s + (split == "valid"), accuracy=s / 10) for s in (1, 2, 3) for split in ("train", "valid")
    ]
    rows.append(row(3, "test", 0.875, accuracy=0.25))
    loss, metric = draw_curves(rows, ACCURACY).axes
    assert (loss.get_title(), metric.get_title()) == ("loss", "accuracy")
    assert line(loss, "training").get_xydata().tolist() == [[1, 1], [2, 1 / 2], [3, 1 / 3]]
    assert line(loss, "validation").get_xydata().tolist() == [[1, 2], [2, 1.5], [3, 1 + 1 / 3]]
    assert line(metric, "validation").get_xydata().tolist() == [[1, 0.1], [2, 0.2], [3, 0.3]]
    assert line(metric, "best epoch (3): 30.00 %").get_xydata().tolist() == [[3, 0.3]]
    assert line(loss, "best epoch (3): 1.3333").get_xydata().tolist() == [[3, 1 + 1 / 3]]
    assert line(metric, "test: 25.00 %").get_xydata().tolist() == [[3, 0.25]]
    assert [text.get_text() for text in metric.get_legend().get_texts()] == [
        "training",
        "validation",
        "best epoch (3): 30.00 %",
        "test: 25.00 %",
    ]


def test_train_and_validation_differ_without_colour():
    loss = draw_curves([row(s, split) for s in (1, 2) for split in ("train", "valid")]).axes[0]
    assert line(loss, "training").get_linestyle() != line(loss, "validation").get_linestyle()


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_a_number_is_a_gap(bad, tmp_path):
    rows = [row(s, "valid", bad if s in (2, 5) else float(s)) for s in (1, 2, 3, 4, 5)]
    figure = draw_curves(rows)
    y = line(figure.axes[0], "validation").get_ydata()
    np.testing.assert_array_equal(np.isnan(y), [False, True, False, False, True])
    figure.savefig(tmp_path / "curves.png")
    assert "not a finite number in 2 of 5 rows" in describe_curves(rows)
    assert "best validation loss, 1.0000, was reached at epoch 1 of 5" in describe_curves(rows)


def test_nothing_but_gaps_is_drawn_as_nothing(tmp_path):
    rows = [row(s, split, math.nan) for s in (1, 2) for split in ("train", "valid", "test")]
    figure = draw_curves(rows)
    assert figure.axes[0].get_legend() is None
    figure.savefig(tmp_path / "curves.png")
    assert describe_curves(rows).startswith("Loss by epoch. The loss was not a finite number in 6 of 6 rows")


def test_many_steps_are_drawn_with_the_mean_of_each_epoch():
    rows = [row(step, loss=float(step), epoch=step / 5) for step in range(1, 11)]
    mean = line(draw_curves(rows).axes[0], "training, mean")
    assert mean.get_xydata().tolist() == [[1, 3], [2, 8]]


def test_an_epoch_with_a_gap_has_no_mean():
    rows = [row(step, loss=math.nan if step == 2 else 1.0, epoch=step / 5) for step in range(1, 11)]
    assert np.isnan(line(draw_curves(rows).axes[0], "training, mean").get_ydata()).tolist() == [True, False]


def test_one_row_can_be_seen():
    assert line(draw_curves([row(1, "valid")]).axes[0], "validation").get_marker() == "."


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="rows must hold at least one logged step, got none"):
        draw_curves([])
    with pytest.raises(ValueError, match="metric 'acuracy' is not known; did you mean 'accuracy'"):
        draw_curves([row(1, "valid", accuracy=0.5)], Metric("acuracy"))


def test_label_smoothing_is_said():
    rows = [row(1, split) for split in ("train", "valid")]
    assert "label smoothing" not in describe_curves(rows)
    assert "with label smoothing (0.1), the validation loss without" in describe_curves(rows, label_smoothing=0.1)


def test_a_percentage_is_drawn_in_per_cent():
    loss, accuracy = draw_curves([row(1, "valid", accuracy=0.5)], ACCURACY).axes
    assert accuracy.yaxis.get_major_formatter()(0.5) in ("50 %", "50.0 %")
    assert "%" not in loss.yaxis.get_major_formatter()(0.5)


def test_the_axis_of_one_epoch_has_whole_epochs_only():
    ax = draw_curves([row(1, "valid")]).axes[0]
    assert all(tick == round(tick) for tick in ax.get_xticks())


def test_a_short_run_shows_a_curve_by_step():
    """Of 150 steps within an epoch there is one evaluation, and that alone would be a dot."""
    steps = [row(step, "step", 1 / step, epoch=step / 200, lr=0.1) for step in range(1, 151)]
    loss, metric = draw_curves(
        [*steps, row(150, epoch=0.75), row(150, "valid", epoch=0.75, accuracy=0.5)], ACCURACY
    ).axes
    assert line(loss, "single steps").get_xydata().tolist() == [[step / 200, 1 / step] for step in range(1, 151)]
    assert not [line for line in metric.lines if line.get_label() == "single steps"]  # a step has no accuracy
    assert len([tick for tick in loss.get_xticks() if 0 <= tick <= 0.75]) > 2
    assert line(loss, "training").get_xydata().tolist() == [[0.75, 0.5]]
