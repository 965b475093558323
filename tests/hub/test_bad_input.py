"""What cannot be loaded is refused in words, and nothing in a folder is ever executed."""

import json
import math
import os
import pickle
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import headwork as hw
from headwork import choices
from headwork.hub import load_pretrained
from headwork.storage import DamagedError

from .checkpoints import CHECKPOINTS, transformers

WEIGHTS = "model.safetensors"


def folder_of(name: str, tmp_path: Path, **settings: Any) -> Path:
    """A folder of transformers, with other settings in its config.json."""
    folder = tmp_path / "folder"
    CHECKPOINTS[name].save(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | settings))
    return folder


# --- settings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("bert-lm", {"hidden_act": "relu6"}, "hidden_act must be one of relu, gelu, .* got 'relu6'"),
        ("bert-lm", {"position_embedding_type": "relative_key"}, "position_embedding_type must be 'absolute'"),
        ("bert-lm", {"is_decoder": True}, "is_decoder must be False"),
        ("bert-lm", {"tie_word_embeddings": False}, "tie_word_embeddings must be True"),
        ("bert-lm", {"pruned_heads": {"0": [1]}}, "pruned_heads must be {}"),
        ("bert-lm", {"quantization_config": {"bits": 4}}, "config.json must have only .* quantization_config = "),
        ("bert-lm", {"hiden_size": 21}, "got hiden_size = 21; did you mean 'hidden_size'"),
        ("bert-lm", {"num_attention_heads": 4}, "n_heads must divide d_model"),
        ("bert-lm", {"num_hidden_layers": 10**9}, "num_hidden_layers must fit the 42 tensors of the folder"),
        ("bert-lm", {"hidden_size": 10**30}, "hidden_size must be a whole number from 1 to"),
        ("bert-lm", {"hidden_size": True}, "hidden_size must be a whole number"),
        ("bert-lm", {"layer_norm_eps": "small"}, "layer_norm_eps must be a number"),
        ("roberta-lm", {"pad_token_id": 0}, "pad_token_id must be 1"),
        ("roberta-lm", {"max_position_embeddings": 2}, "max_position_embeddings must be more than 2"),
        ("distilbert-lm", {"hidden_size": 22}, "dim and hidden_size must be equal, got 21 and 22"),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx must be False"),
        ("gpt2", {"add_cross_attention": True}, "add_cross_attention must be False"),
        (
            "llama",
            {"rope_parameters": {"rope_type": "longrope", "rope_theta": 1e4, "factor": 8.0}},
            "rope_type must be one of default, linear, dynamic, llama3, yarn, got 'longrope'",
        ),
        (
            "phi3",
            {"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 1.5}},
            r"fraction must lie in \(0, 1",
        ),
        *(  # which transformers does not read for these families
            (name, {"partial_rotary_factor": 0.5}, "partial_rotary_factor must be 1.0, the one that Headwork has")
            for name in ("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3", "olmo2", "falcon")
        ),
        (
            "llama",
            {"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}},
            "partial_rotary_factor must be 1.0",
        ),
        ("gpt-neox", {"partial_rotary_factor": 0.75}, "partial_rotary_factor must be 0.25"),
        ("llama", {"rms_norm_eps": math.nan}, "rms_norm_eps must be finite, got nan"),
        ("bert-classes", {"num_labels": 9}, "num_labels must be the 3 of id2label, got 9"),
        (
            "llama",
            {"rope_scaling": {"type": "linear", "factor": 2.0}},
            "rope_parameters and rope_scaling must be equal",
        ),
        ("mistral", {"sliding_window": 0}, "sliding_window must be a whole number from 1"),
        ("qwen2", {"use_sliding_window": True, "max_window_layers": "1"}, "max_window_layers must be a whole number"),
        ("gemma2", {"layer_types": ["full_attention"]}, "layer_types must be full_attention or sliding_attention for"),
        ("gemma2", {"sliding_window": None}, "sliding_window must be given with layer_types="),
        ("gemma2", {"attn_logit_softcapping": -1.0}, "softcap must be more than 0"),
        ("gemma2", {"use_bidirectional_attention": True}, "use_bidirectional_attention must be false"),
        ("gemma3", {"rope_parameters": {"rope_theta": 1e4}}, "rope_parameters must be given for full_attention and"),
        ("phi", {"qk_layernorm": True}, "qk_layernorm must be False"),
        ("falcon", {"alibi": True}, "alibi must be False"),
        ("falcon", {"num_ln_in_parallel_attn": 2}, "num_ln_in_parallel_attn must be 1, or 2 with"),
        ("mixtral", {"num_experts_per_tok": 6}, "n_active must be at most n_experts=5, got 6"),
        ("qwen3-moe", {"mlp_only_layers": [0]}, r"mlp_only_layers must be empty, got \[0\]"),
        ("qwen3-moe", {"decoder_sparse_step": 2}, "decoder_sparse_step must be 1"),
        ("bart", {"normalize_embedding": False}, "normalize_embedding must be True"),
        ("qwen2", {"layer_types": ["full_attention", "sliding_attention"]}, "layer_types must be full_attention only"),
        ("t5", {"feed_forward_proj": "gated-tanh"}, "feed_forward_proj must be one of"),
        ("t5", {"dense_act_fn": "silu"}, "dense_act_fn must be 'relu'"),
        ("marian", {"decoder_ffn_dim": 18}, "decoder_ffn_dim must be that of the encoder, 17, got 18"),
        ("marian", {"share_encoder_decoder_embeddings": False}, "share_encoder_decoder_embeddings must be True"),
        ("marian", {"normalize_before": True}, "normalize_before must be False"),
        ("vit", {"image_size": 13}, "patch must divide the image"),
    ],
    ids=str,
)
def test_settings_that_are_not_there_are_refused_by_name(
    name: str, settings: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=words) as refused:
        load_pretrained(folder_of(name, tmp_path, **settings))
    assert "config.json: " in str(refused.value)


