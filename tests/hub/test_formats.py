"""`hw.load` and `hw.save` with both kinds of folders, and the tokenizer beside a model."""

import json
from pathlib import Path

import pytest
import tokenizers
import torch

import headwork as hw
from headwork.hub import PretrainedTokenizer, UnverifiedWarning
from headwork.storage import DamagedError

from .checkpoints import CHECKPOINTS

DECODER = hw.models.DecoderConfig(
    vocab=37,
    d_model=18,
    n_layers=2,
    heads=hw.choices.Heads(n_heads=3),
    feed_forward=hw.choices.FeedForward(d_ff=17, activation="gelu_tanh"),
)


def test_a_folder_of_hugging_faces_is_loaded_and_said_to_be_unverified(tmp_path: Path) -> None:
    CHECKPOINTS["gpt2"].save(tmp_path)
    with pytest.warns(UnverifiedWarning, match="is loaded unverified: it has no manifest"):
        model = hw.load(tmp_path, dtype=torch.float32)
    assert isinstance(model, hw.models.Decoder)
    with pytest.raises(ValueError, match="model must be None for a folder of Hugging Face's, got Decoder"):
        hw.load(tmp_path, model=model)


def test_both_formats(tmp_path: Path) -> None:
    model = DECODER.build()
    hw.save(model, tmp_path / "ours")
    hw.save(model, tmp_path / "theirs", format="huggingface")
    assert "model_type" in json.loads((tmp_path / "theirs" / "config.json").read_text())
    for folder in ("ours", "theirs"):
        again = hw.load(tmp_path / folder)  # without a warning: both are verified
        assert again.config == model.config
        assert all(tensor.equal(model.state_dict()[name]) for name, tensor in again.state_dict().items())


@pytest.mark.usefixtures("as_users_run_it")
def test_formats_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="format must be one of headwork, huggingface, got 'onnx'"):
        hw.save(DECODER.build(), tmp_path / "folder", format="onnx")
    with pytest.raises(ValueError, match="like must be None unless"):
        hw.save(DECODER.build(), tmp_path / "folder", like=tmp_path)


def test_one_flipped_bit_in_a_folder_that_was_handed_over(tmp_path: Path) -> None:
    hw.save(DECODER.build(), tmp_path / "theirs", format="huggingface")
    path = tmp_path / "theirs" / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    with pytest.raises(DamagedError, match="SHA-256"):
        hw.load(tmp_path / "theirs")


def a_tokenizer() -> tokenizers.Tokenizer:
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<end>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(["the cat sat on the mat"] * 9, trainer)
    return tokenizer


@pytest.mark.parametrize("text", ["the cat", "注意 🤖 e\u0301", "\x00\x07 tab\t\n", ""])
def test_the_tokenizer_of_a_folder(text: str, tmp_path: Path) -> None:
    a_tokenizer().save(str(tmp_path / "tokenizer.json"))
    tokenizer = PretrainedTokenizer.load(tmp_path)
    assert tokenizer.encode(text) == a_tokenizer().encode(text).ids
    assert tokenizer.decode([0, *tokenizer.encode(text), 0]) == text


def test_the_end_of_a_text(tmp_path: Path) -> None:
    a_tokenizer().save(str(tmp_path / "tokenizer.json"))
    assert PretrainedTokenizer.load(tmp_path).end == ()
    (tmp_path / "config.json").write_text('{"eos_token_id": 2}')
    assert PretrainedTokenizer.load(tmp_path).end == (2,)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [0, 3]}')
    assert PretrainedTokenizer.load(tmp_path).end == (0, 3)


def test_a_tokenizer_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"must hold a tokenizer\.json"):
        PretrainedTokenizer.load(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"model": {}}')
    with pytest.raises(DamagedError, match=r"tokenizer\.json is damaged"):
        PretrainedTokenizer.load(tmp_path)
