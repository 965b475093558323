"""Threads that wait for each other on a busy machine."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headwork.cli import threads
from headwork.cli.threads import busy_share, share_processors

START = [100, 5, 40, 1000, 10, 0, 3, 2, 99, 0]


@pytest.fixture
def before_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch")
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.delenv(name, raising=False)


def clock(monkeypatch: pytest.MonkeyPatch, folder: Path, user: int = 0, idle: int = 0, waiting: int = 0) -> Path:
    """A file like /proc/stat that moves on by these ticks while one sleeps."""
    file = folder / "stat"
    file.write_text(f"cpu  {' '.join(map(str, START))}\ncpu0 1 2 3 4\n")
    later = [START[0] + user, *START[1:3], START[3] + idle, START[4] + waiting, *START[5:]]
    monkeypatch.setattr(threads.time, "sleep", lambda _: file.write_text(f"cpu  {' '.join(map(str, later))}\n"))
    return file


@pytest.mark.parametrize(
    ("user", "idle", "waiting", "share"),
    [(0, 20, 0, 0.0), (5, 15, 0, 0.25), (20, 0, 0, 1.0), (5, 5, 10, 0.25), (0, 0, 0, 0)],
)
def test_the_share_that_others_use(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, user: int, idle: int, waiting: int, share: float
) -> None:
    assert busy_share(0.1, clock(monkeypatch, tmp_path, user, idle, waiting)) == share


@pytest.mark.parametrize("text", [None, "", "cpu\n", "cpu a b c d e\n", "# 1\n"])
def test_a_system_that_does_not_say_is_not_busy(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "stat").write_text(text)
    assert busy_share(0.0, tmp_path / "stat") == 0


@pytest.mark.usefixtures("before_torch")
@pytest.mark.parametrize(("share", "policy"), [(0.0, None), (0.25, None), (0.3, "PASSIVE"), (1.0, "PASSIVE")])
def test_threads_sleep_where_the_machine_is_busy(
    monkeypatch: pytest.MonkeyPatch, share: float, policy: str | None
) -> None:
    monkeypatch.setattr(threads, "busy_share", lambda _: share)
    share_processors()
    assert os.environ.pop("OMP_WAIT_POLICY", None) == policy


@pytest.mark.usefixtures("before_torch")
@pytest.mark.parametrize("name", ["OMP_WAIT_POLICY", "GOMP_SPINCOUNT"])
def test_what_the_user_decided_stays(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(threads, "busy_share", lambda _: 1.0)
    monkeypatch.setenv(name, "ACTIVE")
    share_processors()
    assert os.environ[name] == "ACTIVE"
    assert len({"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & set(os.environ)) == 1


def test_after_torch_was_imported_it_is_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "busy_share", lambda _: pytest.fail("measured"))
    share_processors()


def test_it_is_decided_before_any_command_imports_torch() -> None:
    """Otherwise OpenMP has read its settings already."""
    code = """
import sys
from headwork.cli import commands
commands.share_processors = lambda: print("decided", "torch" in sys.modules)
commands.main(["train", "--list"])
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300).stdout
    assert said.splitlines()[0] == "decided False"
