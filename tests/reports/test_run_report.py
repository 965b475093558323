"""The page about one run, from its parts."""

import math

import pytest
import torch

from headwork.figures import Mistake, draw_attention_between_tokens, draw_attention_over_image
from headwork.metric import LOSS, Metric, MetricRow
from headwork.reports.run_report import Classification, RunReport, list_epochs, list_texts, show_images, write_report

from ..models.small_models import decoder, vision_transformer
from .reading import read_page

ACCURACY = Metric("accuracy", percent=True)
ROWS = tuple(
    MetricRow(7 * epoch, epoch, split, {"loss": loss / epoch, "accuracy": 1 - 0.5 / epoch}, 2.0 * epoch)
    for epoch in (1, 2, 3)
    for split, loss in (("train", 1.0), ("valid", 1.5))
)
TEST = MetricRow(21, 3, "test", {"loss": 0.25}, 9.0)


def some_result(n=17, **examples):
    torch.manual_seed(1)
    return Classification(
        probabilities=torch.randn(n, 5).softmax(1),
        truth=torch.randint(5, (n,)),
        labels=("cat", "<script>", "$x$", "_", "dog"),
        **examples,
    )


def some_report(**changes):
    torch.manual_seed(0)
    settings = {
        "title": "ViT <small>",
        "facts": (("recipe", "digits-vit"), ("parameters", 12_345), ("seed", 0)),
        "rows": ROWS,
        "metric": ACCURACY,
        "classification": some_result(show_mistakes=lambda mistakes: show_images(mistakes, torch.rand(12, 2, 6, 15))),
    }
    return RunReport(**(settings | changes))


def written(report, tmp_path):
    path = tmp_path / "report.html"
    write_report(report, path)
    return read_page(path.read_text(encoding="utf-8"))


def test_a_report_has_all_its_parts(tmp_path):
    image = draw_attention_over_image(vision_transformer(n_layers=1), torch.rand(2, 6, 15))
    text = draw_attention_between_tokens(
        decoder(n_layers=1), torch.randint(37, (5,)), strings=[["<s>", " ", "\n", "&", "$"]]
    )
    pictures = (("Where the heads look", image), ("Where the heads look", image), ("And back", text))
    report = some_report(pictures=pictures)
    reader = written(report, tmp_path)
    assert reader.inside("h1") == ["ViT <small>"]
    assert (
        reader.inside("p")[0]
        == report.result
        == f"{100 * report.classification.accuracy:.1f} % of the 17 test examples are classified correctly"
    )
    assert reader.inside("dd") == ["digits-vit", "12,345", "0"]
    assert reader.inside("h2") == [
        "Training curves",
        "Confusion matrix",
        "Worst mistakes",
        "Where the heads look",
        "And back",
    ]
    assert len(reader.named("figure")) == len(reader.inside("figcaption")) == 6
    assert "<script>" in reader.inside("text")
    assert (tmp_path / "report.html").stat().st_size < 1_000_000


@pytest.mark.slow
def test_the_same_run_gives_the_same_bytes(tmp_path):
    write_report(some_report(), tmp_path / "a.html")
    write_report(some_report(), tmp_path / "b.html")
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def test_the_least_report(tmp_path):
    reader = written(RunReport(title="nothing yet"), tmp_path)
    assert reader.inside("h1") == ["nothing yet"]
    assert not reader.named("figure")


def test_texts_that_were_taken_for_something_else_are_listed(tmp_path):
    def show(mistakes):
        return list_texts(mistakes, [f"review {mistake.example} <b>" for mistake in mistakes])

    reader = written(some_report(classification=some_result(show_mistakes=show)), tmp_path)
    assert reader.inside("th")[-4:] == ["true", "predicted", "probability", "text"]
    assert sum(cell.startswith("review") for cell in reader.inside("td")) == 12


def test_no_mistake_is_said(tmp_path):
    right = Classification(probabilities=torch.eye(3), truth=torch.arange(3), labels=("a", "b", "c"), split="valid")
    reader = written(some_report(classification=right), tmp_path)
    assert "There are none among the 3 valid examples." in reader.inside("p")
    assert reader.inside("p")[0] == "100.0 % of the 3 valid examples are classified correctly"


def test_a_run_that_diverged_has_a_report_that_says_so(tmp_path):
    result = some_result()
    result.probabilities[3] = math.nan
    rows = tuple(MetricRow(r.step, r.epoch, r.split, {"loss": math.nan}, r.seconds) for r in ROWS)
    reader = written(some_report(classification=result, rows=rows, metric=LOSS), tmp_path)
    assert reader.inside("p")[0] == "The model has diverged"
    assert "Some probabilities are not finite numbers, so there are no predictions to show." in reader.inside("p")
    assert "nan" not in " ".join(text for _, text in reader.texts).lower()


@pytest.mark.parametrize(
    ("changes", "headline"),
    [
        ({"headline": "98.3 % on the test digits"}, "98.3 % on the test digits"),
        ({"classification": None}, "The best validation accuracy is 83.33 %"),
        (
            {"classification": None, "rows": (*ROWS, TEST)},
            "The test loss is 0.2500",
        ),
        ({"classification": None, "rows": (), "metric": LOSS}, ""),
    ],
)
def test_the_headline_is_the_result(changes, headline):
    metric = {"metric": LOSS} if "test" in headline and "loss" in headline else {}
    assert some_report(**changes, **metric).result == headline


def test_the_numbers_behind_the_curves():
    table = list_epochs(ROWS, ACCURACY)
    assert table.columns == ("epoch", "step", "training loss", "validation loss", "validation accuracy")
    assert table.rows[1] == (2, 14, 0.5, 0.75, 0.75)
    assert list_epochs(ROWS).columns[-1] == "validation loss"


LABELS = tuple("abcde")


def random_result(n=41):
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
    result = random_result()
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


@pytest.mark.parametrize("n_classes", [40, 41, 1000, 10_000])
def test_of_many_classes_some_are_drawn_and_all_are_in_a_table(n_classes, tmp_path):
    """It took a minute and gigabytes to draw what nobody could read."""
    truth = torch.arange(100) % n_classes
    result = Classification(
        probabilities=torch.rand(100, n_classes), truth=truth, labels=[f"label {i}" for i in range(n_classes)]
    )
    write_report(some_report(classification=result), tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert ("the 40 with the most mistakes are drawn" in page) == (n_classes > 40)
    assert (f'<td data-name="class">label {n_classes - 1}</td>' in page) == (n_classes > 40)
    assert len(page) < 300_000 + 400 * n_classes
