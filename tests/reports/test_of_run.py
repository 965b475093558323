"""The report of a whole run says what its model says."""

from pathlib import Path

import pytest
from tests.training.small_runs import small_run

from headwork.generation import translate
from headwork.reports.of_run import report_run, say_something
from headwork.reports.page import Passage
from headwork.reports.tables import Table
from headwork.storage import load
from headwork.training import train_run


def test_translations_beside_the_true_ones(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run", "translator")
    result = train_run(run)
    model, data = load(run.folder), run.load_data()
    (table,) = say_something(run, model, data.test)
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
    page = report_run(run, data, result.model, result.evaluation).read_text()
    assert "What it says" in page
    assert "The test exact match is" in page


def test_a_text_goes_on(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run", "gpt")
    train_run(run)
    model, data = load(run.folder), run.load_data()
    words, passage = say_something(run, model, data.test)
    assert "adds 400 tokens" in words
    assert isinstance(passage, Passage)
    assert passage.beginning == run.tokenizer.decode(data.test.batch([0]).ids[0, :30].tolist())
    assert len(passage.text) > 300
    assert [passage] == [part for part in say_something(run, model, data.test) if part == passage]


@pytest.mark.parametrize("kind", ["vit", "resnet"])
def test_images_have_nothing_to_say(tmp_path: Path, kind: str) -> None:
    run = small_run(tmp_path / "run", kind)
    result = train_run(run)
    data = run.load_data()
    assert not list(say_something(run, load(run.folder), data.test))
    assert "What it says" not in report_run(run, data, result.model, result.evaluation).read_text()


def test_a_passage_is_escaped() -> None:
    assert Passage("a <b", "\n<script>").html() == '<pre class="passage"><b>a &lt;b</b>\n&lt;script&gt;</pre>'
