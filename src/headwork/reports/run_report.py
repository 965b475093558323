"""The page about one run: its result, its curves, its mistakes, and where its heads look."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from headwork.reports.classification import (
    Classification,
    draw_confusion,
    draw_worst_images,
    list_worst_texts,
    worst_mistakes,
)
from headwork.reports.curves import Row, best_row, describe_curves, draw_curves, last_row
from headwork.reports.page import Facts, Page, Part
from headwork.reports.pictures import Picture
from headwork.reports.tables import Cell, Table, show

N_MISTAKES = 12


@dataclass(frozen=True, kw_only=True)
class RunReport:
    """All that a report shows; what is left out leaves its section out.

    >>> rows = [Row(20, 1, "train", 0.9, 2.0), Row(20, 1, "valid", 0.4, 2.5, {"accuracy": 0.9})]
    >>> result = Classification(probabilities=torch.tensor([[0.9, 0.1], [0.7, 0.3]]), truth=torch.tensor([0, 1]),
    ...     labels=("cat", "dog"), texts=("it purrs", "it barks"))
    >>> report = RunReport(title="Cats and dogs", summary=(("seed", 0), ("parameters", 12_345)), rows=rows,
    ...     metric="accuracy", classification=result)
    >>> report.result
    '50.0 % of the 2 test examples are right'

    In a run folder, with the model at hand:

        pictures = [("Where the heads look", draw_class_token(model, image)) for image in images[:2]]
        rows = read_metrics(folder / "metrics.jsonl")
        report = RunReport(title="...", rows=rows, metric="accuracy", classification=result, pictures=pictures)
        write_report(report, folder / "report.html")
    """

    title: str
    headline: str = ""
    summary: Sequence[tuple[str, Cell]] = ()
    rows: Sequence[Row] = ()
    metric: str | None = None
    classification: Classification | None = None
    samples: Sequence[Part] = ()
    """What the model says when it is asked."""
    pictures: Sequence[tuple[str, Picture]] = ()

    @property
    def result(self) -> str:
        """The headline; unless given, what the test says, or else the best on validation data."""
        if self.headline:
            return self.headline
        if (it := self.classification) is not None:
            if it.diverged:
                return "The model has diverged"
            return f"{100 * it.accuracy:.1f} % of the {len(it.truth):,} {it.split} examples are right"
        name = self.metric or "loss"
        test, best = last_row(self.rows, "test"), best_row(self.rows, name)
        words = name.replace("_", " ")
        if test is not None:
            return f"The test {words} is {_figure(name, test.value(name))}"
        return "" if best is None else f"The best validation {words} is {_figure(name, best.value(name))}"


def _figure(name: str, value: float) -> str:
    return (
        f"{100 * value:.1f} %" if name.endswith(("accuracy", "match", "f1")) and math.isfinite(value) else show(value)
    )


def write_report(report: RunReport, path: Path) -> None:
    """Write the page, whole or not at all."""
    make_page(report).write(path)


def make_page(report: RunReport) -> Page:
    page = Page(report.title, report.result, f"Written by headwork {version('headwork')}; all of it is in this file.")
    if report.summary:
        page.add("", Facts(tuple(report.summary)))
    if report.rows:
        curves = Picture(draw_curves(report.rows, report.metric), describe_curves(report.rows, report.metric))
        numbers = list_epochs(report.rows, report.metric)
        page.add("How it learned", curves, *([numbers] if numbers.rows else []))
    if report.classification is not None:
        _add_mistakes(page, report.classification)
    if report.samples:
        page.add("What it says", *report.samples)
    heading = ""
    for name, picture in report.pictures:
        page.add(name if name != heading else "", picture)
        heading = name
    return page


def list_epochs(rows: Sequence[Row], metric: str | None) -> Table:
    """The numbers behind the curves: the validation rows, each with the last training loss before it."""
    names = ("loss",) if metric in (None, "loss") else ("loss", str(metric))
    lines, train = [], None
    for row in rows:
        if row.split == "train":
            train = row
        elif row.split == "valid":
            logged = None if train is None else train.value("loss")
            lines.append((row.epoch, row.step, logged, *(row.value(name) for name in names)))
    columns = ("epoch", "step", "train loss", *(f"validation {name}" for name in names))
    return Table(columns, tuple(lines), "The numbers", folded=True)


def _add_mistakes(page: Page, result: Classification) -> None:
    if result.diverged:
        page.add("What is taken for what", "Some probabilities are not numbers, so there are no answers to look at.")
        return
    counts = f"Of {len(result.truth):,} {result.split} examples {(result.predicted == result.truth).sum():,} are right"
    caption = (
        f"{counts}: the diagonal. A row is what was true, a column what the model said; "
        "the stronger the colour, the larger the share of the row, with mistakes (orange) on a finer scale."
    )
    figure = draw_confusion(result.truth, result.predicted, result.labels)
    page.add("What is taken for what", Picture(figure, caption))
    mistakes = worst_mistakes(result.probabilities, result.truth, N_MISTAKES)
    if not len(mistakes):
        page.add("The worst mistakes", f"There is none among the {len(result.truth):,} {result.split} examples.")
        return
    words = "Wrong answers that the model was most sure of. The number is the probability it gave to its answer."
    if result.images is not None:
        page.add("The worst mistakes", Picture(draw_worst_images(result, N_MISTAKES), words))
    if result.texts is not None:
        page.add("The worst mistakes" if result.images is None else "", words, list_worst_texts(result, N_MISTAKES))