def test_settings_without_a_type(tmp_path: Path) -> None:
    folder = folder_of("llama", tmp_path)
    config = json.loads((folder / "config.json").read_text())
    del config["model_type"], config["architectures"]
    (folder / "config.json").write_text(json.dumps(config))
    assert hw.hub.is_pretrained(folder)  # not one of ours that is damaged
    with pytest.raises(ValueError, match=r'config.json must say "model_type", one of bert, .* architectures None'):
        load_pretrained(folder)


def test_mistral_without_a_word_on_its_window_has_one(tmp_path: Path) -> None:
    folder = folder_of("mistral", tmp_path)
    config = json.loads((folder / "config.json").read_text())
    del config["sliding_window"]
    (folder / "config.json").write_text(json.dumps(config))
    assert load_pretrained(folder).config.window == choices.SlidingWindow(n_tokens=4096, layers=(0, 1))


@pytest.mark.parametrize(
    ("model_type", "words"),
    [
        ("albert", "got 'albert'; albert cannot be loaded: its layers share their weights"),
        ("gpt_oss", "got 'gpt_oss'; gpt_oss cannot be loaded: its softmax has sinks"),
        ("unheard-of", "model_type must be one of bert, .*, vit, deit, got 'unheard-of'$"),
        ([1], r"got \[1\]"),
    ],
)
def test_families_that_are_not_there(model_type: object, words: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=words):
        load_pretrained(folder_of("bert-lm", tmp_path, model_type=model_type))


def test_albert_itself(tmp_path: Path) -> None:
    config = transformers.AlbertConfig(
        vocab_size=37, embedding_size=5, hidden_size=21, num_attention_heads=3, intermediate_size=17
    )
    transformers.AlbertForMaskedLM(config).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="its layers share their weights"):
        load_pretrained(tmp_path)


# --- tensors ---------------------------------------------------------------------------------------------------------


