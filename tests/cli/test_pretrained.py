"""Commands on a folder of Hugging Face's."""

import json
from pathlib import Path

import pytest

from headwork.cli import main

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
    from headwork.hub import PretrainedTokenizer, load_pretrained

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
