"""What folders look like beside those that transformers writes today: old names, copies, pickles, 16 bits."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from headwork.hub import is_pretrained, load_pretrained, save_pretrained
from headwork.hub.names import Names
from headwork.hub.pretrained import read_tensors
from headwork.hub.weights import open_weights
from headwork.models import Decoder, Encoder
from headwork.storage import save

from .checkpoints import CHECKPOINTS

Tensors = dict[str, Tensor]
WEIGHTS = "model.safetensors"


def changed(name: str, folder: Path, change: Callable[[Tensors], Tensors]) -> None:
    """A folder of transformers, with other tensors in it."""
    CHECKPOINTS[name].save(folder)
    tensors = change(load_file(folder / WEIGHTS))
    save_file({key: tensor.contiguous().clone() for key, tensor in tensors.items()}, folder / WEIGHTS)


def same_as(name: str, folder: Path, tmp_path: Path) -> bool:
    CHECKPOINTS[name].save(tmp_path / "plain")
    plain, other = load_pretrained(tmp_path / "plain").state_dict(), load_pretrained(folder).state_dict()
    return plain.keys() == other.keys() and all(other[key].equal(tensor) for key, tensor in plain.items())


def old_bert(tensors: Tensors) -> Tensors:
    """As bert-base-uncased is stored: names of TensorFlow, the head of the next sentence, copies and counters."""
    old = {
        key.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
        for key, tensor in tensors.items()
    }
    return old | {
        "bert.embeddings.position_ids": torch.arange(13)[None],
        "bert.pooler.dense.weight": torch.randn(21, 21),
        "bert.pooler.dense.bias": torch.randn(21),
        "cls.seq_relationship.weight": torch.randn(2, 21),
        "cls.seq_relationship.bias": torch.randn(2),
        "cls.predictions.decoder.weight": tensors["bert.embeddings.word_embeddings.weight"],
        "cls.predictions.decoder.bias": tensors["cls.predictions.bias"],
    }


def old_gpt2(tensors: Tensors) -> Tensors:
    """As gpt2 is stored: without the prefix, and with masks."""
    mask = torch.ones(23, 23, dtype=torch.uint8).tril()[None, None]
    return {key.removeprefix("transformer."): tensor for key, tensor in tensors.items()} | {
        f"h.{i}.attn.bias": mask for i in range(2)
    }


def old_llama(tensors: Tensors) -> Tensors:
    return tensors | {f"model.layers.{i}.self_attn.rotary_emb.inv_freq": torch.rand(2) for i in range(2)}


def only_the_copy(tensors: Tensors) -> Tensors:
    tensors["lm_head.weight"] = tensors.pop("model.embed_tokens.weight")
    return tensors


def old_t5(tensors: Tensors) -> Tensors:
    names = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight")
    bias = "decoder.block.0.layer.{}.relative_attention_bias.weight"
    unused = {bias.format("1.EncDecAttention"): tensors[bias.format("0.SelfAttention")]}
    return tensors | dict.fromkeys(names, tensors["shared.weight"]) | unused


def old_marian(tensors: Tensors) -> Tensors:
    table = torch.randn(29, 12)
    names = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight")
    positions = {f"model.{side}.embed_positions.weight": table for side in ("encoder", "decoder")}
    return tensors | positions | dict.fromkeys(names, tensors["model.shared.weight"])


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("bert-lm", old_bert),
        ("gpt2", old_gpt2),
        ("llama", old_llama),
        ("llama-tied", only_the_copy),
        ("t5", old_t5),
        ("marian", old_marian),
        ("bert", lambda tensors: {f"bert.{key}": tensor for key, tensor in tensors.items()}),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
@pytest.mark.filterwarnings("ignore::headwork.hub.LeftOutWarning")
def test_files_of_other_times(name: str, change: Callable[[Tensors], Tensors], tmp_path: Path) -> None:
    changed(name, tmp_path / "other", change)
    assert same_as(name, tmp_path / "other", tmp_path)


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
def test_pickles_of_tensors(zipped: bool, tmp_path: Path) -> None:
    model = CHECKPOINTS["gpt2"].save(tmp_path / "other")
    (tmp_path / "other" / WEIGHTS).unlink()
    torch.save(
        model.state_dict(), tmp_path / "other" / "pytorch_model.bin", _use_new_zipfile_serialization=zipped
    )  # with lm_head.weight, a copy
    assert same_as("gpt2", tmp_path / "other", tmp_path)


def test_pickles_in_parts(tmp_path: Path) -> None:
    folder = tmp_path / "other"
    tensors = CHECKPOINTS["gpt2"].save(folder).state_dict()
    (folder / WEIGHTS).unlink()
    where = {key: f"pytorch_model-{i % 2}.bin" for i, key in enumerate(tensors)}
    for file in set(where.values()):
        torch.save({key: tensor for key, tensor in tensors.items() if where[key] == file}, folder / file)
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}))
    assert same_as("gpt2", folder, tmp_path)


@pytest.mark.parametrize("stored", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_16_bits_become_float32(stored: torch.dtype, tmp_path: Path) -> None:
    CHECKPOINTS["llama"].make().to(stored).save_pretrained(tmp_path)
    wide = torch.float64 if stored == torch.float64 else torch.float32
    assert {p.dtype for p in load_pretrained(tmp_path).parameters()} == {wide}
    assert {p.dtype for p in load_pretrained(tmp_path, dtype=stored).parameters()} == {stored}
    assert {p.dtype for p in load_pretrained(tmp_path, dtype=torch.float64).parameters()} == {torch.float64}


def test_sinusoids_are_as_precise_as_the_weights(tmp_path: Path) -> None:
    CHECKPOINTS["marian"].save(tmp_path)
    narrow, wide = (load_pretrained(tmp_path, dtype=dtype) for dtype in (torch.float32, torch.float64))
    narrow, wide = (model.get_buffer("encoder_layers.positions.table") for model in (narrow, wide))
    assert (narrow.dtype, wide.dtype) == (torch.float32, torch.float64)
    assert not wide.float().double().equal(wide)
    torch.testing.assert_close(narrow, wide.float())


@pytest.mark.parametrize("name", ["llama", "marian"])
def test_nothing_else_changes(name: str, tmp_path: Path) -> None:
    """Neither the random numbers, nor the default precision; and training does not write into the file."""
    CHECKPOINTS[name].save(tmp_path)
    before, state = (tmp_path / WEIGHTS).read_bytes(), torch.get_rng_state()
    model = load_pretrained(tmp_path)
    assert torch.get_rng_state().equal(state)
    assert torch.get_default_dtype() == torch.float32
    assert not model.training
    assert all(parameter.requires_grad for parameter in model.parameters())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)
    assert (tmp_path / WEIGHTS).read_bytes() == before


def test_the_file_may_be_replaced_while_the_model_lives(tmp_path: Path) -> None:
    """By another one of its name, as libraries write safetensors: the model keeps the old one."""
    CHECKPOINTS["llama"].save(tmp_path)
    model = load_pretrained(tmp_path)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    (tmp_path / "new").write_bytes(b"")
    (tmp_path / "new").replace(tmp_path / WEIGHTS)
    assert all(tensor.equal(before[name]) for name, tensor in model.state_dict().items())
    assert len({p.untyped_storage().data_ptr() for p in model.parameters()}) == len(list(model.parameters()))


def test_two_weights_from_one_tensor_of_the_file_have_memory_of_their_own(tmp_path: Path) -> None:
    save_file({"copy": torch.ones(3)}, tmp_path / WEIGHTS)
    names = Names({"original": "ours", "copy": "too"}, copies={"copy": "original"})
    empty = {"ours": torch.empty(3, device="meta"), "too": torch.empty(3, device="meta")}
    with open_weights(tmp_path) as files:
        read = read_tensors(names, empty, files, torch.float32, tmp_path)
    read["ours"].add_(1.0)
    assert (read["ours"].tolist(), read["too"].tolist()) == ([2.0] * 3, [1.0] * 3)


@pytest.mark.slow
def test_opening_a_folder_does_not_load_the_compiler(tmp_path: Path) -> None:
    """PyTorch does for most operations on the meta device, which takes longer than to open the folder.

    Not for Marian: its sinusoids are computed there too.
    """
    for name in (
        "gpt2",
        "llama",
        "gpt-neox",
        "phi3",
        "gemma2",
        "roberta",
        "distilbert",
        "t5",
        "bart",
        "vit",
        "deit",
    ):
        CHECKPOINTS[name].save(tmp_path / name)
        save(load_pretrained(tmp_path / name), tmp_path / f"own-{name}")
    code = (
        "import sys, warnings; from pathlib import Path; import headwork as hw; warnings.simplefilter('ignore')\n"
        "for folder in sorted(Path(sys.argv[1]).iterdir()):\n"
        "    hw.load(folder)\n"
        "    assert 'torch._dynamo' not in sys.modules, folder.name\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)


def test_which_folders_are_hugging_faces(tmp_path: Path) -> None:
    CHECKPOINTS["gpt2"].save(tmp_path / "theirs")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text("{")
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours" / "config.json").write_text('{"model": {"kind": "DecoderConfig"}}')
    found = {name: is_pretrained(tmp_path / name) for name in ("theirs", "ours", "broken", "nowhere")}
    assert found == {"theirs": True, "ours": False, "broken": False, "nowhere": False}


def test_a_model_without_a_head_gives_hidden_states(tmp_path: Path) -> None:
    CHECKPOINTS["bert"].save(tmp_path)
    model = load_pretrained(tmp_path)
    assert isinstance(model, Encoder)
    assert model(torch.tensor([[3, 1, 4]])).shape == (1, 3, 21)


def test_what_is_loaded_can_be_trained_and_handed_back(tmp_path: Path) -> None:
    CHECKPOINTS["gpt2"].save(tmp_path / "theirs")
    model = load_pretrained(tmp_path / "theirs", dtype=torch.float32)
    assert isinstance(model, Decoder)
    optimiser = torch.optim.SGD(model.train().parameters(), lr=0.1)
    model(torch.tensor([[3, 1, 4]])).square().mean().backward()
    optimiser.step()
    save_pretrained(model, tmp_path / "back")
    again = load_pretrained(tmp_path / "back")
    assert all(tensor.equal(model.state_dict()[key]) for key, tensor in again.state_dict().items())