def test_all_that_is_wrong_with_the_tensors_is_in_one_error(tmp_path: Path) -> None:
    folder = folder_of("gpt2", tmp_path)
    tensors = load_file(folder / WEIGHTS)
    del tensors["transformer.ln_f.weight"], tensors["transformer.h.1.ln_2.bias"]
    tensors["transformer.wpe.weight"] = torch.zeros(24, 21)
    tensors["transformer.h.0.attn.c_proj.weight"] = torch.zeros(21, 21, dtype=torch.int8)
    tensors |= {"adapter.down": torch.zeros(2), "transformer.h.2.ln_1.bias": torch.zeros(21)}
    save_file(tensors, folder / WEIGHTS)
    with pytest.raises(ValueError, match=r"the tensors do not fit the settings") as refused:
        load_pretrained(folder)
    for words in (
        "transformer.ln_f.weight is missing",
        "transformer.h.1.ln_2.bias is missing",
        "transformer.wpe.weight must have the shape (23, 21), got (24, 21)",
        "transformer.h.0.attn.c_proj.weight must hold real numbers of 16 bits or more",
        "adapter.down is unknown",
        "transformer.h.2.ln_1.bias is unknown",
    ):
        assert words in str(refused.value)
    assert str(refused.value).count(";") == 5


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_are_none(value: float, tmp_path: Path) -> None:
    folder = folder_of("gpt2", tmp_path)
    tensors = load_file(folder / WEIGHTS)
    tensors["transformer.wte.weight"][3, 5] = value
    save_file(tensors, folder / WEIGHTS)
    with pytest.raises(ValueError, match=r"transformer.wte.weight must be finite in float64"):
        load_pretrained(folder)


def test_numbers_too_large_for_the_precision(tmp_path: Path) -> None:
    folder = folder_of("gpt2", tmp_path)
    tensors = load_file(folder / WEIGHTS)
    tensors["transformer.wte.weight"][3, 5] = 1e6
    save_file(tensors, folder / WEIGHTS)
    with pytest.raises(ValueError, match=r"transformer.wte.weight must be finite in float16"):
        load_pretrained(folder, dtype=torch.float16)


def test_a_copy_that_is_none(tmp_path: Path) -> None:
    folder = folder_of("llama-tied", tmp_path)
    tensors = load_file(folder / WEIGHTS)
    save_file(tensors | {"lm_head.weight": tensors["model.embed_tokens.weight"] + 1}, folder / WEIGHTS)
    with pytest.raises(ValueError, match=r"lm_head.weight must be equal to model.embed_tokens.weight"):
        load_pretrained(folder)


def test_a_config_of_another_size(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"word_embeddings.weight must have the shape \(38, 21\), got \(37, 21\)"):
        load_pretrained(folder_of("bert-lm", tmp_path, vocab_size=38))


# --- files -----------------------------------------------------------------------------------------------------------


def test_a_pipe_in_the_place_of_a_file(tmp_path: Path) -> None:
    """Nobody writes into it: to read it would wait for ever."""
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(DamagedError, match=r"must be a file on a disk, got .*config\.json, which is a pipe"):
        load_pretrained(tmp_path)


def test_a_folder_without_files(tmp_path: Path) -> None:
    folder = folder_of("gpt2", tmp_path)
    (folder / WEIGHTS).unlink()
    with pytest.raises(ValueError, match=r"folder must hold model.safetensors, pytorch_model.bin or the index"):
        load_pretrained(folder)
    (folder / "config.json").unlink()
    with pytest.raises(ValueError, match=r"folder must hold a config.json"):
        load_pretrained(folder)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"model_type": "gpt2"' + " " * 9, "[" * 100_000])
