"""A few of the damaged files of `make torture`: each is refused in words, or still says something whole."""

import random
from pathlib import Path

import pytest
import torch

from headwork.hub import load_pretrained
from headwork.storage import DamagedError

from .damage import Runs, attempt, damaged, make_targets

N_EACH = 4


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_damaged_files_of_every_kind(tmp_path: Path) -> None:
    (tmp_path / "folders").mkdir()
    targets, canary = make_targets(tmp_path / "folders"), tmp_path / "ran"
    kinds = {target.kind for target in targets}
    assert {"safetensors", "config.json", "GGUF", "pytorch_model.bin", "tokenizer.json", "older tokenizers"} <= kinds
    problems = []
    for target in targets:
        assert attempt(target, target.path.read_bytes(), canary) is None
        for seed in range(N_EACH):
            how, data = damaged(target, target.path.read_bytes(), random.Random(f"{target.path.name} {seed}"), canary)
            if problem := attempt(target, data, canary):
                problems.append(f"{target.folder.name}/{target.name}, {how}, {seed}: {problem}")
    assert problems == []


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (Runs(bytearray, 10**11), r"builtins\.bytearray|bytearray"),
        ({"a": torch.ones(2, 2).to_sparse()}, "_rebuild_sparse_tensor"),
        ({"a": torch.ones(2, 2, device="meta")}, "meta"),
    ],
)
def test_pickles_that_ask_for_more_than_plain_tensors(content: object, said: str, zipped: bool, tmp_path: Path) -> None:
    """PyTorch's own reader of weights would make the first of them: a hundred gigabytes."""
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    torch.save(content, tmp_path / "pytorch_model.bin", _use_new_zipfile_serialization=zipped)
    with pytest.raises(DamagedError, match=f"holds more than tensors: .*({said})"):
        load_pretrained(tmp_path)
