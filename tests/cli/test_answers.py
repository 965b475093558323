"""What a file asks, and the file of the answers."""

import json
from pathlib import Path

import pytest

from headwork.cli.answers import Answers
from headwork.cli.asked import Asked, Columns, read_asked

PAIRS = Columns(None, ("2", "source", "text"), ("target",))


def texts(path: Path, columns: Columns) -> list[str]:
    return [asked.text for asked in read_asked(path, columns)]


def test_a_column_that_has_a_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As a run says that was trained on a table without names."""
    path = tmp_path / "plain.tsv"
    path.write_text("1\tone dog\tein Hund\n2\ttwo dogs\tzwei Hunde\n")
    assert texts(path, PAIRS) == ["one dog", "two dogs"]
    assert (
        "does not name its columns: the texts are those of column 2, from the first line on" in capsys.readouterr().err
    )
    path.write_text("id\tSource\ttarget\n1\tone dog\tein Hund\n")
    assert texts(path, PAIRS) == ["one dog"]
    assert capsys.readouterr().err == ""


def test_a_line_is_not_a_row(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n\ntwo, three\n")
    found = list(read_asked(tmp_path / "a.txt", PAIRS))
    assert found == [
        Asked(f"{tmp_path / 'a.txt'}, line {number}", text) for number, text in ((1, "one"), (2, ""), (3, "two, three"))
    ]
    assert [asked.shown("source") for asked in found] == [{"source": "one"}, {"source": ""}, {"source": "two, three"}]


def test_two_that_write_one_file_do_not_mix(tmp_path: Path) -> None:
    """As threads of one process do; the last that is done has it, whole."""
    with Answers(tmp_path / "out.jsonl", quiet=True) as slow:
        slow.add({"predicted": "slow"}, "")
        with Answers(tmp_path / "out.jsonl", quiet=True) as fast:
            fast.add({"predicted": "fast"}, "")
        slow.add({"predicted": "slow"}, "")
    assert (tmp_path / "out.jsonl").read_text() == 2 * '{"predicted": "slow"}\n'
    assert list(tmp_path.iterdir()) == [tmp_path / "out.jsonl"]


@pytest.mark.parametrize("ending", ["csv", "json", "jsonl"])
def test_nothing_is_left_of_answers_that_fail(tmp_path: Path, ending: str) -> None:
    def fail() -> None:
        with Answers(tmp_path / f"a.{ending}") as answers:
            answers.add({"text": "one"}, "")
            raise RuntimeError("halfway")

    with pytest.raises(RuntimeError, match="halfway"):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_no_answers_and_half_a_character(tmp_path: Path) -> None:
    with Answers(tmp_path / "none.json", quiet=True):
        pass
    assert json.loads((tmp_path / "none.json").read_text()) == []
    for ending in ("jsonl", "csv"):
        with Answers(tmp_path / f"half.{ending}", quiet=True) as answers:
            answers.add({"text": "a \ud800 b"}, "")
    assert json.loads((tmp_path / "half.jsonl").read_text(encoding="utf-8")) == {"text": "a \ud800 b"}
    assert (tmp_path / "half.csv").read_text(encoding="utf-8").splitlines() == ["text", "a \\ud800 b"]