def test_a_config_that_is_no_json(text: str, tmp_path: Path) -> None:
    folder = folder_of("gpt2", tmp_path)
    (folder / "config.json").write_text(text)
    with pytest.raises(DamagedError, match=r"config.json is damaged"):
        hw.load(folder)
    with pytest.raises(DamagedError, match=r"config.json is damaged"):
        load_pretrained(folder)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1],
        lambda data: data[:100],
        lambda data: b"",
        lambda data: data[:7],
        lambda data: struct.pack("<Q", 2**62) + data[8:],
        lambda data: data[:8] + b"[" + data[9:],
        lambda data: data + b"more",
    ],
    ids=["short", "half a header", "empty", "no length", "long header", "no json", "long"],
)
def test_damaged_safetensors(damage: Callable[[bytes], bytes], tmp_path: Path) -> None:
    folder = folder_of("gpt2", tmp_path)
    (folder / WEIGHTS).write_bytes(damage((folder / WEIGHTS).read_bytes()))
    with pytest.raises(DamagedError, match=r"model.safetensors is damaged"):
        load_pretrained(folder)


def test_a_pickle_where_safetensors_was_promised(tmp_path: Path) -> None:
    folder = folder_of("gpt2", tmp_path)
    torch.save({"transformer.wte.weight": torch.zeros(37, 21)}, folder / WEIGHTS)
    with pytest.raises(DamagedError, match="is a pickle, and was promised to be safetensors"):
        load_pretrained(folder)


