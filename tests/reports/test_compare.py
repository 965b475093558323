"""Runs side by side: the right numbers in the table and in the figure, and what cannot be compared is said."""

import json
import math
from dataclasses import replace
from html import escape

import pytest

from headwork.choices import MeanPooling
from headwork.data import Digits
from headwork.figures import figure_to_svg
from headwork.metric import LOSS, Metric, MetricRow
from headwork.models import published
from headwork.reports.compare import compare, metric_names
from headwork.training import RunConfig, TrainingConfig

from .reading import read_page


def run(n_epochs, name="accuracy", start=0.5, test=True):
    rows = []
    for epoch in range(1, n_epochs + 1):
        value = start + 0.1 * min(epoch, 3) - 0.01 * max(epoch - 3, 0)
        rows.append(MetricRow(7 * epoch, epoch, "train", {"loss": 1 / epoch, name: value + 0.05}, 2.0 * epoch))
        rows.append(MetricRow(7 * epoch, epoch, "valid", {"loss": 1.5 / epoch, name: value}, 2.0 * epoch + 0.5))
    if test:
        rows.append(MetricRow(7 * n_epochs, n_epochs, "test", {"loss": 0.875, name: 0.625}, 2.0 * n_epochs + 1))
    return rows


def test_the_table_has_the_numbers():
    table = compare({"short": run(2), "long": run(5, test=False)}, "accuracy").table()
    assert table.columns[3:5] == ("best validation accuracy", "at epoch")
    assert table.rows[0] == ("short", 2, 14, pytest.approx(0.7), 2, 0.5, 0.75, 0.625, 5.0)
    assert table.rows[1] == ("long", 5, 35, pytest.approx(0.8), 3, 0.2, 0.3, None, 10.5)


def test_the_figure_has_the_curves(tmp_path):
    figure = compare({"short": run(2), "long": run(5)}).figure()
    figure.savefig(tmp_path / "compare.png")
    loss, accuracy = figure.axes
    assert (loss.get_title(), accuracy.get_title()) == ("loss", "accuracy")
    curves = [line for line in loss.lines if len(line.get_xdata()) > 1]
    assert [line.get_xydata().tolist() for line in curves] == [
        [[e, at_first / e] for e in range(1, n_epochs + 1)] for n_epochs in (2, 5) for at_first in (1, 1.5)
    ]
    assert [line.get_linewidth() < 1 for line in curves] == [True, False, True, False]
    assert len({line.get_linestyle() for line in curves}) == 2
    rings = [line.get_xydata()[0].tolist() for line in accuracy.lines if line.get_fillstyle() == "none"]
    assert rings == [[2, pytest.approx(0.7)], [3, pytest.approx(0.8)]]
    diamonds = [line.get_xydata()[0].tolist() for line in accuracy.lines if line.get_marker() == "D"]
    assert diamonds == [[2, 0.625], [5, 0.625]]


def test_every_run_is_named_whatever_its_name():
    names = ["_started with a line", "$10 and $20", "<b>", "plain"]
    svg = figure_to_svg(compare({name: run(2) for name in names}).figure(), "x")
    for name in names:
        assert f">{escape(name)}<" in svg


def test_the_metric_is_the_first_that_all_share():
    both = [MetricRow(1, 1, "valid", {"loss": 0.5, "chrf": 30.0, "bleu": 20.0}, 1.0)]
    assert compare({"a": both, "b": run(2, "bleu")}).metric == Metric("bleu")
    assert compare({"a": both, "b": both}).metric == Metric("chrf")
    assert compare({"a": both, "b": both}, "bleu").metric == Metric("bleu")
    assert compare({"a": both, "b": both}, "loss").metric == LOSS


@pytest.mark.parametrize("metric", [None, "bleu"])
def test_runs_with_different_metrics_are_compared_by_the_loss_and_it_is_said(metric):
    found = compare({"a": run(2), "b": run(3, "bleu")}, metric)
    assert found.metric == LOSS
    assert found.note.startswith("Only the loss is compared: ")
    assert "(a: accuracy; b: bleu)" in found.note
    assert len(found.figure().axes) == 1
    assert found.table().columns[3] == "best validation loss"
    assert found.table().rows[1][3] == 0.5
    assert found.note in read_page(found.page().html()).inside("p")


