"""`headwork predict` with folders of Hugging Face's: classes of texts, masks, and how alike sentences are."""

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
from safetensors.torch import load_file, save_file

import headwork as hw
from headwork.cli import main

from ..hub.checkpoints import CHECKPOINTS
from ..hub.test_sentences import MEAN, make
from ..hub.test_vocabularies import train_words

TEXTS = ("the cafe is small", "a large cafe")


def folder_with_words(folder: Path, name: str, **settings: Any) -> Path:
    folder.mkdir()
    train_words(folder)
    n_tokens = len((folder / "vocab.txt").read_text().splitlines())
    if name == "sentences":
        make(folder, "bert", MEAN, "Pooling")
        name = "bert"
    CHECKPOINTS[name].make(vocab_size=n_tokens, max_position_embeddings=40, **settings).float().save_pretrained(folder)
    return folder


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    for number, text in enumerate(TEXTS):
        (tmp_path / f"{number}.txt").write_text(text)
    return [str(tmp_path / f"{number}.txt") for number in range(len(TEXTS))]


def ids_of(folder: Path, text: str) -> torch.Tensor:
    """As the library tokenizers has BERT."""
    made = tokenizers.BertWordPieceTokenizer(str(folder / "vocab.txt"))
    return torch.tensor([made.encode(text).ids])


def answers(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    assert main(["predict", *arguments, "--json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_classes_of_texts(files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = {0: "calm", 1: "glad", 2: "sad"}
    folder = folder_with_words(tmp_path / "model", "bert-classes", id2label=names)
    found = answers([str(folder), *files], capsys)
    for text, answer in zip(TEXTS, found, strict=True):
        with torch.no_grad():
            wanted = hw.hub.load_pretrained(folder)(ids_of(folder, text))[0].softmax(-1)
        for each in answer["labels"]:
            number = next(i for i, name in names.items() if name == each["label"])
            assert each["probability"] == pytest.approx(float(wanted[number]), abs=1e-5)
    assert main(["predict", str(folder), files[0]]) == 0
    assert " %" in capsys.readouterr().out


def test_classes_of_the_rows_of_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = {0: "calm", 1: "glad", 2: "sad"}
    folder = folder_with_words(tmp_path / "model", "bert-classes", id2label=names)
    table = tmp_path / "asked.csv"
    table.write_text("id,text\n" + "".join(f"{number},{text}\n" for number, text in enumerate(TEXTS)))
    for text, answer in zip(TEXTS, answers([str(folder), str(table)], capsys), strict=True):
        with torch.no_grad():
            wanted = hw.hub.load_pretrained(folder)(ids_of(folder, text))[0].softmax(-1)
        assert answer["text"] == text
        assert answer["predicted"] == names[int(wanted.argmax())]
        assert answer["probability"] == pytest.approx(float(wanted.max()), abs=1e-5)


def test_what_a_mask_stands_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, file = folder_with_words(tmp_path / "model", "bert-lm"), tmp_path / "text.txt"
    file.write_text("the [MASK] is small")
    (answer,) = answers([str(folder), str(file), "--top", "2"], capsys)
    ids = ids_of(folder, "the [MASK] is small")
    place = ids[0].tolist().index(4)
    with torch.no_grad():
        wanted = hw.hub.load_pretrained(folder)(ids)[0, place].softmax(-1).topk(2).values
    assert [token["probability"] for token in answer["tokens"]] == pytest.approx(wanted.tolist(), abs=1e-5)
    file.write_text("no mask")
    assert main(["predict", str(folder), str(file)]) == 2
    assert "text must have a [MASK]" in capsys.readouterr().err


def test_how_alike_sentences_are(files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = folder_with_words(tmp_path / "model", "sentences")
    (answer,) = answers([str(folder), *files], capsys)
    with torch.no_grad():
        one, other = (hw.hub.load_pretrained(folder)(ids_of(folder, text))[0] for text in TEXTS)
    assert answer["similarity"] == pytest.approx(float(one @ other / one.norm() / other.norm()), abs=1e-5)
    assert main(["predict", str(folder), files[0]]) == 2
    assert "files must be two texts or more" in capsys.readouterr().err


def test_what_predicts_nothing(files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    CHECKPOINTS["gpt2"].save(tmp_path / "gpt2")
    assert main(["predict", str(tmp_path / "gpt2"), files[0]]) == 2
    assert "which gives a next token: `headwork generate` continues a text with it" in capsys.readouterr().err
    assert main(["evaluate", str(tmp_path / "gpt2")]) == 2
    assert "--like RUN" in capsys.readouterr().err
    assert main(["convert", str(tmp_path / "gpt2"), "--out", str(tmp_path / "new")]) == 2
    assert "folder must hold a model of images, got a Decoder" in capsys.readouterr().err
    assert main(["convert", str(tmp_path / "gpt2"), "--out", str(tmp_path / "new"), "--to", "huggingface"]) == 2
    assert "to must be another layout than the folder has" in capsys.readouterr().err


def test_what_is_left_out_is_said_in_a_line(
    files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = folder_with_words(tmp_path / "model", "bert-classes")
    tensors = load_file(folder / "model.safetensors") | {"cls.seq_relationship.bias": torch.zeros(2)}
    save_file(tensors, folder / "model.safetensors")
    assert main(["predict", str(folder), files[0]]) == 0
    lines = capsys.readouterr().err.splitlines()
    without = "is loaded as BertForSequenceClassification, without the tensors cls.seq_relationship.bias"
    assert f"headwork: {folder} {without}" in lines


def test_a_text_of_unknown_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A vocabulary with capitals, whose folder does not say so, is read as BERT's: in lower case."""
    folder, file = folder_with_words(tmp_path / "model", "bert-classes"), tmp_path / "text.txt"
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "Ein", "Hund", "Haus", "ist"]
    n_tokens = len((folder / "vocab.txt").read_text().splitlines())
    (folder / "vocab.txt").write_text("\n".join([*words, *(f"Wort{n}" for n in range(n_tokens - len(words)))]) + "\n")
    file.write_text("Ein Hund ist Hund")
    table = tmp_path / "table.csv"
    table.write_text("text\nEin Hund ist Hund\n")
    assert main(["predict", str(folder), str(file)]) == 0
    assert f"of {file} 3 of 4 tokens (75 %) are not known" in (said := capsys.readouterr().err)
    assert "'Ein'" in said
    assert '"do_lower_case": false' in said
    assert main(["predict", str(folder), str(table)]) == 0
    assert '"do_lower_case": false' in capsys.readouterr().err
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    assert main(["predict", str(folder), str(file)]) == 0
    assert "not known" not in capsys.readouterr().err
    assert main(["predict", str(folder), "xyzzy", "--top", "1"]) == 0
    assert (
        "of xyzzy 1 of 1 tokens (100 %) are not known to the model: its answer says little\n" in capsys.readouterr().err
    )


def test_texts_as_arguments(files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = folder_with_words(tmp_path / "model", "bert-classes")
    in_files = answers([str(folder), *files], capsys)
    themselves = answers([str(folder), *TEXTS, files[1]], capsys)
    assert [each["labels"] for each in themselves] == [each["labels"] for each in (*in_files, in_files[1])]
    assert [each.get("text") for each in themselves] == [*TEXTS, None]
