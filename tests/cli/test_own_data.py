"""Data of a user's own on the command line: train, evaluate, and the answers to a whole file."""

import csv
import json
from pathlib import Path

import pytest
import sacrebleu
import torch
from tests.small_sets import write_small_sets

import headwork as hw
from headwork.cli import main
from headwork.data.translations import measure_bleu

LITTLE = ("--steps", "2", "--batch-size", "4", "--evaluate-every", "2")
SMALL = ("--set", "model.d_model=8", "--set", "model.n_layers=1", "--set", "model.feed_forward.d_ff=8")


def say(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> str:
    capsys.readouterr()
    assert main([str(argument) for argument in arguments]) == code
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    return captured.out if code == 0 else captured.err


@pytest.fixture(scope="module")
def reviews(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a table of texts."""
    folder = tmp_path_factory.mktemp("own")
    rows = [f"{'good' if i % 2 else 'bad'} film number{i},{'for' if i % 2 else 'against'}" for i in range(60)]
    (folder / "reviews.csv").write_text("\n".join(["review,verdict", *rows]) + "\n")
    data = ("--data", str(folder / "reviews.csv"))
    assert main(["train", "sst2-encoder", *data, "--out", str(folder / "run"), *LITTLE, *SMALL]) == 0
    return folder


def test_a_table_is_learned(reviews: Path) -> None:
    run = hw.training.open_run(reviews / "run")
    assert run.task.labels == ("against", "for")
    assert run.config.model.head.n_classes == 2
    assert run.config.data.path == str(reviews / "reviews.csv")
    assert run.config.training.batch_by_length


def test_what_was_found_and_an_estimate_are_said(
    reviews: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = ("--data", str(reviews / "reviews.csv"))
    assert main(["train", "sst2-encoder", *data, "--out", str(tmp_path / "run"), *LITTLE, *SMALL]) == 0
    said = capsys.readouterr()
    words = said.out + said.err
    assert "60 texts in" in words
    assert "2 classes: against (30), for (30)" in words
    assert "of memory with PyTorch and the data" in words


def test_batches_are_smaller_for_few_examples(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [f"{'good' if i % 2 else 'bad'} film number{i},{'for' if i % 2 else 'against'}" for i in range(20)]
    (tmp_path / "few.csv").write_text("\n".join(["review,verdict", *rows]) + "\n")
    about = ("train", "sst2-encoder", "--data", str(tmp_path / "few.csv"), "--steps", "1", *SMALL)
    assert main([*about, "--out", str(tmp_path / "run")]) == 0
    assert "batch size 4 instead of 64, for 16 examples" in capsys.readouterr().err
    assert hw.training.open_run(tmp_path / "run").config.training.batch_size == 4
    assert "number of training examples, 16, got 32" in say(
        capsys, *about, "--out", tmp_path / "other", "--batch-size", "32", code=2
    )


def test_the_flag_is_named_for_a_column_that_is_not_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "few.csv").write_text("review,what\ngood,1\nbad,0\n")
    said = say(capsys, "train", "sst2-encoder", "--data", tmp_path / "few.csv", "--out", tmp_path / "run", code=2)
    assert "label must be given (label=NAME, or --set data.label=NAME on the command line)" in said


@pytest.mark.parametrize("ending", ["csv", "json", "jsonl"])
def test_answers_to_a_whole_table(
    reviews: Path, tmp_path: Path, ending: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked, out = tmp_path / "asked.jsonl", tmp_path / f"answers.{ending}"
    rows = [{"id": i, "text": f"a good film number{i}"} for i in range(70)]
    asked.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert "70 answers in" in say(capsys, "predict", reviews / "run", asked, "--out", out)
    if ending == "csv":
        with out.open(newline="") as file:
            found = list(csv.DictReader(file))
    else:
        text = out.read_text()
        found = json.loads(text) if ending == "json" else [json.loads(line) for line in text.splitlines()]
    assert [int(row["id"]) for row in found] == list(range(70))
    run, model = hw.training.open_run(reviews / "run"), hw.load(reviews / "run")
    ids = torch.tensor([[run.tokenizer.begin, *run.tokenizer.encode(rows[7]["text"])]])
    wanted = model(ids).detach().softmax(-1)[0]
    assert found[7]["predicted"] == run.task.labels[int(wanted.argmax())]
    assert float(found[7]["probability"]) == pytest.approx(float(wanted.max()), abs=1e-5)
    assert "asked.jsonl, line 8: " in say(capsys, "predict", reviews / "run", asked)
    assert f"out must be a new file, got {out}" in say(capsys, "predict", reviews / "run", asked, "--out", out, code=2)


def test_a_json_array_is_a_table(reviews: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "asked.json").write_text(json.dumps([{"text": f"a good film number{i}"} for i in range(3)], indent=1))
    said = say(capsys, "predict", reviews / "run", tmp_path / "asked.json").splitlines()
    assert [line.partition(":")[0] for line in said] == [f"{tmp_path / 'asked.json'}, row {i}" for i in (1, 2, 3)]


def test_columns_that_were_said_are_those_of_other_tables_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [f"{'good' if i % 2 else 'bad'} film number{i},{'for' if i % 2 else 'against'}" for i in range(20)]
    for name, columns in (("odd", "Words,Side"), ("usual", "text,label")):
        (tmp_path / f"{name}.csv").write_text("\n".join([columns, *rows]) + "\n")
    said = ("--set", "data.text=Words", "--set", "data.label=Side")
    say(
        capsys,
        "train",
        "sst2-encoder",
        "--data",
        tmp_path / "odd.csv",
        *said,
        "--out",
        tmp_path / "run",
        *LITTLE,
        *SMALL,
    )
    evaluate = ("evaluate", tmp_path / "run", "--json")
    found = json.loads(say(capsys, *evaluate, "--data", tmp_path / "odd.csv"))
    assert found["examples"] == 20
    assert "got 'Words'; there are 'text', 'label'" in say(capsys, *evaluate, "--data", tmp_path / "usual.csv", code=2)
    others = ("--set", "data.text=text", "--set", "data.label=label")
    again = json.loads(say(capsys, *evaluate, "--data", tmp_path / "usual.csv", *others))
    assert again["accuracy"] == found["accuracy"]
    assert "set is for other data" in say(capsys, *evaluate, *others, code=2)
    for name in ("odd", "usual"):
        say(capsys, "predict", tmp_path / "run", tmp_path / f"{name}.csv", "--out", tmp_path / f"{name}-answers.csv")
        assert len((tmp_path / f"{name}-answers.csv").read_text().splitlines()) == 21


def test_other_data_is_evaluated(reviews: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other.csv"
    other.write_text("review,verdict\na good film,for\na bad one,against\nbad bad,against\n")
    found = json.loads(say(capsys, "evaluate", reviews / "run", "--data", other, "--json"))
    assert found["examples"] == 3
    assert found["accuracy"] in (0.0, 1 / 3, 2 / 3, 1.0)
    other.write_text("review,verdict\na good film,fro\nx,for\n")
    message = say(capsys, "evaluate", reviews / "run", "--data", other, code=2)
    assert "must be those of the run, got 'fro'; did you mean 'for'?" in message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("asked.csv", "--column", "words"), "column must name a column, got 'words'; there are 'text' in"),
        (("asked.csv", "--out", "answers.txt"), "out must end in one of .csv, .json, .jsonl, got answers.txt"),
        (("asked.csv", "plain.txt"), "files must be tables or texts, not both"),
        (("empty.csv",), "text must not be empty, got '' in"),
    ],
)
def test_wrong_questions(
    reviews: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments,
    message,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("asked.csv").write_text("text\na good film\n")
    Path("empty.csv").write_text('text\n""\n')
    Path("plain.txt").write_text("a good film\n")
    assert message in say(capsys, "predict", reviews / "run", *arguments, code=2)
    assert not Path("answers.txt").exists()


@pytest.mark.slow
def test_the_folder_of_a_known_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_small_sets(tmp_path / "sets")
    wrong = say(capsys, "train", "digits-vit", "--data-dir", tmp_path, code=2)
    assert "data-dir is for recipes with a data set of their own, got it for digits-vit" in wrong
    (tmp_path / "empty").mkdir()
    wrong = say(capsys, "train", "multi30k", "--data-dir", tmp_path / "empty", "--out", tmp_path / "run", code=2)
    assert "data-dir must be a folder with Multi30k" in wrong
    wrong = say(capsys, "train", "multi30k", "--data-dir", tmp_path, "--data", "x", code=2)
    assert "give data or data-dir, not both" in wrong
    small = ("--set", "model.d_model=8", "--set", "model.feed_forward.d_ff=8", "--set", "data.tokenizer.n_tokens=300")
    data = ("--data-dir", tmp_path / "sets", "--out", tmp_path / "run")
    say(capsys, "train", "multi30k", *data, *LITTLE, *small)
    found = json.loads(say(capsys, "evaluate", tmp_path / "run", "--bleu", "--json"))
    assert "nrefs:1|case:mixed" in found["signature"]
    run, model = hw.training.open_run(tmp_path / "run"), hw.load(tmp_path / "run")
    examples = run.load_data().test
    bleu = measure_bleu(model, run.tokenizer, examples, batch_size=7)
    wanted = (tmp_path / "sets" / "multi30k" / "test_2016_flickr.de").read_text().splitlines()
    assert bleu.references == wanted
    assert found["bleu"] == bleu.score == sacrebleu.corpus_bleu(bleu.translations, [wanted]).score

    asked, out = tmp_path / "asked.en", tmp_path / "answers.jsonl"
    asked.write_text("en dog\n\nen men\n")
    small = ("--max-new-tokens", "5")
    assert "3 answers in" in say(capsys, "translate", tmp_path / "run", "--file", asked, "--out", out, *small)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["source"] for row in rows] == ["en dog", "", "en men"]
    assert rows[0]["translation"] == say(capsys, "translate", tmp_path / "run", "en dog", *small).rstrip("\n")
    wrong = say(capsys, "translate", tmp_path / "run", "en dog", "--file", asked, code=2)
    assert "give texts or a file, not both" in wrong


def test_bleu_is_for_translators(reviews: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "bleu is for a translator" in say(capsys, "evaluate", reviews / "run", "--bleu", code=2)
