"""Mistakes in words: texts from outside stay text, and what does not fit is named."""

import pytest
import torch

from headwork.figures import Mistake
from headwork.reports.classification import Classification, list_texts

LABELS = tuple("abcde")


def some_result(n=41):
    return Classification(
        probabilities=torch.randn(n, len(LABELS)).softmax(1), truth=torch.randint(len(LABELS), (n,)), labels=LABELS
    )


def test_worst_texts_are_a_table():
    mistakes = [Mistake(2, "good", "<bad>", 0.95), Mistake(1, "good", "<bad>", 0.75)]
    table = list_texts(mistakes, ["<script>alert(1)</script>\nand " + "more " * 200, "wrong"])
    assert [row[:3] for row in table.rows] == [("good", "<bad>", 0.95), ("good", "<bad>", 0.75)]
    assert table.rows[1][3] == "wrong"
    assert len(table.rows[0][3]) == 600
    assert "<script>" not in table.html()
    assert "&lt;script&gt;alert(1)&lt;/script&gt; and" in table.html()


def test_accuracy():
    result = some_result()
    assert result.accuracy == pytest.approx((result.probabilities.argmax(1) == result.truth).float().mean().item())
    assert not result.diverged


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: list_texts([Mistake(0, "a", "b", 0.5)], []), "zip"),
        (
            lambda: Classification(probabilities=torch.ones(2, 3), truth=torch.tensor([0, 1]), labels=("a", "b")),
            r"probabilities must have the axes \(example, class\) = \(2, 2\), got \(2, 3\)",
        ),
        (
            lambda: Classification(probabilities=torch.ones(1, 2), truth=torch.tensor([2]), labels=("a", "b")),
            "truth must name one of the 2 labels",
        ),
    ],
)
def test_bad_input_is_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()
