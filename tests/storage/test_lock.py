"""One process at a time writes into a folder, and a claim dies with its process."""

import subprocess
import sys
from pathlib import Path

import pytest

from headwork.storage.folders import locked

CLAIM = """
import os, sys
from pathlib import Path
from headwork.storage.folders import locked
with locked(Path(sys.argv[1])):
    if len(sys.argv) > 2 and os.fork() == 0:  # a helper, which lives longer
        sys.stdin.read()
        os._exit(0)
    print("mine", flush=True)
    sys.stdin.read()
"""


def claim(folder: Path, *more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", CLAIM, str(folder), *more], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def test_a_folder_is_claimed_by_one(tmp_path: Path) -> None:
    with claim(tmp_path / "run") as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "mine\n"
        with (
            pytest.raises(RuntimeError, match=rf"another process is at work on {tmp_path}/run"),
            locked(tmp_path / "run"),
        ):
            pass
        other.communicate("")
    with locked(tmp_path / "run"):
        pass


def test_a_claim_dies_with_its_process_and_not_with_its_helpers(tmp_path: Path) -> None:
    with claim(tmp_path, "helper") as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "mine\n"
        other.kill()
        other.wait()
        with locked(tmp_path):
            pass


def test_where_no_claim_can_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a letter")
    with pytest.raises(OSError, match=r"cannot write .*file/run"), locked(tmp_path / "file" / "run"):
        pass


def test_a_second_claim_in_the_same_process_is_refused_and_frees_nothing(tmp_path: Path) -> None:
    with locked(tmp_path):
        for _ in range(2):
            with pytest.raises(RuntimeError, match=r"this process is at work on .* already"), locked(tmp_path / "."):
                pytest.fail("it is locked")
        with claim(tmp_path) as other:
            assert other.wait() == 1
    with locked(tmp_path):
        pass


@pytest.mark.parametrize("name", [".lock", "heads.gif", "tensorboard", "checkpoints/step-00000001", "report.html"])
def test_a_folder_with_a_link_is_not_claimed(tmp_path: Path, name: str) -> None:
    """Whatever was written through it would be somebody else's."""
    victim, link = tmp_path / "victim", tmp_path / "run" / name
    victim.write_text("a letter")
    link.parent.mkdir(parents=True)
    link.symlink_to(victim)
    with pytest.raises(ValueError, match=f"run must hold no symbolic links, .* got {link}"), locked(tmp_path / "run"):
        pytest.fail("it is locked")
    assert victim.read_text() == "a letter"


def test_a_lock_that_is_another_name_of_a_file_does_not_empty_it(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("a letter")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".lock").hardlink_to(tmp_path / "victim")
    with locked(tmp_path / "run"):
        pass
    assert (tmp_path / "victim").read_text() == "a letter"
