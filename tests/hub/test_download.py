"""Ids of the Hub, without a network: a hub that is faked, and the library's own cache."""

import shutil
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch
from huggingface_hub import constants, errors

import headwork as hw
from headwork.cli import main
from headwork.hub import find_folder, load_pretrained

from .checkpoints import CHECKPOINTS

pytestmark = pytest.mark.filterwarnings("ignore::headwork.hub.UnverifiedWarning")

COMMIT = "0123456789012345678901234567890123456789"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of the library, which is told that there is no network."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "cache"


def test_what_was_fetched_before_is_found_without_a_network(cache: Path) -> None:
    repository = cache / "models--owner--tiny"
    snapshot = repository / "snapshots" / COMMIT
    CHECKPOINTS["gpt2"].save(snapshot)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    model = hw.load("owner/tiny")
    assert find_folder("owner/tiny") == snapshot
    assert all(
        tensor.equal(model.state_dict()[name]) for name, tensor in load_pretrained(snapshot).state_dict().items()
    )


def test_without_a_network(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = "owner/name is no folder here, and the Hub cannot be reached; without a network, give the path of a folder"
    with pytest.raises(ConnectionError, match=words):
        hw.load("owner/name")
    assert main(["generate", "owner/name"]) == 1
    assert words in capsys.readouterr().err


def test_a_faked_hub(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Safetensors first; pickles only where there are none, and nothing else."""
    remote, asked = tmp_path / "remote", []
    CHECKPOINTS["gpt2"].save(remote)

    def fetch(name: str, *, allow_patterns: list[str], **options: Any) -> str:
        asked.append(name)
        local = tmp_path / "local"
        local.mkdir(exist_ok=True)
        for path in remote.iterdir():
            if any(path.match(pattern) for pattern in allow_patterns):
                shutil.copy(path, local)
        return str(local)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    (remote / "model.py").write_text("raise SystemExit")
    (remote / "tf_model.h5").write_text("")
    expected = hw.load("owner/name").state_dict()
    assert asked == ["owner/name"]
    assert {path.suffix for path in (tmp_path / "local").iterdir()} == {".json", ".safetensors"}
    shutil.rmtree(tmp_path / "local")
    torch.save(CHECKPOINTS["gpt2"].make().state_dict(), remote / "pytorch_model.bin")
    (remote / "model.safetensors").unlink()
    assert all(tensor.equal(expected[name]) for name, tensor in hw.load("owner/name").state_dict().items())


def test_a_model_that_nobody_has(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(name: str, **options: Any) -> str:
        raise errors.RepositoryNotFoundError.__new__(errors.RepositoryNotFoundError, "404")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    with pytest.raises(ValueError, match=r"folder must be one that exists, or a model on the Hub .* got owner/name"):
        hw.load("owner/name")


def test_paths_are_paths(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "owner" / "name").mkdir(parents=True)
    assert find_folder("owner/name") == Path("owner/name")
    for path in ("nowhere", "a/b/c", "../x", "./x", "/a/b", "models/x.gguf"):
        assert find_folder(path) == Path(path)
    assert find_folder(Path("other/name")) == Path("other/name")


def test_a_name_below_a_folder_here_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A typing error in the name of a run is said to be one, and nobody asks the Hub."""

    def ask(*_: object, **__: object) -> str:
        raise AssertionError("the Hub was asked")

    monkeypatch.setattr("huggingface_hub.snapshot_download", ask)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    with pytest.raises(ValueError, match="folder must be one that exists, got runs/typo: runs is a folder here"):
        hw.load("runs/typo")
    for path in ("./runs/typo", "runs/a/typo", "typo", "~/typo", "runs/typo/"):
        with pytest.raises(ValueError, match=f"folder must be one that exists, got {path.strip('./')}"):
            hw.load(path)
