"""What a classifier gets right and wrong: the confusion matrix and the worst mistakes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from headwork.inspection.figures import show_image
from headwork.inspection.style import plot_style
from headwork.reports.labels import shorten
from headwork.reports.pictures import GLOW, INK, UPWARDS
from headwork.tables import Table

N_CLASSES_COUNTED = 30
"""With more classes than this the cells are too small for numbers."""

N_LETTERS_OF_TEXT = 600


@dataclass(frozen=True, kw_only=True)
class Classification:
    """What a classifier said of each example of a split, and what was true; the examples as images or as texts.

    Images have values from 0 to 1, as they were before any normalisation.
    """

    probabilities: Float[Tensor, "example class"]
    truth: Int[Tensor, "example"]
    labels: Sequence[str]
    images: Float[Tensor, "example channel row column"] | None = None
    texts: Sequence[str] | None = None
    split: str = "test"

    def __post_init__(self) -> None:
        _check_labels(self.truth, self.labels, "truth")
        if self.probabilities.shape != (len(self.truth), len(self.labels)):
            raise ValueError(
                f"probabilities must have the axes (example, class) = {(len(self.truth), len(self.labels))}, "
                f"got {tuple(self.probabilities.shape)}"
            )
        for name, examples in (("images", self.images), ("texts", self.texts)):
            if examples is not None and len(examples) != len(self.truth):
                raise ValueError(f"{name} must be one for each of {len(self.truth)} examples, got {len(examples)}")

    @property
    def predicted(self) -> Int[Tensor, "example"]:
        return self.probabilities.argmax(1)

    @property
    def diverged(self) -> bool:
        """Whether some probabilities are not numbers, so that nothing can be said about the model's answers."""
        return not bool(self.probabilities.isfinite().all())

    @property
    def accuracy(self) -> float:
        return (self.predicted == self.truth).double().mean().item()


def count_confusions(
    truth: Int[Tensor, "example"], predicted: Int[Tensor, "example"], labels: Sequence[str]
) -> Int[Tensor, "class predicted_class"]:
    """How often each class (row) was taken for each (column).

    >>> count_confusions(torch.tensor([0, 0, 1]), torch.tensor([0, 1, 1]), ["cat", "dog"])
    tensor([[1, 1],
            [0, 1]])
    """
    from sklearn.metrics import confusion_matrix

    _check_labels(truth, labels, "truth")
    _check_labels(predicted, labels, "predicted")
    if len(truth) != len(predicted):
        raise ValueError(f"truth and predicted must be of the same examples, got {len(truth)} and {len(predicted)}")
    counts = confusion_matrix(truth.cpu().numpy(), predicted.cpu().numpy(), labels=range(len(labels)))
    return torch.from_numpy(counts)


def draw_confusion(truth: Int[Tensor, "example"], predicted: Int[Tensor, "example"], labels: Sequence[str]) -> Figure:
    """How often each class (row) was taken for each (column); the colour is the share of the row."""
    counts = count_confusions(truth, predicted, labels)
    share = counts / counts.sum(1, keepdim=True).clamp(min=1)
    names = [shorten(label, 16) for label in labels]
    size = max(2.2, min(0.36 * len(labels), 7.5))
    with plot_style():
        figure = Figure(figsize=(size + 1.2, size + 0.9), layout="constrained")
        ax = figure.subplots()
        right = torch.diag(share.diagonal())
        wrong = share - right
        ax.imshow(right.numpy(), cmap=INK, vmin=0, vmax=1, interpolation="none")
        ax.imshow(wrong.numpy(), cmap=GLOW, vmin=0, vmax=max(wrong.max().item(), 0.25), interpolation="none")
        turned = UPWARDS if max(map(len, names)) > 3 else {}
        ax.set_xticks(range(len(names)), names, parse_math=False, **turned)
        ax.set_yticks(range(len(names)), names, parse_math=False)
        ax.tick_params(length=0)
        ax.set(xlabel="said", ylabel="true")
        ax.spines[:].set_visible(False)
        if len(labels) <= N_CLASSES_COUNTED:
            _write_counts(ax, counts, share)
    return figure


def worst_mistakes(
    probabilities: Float[Tensor, "example class"], truth: Int[Tensor, "example"], n: int
) -> Int[Tensor, "mistake"]:
    """The examples that were taken for something else with the largest probability, worst first; at most n.

    >>> worst_mistakes(torch.tensor([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]]), torch.tensor([0, 1, 0]), n=5)
    tensor([2, 1])
    """
    if not bool(probabilities.isfinite().all()):
        raise ValueError("probabilities must be finite, got some that are not")
    largest, predicted = probabilities.max(1)
    wrong = (predicted != truth).nonzero().squeeze(1)
    order = largest[wrong].argsort(descending=True, stable=True)
    return wrong[order[:n]]


def draw_worst_images(result: Classification, n: int = 12) -> Figure:
    """The worst mistakes as images: what was true, what was said, and with what probability."""
    if result.images is None:
        raise ValueError("result must hold images, got none")
    chosen = worst_mistakes(result.probabilities, result.truth, n).tolist()
    if not chosen:
        raise ValueError("result must hold at least one mistake, got none")
    n_across = min(len(chosen), 6)
    n_down = math.ceil(len(chosen) / n_across)
    with plot_style():
        figure = Figure(figsize=(1.45 * n_across, 1.85 * n_down), layout="constrained")
        for place, ax in enumerate(figure.subplots(n_down, n_across, squeeze=False).flat):
            if place >= len(chosen):
                ax.set_axis_off()
                continue
            true, said, probability = _in_words(result, chosen[place])
            show_image(ax, result.images[chosen[place]])
            ax.set_title(f"true: {shorten(true, 14)}", loc="left", parse_math=False)
            ax.set_xlabel(f"said: {shorten(said, 14)} ({probability:.2f})", loc="left", parse_math=False)
    return figure


def list_worst_texts(result: Classification, n: int = 12) -> Table:
    """The worst mistakes as a table of texts."""
    if result.texts is None:
        raise ValueError("result must hold texts, got none")
    chosen = worst_mistakes(result.probabilities, result.truth, n).tolist()
    rows = []
    for example in chosen:
        true, said, probability = _in_words(result, example)
        rows.append((true, said, round(probability, 4), shorten(result.texts[example], N_LETTERS_OF_TEXT)))
    return Table(("true", "said", "probability", "text"), tuple(rows))


def _in_words(result: Classification, example: int) -> tuple[str, str, float]:
    said = int(result.predicted[example])
    true = int(result.truth[example])
    return result.labels[true], result.labels[said], float(result.probabilities[example, said])


def _write_counts(ax: Axes, counts: Tensor, share: Tensor) -> None:
    """A zero says nothing and is left out; numbers on dark cells are white."""
    size = 8 if len(counts) <= 12 else 6.5 if len(counts) <= 20 else 5
    for row, column in counts.nonzero().tolist():
        color = "white" if share[row, column] > 0.6 else "black"
        ax.text(column, row, f"{counts[row, column]:,}", ha="center", va="center", color=color, fontsize=size)


def _check_labels(classes: Tensor, labels: Sequence[str], name: str) -> None:
    if len(classes) == 0:
        raise ValueError(f"{name} must hold at least one example, got none")
    if classes.min() < 0 or classes.max() >= len(labels):
        outside = classes[(classes < 0) | (classes >= len(labels))][0].item()
        raise ValueError(f"{name} must name one of the {len(labels)} labels, 0 .. {len(labels) - 1}, got {outside}")
