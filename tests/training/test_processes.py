"""Two processes give the result of one with the same batch, and go on from where they were stopped."""

import socket
from pathlib import Path

import pytest
import torch
from tests.training.conftest import Child, Children
from tests.training.small_runs import Kind, changed, read_log, read_tensors, small_run

from headwork.seeds import seed_everything
from headwork.training import SGD, Run, train_run
from headwork.training.config import Strategy
from headwork.training.machine import OLDEST_FSDP, make_fabric

TWO = {"GROUP_RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}


def begin_two(children: Children, run: Run, call: str = "train_run") -> list[Child]:
    """As `torchrun` starts them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    return [
        children.start(
            f"tests.training.child_work:{call}",
            run.folder,
            **TWO,
            RANK=str(rank),
            LOCAL_RANK=str(rank),
            MASTER_PORT=port,
            TORCHELASTIC_RUN_ID="test",
        )
        for rank in range(2)
    ]


needs_fsdp = pytest.mark.skipif(torch.__version__ < OLDEST_FSDP, reason="this PyTorch shards tied weights wrongly")


@pytest.mark.slow
@pytest.mark.parametrize(("strategy", "kind"), [("ddp", "vit"), pytest.param("fsdp", "translator", marks=needs_fsdp)])
def test_two_processes_are_one(tmp_path: Path, children: Children, strategy: Strategy, kind: Kind) -> None:
    """With parts, padding, augmentation, momentum and an average; stopped after the seventh step and gone on with."""
    one = small_run(tmp_path / "one", kind, optimiser=SGD(lr=0.05), accumulate=3, ema=0.8, augment=True)
    two = changed(one, tmp_path / "two", strategy=strategy)
    two.folder.mkdir()
    two.write()
    for call, code in (("train_to_the_seventh_step", 143), ("train_run", 0)):
        for child in begin_two(children, two, call):
            assert child.wait() == code, child.said
    train_run(one)
    seed_everything(one.config.training.seed)
    begun = one.config.model.build().state_dict()
    ours = dict(read_tensors(two.folder / "model.safetensors"))
    moved = []
    for name, tensor in read_tensors(one.folder / "model.safetensors"):
        assert (ours[name] - tensor).abs().max() < 1e-6, name
        moved.append((begun[name] - tensor).abs().max() > 1e-4)
    assert sum(moved) > 0.8 * len(moved)
    for row, alone in zip(read_log(two.folder), read_log(one.folder), strict=True):
        assert row == pytest.approx(alone, abs=1e-5)


def test_a_pytorch_that_shards_tied_weights_wrongly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """2.8 trains a decoder whose embedding is its output to other weights than one process; 2.10 to the same."""
    monkeypatch.setattr("headwork.training.machine.OLDEST_FSDP", "99.0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    run = small_run(tmp_path / "run", "gpt", strategy="fsdp")
    with pytest.raises(ValueError, match=r"strategy must be ddp with PyTorch .*, got fsdp"):
        make_fabric(run.config.training)


def test_a_batch_that_cannot_be_shared(tmp_path: Path, children: Children) -> None:
    run = small_run(tmp_path / "run", "translator", batch_size=9)
    run.folder.mkdir()
    run.write()
    for child in begin_two(children, run):
        assert child.wait() == 70
        assert "batch_size must be a multiple of accumulate x processes, 1 x 2, got 9" in child.said
