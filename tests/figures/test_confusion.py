"""Counts are scikit-learn's, mistakes are mistakes, worst first, and labels from outside stay text."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import confusion_matrix

from headwork.figures import Mistake, draw_confusion_matrix, draw_mistakes, figure_to_svg, worst_mistakes
from headwork.figures.confusion import N_CLASSES_DRAWN, count_confusions, list_classes, most_confused

LABELS = tuple("abcde")


def some_mistakes(n):
    probabilities, truth = torch.randn(41, len(LABELS)).softmax(1), torch.randint(len(LABELS), (41,))
    return worst_mistakes(probabilities, truth, LABELS, n)


def written(ax):
    """The numbers in the cells, as (row, column): count."""
    return {
        (round(t.get_position()[1]), round(t.get_position()[0])): int(t.get_text().replace(",", "")) for t in ax.texts
    }


@pytest.mark.parametrize("n_classes", [2, 3, 11, 20])
def test_the_counts_in_the_cells_are_scikit_learns(n_classes, tmp_path):
    truth, predicted = torch.randint(n_classes, (97,)), torch.randint(n_classes, (97,))
    figure = draw_confusion_matrix(truth, predicted, [f"class {i}" for i in range(n_classes)])
    figure.savefig(tmp_path / "confusion.png")
    expected = confusion_matrix(truth.numpy(), predicted.numpy(), labels=range(n_classes))
    assert written(figure.axes[0]) == {
        (i, j): expected[i, j] for i in range(n_classes) for j in range(n_classes) if expected[i, j]
    }
    assert (figure.axes[0].get_xlabel(), figure.axes[0].get_ylabel()) == ("predicted class", "true class")


def test_colours_are_shares_of_the_row_right_and_wrong_apart():
    figure = draw_confusion_matrix(torch.tensor([0, 0, 0, 0, 1]), torch.tensor([0, 0, 0, 1, 1]), ["cat", "dog"])
    right, wrong = (image.get_array().data for image in figure.axes[0].images)
    np.testing.assert_allclose(right, [[0.75, 0], [0, 1]])
    np.testing.assert_allclose(wrong, [[0, 0.25], [0, 0]])


def test_a_class_that_never_occurs_has_its_row():
    counts = count_confusions(torch.tensor([0, 2]), torch.tensor([2, 2]), ["a", "b", "c"])
    assert counts.tolist() == [[0, 0, 1], [0, 0, 0], [0, 0, 1]]


def test_too_many_classes_for_numbers_are_drawn_without():
    truth = torch.arange(31)
    assert not draw_confusion_matrix(truth, truth, [str(i) for i in range(31)]).axes[0].texts


def test_labels_are_shown_as_they_are():
    labels = ["$x_1$", "_hidden", "<b>", "a label that is much too long for an axis", "two\nlines"]
    truth = torch.arange(5)
    svg = figure_to_svg(draw_confusion_matrix(truth, truth, labels), "x")
    for label in ("$x_1$", "_hidden", "&lt;b&gt;", "a label that is…", "two lines"):
        assert svg.count(f">{label}<") == 2, label


@settings(max_examples=50, deadline=None)
@given(n_examples=st.integers(1, 13), n_classes=st.integers(2, 5), n=st.integers(0, 7), seed=st.integers(0, 2**31))
def test_the_worst_are_wrong_and_none_left_out_is_worse(n_examples, n_classes, n, seed):
    generator = torch.Generator().manual_seed(seed)
    probabilities = torch.randn(n_examples, n_classes, generator=generator).softmax(1)
    truth = torch.randint(n_classes, (n_examples,), generator=generator)
    mistakes = worst_mistakes(probabilities, truth, [str(i) for i in range(n_classes)], n)
    chosen = torch.tensor([mistake.example for mistake in mistakes], dtype=torch.long)
    sure, said = probabilities.max(1)
    assert (said[chosen] != truth[chosen]).all()
    assert [(mistake.true, mistake.predicted) for mistake in mistakes] == [
        (str(int(truth[i])), str(int(said[i]))) for i in chosen
    ]
    assert sure[chosen].tolist() == sorted(sure[said != truth].tolist(), reverse=True)[:n]
    assert len(set(chosen.tolist())) == len(chosen)


def test_worst_images_are_named_by_truth_prediction_and_probability():
    images = torch.rand(2, 1, 7, 5)
    figure = draw_mistakes([Mistake(2, "$c$", "dog", 0.95), Mistake(1, "$c$", "dog", 0.75)], images)
    assert ">true: $c$<" in figure_to_svg(figure, "x")
    first, second = figure.axes
    assert first.get_title(loc="left") == "true: $c$"
    assert first.get_xlabel() == "predicted: dog (0.95)"
    assert second.get_xlabel() == "predicted: dog (0.75)"
    torch.testing.assert_close(torch.tensor(first.images[0].get_array().data), images[0, 0])


@pytest.mark.parametrize("n_channels", [1, 2, 3])
@pytest.mark.parametrize("n", [1, 7])
def test_images_of_any_kind_are_drawn(n_channels, n, tmp_path):
    figure = draw_mistakes(some_mistakes(n), torch.rand(n, n_channels, 6, 9))
    figure.savefig(tmp_path / "worst.png")
    assert len([ax for ax in figure.axes if ax.images]) == n


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: draw_confusion_matrix(torch.tensor([0]), torch.tensor([0, 1]), LABELS), "same examples, got 1 and 2"),
        (
            lambda: draw_confusion_matrix(torch.tensor([5]), torch.tensor([0]), LABELS),
            "truth must name one of the 5 .* got 5",
        ),
        (
            lambda: draw_confusion_matrix(torch.tensor([0]), torch.tensor([-1]), LABELS),
            "predicted must name one .* got -1",
        ),
        (
            lambda: draw_confusion_matrix(torch.tensor([]).long(), torch.tensor([]).long(), LABELS),
            "at least one example",
        ),
        (
            lambda: worst_mistakes(torch.tensor([[torch.nan, 1.0]]), torch.tensor([0]), LABELS, 3),
            "probabilities must be finite",
        ),
        (lambda: draw_mistakes(some_mistakes(3), torch.rand(2, 1, 3, 3)), "one for each of 3 mistakes, got 2"),
        (lambda: draw_mistakes([], torch.rand(0, 1, 3, 3)), "at least one mistake, got none"),
    ],
)
def test_bad_input_is_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("n_classes", [41, 10_000])
def test_of_many_classes_those_with_the_most_mistakes_are_drawn(n_classes: int) -> None:
    """A matrix of 10,000 x 10,000 would take gigabytes, and nobody could read its names."""
    truth = torch.arange(n_classes).repeat(2)
    predicted = truth.clone()
    predicted[: n_classes // 2] = n_classes - 1  # the first half is right once of two times
    drawn = most_confused(truth, predicted, n_classes).tolist()
    assert len(drawn) == N_CLASSES_DRAWN
    assert n_classes - 1 in drawn
    assert drawn[: min(20, N_CLASSES_DRAWN - 1)] == list(range(min(20, N_CLASSES_DRAWN - 1)))
    labels = [f"c{i}" for i in range(n_classes)]
    figure = draw_confusion_matrix(truth, predicted, labels)
    ax = figure.axes[0]
    assert [label.get_text() for label in ax.get_yticklabels()] == [labels[i] for i in drawn]
    right, wrong = (torch.tensor(image.get_array().data) for image in ax.images)
    assert right[0, 0] == 0.5
    assert wrong[0, -1] == 0.5


def test_the_table_of_classes_has_the_numbers_of_the_matrix() -> None:
    truth, predicted = torch.randint(7, (500,)), torch.randint(7, (500,))
    labels = list("abcdefg")
    counts = count_confusions(truth, predicted, labels)
    for i, (label, n, right, mistaken_for, often) in enumerate(list_classes(truth, predicted, labels)):
        wrong = counts[i].clone()
        wrong[i] = 0
        assert (label, n, right, often) == (labels[i], counts[i].sum(), counts[i, i], wrong.max())
        assert wrong[labels.index(mistaken_for)] == often
