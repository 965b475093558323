"""`headwork translate` on a folder of Hugging Face's: the translations are those of transformers."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from headwork.cli import main
from headwork.data import TextPairs
from headwork.training import start_from

from ..generation.lively import enliven
from ..hub.checkpoints import CHECKPOINTS
from ..hub.test_vocabularies import UNIGRAM, train_pieces

transformers = pytest.importorskip("transformers")
sentencepiece = pytest.importorskip("sentencepiece")

TEXTS = ("the cat sat on the mat", "a dog")
N_TOKENS = 12


def save_lively(name: str, folder: Path, **settings: Any) -> Any:
    """A model that says different things to different texts, in float32, saved."""
    checkpoint = CHECKPOINTS[name]
    checkpoint.save(folder, **settings)
    model = getattr(transformers, checkpoint.model).from_pretrained(folder).eval()
    enliven(model)
    model.save_pretrained(folder)
    return model


@pytest.fixture
def marian(tmp_path: Path) -> tuple[Path, Any]:
    train_pieces(tmp_path / "source.spm", **UNIGRAM)
    train_pieces(tmp_path / "target.spm", **UNIGRAM)
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "source.spm"))
    found = sorted({pieces.id_to_piece(i) for i in range(3, pieces.get_piece_size())})
    ids = {piece: i for i, piece in enumerate(["</s>", "<unk>", *found, "<pad>"])}
    (tmp_path / "vocab.json").write_text(json.dumps(ids))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"source_lang": "en", "target_lang": "fr"}))
    n = len(ids)
    begin = {"pad_token_id": n - 1, "decoder_start_token_id": n - 1, "eos_token_id": 0, "bad_words_ids": [[n - 1]]}
    return tmp_path, save_lively("marian", tmp_path, vocab_size=n, max_position_embeddings=64, **begin)


@pytest.fixture
def bart(tmp_path: Path) -> tuple[Path, Any]:
    words = ["<s>", "<pad>", "</s>", "<unk>", *sorted({word for text in TEXTS for word in text.split()})]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    tokenizer.add_special_tokens(words[:4])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    ids = {"pad_token_id": 1, "eos_token_id": 2, "bos_token_id": 0, "decoder_start_token_id": 2}
    model = save_lively("bart", tmp_path, vocab_size=len(words), **ids, forced_bos_token_id=5, forced_eos_token_id=None)
    return tmp_path, model


def expected(folder: Path, model: Any, n_beams: int) -> list[str]:
    """Text by text: padding would change nothing, and is one thing less to think of."""
    marian = (folder / "source.spm").is_file()
    kind = transformers.MarianTokenizer if marian else transformers.PreTrainedTokenizerFast
    tokenizer = kind.from_pretrained(folder)
    options: dict[str, Any] = {"early_stopping": "never", "length_penalty": 1.0} if n_beams > 1 else {}
    options |= {"forced_eos_token_id": None}  # it would end a translation that is cut off
    said = []
    for text in TEXTS:
        ids = torch.tensor([tokenizer(text)["input_ids"]])
        new = model.generate(ids, num_beams=n_beams, max_new_tokens=N_TOKENS, do_sample=False, **options)[0]
        if marian:
            said.append(tokenizer.decode(new, skip_special_tokens=True, use_source_tokenizer=False))
        else:
            said.append(tokenizer.decode(new, skip_special_tokens=True))
    return said


@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
@pytest.mark.parametrize(
    ("name", "n_beams"),
    [
        ("marian", 3),
        ("bart", 1),
        pytest.param("marian", 1, marks=pytest.mark.slow),
        pytest.param("bart", 3, marks=pytest.mark.slow),
    ],
)
def test_translations_are_those_of_transformers(
    name: str, n_beams: int, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, model = request.getfixturevalue(name)
    arguments = [str(folder), *TEXTS, "--max-new-tokens", str(N_TOKENS), "--beams", str(n_beams), "--json"]
    assert main(["translate", *arguments]) == 0
    said = [json.loads(line)["translation"] for line in capsys.readouterr().out.splitlines()]
    assert said == expected(folder, model, n_beams)
    assert any(said)


def test_lines_of_stdin_and_int8(
    marian: tuple[Path, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, model = marian
    model.float().save_pretrained(folder)
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join((TEXTS[0], "", TEXTS[1]))))
    assert main(["translate", str(folder), "--max-new-tokens", "3", "--weights", "int8"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert lines[1] == ""


def test_a_first_token_that_is_none(bart: tuple[Path, Any], capsys: pytest.CaptureFixture[str]) -> None:
    folder, _ = bart
    (folder / "generation_config.json").write_text(json.dumps({"forced_bos_token_id": 999}))
    assert main(["translate", str(folder), "a dog"]) == 2
    assert "forced_bos_token_id must be an id below" in capsys.readouterr().err


def test_a_translator_is_not_trained_on(bart: tuple[Path, Any]) -> None:
    folder, _ = bart
    with pytest.raises(ValueError, match="translators are trained from the beginning only, got an EncoderDecoder in"):
        start_from(str(folder), TextPairs(path="a.txt", target_path="b.txt"))
