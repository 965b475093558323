"""The best row is chosen on validation data, in the direction of its metric."""

import math

import pytest

from headwork.metric import LOSS, Metric, MetricRow, best_row


def row(step=1, split="train", loss=0.5, **metrics):
    return MetricRow(step, step, split, {"loss": loss, **metrics}, 2.0 * step)


def test_the_best_is_chosen_on_validation_data_only():
    rows = [
        row(1, "train", accuracy=1.0),
        row(1, "valid", accuracy=0.7),
        row(2, "valid", accuracy=0.8),
        row(3, "valid", accuracy=0.8),
        row(4, "valid", accuracy=math.nan),
        row(4, "test", accuracy=0.9),
    ]
    assert best_row(rows, Metric("accuracy")).step == 2
    assert best_row(rows, Metric("bleu")) is None


@pytest.mark.parametrize(("metric", "best"), [(LOSS, 2), (Metric("perplexity", "min"), 2), (Metric("bleu"), 1)])
def test_of_some_less_is_better(metric, best):
    rows = [row(1, "valid", loss=3.0, perplexity=20.0, bleu=30.0), row(2, "valid", loss=2.0, perplexity=7.0, bleu=20.0)]
    assert best_row(rows, metric).step == best


@pytest.mark.usefixtures("as_users_run_it")
def test_a_split_that_there_is_not_is_refused():
    with pytest.raises(ValueError, match="split must be one of"):
        row(1, "validation")
