"""What a classifier gets right and wrong: the confusion matrix, and images that it got wrong."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from headwork.figures.style import GLOW, INK, UPWARDS, plot_style, shorten, show_image

N_CLASSES_COUNTED = 30
"""With more classes than this the cells are too small for numbers."""
N_CLASSES_DRAWN = 40
"""With more classes than this their names are too small to be read."""


class Mistake(NamedTuple):
    """An example that was classified wrongly, and the probability of the wrong answer."""

    example: int
    true: str
    predicted: str
    probability: float


def count_confusions(
    truth: Int[Tensor, "example"], predicted: Int[Tensor, "example"], labels: Sequence[str]
) -> Int[Tensor, "class predicted_class"]:
    """The confusion matrix: how often each true class (row) was predicted to be each class (column).

    >>> count_confusions(torch.tensor([0, 0, 1]), torch.tensor([0, 1, 1]), ["cat", "dog"])
    tensor([[1, 1],
            [0, 1]])
    """
    _check_both(truth, predicted, labels)
    n_classes = len(labels)
    return torch.bincount(truth.cpu() * n_classes + predicted.cpu(), minlength=n_classes**2).reshape(-1, n_classes)


def draw_confusion_matrix(
    truth: Int[Tensor, "example"], predicted: Int[Tensor, "example"], labels: Sequence[str]
) -> Figure:
    """How often each true class (row) was predicted to be each class (column); colours are fractions of the row.

    Of many classes those with the most mistakes are drawn; `list_classes` has all of them.
    """
    _check_both(truth, predicted, labels)
    truth, predicted = truth.cpu(), predicted.cpu()
    shown = most_confused(truth, predicted, len(labels))
    inside = torch.isin(truth, shown) & torch.isin(predicted, shown)
    drawn = [torch.searchsorted(shown, classes[inside]) for classes in (truth, predicted)]
    names = [shorten(labels[i], 16) for i in shown.tolist()]
    counts = torch.bincount(drawn[0] * len(names) + drawn[1], minlength=len(names) ** 2).reshape(-1, len(names))
    fraction = counts / torch.bincount(truth, minlength=len(labels))[shown][:, None].clamp(min=1)
    size = max(2.2, min(0.36 * len(names), 7.5))
    with plot_style():
        figure = Figure(figsize=(size + 1.2, size + 0.9), layout="constrained")
        ax = figure.subplots()
        right = torch.diag(fraction.diagonal())
        wrong = fraction - right
        ax.imshow(right.numpy(), cmap=INK, vmin=0, vmax=1, interpolation="none")
        ax.imshow(wrong.numpy(), cmap=GLOW, vmin=0, vmax=max(wrong.max().item(), 0.25), interpolation="none")
        rotated = UPWARDS if max(map(len, names)) > 3 else {}
        ax.set_xticks(range(len(names)), names, parse_math=False, **rotated)
        ax.set_yticks(range(len(names)), names, parse_math=False)
        ax.tick_params(length=0)
        ax.set(xlabel="predicted class", ylabel="true class")
        ax.spines[:].set_visible(False)
        if len(names) <= N_CLASSES_COUNTED:
            _write_counts(ax, counts, fraction)
    return figure


def most_confused(
    truth: Int[Tensor, "example"], predicted: Int[Tensor, "example"], n_classes: int
) -> Int[Tensor, "shown"]:
    """The classes that are drawn, in their order: all, or those with the most mistakes, as truth or as prediction."""
    if n_classes <= N_CLASSES_DRAWN:
        return torch.arange(n_classes)
    wrong = truth != predicted
    n_mistakes = torch.bincount(torch.cat([truth[wrong], predicted[wrong]]), minlength=n_classes)
    return n_mistakes.argsort(descending=True, stable=True)[:N_CLASSES_DRAWN].sort().values


def list_classes(
    truth: Int[Tensor, "example"], predicted: Int[Tensor, "example"], labels: Sequence[str]
) -> list[tuple[str, int, int, str, int]]:
    """Of each true class: its examples, how many are right, the class it is most often mistaken for, and how often.

    >>> list_classes(torch.tensor([0, 0, 1]), torch.tensor([0, 1, 1]), ["cat", "dog"])
    [('cat', 2, 1, 'dog', 1), ('dog', 1, 1, '', 0)]
    """
    truth, predicted = truth.cpu(), predicted.cpu()
    right = torch.bincount(truth[truth == predicted], minlength=len(labels)).tolist()
    examples = torch.bincount(truth, minlength=len(labels)).tolist()
    wrong = truth != predicted
    pairs, counts = (truth[wrong] * len(labels) + predicted[wrong]).unique(return_counts=True)  # type: ignore[no-untyped-call]
    order = counts.argsort(stable=True)  # the most frequent last, so that it is what stays in the dict
    worst = {
        pair // len(labels): (labels[pair % len(labels)], count)
        for pair, count in zip(pairs[order].tolist(), counts[order].tolist(), strict=True)
    }
    return [(label, examples[i], right[i], *worst.get(i, ("", 0))) for i, label in enumerate(labels)]


def worst_mistakes(
    probabilities: Float[Tensor, "example class"], truth: Int[Tensor, "example"], labels: Sequence[str], n: int
) -> list[Mistake]:
    """The wrong predictions with the largest probability, worst first; at most n.

    >>> worst_mistakes(torch.tensor([[0.9, 0.1], [0.6, 0.4], [0.25, 0.75]]), torch.tensor([0, 1, 0]), "ab", n=5)[0]
    Mistake(example=2, true='a', predicted='b', probability=0.75)
    """
    if not bool(probabilities.isfinite().all()):
        raise ValueError("probabilities must be finite, got some that are not")
    largest, predicted = probabilities.max(1)
    wrong = (predicted != truth).nonzero().squeeze(1)
    order = wrong[largest[wrong].argsort(descending=True, stable=True)[:n]]
    return [Mistake(i, labels[int(truth[i])], labels[int(predicted[i])], float(largest[i])) for i in order.tolist()]


def draw_mistakes(mistakes: Sequence[Mistake], images: Float[Tensor, "mistake channel row column"]) -> Figure:
    """Images that were classified wrongly: the true class, the predicted class and its probability.

    Images have values from 0 to 1, as they were before any normalisation.
    """
    if not mistakes:
        raise ValueError("mistakes must hold at least one mistake, got none")
    if len(images) != len(mistakes):
        raise ValueError(f"images must be one for each of {len(mistakes)} mistakes, got {len(images)}")
    n_across = min(len(mistakes), 6)
    n_down = math.ceil(len(mistakes) / n_across)
    with plot_style():
        figure = Figure(figsize=(1.45 * n_across, 1.85 * n_down), layout="constrained")
        axes = list(figure.subplots(n_down, n_across, squeeze=False).flat)
        for ax in axes[len(mistakes) :]:
            ax.set_axis_off()
        for ax, mistake, image in zip(axes, mistakes, images, strict=False):
            show_image(ax, image)
            ax.set_title(f"true: {shorten(mistake.true, 14)}", loc="left", parse_math=False)
            words = f"{shorten(mistake.predicted, 14)} ({mistake.probability:.2f})"
            ax.set_xlabel(f"predicted: {words}", loc="left", parse_math=False)
    return figure


def check_classes(classes: Int[Tensor, "example"], labels: Sequence[str], name: str) -> None:
    """Raise unless there are examples, each with one of the labels."""
    if len(classes) == 0:
        raise ValueError(f"{name} must hold at least one example, got none")
    if classes.min() < 0 or classes.max() >= len(labels):
        outside = classes[(classes < 0) | (classes >= len(labels))][0].item()
        raise ValueError(f"{name} must name one of the {len(labels)} labels, 0 .. {len(labels) - 1}, got {outside}")


def _check_both(truth: Tensor, predicted: Tensor, labels: Sequence[str]) -> None:
    check_classes(truth, labels, "truth")
    check_classes(predicted, labels, "predicted")
    if len(truth) != len(predicted):
        raise ValueError(f"truth and predicted must be of the same examples, got {len(truth)} and {len(predicted)}")


def _write_counts(ax: Axes, counts: Tensor, fraction: Tensor) -> None:
    """A zero says nothing and is left out; numbers on dark cells are white."""
    size = 8 if len(counts) <= 12 else 6.5 if len(counts) <= 20 else 5
    for row, column in counts.nonzero().tolist():
        color = "white" if fraction[row, column] > 0.6 else "black"
        ax.text(column, row, f"{counts[row, column]:,}", ha="center", va="center", color=color, fontsize=size)
