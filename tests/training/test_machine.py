"""Processors, precisions and memory: what this machine cannot do is said in a sentence."""

import ctypes
import platform
from pathlib import Path

import pytest
import torch
from tests.training.small_runs import read_log, read_tensors, small_run

from headwork.functional.processor import ANSWERS
from headwork.training import machine, train_run
from headwork.training.checkpoints import checkpoints
from headwork.training.config import Strategy, TrainingConfig
from headwork.training.machine import (
    check_device,
    check_precision,
    describe_load,
    keep_memory,
    make_fabric,
    resident_bytes,
)


def training(**changes: object) -> TrainingConfig:
    return TrainingConfig(**{"batch_size": 6, "steps": 1, **changes})


def test_a_processor_that_lies_gives_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ANSWERS, torch.bfloat16, "died of SIGILL")
    with pytest.raises(ValueError, match=r"precision must be float32 on this machine, got bfloat16: .* died of SIGILL"):
        make_fabric(training(precision="bfloat16", device="cpu"))


def test_float16_is_not_for_processors() -> None:
    with pytest.raises(ValueError, match="precision must be float32 or bfloat16 on a processor, got float16"):
        check_precision("float16", "cpu")


@pytest.mark.parametrize("device", ["cuda", "mps"])
def test_a_device_that_is_not_here(device: str) -> None:
    if (torch.cuda if device == "cuda" else torch.backends.mps).is_available():
        pytest.skip(f"{device} is here")
    with pytest.raises(ValueError, match=rf"device must be one that this machine has \(cpu.*\), got {device}"):
        check_device(device)


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_one_process_needs_no_strategy(strategy: Strategy) -> None:
    with pytest.raises(ValueError, match=rf"strategy is for many processes: start with torchrun, got {strategy}"):
        make_fabric(training(strategy=strategy))


@pytest.mark.computes_in(torch.bfloat16)
def test_training_in_bfloat16(tmp_path: Path) -> None:
    """Products in bfloat16, weights in float32; it learns, and not the same to the last bit."""
    losses = {}
    for precision in ("float32", "bfloat16"):
        run = small_run(tmp_path / precision, precision=precision)
        train_run(run)
        losses[precision] = [row["loss"] for row in read_log(run.folder)]
        newest = checkpoints(run.folder)[0]
        assert {tensor.dtype for _, tensor in read_tensors(newest / "model.safetensors")} == {torch.float32}
    assert losses["float32"] != losses["bfloat16"]
    assert losses["float32"] == pytest.approx(losses["bfloat16"], abs=0.05)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_the_c_library_keeps_memory() -> None:
    assert keep_memory()
    assert torch.randn(3_000_000).sum().isfinite()


def test_the_memory_of_this_process(tmp_path: Path) -> None:
    """PyTorch alone takes more than 50 MB; what the system does not say is the most that there was."""
    for found in (resident_bytes(), resident_bytes(tmp_path / "missing")):
        assert 50e6 < found < 100e9


class OldLibrary:
    """A C library that refuses thresholds above 32 MiB, as old ones do."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []

    def mallopt(self, parameter: int, value: int) -> int:
        self.asked.append((parameter, value))
        return int(parameter != -3 or value <= 2**25)


def test_an_old_c_library_is_asked_for_less(monkeypatch: pytest.MonkeyPatch) -> None:
    library = OldLibrary()
    monkeypatch.setattr(ctypes, "CDLL", lambda _: library)
    assert keep_memory()
    assert library.asked == [(-3, 2**30), (-3, 2**25), (-1, 2**31 - 1), (-2, 2**26)]


@pytest.mark.parametrize("error", [AttributeError, OSError, TypeError])
def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch, error: type[Exception]) -> None:
    def refuse(_: object) -> None:
        raise error

    monkeypatch.setattr(ctypes, "CDLL", refuse)
    assert not keep_memory()


@pytest.mark.parametrize(
    ("n_threads", "seconds", "used", "busy"),
    [(2, 1.0, 1.9, False), (2, 1.0, 0.9, True), (8, 1.0, 1.9, True), (1, 1.0, 0.3, False), (2, 0.0, 0.0, False)],
)
def test_a_busy_machine_is_noticed_and_said(
    monkeypatch: pytest.MonkeyPatch, n_threads: int, seconds: float, used: float, busy: bool
) -> None:
    """Threads that have to wait for a processor wait for each other: fewer of them are faster."""
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    monkeypatch.setattr(torch, "get_num_threads", lambda: n_threads)
    monkeypatch.setattr(machine.time, "monotonic", iter((100.0, 100 + seconds)).__next__)
    monkeypatch.setattr(machine.time, "process_time", iter((7.0, 7 + used)).__next__)
    said = describe_load(training(device="cpu"))
    assert (said is not None) == busy
    if said is not None:
        assert f"{n_threads} threads get the time of {used:.1f} processors" in said
        assert "OMP_WAIT_POLICY=PASSIVE" in said


def test_threads_that_sleep_while_they_wait_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    monkeypatch.setattr(machine.time, "monotonic", iter((100.0, 101.0)).__next__)
    monkeypatch.setattr(machine.time, "process_time", iter((7.0, 7.1)).__next__)
    assert describe_load(training(device="cpu")) is None


def test_a_busy_processor_does_not_matter_to_another_device() -> None:
    assert describe_load(training(device="cuda")) is None