def test_runs_without_metrics_need_no_note():
    found = compare({"a": [MetricRow(1, 1, "valid", {"loss": 0.5}, 1.0)]})
    assert (found.metric, found.note) == (LOSS, "")


def test_json_is_strict_and_holds_the_table():
    gone = [
        MetricRow(1, 1, "train", {"loss": math.nan}, 1.0),
        MetricRow(1, 1, "valid", {"loss": math.inf, "accuracy": math.nan}, 1.0),
    ]
    found = compare({"a": run(2), "gone": gone}, "accuracy")
    data = json.loads(found.to_json(), parse_constant=pytest.fail)
    assert data["metric"] == "accuracy"
    assert [entry["name"] for entry in data["runs"]] == ["a", "gone"]
    assert data["runs"][0]["best_valid"] == pytest.approx(0.7)
    assert data["runs"][1] == {
        "name": "gone",
        "epochs": 1,
        "steps": 1,
        "best_valid": None,
        "best_epoch": None,
        "train_loss": None,
        "valid_loss": None,
        "test": None,
        "seconds": 1.0,
    }
    assert "–" in found.table().text()


def test_the_page_names_the_winner():
    reader = read_page(compare({"<b>short": run(2), "long": run(5)}).page().html())
    assert reader.inside("p")[0] == "long has the best validation accuracy: 0.8000"
    assert reader.inside("td")[0] == "<b>short"
    nothing = compare({"a": [MetricRow(1, 1, "train", {"loss": 0.5}, 1.0)]})
    assert read_page(nothing.page().html()).inside("h1") == ["Comparison of runs"]


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="runs must hold at least one run, got none"):
        compare({})
    with pytest.raises(ValueError, match="run 'a' must have logged at least one step, got none"):
        compare({"a": []})
    with pytest.raises(ValueError, match="metric 'acuracy' is not known; did you mean 'accuracy'"):
        compare({"a": run(2)}, "acuracy")


def test_the_direction_is_that_of_the_metric():
    rows = [MetricRow(e, e, "valid", {"loss": 1.0, "perplexity": 10.0 / e}, 1.0) for e in (1, 2)]
    assert compare({"a": rows}, "perplexity", [Metric("perplexity", "min")]).summaries[0].best_epoch == 2
    assert compare({"a": rows}, "perplexity").summaries[0].best_epoch == 1


def test_metrics_are_those_of_validation_data():
    rows = [
        MetricRow(1, 1, "train", {"loss": 0.5, "speed": 3.0}, 1.0),
        MetricRow(1, 1, "valid", {"loss": 0.5, "bleu": 1.0}, 1.0),
        MetricRow(2, 2, "valid", {"loss": 0.5, "chrf": 2.0}, 2.0),
    ]
    assert metric_names(rows) == ["bleu", "chrf"]


def test_what_differs_between_the_configs_is_listed():
    first = RunConfig(
        name="a", model=published("digits-vit"), data=Digits(), training=TrainingConfig(epochs=2, batch_size=8)
    )
    other = replace(
        first, training=TrainingConfig(epochs=3, batch_size=8), model=replace(first.model, pooling=MeanPooling())
    )
    found = compare({"one": run(2), "two": run(3)}, configs={"one": first, "two": other})
    assert found.differences().columns == ("setting", "one", "two")
    assert found.differences().rows == (
        ("model.pooling", "ClassToken", "MeanPooling"),
        ("training.epochs", "2", "3"),
    )
    assert json.loads(found.to_json())["differences"]["training.epochs"] == {"one": "2", "two": "3"}
    page = read_page(found.page().html())
    assert "What differs" in page.inside("h2")
    assert "training.epochs" in page.inside("td")
    same = compare({"one": run(2), "two": run(3)}, configs={"one": first, "two": first}).page().html()
    assert "All settings of the runs are the same." in same
    assert "What differs" not in compare({"one": run(2)}).page().html()


def test_the_marks_are_explained():
    page = compare({"one": run(2), "two": run(3)}).page().html()
    assert "A ring marks the epoch with the best validation accuracy of a run, a diamond its test result." in page
    assert "– means not logged" in page
