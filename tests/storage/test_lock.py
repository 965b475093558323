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
