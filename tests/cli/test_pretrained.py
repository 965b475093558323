"""Commands on a folder of Hugging Face's."""

import json
from pathlib import Path

import pytest

from headwork.cli import main
from headwork.hub import PretrainedTokenizer

from ..hub.checkpoints import CHECKPOINTS
from ..hub.test_formats import a_tokenizer


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A language model whose vocabulary is that of its tokenizer."""
    tokenizer = a_tokenizer()
    CHECKPOINTS["llama"].save(tmp_path, vocab_size=tokenizer.get_vocab_size(), eos_token_id=None)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def test_trace_and_cost(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", str(folder), "--json"]) == 0
    names = [row["name"] for row in json.loads(capsys.readouterr().out)]
    assert "layers.1.attention.weights" in names
    assert main(["cost", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["flops"] > 0


def test_an_unverified_folder_is_said_to_be_one_in_a_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", str(folder), "--figure", str(folder / "inside.png")]) == 0
    first, drawn = capsys.readouterr().err.splitlines()
    assert first.startswith(f"headwork: {folder} is loaded unverified")
    assert drawn == f"drawn to {folder / 'inside.png'}"


def traced(where: Path, *more: str, capsys: pytest.CaptureFixture[str]) -> dict[str, list[int]]:
    assert main(["trace", str(where), "--json", *more]) == 0
    return {row["name"]: row["shape"] for row in json.loads(capsys.readouterr().out)}


def test_trace_of_a_text(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    n_tokens = len(PretrainedTokenizer.load(folder).encode("the cat"))
    text = ("--text", "the cat")
    assert traced(folder, *text, capsys=capsys)["layers.0.attention.weights"] == [1, 6, n_tokens, n_tokens]
    traced(folder, *text, "--figure", str(folder / "inside.svg"), capsys=capsys)
    assert (folder / "inside.svg").stat().st_size > 10_000
    assert main(["trace", str(folder), "--text", ""]) == 2
    assert "text must not be empty, got ''" in capsys.readouterr().err
    long = " ".join(["the cat"] * 30)
    assert traced(folder, "--text", long, capsys=capsys)["layers.0.attention.weights"] == [1, 6, 23, 23]
    (folder / "tokenizer.json").unlink()
    assert main(["trace", str(folder), *text]) == 2
    assert "folder must hold a tokenizer.json" in capsys.readouterr().err


def test_trace_of_a_text_for_an_encoder_and_a_decoder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The target is what the model says of the source."""
    tokenizer = a_tokenizer()
    settings = {"vocab_size": tokenizer.get_vocab_size(), "decoder_start_token_id": 0, "eos_token_id": 1}
    CHECKPOINTS["t5"].save(tmp_path, **settings)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    n_source = len(PretrainedTokenizer.load(tmp_path).encode("the cat"))
    shape = traced(tmp_path, "--text", "the cat", capsys=capsys)["decoder_layers.0.cross_attention.weights"]
    assert shape[:2] == [1, 3]
    assert shape[2] > 1
    assert shape[3] == n_source


def test_trace_of_a_text_needs_a_model_of_texts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    CHECKPOINTS["vit"].save(tmp_path)
    assert main(["trace", str(tmp_path), "--text", "x"]) == 2
    assert f"text is for a model with a tokenizer, got {tmp_path}" in capsys.readouterr().err


def test_generate(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["generate", str(folder), "--prompt", "the cat", "--max-new-tokens", "5", "--greedy"]
    assert main(arguments) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("the cat")
    assert "is loaded unverified" in shown.err
    assert main([*arguments, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["tokens"] == 5
    assert shown.out == f"the cat{answer['text']}\n"


def test_generate_stops_at_the_end(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The second token of the text is made the end."""
    import torch

    from headwork.generation import generate
    from headwork.hub import load_pretrained

    ids = torch.tensor([PretrainedTokenizer.load(folder).encode("the cat")])
    tokens = generate(load_pretrained(folder), ids, max_new_tokens=9)[0].tolist()
    n_before = next(n for n in range(1, 9) if tokens[n] not in tokens[:n])
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": tokens[n_before]}))
    arguments = ["generate", str(folder), "--prompt", "the cat", "--max-new-tokens", "9", "--greedy", "--json"]
    assert main(arguments) == 0
    assert json.loads(capsys.readouterr().out)["tokens"] == n_before


def test_what_cannot_be_done(folder: Path, tmp_path_factory: pytest.TempPathFactory, capsys) -> None:
    assert main(["generate", str(folder), "--prompt", ""]) == 2
    assert "prompt must have at least one token" in capsys.readouterr().err
    (folder / "tokenizer.json").unlink()
    assert main(["generate", str(folder)]) == 2
    assert "folder must hold a tokenizer.json" in capsys.readouterr().err
    small = tmp_path_factory.mktemp("small")
    CHECKPOINTS["llama"].save(small)
    a_tokenizer().save(str(small / "tokenizer.json"))
    assert main(["generate", str(small)]) == 2
    assert "must have no more tokens than the model, 37, got" in capsys.readouterr().err
    encoder = tmp_path_factory.mktemp("encoder")
    CHECKPOINTS["bert-lm"].save(encoder)
    a_tokenizer().save(str(encoder / "tokenizer.json"))
    assert main(["generate", str(encoder)]) == 2
    assert "which reads a text and gives a masked token: try `headwork predict`" in capsys.readouterr().err
