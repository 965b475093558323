"""Labels of other data: those of the run, by name or, where its data numbers them, by number."""

from pathlib import Path

import pytest
from tests.small_sets import write_small_sets

from headwork.data import Sst2, TextTable
from headwork.recipes import find_recipe, other_examples, with_data
from headwork.tasks import Classification
from headwork.training import Run


def run_of(folder: Path, table: Path | None = None) -> Run:
    config = find_recipe("sst2-encoder") if table is None else with_data(find_recipe("sst2-encoder"), [str(table)])
    tokenizer = TextTable(path=str(folder / "dev.tsv")).load().tokenizer
    return Run(folder, config, Classification(("negative", "positive")), tokenizer)


def test_numbers_of_a_set_that_numbers_its_labels(tmp_path: Path) -> None:
    write_small_sets(tmp_path)
    run = run_of(tmp_path / "sst2")
    assert isinstance(run.config.data, Sst2)
    other = other_examples(run, [str(tmp_path / "sst2" / "dev.tsv")])
    assert other.examples.batch(range(4)).label.tolist() == [0, 1, 0, 1]
    (tmp_path / "own.csv").write_text("text,label\na,positive\nb,negative\nc,1\n")
    assert other_examples(run, [str(tmp_path / "own.csv")]).examples.batch(range(3)).label.tolist() == [1, 0, 1]


def test_numbers_say_nothing_where_labels_are_in_alphabetical_order(tmp_path: Path) -> None:
    write_small_sets(tmp_path)
    run = run_of(tmp_path / "sst2", tmp_path / "own.csv")
    with pytest.raises(ValueError, match=r"must be those of the run, got '0'; there are negative, positive"):
        other_examples(run, [str(tmp_path / "sst2" / "dev.tsv")])
