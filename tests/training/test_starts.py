"""A run keeps by which command, with which versions and on which machine it was begun and resumed."""

import json
import platform
import sys
from datetime import datetime
from importlib.machinery import ModuleSpec
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import pytest
import torch
from tests.training.small_runs import small_run

from headwork.functional.processor import processor_name
from headwork.reports.of_run import report_run
from headwork.storage import DamagedError
from headwork.storage.log_lines import append_lines
from headwork.training import train_run
from headwork.training.starts import STARTS, RunStart, add_start, command_line, read_starts


def test_the_first_start_and_every_other_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = small_run(tmp_path / "run", steps=2)
    begun = datetime.now().astimezone().replace(microsecond=0)
    commands = ["headwork train vit --out run", "headwork train --resume run"]
    for command in commands:
        monkeypatch.setattr("headwork.training.starts.command_line", lambda command=command: command)
        result = train_run(run)
    starts = read_starts(run.folder)
    assert [start.step for start in starts] == [0, 2]
    assert [start.command for start in starts] == commands
    for start in starts:
        assert begun <= datetime.fromisoformat(start.date) <= datetime.now().astimezone()
        assert start.versions == (
            f"headwork {version('headwork')}, PyTorch {torch.__version__}, Python {platform.python_version()}"
        )
        assert start.processor == processor_name() != ""
        assert start.cores >= 1
        assert (start.threads, start.device, start.processes) == (torch.get_num_threads(), "cpu", 1)
    page = report_run(run, run.load_data(), result.model, result.evaluation).read_text()
    assert "How the run was begun and resumed" in page
    assert "<dt>command</dt><dd>headwork train vit" in page
    for word in ("<dt>machine</dt>", "<dt>versions</dt>", "headwork train --resume run"):
        assert word in page


def start(step: int = 0, **changes: object) -> RunStart:
    fields = {"date": "2026-05-01T10:00:00+02:00", "command": None, "headwork": "0.2", "pytorch": "2", "python": "3"}
    rest = {"processor": "A", "cores": 2, "threads": 1, "device": "cpu", "processes": 1}
    return RunStart(step=step, **{**fields, **rest, **changes})  # type: ignore[arg-type]


def test_the_machine_in_words() -> None:
    assert start().machine == "A, 2 cores, 1 thread"
    assert start(cores=1, threads=4, device="B", processes=2).machine == "A, 1 core, 4 threads, B, 2 processes"


def test_a_line_that_was_cut_off_is_left_out_and_a_changed_one_is_found(tmp_path: Path) -> None:
    assert read_starts(tmp_path) == []
    add_start(tmp_path, start())
    path = tmp_path / STARTS
    path.write_text(path.read_text() + path.read_text()[:40])
    add_start(tmp_path, start(7))
    assert read_starts(tmp_path) == [start(), start(7)]
    path.write_text(path.read_text().replace("2026-05", "2025-05"))
    for reads in (lambda: read_starts(tmp_path), lambda: add_start(tmp_path, start(8))):
        with pytest.raises(DamagedError, match=r"starts\.jsonl, line 1 is damaged"):
            reads()


@pytest.mark.parametrize("data", [{"step": 0}, {**json.loads(json.dumps(vars(start()))), "cores": "two"}])
def test_a_line_that_says_something_else_is_refused(tmp_path: Path, data: dict[str, object]) -> None:
    append_lines(tmp_path / STARTS, data)
    with pytest.raises(DamagedError, match="line 1 is damaged: it must say step, date, command, headwork, pytorch"):
        read_starts(tmp_path)


@pytest.mark.parametrize(
    ("module", "file", "words", "command"),
    [
        ("headwork.__main__", "/lib/headwork/__main__.py", ["/lib/headwork/__main__.py", "train"], "headwork train"),
        (None, "/venv/bin/headwork", ["/venv/bin/headwork", "train", "a b"], "headwork train 'a b'"),
        ("mine.train", "/home/mine/train.py", ["/home/mine/train.py", "-v"], "python -m mine.train -v"),
        (None, "/home/mine/train.py", ["mine/train.py", "--lr", "1"], "python mine/train.py --lr 1"),
        (None, None, ["/lib/ipykernel_launcher.py", "-f", "kernel.json"], None),
    ],
)
def test_the_command(
    monkeypatch: pytest.MonkeyPatch, module: str | None, file: str | None, words: list[str], command: str | None
) -> None:
    main = ModuleType("__main__")
    main.__spec__ = None if module is None else ModuleSpec(module, None)
    if file is not None:
        main.__file__ = file
    monkeypatch.setattr(sys, "argv", words)
    assert command_line(main) == command
