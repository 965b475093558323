"""The page about one run: its result, its curves, its mistakes, samples, and the attention of its heads."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from jaxtyping import Float, Int
from torch import Tensor

from headwork.figures import (
    Mistake,
    Picture,
    describe_curves,
    draw_confusion_matrix,
    draw_curves,
    draw_mistakes,
    worst_mistakes,
)
from headwork.figures.confusion import N_CLASSES_DRAWN, check_classes, list_classes
from headwork.figures.style import shorten
from headwork.metric import LOSS, Metric, MetricRow, best_row, last_row
from headwork.reports.page import Facts, Page, Part
from headwork.tables import Cell, Table

N_MISTAKES = 12
N_LETTERS_OF_TEXT = 600

ShowMistakes = Callable[[Sequence[Mistake]], Part]
"""Makes a picture or a table of some mistakes, since only the data set has their images or texts."""


@dataclass(frozen=True, kw_only=True)
class Classification:
    """The probabilities that a classifier gave to each example of a split, and the true classes."""

    probabilities: Float[Tensor, "example class"]
    truth: Int[Tensor, "example"]
    labels: Sequence[str]
    show_mistakes: ShowMistakes | None = None
    split: str = "test"

    def __post_init__(self) -> None:
        check_classes(self.truth, self.labels, "truth")
        if self.probabilities.shape != (len(self.truth), len(self.labels)):
            raise ValueError(
                f"probabilities must have the axes (example, class) = {(len(self.truth), len(self.labels))}, "
                f"got {tuple(self.probabilities.shape)}"
            )

    @property
    def predicted(self) -> Int[Tensor, "example"]:
        return self.probabilities.argmax(1)

    @property
    def diverged(self) -> bool:
        """Whether some probabilities are not numbers, so that nothing can be said about the predictions."""
        return not bool(self.probabilities.isfinite().all())

    @property
    def accuracy(self) -> float:
        return (self.predicted == self.truth).double().mean().item()


@dataclass(frozen=True, kw_only=True)
class RunReport:
    """All that a report shows; what is left out leaves its section out.

    >>> rows = [MetricRow(20, 1, "valid", {"loss": 0.4, "accuracy": 0.9}, 2.5)]
    >>> result = Classification(probabilities=torch.tensor([[0.9, 0.1], [0.7, 0.3]]), truth=torch.tensor([0, 1]),
    ...     labels=("cat", "dog"))
    >>> report = RunReport(title="Cats and dogs", facts=(("seed", 0), ("parameters", 12_345)), rows=rows,
    ...     metric=Metric("accuracy", percent=True), classification=result)
    >>> report.result
    '50.0 % of the 2 test examples are classified correctly'
    """

    title: str
    headline: str = ""
    facts: Sequence[tuple[str, Cell]] = ()
    starts: Table | None = None
    """Of a run that was resumed."""
    rows: Sequence[MetricRow] = ()
    metric: Metric = LOSS
    label_smoothing: float = 0.0
    classification: Classification | None = None
    samples: Sequence[Part] = ()
    """What the model generates."""
    pictures: Sequence[tuple[str, Picture]] = ()
    """Each under its heading."""

    @property
    def result(self) -> str:
        """The headline; unless given, the test result, or else the best on validation data."""
        if self.headline:
            return self.headline
        if (it := self.classification) is not None:
            if it.diverged:
                return "The model has diverged"
            return f"{100 * it.accuracy:.1f} % of the {len(it.truth):,} {it.split} examples are classified correctly"
        test, best, name = last_row(self.rows, "test"), best_row(self.rows, self.metric), self.metric.name
        if test is not None:
            return f"The test {self.metric.label} is {self.metric.show(test.value(name))}"
        if best is not None:
            return f"The best validation {self.metric.label} is {self.metric.show(best.value(name))}"
        return ""


def write_report(report: RunReport, path: Path) -> None:
    """Write the page, whole or not at all."""
    make_page(report).write(path)


def make_page(report: RunReport) -> Page:
    page = Page(
        report.title, report.result, f"Written by headwork {version('headwork')}. This page needs no other file."
    )
    if report.facts:
        page.add("", Facts(tuple(report.facts)), *([] if report.starts is None else [report.starts]))
    if report.rows:
        caption = describe_curves(report.rows, report.metric, report.label_smoothing)
        numbers = list_epochs(report.rows, report.metric)
        curves = Picture(draw_curves(report.rows, report.metric), caption)
        page.add("Training curves", curves, *([numbers] if numbers.rows else []))
    if report.classification is not None:
        add_classification(page, report.classification)
    if report.samples:
        page.add("Samples", *report.samples)
    heading = ""
    for name, picture in report.pictures:
        page.add(name if name != heading else "", picture)
        heading = name
    return page


def list_epochs(rows: Sequence[MetricRow], metric: Metric = LOSS) -> Table:
    """The numbers behind the curves: the validation rows, each with the last training loss before it."""
    names = tuple(dict.fromkeys(("loss", metric.name)))
    lines, train = [], None
    for row in rows:
        if row.split == "train":
            train = row
        elif row.split == "valid":
            logged = None if train is None else train.value("loss")
            lines.append((row.epoch, row.step, logged, *(row.value(name) for name in names)))
    columns = ("epoch", "step", "training loss", *(f"validation {name.replace('_', ' ')}" for name in names))
    return Table(columns, tuple(lines), "The numbers", folded=True)


def add_classification(page: Page, result: Classification) -> None:
    """The confusion matrix and the worst mistakes."""
    if result.diverged:
        page.add("Confusion matrix", "Some probabilities are not finite numbers, so there are no predictions to show.")
        return
    n_examples, n_right = len(result.truth), int((result.predicted == result.truth).sum())
    caption = (
        f"Rows are true classes, columns predicted classes: {n_right:,} of {n_examples:,} {result.split} examples are "
        "on the diagonal. The colour is the fraction of the row; mistakes (orange) have a finer scale."
    )
    rest = []
    if len(result.labels) > N_CLASSES_DRAWN:
        caption += f" Of {len(result.labels):,} classes the {N_CLASSES_DRAWN} with the most mistakes are drawn."
        columns = ("class", "examples", "right", "most often mistaken for", "how often")
        rest = [
            Table(
                columns, tuple(list_classes(result.truth, result.predicted, result.labels)), "All classes", folded=True
            )
        ]
    figure = draw_confusion_matrix(result.truth, result.predicted, result.labels)
    page.add("Confusion matrix", Picture(figure, caption), *rest)
    mistakes = worst_mistakes(result.probabilities, result.truth, result.labels, N_MISTAKES)
    if not mistakes:
        page.add("Worst mistakes", f"There are none among the {n_examples:,} {result.split} examples.")
    elif result.show_mistakes is not None:
        page.add("Worst mistakes", result.show_mistakes(mistakes))


def show_images(mistakes: Sequence[Mistake], images: Float[Tensor, "mistake channel row column"]) -> Picture:
    caption = "The wrong predictions with the largest probability, which is the number in brackets."
    return Picture(draw_mistakes(mistakes, images), caption)


def list_texts(mistakes: Sequence[Mistake], texts: Sequence[str]) -> Table:
    rows = tuple(
        (mistake.true, mistake.predicted, round(mistake.probability, 4), shorten(text, N_LETTERS_OF_TEXT))
        for mistake, text in zip(mistakes, texts, strict=True)
    )
    caption = "The wrong predictions with the largest probability."
    return Table(("true", "predicted", "probability", "text"), rows, caption)
