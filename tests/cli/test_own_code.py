"""The command line with a module of the user's own: what is wrong in it is told from what is asked wrongly."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import headwork as hw
from headwork.cli import main
from headwork.cli.arguments import Imports
from headwork.cli.commands import COMMANDS
from headwork.recipes import find_recipe
from headwork.storage.sealed_json import SEAL, sealed

ROOT = Path(__file__).parent.parent.parent

MODULE = """
from dataclasses import dataclass

import torch
from torch import nn

import headwork as hw
from headwork.training import RunConfig, TrainingConfig


@dataclass(frozen=True)
class Numbers:
    words: str = "70"

    def load(self, seed: int = 0) -> hw.data.Dataset:
        n = int(self.words)
        parts = [hw.data.TorchExamples([(torch.ones(5), torch.ones(1))] * n) for _ in range(3)]
        return hw.data.Dataset(*parts, task=hw.tasks.Regression())


class Net(nn.Module):
    def __init__(self, d_in: int = 5, mistake: str = "none") -> None:
        super().__init__()
        self.d_in, self.mistake = d_in, mistake
        self.linear = nn.Linear(d_in, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.mistake == "key":
            return x * {}["scale"]
        if self.mistake == "late" and self.training:
            raise ValueError("five of them are odd")
        return self.linear(x)


def own_numbers() -> RunConfig:
    return RunConfig(data=Numbers(), model=Net(), training=TrainingConfig(epochs=1, batch_size=35))


def wrong_use() -> RunConfig:
    return hw.models.DecoderConfig(vocab=-3)
"""


def line_of(text: str) -> int:
    return 1 + next(i for i, line in enumerate(MODULE.splitlines()) if text in line)


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Strangers work in a folder of their own, and nothing of it is left for other tests."""
    (tmp_path / "stranger.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield tmp_path / "stranger.py"
    for name in ("stranger", "broken", "my_module"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("setting", "line", "what"),
    [
        ("data.words=seventy", "int(self.words)", "ValueError: invalid literal for int() with base 10: 'seventy'"),
        ("model.mistake=late", "five of them", "ValueError: five of them are odd"),
    ],
)
def test_an_error_in_the_users_code_says_where(
    setting: str, line: str, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "stranger:own_numbers", "--out", "run", "--set", setting]) == 1
    said = capsys.readouterr().err
    assert f"headwork: failed: stranger.py:{line_of(line)}: {what}\n" in said
    assert f'stranger.py", line {line_of(line)}, in ' in said
    assert "commands.py" not in said  # ours are not shown


def test_an_error_of_the_trial_batch_names_its_type_and_place(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "stranger:own_numbers", "--out", "run", "--set", "model.mistake=key"]) == 1
    said = capsys.readouterr().err
    assert "when Regression scored a Net on a batch of two examples" in said
    assert f": KeyError: 'scale' (stranger.py:{line_of('scale')})\n" in said
    assert not Path("run").exists()


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("x = 1\ndef f(:\n", "broken.py:2: SyntaxError: invalid syntax"),
        ("import not_there_at_all\n", "broken.py:1: ModuleNotFoundError: No module named 'not_there_at_all'"),
    ],
)
def test_a_module_that_cannot_be_imported(text: str, what: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("broken.py").write_text(text)
    assert main(["train", "broken:recipe"]) == 1
    assert f"failed: {what}" in capsys.readouterr().err


def test_own_code_that_ends_the_program_has_not_done_what_was_asked(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "sys:exit"]) == 1
    assert "failed: your own code ended the program, with exit code None" in capsys.readouterr().err


def test_what_we_refuse_is_still_asked_wrongly_and_says_who_called(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "stranger:wrong_use"]) == 2
    said = capsys.readouterr().err
    assert f"vocab must be 1 or more, got -3 (called in stranger.py:{line_of('vocab=-3')})" in said


def test_the_module_and_the_commands_of_the_document_run(capsys: pytest.CaptureFixture[str]) -> None:
    section = (ROOT / "docs/own.md").read_text(encoding="utf-8").partition("## From the command line")[2]
    block = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert block is not None
    Path("my_module.py").write_text(block[1])
    commands = re.findall(r"^\$ headwork (.*)$", section, re.MULTILINE)
    assert len(commands) == 3
    for command in commands:
        assert main(shlex.split(command)) == 0, command
    assert "runs/my-recipe on 100 test examples" in capsys.readouterr().out


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs, of one and of two epochs, from a module that no later test has imported."""
    home = tmp_path_factory.mktemp("home")
    (home / "stranger.py").write_text(MODULE)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        patch.setattr(sys, "path", ["", *sys.path])
        config = find_recipe("stranger:own_numbers")
        assert config.name == "own-numbers"  # for want of another: that of the function
        for name, n_epochs in (("shorter", 1), ("longer", 2)):
            training = replace(config.training, epochs=n_epochs)
            hw.train(config.model, config.data, training, out=home / "runs" / name)
    sys.modules.pop("stranger")
    return home / "runs"


def test_compare_needs_no_class_of_the_users(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [str(trained / name) for name in ("shorter", "longer")]
    assert main(["compare", *paths]) == 0
    without = capsys.readouterr()
    assert "stranger" not in sys.modules
    assert main(["compare", *paths, "--import", "stranger"]) == 0
    assert capsys.readouterr() == without
    assert re.search(r"training\.epochs +1 +2", without.out)


def test_compare_does_not_guess_what_is_best_in_a_task_of_the_users(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shutil.copytree(trained / "longer", tmp_path / "other")
    about = json.loads((folder / "config.json").read_text())
    about.pop(SEAL)
    about["task"] = {"kind": "OfMyOwn"}
    (folder / "config.json").write_text(sealed(about))
    assert main(["compare", str(folder)]) == 0
    said = capsys.readouterr()
    assert "the loss is compared: a task is of your own, and --import my_module" in said.err
    assert "best validation loss" in said.out
    (folder / "config.json").write_text(sealed(about)[:-9] + "}")
    assert main(["compare", str(folder)]) != 0


def test_convert_takes_the_users_module(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["convert", str(trained / "longer"), "--out", "there"]
    assert main(words) == 2
    assert "or --import my_module" in capsys.readouterr().err
    assert main([*words, "--import", "stranger"]) == 2
    assert "folder must hold a model of images, got a Net" in capsys.readouterr().err


def test_every_command_of_a_run_or_model_takes_the_users_module() -> None:
    without = {name for name, command in COMMANDS.items() if not issubclass(command, Imports)}
    assert without == {"models", "lab", "check"}


def test_a_model_without_a_description(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(trained / "longer")
    assert main(["trace", run, "--import", "stranger"]) == 2
    assert "model must have a description" in (said := capsys.readouterr().err)
    assert "in Python hw.trace(model, x)" in said
    assert main(["predict", run, "x.png", "--import", "stranger"]) == 2
    assert "a Net for the task Regression, without a description that says" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "message"),
    [("stranger.py", "got 'stranger.py': leave out .py, 'stranger' ("), ("strange", "got 'strange' (")],
)
def test_a_module_that_is_not_found(trained: Path, name: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(trained / "longer"), "--import", name]) == 2
    assert f"module must be importable, {message}looked in this folder, " in capsys.readouterr().err


def test_files_in_the_folder_are_not_mistaken_for_libraries(tmp_path: Path) -> None:
    """`python -m` looks there first: a hand-in called tyro.py would run with the rights of the teacher."""
    (tmp_path / "tyro.py").write_text("raise SystemExit(7)\n")
    command = [sys.executable, "-m", "headwork", "models"]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode == 0
