"""What a classifier predicted for a split, as parts of a page: the confusion matrix and the worst mistakes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor

from headwork.figures import Mistake, Picture, draw_confusion_matrix, draw_mistakes, worst_mistakes
from headwork.figures.confusion import check_classes
from headwork.figures.text_labels import shorten
from headwork.reports.page import Page, Part
from headwork.tables import Table

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
    figure = draw_confusion_matrix(result.truth, result.predicted, result.labels)
    page.add("Confusion matrix", Picture(figure, caption))
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