class Hostile:
    """Runs a command when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("wrap", [pickle.dump, torch.save])
def test_a_hostile_pickle_is_not_executed(wrap: Callable[[object, Any], None], tmp_path: Path) -> None:
    folder = folder_of("gpt2", tmp_path)
    (folder / WEIGHTS).unlink()
    with (folder / "pytorch_model.bin").open("wb") as file:
        wrap({"transformer.wte.weight": Hostile(tmp_path / "executed")}, file)
    with pytest.raises(
        DamagedError, match=r"pytorch_model.bin is refused, since it .* holds more than tensors"
    ) as error:
        load_pretrained(folder)
    assert "weights_only" not in str(error.value)  # torch's advice is to switch the guard off
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("zipped", [True, False])
def test_a_pickle_of_few_numbers_that_are_repeated(zipped: bool, tmp_path: Path) -> None:
    """By a stride of 0, three thousand bytes can be a model of any size."""
    folder = folder_of("gpt2", tmp_path)
    tensors = load_file(folder / WEIGHTS)
    (folder / WEIGHTS).unlink()
    tensors["transformer.wte.weight"] = torch.zeros(1).expand(37, 21)
    torch.save(tensors, folder / "pytorch_model.bin", _use_new_zipfile_serialization=zipped)
    message = r"pytorch_model.bin must hold .* got 4 bytes for the 3,108 of transformer.wte.weight, of shape \(37, 21\)"
    with pytest.raises(DamagedError, match=message):
        load_pretrained(folder)


@pytest.mark.parametrize("content", [[torch.zeros(2)], {"transformer.wte.weight": 3}, "text"], ids=str)
def test_a_pickle_of_something_else(content: object, tmp_path: Path) -> None:
    folder = folder_of("gpt2", tmp_path)
    (folder / WEIGHTS).unlink()
    torch.save(content, folder / "pytorch_model.bin")
    with pytest.raises(DamagedError, match="must hold tensors by their names"):
        load_pretrained(folder)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda where: where | {"transformer.wte.weight": "../weights.safetensors"}, "which is not in the folder"),
        (lambda where: where | {"transformer.wte.weight": "gone.safetensors"}, "names the file 'gone.safetensors'"),
        (lambda where: where | {"more": next(iter(where.values()))}, "must name the same tensors, and differ in more"),
        (lambda where: dict(list(where.items())[1:]), "must name the same tensors"),
        (list, "weight_map must name the file of each tensor"),
        (lambda where: dict.fromkeys(where, 3), "weight_map must name the file of each tensor"),
    ],
)
def test_an_index_that_does_not_fit(change: Callable[[Any], Any], words: str, tmp_path: Path) -> None:
    CHECKPOINTS["gpt2"].save(tmp_path / "folder", shard="5KB")
    path = tmp_path / "folder" / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    path.write_text(json.dumps(index | {"weight_map": change(index["weight_map"])}))
    with pytest.raises(DamagedError, match=words):
        load_pretrained(tmp_path / "folder")


# --- anything --------------------------------------------------------------------------------------------------------

ODD = [None, -1, 0, 1, 7, float("inf"), float("nan"), 0.5, "x", "", [], {}, True, 10**30, 2**31 - 1, [1, 2], {"a": 1}]


def check_odd_values(name: str, tmp_path: Path, n_values: int) -> None:
    """A model, or an error in words; never another one, nor a model as large as the setting says."""
    folder = folder_of(name, tmp_path)
    config = json.loads((folder / "config.json").read_text())
    chance, n_refused = random.Random(0), 0
    for key in config:
        for value in chance.sample(ODD, n_values):
            (folder / "config.json").write_text(json.dumps(config | {key: value}))
            try:
                load_pretrained(folder)
            except (ValueError, DamagedError):
                n_refused += 1
    assert n_refused > n_values * len(config) / 4


@pytest.mark.filterwarnings("ignore::headwork.hub.LeftOutWarning")
def test_odd_values_of_any_setting(tmp_path: Path) -> None:
    check_odd_values("gpt2-one-layer", tmp_path, 2)


@pytest.mark.filterwarnings("ignore::headwork.hub.LeftOutWarning")
@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert-classes", "roberta-lm", "distilbert", "gpt2", "qwen2", "t5", "marian", "vit"])
def test_all_odd_values_of_any_setting(name: str, tmp_path: Path) -> None:
    check_odd_values(name, tmp_path, len(ODD))


def damaged(data: bytes, chance: random.Random) -> bytes:
    """The file cut off, or with some bytes of its beginning changed, added, left out or moved."""
    new, end = bytearray(data), min(len(data), chance.choice([16, 400, 4000, len(data)]))
    at, to, length = chance.randrange(end), chance.randrange(end), chance.randrange(1, 40)
    match chance.randrange(5):
        case 0:
            return data[:at]
        case 1:
            new[at] ^= 1 << chance.randrange(8)
        case 2:
            new[at:at] = chance.randbytes(length)
        case 3:
            del new[at : at + length]
        case 4:
            new[at : at + length], new[to : to + length] = new[to : to + length], new[at : at + length]
    return bytes(new)


def check_damaged_files(tmp_path: Path, n_times: int) -> None:
    model = CHECKPOINTS["gpt2-one-layer"].save(tmp_path / "whole")
    model.save_pretrained(tmp_path / "parts", max_shard_size="5KB")
    for kind, zipped in (("zip", True), ("legacy", False)):
        (tmp_path / kind).mkdir()
        (tmp_path / kind / "config.json").write_bytes((tmp_path / "whole" / "config.json").read_bytes())
        torch.save(model.state_dict(), tmp_path / kind / "pytorch_model.bin", _use_new_zipfile_serialization=zipped)
    chance = random.Random(0)
    for path in (
        tmp_path / "whole" / WEIGHTS,
        tmp_path / "whole" / "config.json",
        tmp_path / "parts" / "model.safetensors.index.json",
        min((tmp_path / "parts").glob("*.safetensors")),
        tmp_path / "zip" / "pytorch_model.bin",
        tmp_path / "legacy" / "pytorch_model.bin",
    ):
        data, n_refused = path.read_bytes(), 0
        load_pretrained(path.parent)
        for _ in range(n_times):
            path.unlink()
            path.write_bytes(damaged(data, chance))
            try:
                load_pretrained(path.parent)
            except (ValueError, DamagedError):
                n_refused += 1
        path.write_bytes(data)
        assert n_refused > n_times / 3, path.name


@pytest.mark.filterwarnings("ignore::headwork.hub.LeftOutWarning")
def test_damaged_files(tmp_path: Path) -> None:
    check_damaged_files(tmp_path, 20)


@pytest.mark.filterwarnings("ignore::headwork.hub.LeftOutWarning")
@pytest.mark.slow
def test_many_damaged_files(tmp_path: Path) -> None:
    check_damaged_files(tmp_path, 400)
