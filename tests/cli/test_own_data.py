"""Data of a user's own on the command line: train, evaluate, and the answers to a whole file."""

import csv
import json
import re
import shlex
import shutil
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sacrebleu
import torch
from PIL import Image
from tests.small_sets import write_small_sets

import headwork as hw
from headwork.cli import main
from headwork.cli.train import Train
from headwork.data.translations import measure_bleu

LITTLE = ("--steps", "2", "--batch-size", "4", "--evaluate-every", "2")
SMALL = ("--set", "model.d_model=8", "--set", "model.n_layers=1", "--set", "model.feed_forward.d_ff=8")


def say(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> str:
    out, err = say_both(capsys, *arguments, code=code)
    return out if code == 0 else err


def say_both(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> tuple[str, str]:
    capsys.readouterr()
    assert main([str(argument) for argument in arguments]) == code
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    return captured.out, captured.err


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


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


@pytest.mark.parametrize(
    ("given", "epochs", "said"),
    [
        ({}, 100, "batch size 4 instead of 64 and 100 epochs instead of 2, for 16 examples"),
        ({"batch_size": 2}, 50, "50 epochs instead of 2, for 16 examples"),
        ({"epochs": 2}, 2, "batch size 4 instead of 64, for 16 examples"),
        ({"set": ("training.epochs=3",), "batch_size": 4}, 3, ""),
        ({"steps": 7, "batch_size": 4}, None, ""),
    ],
)
def test_epochs_are_more_for_few_examples(
    given: dict[str, Any], epochs: int | None, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [f"{'good' if i % 2 else 'bad'} film number{i},{'for' if i % 2 else 'against'}" for i in range(20)]
    (tmp_path / "few.csv").write_text("\n".join(["review,verdict", *rows]) + "\n")
    train = Train(recipe="sst2-encoder", data=(str(tmp_path / "few.csv"),), out=tmp_path / "run", **given)
    run, _ = train.find_run()
    assert run.config.training.epochs == epochs
    assert ("instead of" in (err := capsys.readouterr().err)) == bool(said)
    assert said in err


def test_epochs_are_more_in_many_processes_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run is the same in one and in many, so it is as long; a batch can be shared out."""
    rows = [f"{'good' if i % 2 else 'bad'} film number{i},{'for' if i % 2 else 'against'}" for i in range(20)]
    (tmp_path / "few.csv").write_text("\n".join(["review,verdict", *rows]) + "\n")
    trainings = []
    for n_processes in ("1", "2"):
        monkeypatch.setenv("WORLD_SIZE", n_processes)
        data = (str(tmp_path / "few.csv"),)
        train = Train(recipe="sst2-encoder", data=data, out=tmp_path / n_processes, batch_size=4)
        trainings.append(train.find_run()[0].config.training)
        few = Train(recipe="sst2-encoder", data=data, out=tmp_path / f"few-{n_processes}")
        assert few.find_run()[0].config.training.batch_size == 4
    assert trainings[0] == trainings[1]
    assert trainings[0].epochs == 100


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


@pytest.mark.parametrize("recipe", ["digits-vit", "cifar10-resnet"])
def test_the_folder_is_that_of_a_set_which_is_set_instead(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], recipe: str
) -> None:
    other = ("--set", "data=Cifar100", "--data-dir", tmp_path, "--out", tmp_path / "run")
    wrong = say(capsys, "train", recipe, *other, code=2)
    assert "data-dir must be a folder with CIFAR-100, in it or in its folder cifar-100-binary" in wrong
    assert f"got {tmp_path}, which has no" in wrong
    wrong = say(capsys, "train", recipe, *other, "--set", "data.directory=elsewhere", code=2)
    assert f"give data-dir or data.directory, not both, got {tmp_path}" in wrong


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


def test_an_empty_path_is_not_this_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = say(capsys, "train", "sst2-encoder", "--data", "", "--out", tmp_path / "run", code=2)
    assert "data must name a file or folder, got ''" in wrong


def test_bleu_is_for_translators(reviews: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "bleu is for a translator" in say(capsys, "evaluate", reviews / "run", "--bleu", code=2)


# --- tables ----------------------------------------------------------------------------------------------------------


def test_of_longer_texts_it_is_said_that_they_are_cut(
    reviews: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = tmp_path / "asked.csv"
    asked.write_text("text\ngood film\n" + "good film " * 90 + "\n" + "bad film " * 90 + "\n")
    out, err = say_both(capsys, "predict", reviews / "run", asked)
    assert len(out.splitlines()) == 3
    assert f"of 2 longer texts 64 tokens are read, the first at {asked}, line 3" in err
    asked.write_text("text\ngood film\nxyzzy plugh\n")
    _, err = say_both(capsys, "predict", reviews / "run", asked)
    assert f"more than half of the tokens of 1 texts are not known to the model, the first at {asked}, line 3" in err


def test_a_finished_run_is_trained_longer_by_a_new_one(
    reviews: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = say(capsys, "train", "--resume", reviews / "run", "--steps", "2", code=2)
    command = said[said.index("`headwork ") + 1 : said.rindex("`")]
    assert shlex.split(command)[1:4] == ["train", "sst2-encoder", "--data"]
    assert "finished at step 2: " in say_both(capsys, "train", "--resume", reviews / "run")[1]
    say(capsys, *shlex.split(command)[1:], "--out", tmp_path / "longer", "--batch-size", "4")
    before, after = (hw.load(run).state_dict() for run in (reviews / "run", tmp_path / "longer"))
    assert before.keys() == after.keys()
    assert all((before[name] - after[name]).abs().max() < 1e-3 for name in before)


@pytest.mark.slow
@pytest.mark.usefixtures("as_users_run_it")  # the exporter cannot read the checks of the test run
def test_the_script_of_the_manual_serves_a_run(
    reviews: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = Path(__file__).parents[2] / "docs" / "pretrained.md"
    (script,) = re.findall(r"```py\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "mine").symlink_to(reviews / "run")
    say(capsys, "export", "runs/mine", "--out", "mine.onnx")
    capsys.readouterr()
    names: dict[str, Any] = {}
    exec(script, names)
    printed = capsys.readouterr().out.strip()
    answer = json.loads(say(capsys, "predict", "runs/mine", "a brilliant film", "--json"))["labels"][0]
    assert printed == answer["label"]
    probabilities = torch.tensor(names["logits"][0]).softmax(-1)
    assert probabilities.max() == pytest.approx(answer["probability"], abs=1e-5)


def test_the_tokenizer_of_a_run(reviews: Path) -> None:
    """That of a run with a vocabulary of its own puts a token in front that no tokenizer of Hugging Face's knows of."""
    ids = hw.data.load_tokenizer(reviews / "run").encode_starts(["good film"], 9)
    assert ids == hw.training.open_run(reviews / "run").tokenizer.encode_starts(["good film"], 9)
    assert len(ids[0]) == 3
    with pytest.raises(ValueError, match=r"got the run .*run, .* hw.data.load_tokenizer"):
        hw.hub.PretrainedTokenizer.load(reviews / "run")


def test_texts_as_arguments(reviews: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "good.txt"
    file.write_text("a good film")
    texts = ("a good film", "a bad film. " * 400, "Bad")
    lines = say(capsys, "predict", reviews / "run", *texts, file, "--json").splitlines()
    good, bad, one_word, same = (json.loads(line) for line in lines)
    assert [good["text"], bad["text"], one_word["text"], same["file"]] == [*texts, str(file)]
    assert good["labels"] == same["labels"] != bad["labels"]
    for missing in ("reviews.csv", "my reviews.csv", "folder/review", "review.txt"):
        assert f"must be a file that exists, got {missing}" in say(capsys, "predict", reviews / "run", missing, code=2)
    assert "text must not be empty, got ''" in say(capsys, "predict", reviews / "run", "", code=2)


def test_every_column_of_the_user_is_in_the_answers(
    reviews: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked, out = tmp_path / "asked.jsonl", tmp_path / "answers.csv"
    mine = [
        {"text": "good film", "place": "Rome"},
        {"text": "bad film", "predicted": "mine", "nested": {"a": [1]}},
    ]
    asked.write_text("".join(json.dumps(row) + "\n" for row in mine))
    say(capsys, "predict", reviews / "run", asked, "--out", out)
    first, second = rows_of(out)
    assert list(first) == ["text", "place", "predicted", "nested", "place_2", "predicted_2", "probability"]
    assert (first["place"], first["place_2"], first["predicted"]) == ("Rome", f"{asked}, line 1", "")
    assert second["predicted"] == "mine"
    assert second["predicted_2"] in ("for", "against")
    assert second["nested"] == '{"a": [1]}'


def test_empty_texts_of_a_table_can_be_skipped(
    reviews: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked, out = tmp_path / "asked.csv", tmp_path / "answers.csv"
    asked.write_text('text,id\ngood film,1\n"",2\nbad film,3\n')
    assert "text must not be empty, got '' in" in say(capsys, "predict", reviews / "run", asked, code=2)
    _, err = say_both(capsys, "predict", reviews / "run", asked, "--out", out, "--skip-bad")
    assert [row["id"] for row in rows_of(out)] == ["1", "3"]
    assert f"skipped: empty texts (1 of 3), the first at {asked}, line 3" in err
    asked.write_text('text,id\n"",2\n')
    assert "no text could be read" in say(capsys, "predict", reviews / "run", asked, "--skip-bad", code=1)


@pytest.mark.parametrize("ending", ["csv", "json", "jsonl"])
def test_whatever_a_parquet_file_holds_is_written(
    reviews: Path, tmp_path: Path, ending: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked, out = tmp_path / "asked.parquet", tmp_path / f"answers.{ending}"
    when = datetime(2026, 11, 17, 23, 50)
    values = {"text": ["good film"], "when": [when], "day": [when.date()], "raw": [b"ab"], "odd": [float("nan")]}
    pq.write_table(pa.table(values | {"price": pa.array([Decimal("1.10")])}), asked)
    say(capsys, "predict", reviews / "run", asked, "--out", out)
    printed = json.loads(say(capsys, "predict", reviews / "run", asked, "--json"))
    match ending:
        case "csv":
            (found,) = rows_of(out)
        case "json":
            (found,) = json.loads(out.read_text(), parse_constant=int)
        case _:
            found = json.loads(out.read_text(), parse_constant=int)
    assert {name: found[name] for name in ("when", "day", "raw", "price")} == {
        "when": "2026-11-17T23:50:00",
        "day": "2026-11-17",
        "raw": "YWI=",
        "price": "1.10",
    }
    assert found["odd"] == ("" if ending == "csv" else None)
    assert printed["when"] == found["when"]


def test_a_folder_of_tables(reviews: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "asked" / "deep").mkdir(parents=True)
    (tmp_path / "asked" / "a.csv").write_text("text\ngood film\n")
    (tmp_path / "asked" / "deep" / "b.jsonl").write_text('{"review": "bad film"}\n')
    (tmp_path / "asked" / "notes.txt").write_text("mine")
    out, err = say_both(capsys, "predict", reviews / "run", tmp_path / "asked")
    assert [line.split(":")[0] for line in out.splitlines()] == [
        f"{tmp_path / 'asked' / 'a.csv'}, line 2",
        f"{tmp_path / 'asked' / 'deep' / 'b.jsonl'}, line 1",
    ]
    assert f"(1), the first at {tmp_path / 'asked' / 'notes.txt'}" in err
    for name in ("one", "two"):
        (tmp_path / f"{name}.txt").write_text("good film")
    assert say(capsys, "predict", reviews / "run", tmp_path).count("line") == 2  # the tables below it
    (tmp_path / "texts").mkdir()
    (tmp_path / "one.txt").rename(tmp_path / "texts" / "one.txt")
    assert "one.txt: " in say(capsys, "predict", reviews / "run", tmp_path / "texts")
    (tmp_path / "empty").mkdir()
    wrong = say(capsys, "predict", reviews / "run", tmp_path / "empty", code=2)
    assert "a folder must have files such as .csv, .tsv, .jsonl, .ndjson, .json, .parquet, .txt, .md, got" in wrong


# --- evaluate --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["csv", "json", "jsonl"])
def test_evaluate_writes_every_example(
    reviews: Path, tmp_path: Path, ending: str, capsys: pytest.CaptureFixture[str]
) -> None:
    other, out = tmp_path / "other.csv", tmp_path / f"judged.{ending}"
    other.write_text("review,verdict\na good film,for\na bad one,against\nbad bad,against\n")
    about = ("evaluate", reviews / "run", "--data", other, "--json", "--out", out)
    metrics = json.loads(say(capsys, *about))
    if ending == "csv":
        found = [{**row, "probability": float(row["probability"])} for row in rows_of(out)]
    else:
        text = out.read_text()
        found = json.loads(text) if ending == "json" else [json.loads(line) for line in text.splitlines()]
    assert [row["text"] for row in found] == ["a good film", "a bad one", "bad bad"]
    assert [row["place"] for row in found] == [f"{other}, line {number}" for number in (2, 3, 4)]
    assert [row["label"] for row in found] == ["for", "against", "against"]
    assert sum(row["label"] == row["predicted"] for row in found) / 3 == pytest.approx(metrics["accuracy"])
    assert all(0.5 <= row["probability"] <= 1 for row in found)
    assert "out must be a new file" in say(capsys, *about, code=2)


def test_evaluate_writes_the_examples_of_a_part(
    reviews: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "judged.csv"
    said = say(capsys, "evaluate", reviews / "run", "--split", "valid", "--out", out)
    assert f"6 answers in {out}" in said
    found = rows_of(out)
    assert [row["example"] for row in found] == list("012345")
    assert all(row["text"].split()[0] == {"for": "good", "against": "bad"}[row["label"]] for row in found)


def test_evaluate_says_what_it_found(reviews: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other.csv"
    other.write_text('review,verdict\na good film,for\n"",for\n' + "bad " * 99 + ",against\n")
    _, err = say_both(capsys, "evaluate", reviews / "run", "--data", other)
    assert f"2 texts in {other} (text in 'review', label in 'verdict')" in err
    assert f"skipped: empty texts (1), the first at {other}, line 3" in err
    assert "1 longer than 64 is cut" in err
    assert "are not known" not in err
    other.write_text("review,verdict\n一二 三四,for\n五六 七八,against\n", encoding="utf-8")
    _, err = say_both(capsys, "evaluate", reviews / "run", "--data", other)
    assert "100 % of the words are not known" in err


def test_options_that_a_table_or_an_image_has_no_use_for(
    reviews: Path, photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = say(capsys, "predict", reviews / "run", reviews / "reviews.csv", "--top", 2, code=2)
    assert "top is for single texts; of a row the first label is given, got 2 for a table" in wrong
    wrong = say(capsys, "predict", photos / "run", photos / "photos", "--column", "text", code=2)
    assert "column is for tables of texts, got 'text'" in wrong


def test_a_split_is_for_the_data_of_the_run(reviews: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = ("--data", reviews / "reviews.csv", "--split", "valid")
    wrong = say(capsys, "evaluate", reviews / "run", *other, code=2)
    assert "split is for the run's own data, got valid with --data, all of which counts" in wrong


def test_texts_without_words_to_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [f"{chr(0x4E00 + i)}{'好' if i % 2 else '坏'},{'for' if i % 2 else 'against'}" for i in range(60)]
    (tmp_path / "own.csv").write_text("\n".join(["text,label", *rows]) + "\n", encoding="utf-8")
    data = ("--data", tmp_path / "own.csv", "--out", tmp_path / "run")
    _, err = say_both(capsys, "train", "sst2-encoder", *data, *LITTLE, *SMALL)
    assert "of the words of valid and test are not known: --set data.tokenizer=BytePairs reads words in pieces" in err
    assert "no accuracy by counting words: After pruning, no terms remain" in err
    assert (tmp_path / "run" / "report.html").exists()


def test_empty_lines_of_a_table_are_counted(reviews: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "asked.csv").write_text("review\na good film\n\na bad film\n")
    out, err = say_both(capsys, "predict", reviews / "run", tmp_path / "asked.csv")
    assert len(out.splitlines()) == 2
    assert f"skipped: empty lines (1), the first at {tmp_path / 'asked.csv'}, line 3" in err


def test_evaluate_on_one_class(reviews: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other.csv"
    other.write_text("review,verdict\na good film,for\nso good,for\n")
    assert json.loads(say(capsys, "evaluate", reviews / "run", "--data", other, "--json"))["examples"] == 2


def test_evaluate_on_a_folder_that_has_a_test_part_only(
    reviews: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "test.csv").write_text("review,verdict\na good film,for\nso bad,against\n")
    assert json.loads(say(capsys, "evaluate", reviews / "run", "--data", tmp_path, "--json"))["examples"] == 2
    wrong = "data must have a part to train on, got test only"
    assert wrong in say(capsys, "train", "sst2-encoder", "--data", tmp_path, *SMALL, code=2)


def grey(path: Path, value: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (8, 8), value).save(path)


def write_own(folder: Path, kind: str) -> tuple[str, list[str], Path]:
    """Data of a kind: its recipe, how it is given, and a file of it."""
    if kind == "images":
        for i in range(20):
            grey(folder / "photos" / ("cats" if i % 2 else "dogs") / f"{i}.png", 10 * i)
        return "digits-vit", ["--data", str(folder / "photos")], folder / "photos" / "dogs" / "4.png"
    for language in ("en", "de"):
        (folder / language).mkdir()
        (folder / language / "some.txt").write_text("".join(f"{language} word {i}\n" for i in range(99)))
    if kind == "pairs":
        both = ["--data", str(folder / "en" / "some.txt"), "--data", str(folder / "de" / "some.txt")]
        return "dates", both, folder / "de" / "some.txt"
    return "text-gpt", ["--data", str(folder / "de"), "--set", "data.n_context=8"], folder / "de" / "some.txt"


@pytest.mark.slow
@pytest.mark.parametrize("change", ["changed", "one more"])
@pytest.mark.parametrize("kind", ["images", "pairs", "texts"])
def test_a_run_does_not_go_on_with_other_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str, change: str
) -> None:
    recipe, data, file = write_own(tmp_path, kind)
    small = SMALL if recipe != "dates" else ("--set", "model.d_model=8", "--set", "model.feed_forward.d_ff=8")
    say(capsys, "train", recipe, *data, "--out", tmp_path / "run", *LITTLE, *small)
    say(capsys, "train", "--resume", tmp_path / "run")
    new = file if change == "changed" else file.with_name(f"more{file.suffix}")
    if kind == "images":
        grey(new, 7)
    elif change == "changed":
        file.write_text(file.read_text().replace("word 5", "word 8"))
    elif kind == "texts":
        new.write_text("de word 3\n" * 9)
    else:
        file.write_text(file.read_text() + "de word\n")
        (tmp_path / "en" / "some.txt").write_text((tmp_path / "en" / "some.txt").read_text() + "en word\n")
    wrong = say(capsys, "train", "--resume", tmp_path / "run", code=2)
    assert "data must be what the run was begun with, got " in wrong
    assert "was written after the run was last started" in wrong


# --- images ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a folder of images."""
    folder = tmp_path_factory.mktemp("photos")
    for number in range(20):
        name = ("cats", "dogs")[number % 2]
        (folder / "photos" / name).mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8), 10 * number).save(folder / "photos" / name / f"{number}.png")
    data = ("--data", str(folder / "photos"))
    assert main(["train", "digits-vit", *data, "--out", str(folder / "run"), *LITTLE, *SMALL]) == 0
    return folder


def test_the_folder_of_the_training_is_predicted_and_judged(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = photos / "photos"
    out, _ = say_both(capsys, "predict", photos / "run", folder)
    assert [line.split(": ")[0] for line in out.splitlines()] == [str(path) for path in sorted(folder.rglob("*.png"))]
    metrics = json.loads(say(capsys, "evaluate", photos / "run", "--data", folder, "--json"))
    judged = tmp_path / "judged.csv"
    say(capsys, "evaluate", photos / "run", "--data", folder, "--out", judged)
    rows = rows_of(judged)
    assert all(Path(row["file"]).parent.name == row["label"] for row in rows)
    assert sum(row["label"] == row["predicted"] for row in rows) / 20 == pytest.approx(metrics["accuracy"])
    part = tmp_path / "part.csv"
    say(capsys, "evaluate", photos / "run", "--out", part)
    assert all(Path(row["file"]).parent.name == row["label"] for row in rows_of(part))


def test_images_of_a_table_are_predicted(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWORK_CACHE", str(tmp_path / "cache"))
    files = sorted((photos / "photos").rglob("*.png"))
    images = [{"bytes": file.read_bytes(), "path": None} for file in files]
    table = pa.table({"image": images, "label": [file.parent.name for file in files]})
    pq.write_table(table, tmp_path / "own.parquet")
    one = [line.split(": ")[1] for line in say(capsys, "predict", photos / "run", photos / "photos").splitlines()]
    other = say(capsys, "predict", photos / "run", tmp_path / "own.parquet").splitlines()
    assert [line.split(": ")[1] for line in other] == one
    assert "cats" in other[0].split(": ")[0]


def test_evaluate_on_images_of_a_test_part_only(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(photos / "photos", tmp_path / "own" / "test")
    metrics = json.loads(say(capsys, "evaluate", photos / "run", "--data", tmp_path / "own", "--json"))
    assert metrics["examples"] == 20
    wrong = "data must have a part to train on, got test only"
    assert wrong in say(capsys, "train", "digits-vit", "--data", tmp_path / "own", *SMALL, code=2)


def test_evaluate_says_what_is_no_image_and_refuses_what_training_does(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(photos / "photos", tmp_path / "photos")
    (tmp_path / "photos" / "dogs" / "notes.txt").write_text("mine")
    Image.new("L", (8, 8)).save(tmp_path / "photos" / "stray.png")
    _, err = say_both(capsys, "evaluate", photos / "run", "--data", tmp_path / "photos")
    assert f"20 images in {tmp_path / 'photos'}, all of 8 x 8 pixels" in err
    assert "skipped: files that are no images (1)" in err
    assert "skipped: images that are in no folder of a class (1)" in err
    frames = [Image.new("L", (8, 8), colour) for colour in (0, 255)]
    path = tmp_path / "photos" / "cats" / "moving.gif"
    frames[0].save(path, save_all=True, append_images=frames[1:])
    wrong = f"image must be one picture, got {path} with 2 frames"
    assert wrong in say(capsys, "evaluate", photos / "run", "--data", tmp_path / "photos", code=2)
    assert wrong in say(capsys, "predict", photos / "run", path, code=2)
    _, err = say_both(capsys, "predict", photos / "run", tmp_path / "photos", "--skip-bad")
    assert "skipped 1 of 22 files" in err


# --- translations ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a table of translations."""
    folder = tmp_path_factory.mktemp("pairs")
    rows = [f"{['one', 'two', 'three'][i % 3]} dogs {i}\t{['ein', 'zwei', 'drei'][i % 3]} Hunde {i}" for i in range(60)]
    (folder / "pairs.tsv").write_text("\n".join(["source\ttarget", *rows]) + "\n")
    small = ("--set", "model.d_model=8", "--set", "model.feed_forward.d_ff=8")
    data = ("--data", str(folder / "pairs.tsv"))
    assert main(["train", "dates", *data, "--out", str(folder / "run"), *LITTLE, *small]) == 0
    return folder


def ask_translations(capsys: pytest.CaptureFixture[str], pairs: Path, *arguments: object) -> tuple[list[dict], str]:
    out, err = say_both(capsys, "translate", pairs / "run", "--max-new-tokens", "4", "--json", *arguments)
    return [json.loads(line) for line in out.splitlines()], err


def test_a_table_is_translated_row_by_row(pairs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = ["one dogs 1", "two dogs 22", "", "three dogs"]
    wanted = [ask_translations(capsys, pairs, text)[0][0] if text else None for text in texts]
    tables = {
        "names.tsv": "id\ttarget\tsource\n" + "".join(f"{i}\tHund\t{text}\n" for i, text in enumerate(texts)),
        "plain.tsv": "".join(f"{text}\tHund\n" for text in texts),
        "two.jsonl": "".join(json.dumps({"target": "Hund", "en": text}) + "\n" for text in texts),
        "lines.jsonl": "".join(json.dumps({"n": i, "text": text, "x": 1}) + "\n" for i, text in enumerate(texts)),
    }
    (tmp_path / "all").mkdir()
    for name, content in tables.items():
        (tmp_path / "all" / name).write_text(content)
    pq.write_table(pa.table({"source": texts}), tmp_path / "all" / "rows.parquet")
    for name in (*tables, "rows.parquet"):
        found, err = ask_translations(capsys, pairs, "--file", tmp_path / "all" / name)
        assert ("plain.tsv does not name its columns" in err) == (name == "plain.tsv")
        for answer, alone in zip(found, wanted, strict=True):
            assert answer["translation"] == ("" if alone is None else alone["translation"])
            assert answer["score"] == (None if alone is None else pytest.approx(alone["score"], abs=1e-4))
    assert found[1]["place"] == f"{tmp_path / 'all' / 'rows.parquet'}, row 2"
    out = tmp_path / "answers.csv"
    said = say(capsys, "translate", pairs / "run", "--file", tmp_path / "all", "--out", out, "--max-new-tokens", "4")
    assert "20 answers in" in said
    assert {row["translation"] for row in rows_of(out)} == {"" if w is None else w["translation"] for w in wanted}


def test_tables_that_cannot_be_translated(pairs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "three.tsv"
    table.write_text("1\tone dog\tein Hund\n2\ttwo dogs\tzwei Hunde\n")
    ask = ("translate", pairs / "run", "--file", table)
    assert "a table of more than two columns must name them in its first line" in say(capsys, *ask, code=2)
    assert "column must name a column, got 'mine'; there are" in say(capsys, *ask, "--column", "mine", code=2)
    assert "column is for tables, given by --file" in say(
        capsys, "translate", pairs / "run", "x", "--column", "mine", code=2
    )
    (tmp_path / "empty.csv").write_text("")
    wrong = say(capsys, "translate", pairs / "run", "--file", tmp_path / "empty.csv", code=2)
    assert "got the empty" in wrong


def test_texts_of_a_file_are_translated_together(
    pairs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    search = hw.generation.beam_search

    def count(model, source, **options):
        sizes.append(len(source))
        return search(model, source, **options)

    monkeypatch.setattr("headwork.generation.beam_search", count)
    (tmp_path / "asked.txt").write_text("".join(f"{'one ' * (i % 3 + 1)}dogs {i}\n" for i in range(70)))
    found, _ = ask_translations(capsys, pairs, "--file", tmp_path / "asked.txt")
    assert sizes == [64, 6]
    assert [answer["source"].split()[-1] for answer in found] == [str(i) for i in range(70)]


def test_evaluate_writes_translations(pairs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other, out = tmp_path / "other.tsv", tmp_path / "judged.jsonl"
    other.write_text("source\ttarget\none dogs 1\tein Hunde 1\n\t\ntwo dogs\tzwei Hunde\n")
    _, err = say_both(capsys, "evaluate", pairs / "run", "--data", other, "--out", out)
    assert f"2 pairs in {other}" in err
    assert f"skipped: pairs that are empty on both sides (1), the first at {other}, line 3" in err
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(row["source"], row["target"]) for row in rows] == [
        ("one dogs 1", "ein Hunde 1"),
        ("two dogs", "zwei Hunde"),
    ]
    assert all(isinstance(row["translation"], str) for row in rows)
