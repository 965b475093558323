"""A disk that is full or cannot be written: an error with path and bytes, and what was good stays good."""

import shutil
import subprocess
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.training.conftest import Children
from tests.training.small_runs import StopAfter, differences, small_run

from headwork.cli import main
from headwork.storage import verify
from headwork.training import Run, StoppedError, train_run
from headwork.training.checkpoints import checkpoints, find_whole


def stopped(folder: Path, looks: int = 5, **changes: object) -> Run:
    run = small_run(folder, **changes)
    with pytest.raises(StoppedError):
        train_run(run, stop=StopAfter(looks))
    return run


@pytest.mark.slow
def test_a_disk_that_fills_while_a_checkpoint_is_written(tmp_path: Path, children: Children) -> None:
    alone, run = small_run(tmp_path / "alone", "resnet"), stopped(tmp_path / "run", kind="resnet")
    child = children.start("tests.training.child_work:with_small_files", 5000, ["train", "--resume", str(run.folder)])
    train_run(alone)
    assert child.wait() == 1
    newest = run.folder / "checkpoints" / "step-00000010"
    assert f"cannot write {newest} (" in child.said
    assert "bytes are needed): " in child.said
    assert "File too large" in child.said
    assert "Traceback" not in child.said
    assert [path.name for path in checkpoints(run.folder)] == ["step-00000005"]
    verify(checkpoints(run.folder)[0])
    assert not list(run.folder.rglob(".*.part"))
    train_run(run)
    assert differences(run.folder, alone.folder) == []


def test_a_disk_without_room_is_noticed_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = stopped(tmp_path / "run")
    usage = namedtuple("usage", "total used free")  # as shutil has it
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(100, 89, 11))
    assert main(["train", "--resume", str(run.folder)]) == 1
    said = capsys.readouterr().err
    assert f"cannot write {run.folder}/checkpoints/step-00000010 (" in said
    assert "bytes are needed): 11 bytes are free" in said
    assert find_whole(run.folder) == (run.folder / "checkpoints" / "step-00000005", {})


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system with room for a few checkpoints only."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1400k", "none", folder], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("only some may mount a disk")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_real_disk_that_is_full(small_disk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = stopped(small_disk / "run", 2, save_every=1)
    (small_disk / "other").write_bytes(bytes(shutil.disk_usage(small_disk).free - 2**13))
    assert main(["train", "--resume", str(run.folder)]) == 1
    said = capsys.readouterr().err
    assert "cannot write" in said
    assert "Traceback" not in said
    good, problems = find_whole(run.folder)
    assert (good, problems) == (run.folder / "checkpoints" / "step-00000002", {})
    (small_disk / "other").unlink()
    train_run(run)
    assert find_whole(run.folder)[0] == run.folder / "checkpoints" / "step-00000010"


def test_a_folder_that_cannot_be_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Under a file, and where nobody may write, not even root."""
    (tmp_path / "file").write_text("a letter")
    for out in (tmp_path / "file" / "run", Path("/proc/headwork/run")):
        assert main(["train", "--out", str(out), "--steps", "1"]) == 1
        assert "headwork: failed: [Errno" in capsys.readouterr().err
    assert (tmp_path / "file").read_text() == "a letter"


def test_a_file_where_checkpoints_should_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = small_run(tmp_path / "run")
    run.folder.mkdir()
    run.write()
    (run.folder / "checkpoints").write_text("a letter")
    assert main(["train", "--resume", str(run.folder)]) == 1
    said = capsys.readouterr().err
    assert f"cannot write {run.folder}/checkpoints/step-00000005" in said
    assert (run.folder / "checkpoints").read_text() == "a letter"


def test_a_log_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = stopped(tmp_path / "run", 7)
    (run.folder / "metrics.jsonl").unlink()
    (run.folder / "metrics.jsonl").mkdir()
    assert main(["train", "--resume", str(run.folder)]) == 1
    assert f"{run.folder}/metrics.jsonl" in capsys.readouterr().err
    assert find_whole(run.folder) == (run.folder / "checkpoints" / "step-00000007", {})
