"""The report of a whole run says what its model says."""

import platform
from importlib.metadata import version
from pathlib import Path

import pytest
import torch
from tests.training.small_runs import small_run

from headwork.generation import translate
from headwork.reports.of_run import generate_samples, report_run
from headwork.reports.page import Passage
from headwork.storage import load
from headwork.tables import Table
from headwork.tasks import Evaluation
from headwork.training import train_run


@pytest.mark.slow
def test_translations_beside_the_true_ones(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run", "translator", label_smoothing=0.1)
    result = train_run(run)
    model, data = load(run.folder), run.load_data()
    (table,) = generate_samples(run, model, data.test)
    assert isinstance(table, Table)
    assert len(table.rows) == 10
    batch = data.test.batch([3])
    ids = translate(
        model, batch.source, max_new_tokens=batch.target.shape[1], begin=run.tokenizer.begin, end=run.tokenizer.end
    )
    source, truth, ours, verdict = table.rows[3]
    assert (source, truth) == tuple(run.tokenizer.decode(each[0].tolist()) for each in (batch.source, batch.target))
    assert ours[: len(truth)] == run.tokenizer.decode(ids[0].tolist())[: len(truth)]
    assert verdict == ("" if ours == truth else "wrong")
    page = report_run(run, data, model, result.evaluation, seconds=3725.4).read_text()
    assert "Samples" in page
    assert "label smoothing (0.1)" in page
    assert "<dd>1:02:05</dd>" in page
    versions = f"headwork {version('headwork')}, PyTorch {torch.__version__}, Python {platform.python_version()}"
    assert f'<div class="long"><dt>versions</dt><dd>{versions}</dd></div>'.replace("PyTorch", "Py<wbr>Torch") in page
    assert "Encoder<wbr>Decoder" in page  # no other place to break it
    assert "The test exact match is" in page


@pytest.mark.slow
def test_a_text_goes_on(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run", "gpt")
    train_run(run)
    model, data = load(run.folder), run.load_data()
    words, passage = generate_samples(run, model, data.test)
    assert "continues it by 400 tokens" in words
    assert isinstance(passage, Passage)
    assert passage.beginning == run.tokenizer.decode(data.test.batch([0]).ids[0, :30].tolist())
    assert len(passage.text) > 300
    assert [passage] == [part for part in generate_samples(run, model, data.test) if part == passage]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["vit", "resnet"])
def test_images_have_no_samples(tmp_path: Path, kind: str) -> None:
    run = small_run(tmp_path / "run", kind)
    result = train_run(run)
    data, model = run.load_data(), load(run.folder)
    assert not list(generate_samples(run, model, data.test))
    page = report_run(run, data, model, result.evaluation).read_text()
    assert "Samples" not in page
    assert "Confusion matrix" in page
    assert "Worst mistakes" in page
    assert ("Where the heads look" in page) == (kind == "vit")


def test_a_report_takes_the_test_results_as_they_are(tmp_path: Path) -> None:
    """Nothing is computed again: what is said of the test is what was handed over."""
    run = small_run(tmp_path / "run", "vit", steps=1)
    train_run(run)
    data, model = run.load_data(), load(run.folder)
    given = Evaluation({"loss": 0.5}, torch.eye(10), torch.arange(10))
    page = report_run(run, data, model, given).read_text()
    assert "100.0 % of the 10 test examples are classified correctly" in page
    assert "<dd>1 step</dd>" in page
    without = Evaluation({"loss": 0.5}), Evaluation({"loss": 0.5}, torch.rand(10, 10), torch.ones(10, 10))
    for other in without:
        assert "Confusion matrix" not in report_run(run, data, model, other).read_text()


def test_a_passage_is_escaped() -> None:
    assert Passage("a <b", "\n<script>").html() == '<pre class="passage"><b>a &lt;b</b>\n&lt;script&gt;</pre>'
