"""`hw.load` and `hw.save` with both kinds of folders, and the tokenizer beside a model."""

import json
import shutil
from dataclasses import replace
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
LLAMA = replace(
    DECODER,
    feed_forward=hw.choices.GatedFeedForward(d_ff=17),
    heads=hw.choices.Heads(n_heads=3, bias=False),
    norm=hw.choices.RMSNorm(),
    position=hw.choices.RotaryPositions(),
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


MAPS = Path("/proc/self/maps")


@pytest.mark.skipif(not MAPS.exists(), reason="the system does not say what is mapped")
@pytest.mark.parametrize("kind", ["headwork", "huggingface"])
def test_weights_are_mapped_and_not_copied(tmp_path: Path, kind: str) -> None:
    hw.save(LLAMA.build(), tmp_path / "model", format=kind)
    model = hw.load(tmp_path / "model")
    places = [p.data_ptr() for p in model.parameters()]
    mapped = [line.split()[0] for line in MAPS.read_text().splitlines() if str(tmp_path / "model") in line]
    ranges = [tuple(int(end, 16) for end in addresses.split("-")) for addresses in mapped]
    assert all(any(start <= place < end for start, end in ranges) for place in places)


@pytest.mark.parametrize("kind", ["headwork", "huggingface"])
def test_what_a_model_does_with_mapped_weights_is_its_own_affair(tmp_path: Path, kind: str) -> None:
    """It is trained, quantised, and written where it was: neither the file nor another model from it changes."""
    folder, ids = tmp_path / "model", torch.tensor([[3, 1, 4, 1, 5]])
    hw.save(LLAMA.build(), folder, format=kind)
    data = (folder / "model.safetensors").read_bytes()
    model, other = hw.load(folder), hw.load(folder)
    before = {name: tensor.clone() for name, tensor in other.state_dict().items()}
    optimizer = torch.optim.AdamW(model.train().parameters(), lr=0.1)
    model(ids).square().mean().backward()
    optimizer.step()
    hw.quantize(model.eval())(ids)
    assert not any(tensor.equal(before[name]) for name, tensor in model.state_dict().items())
    assert all(tensor.equal(before[name]) for name, tensor in other.state_dict().items())
    assert (folder / "model.safetensors").read_bytes() == data
    shutil.rmtree(folder)
    hw.save(model, folder, format=kind)
    again = hw.load(folder).state_dict()
    assert all(tensor.equal(again[name]) for name, tensor in model.state_dict().items())
    assert all(tensor.equal(before[name]) for name, tensor in other.state_dict().items())


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
