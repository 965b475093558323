"""Numbers that are not normal are taken for 0 in all threads, by the command line and in training; a switch."""

import os
import subprocess
import sys

import pytest
import torch

from headwork.cli.convert import Convert
from headwork.cli.evaluate import Evaluate
from headwork.cli.generate import Generate
from headwork.cli.predict import Predict
from headwork.cli.translate import Translate
from headwork.functional.denormals import SWITCH, flush_denormals, flushes_denormals

can_flush = torch.set_flush_denormal(False)
pytestmark = pytest.mark.skipif(not can_flush, reason="this processor cannot take denormal numbers for 0")

PROBE = """
import torch
torch.set_num_threads(4)

from headwork.cli.arguments import without_denormals

class Probe:
    @without_denormals()
    def run(self):
        halves = torch.full((4_000_000,), torch.finfo(torch.float32).tiny) / 2  # by all threads together
        print(int((halves != 0).sum()))

from headwork.cli import commands
commands.parse = lambda arguments: Probe()
assert commands.main(["probe"]) == 0
"""


@pytest.mark.parametrize(
    ("switch", "kept"), [(None, 0), pytest.param("1", 0, marks=pytest.mark.slow), ("0", 4_000_000)]
)
def test_the_command_line_flushes_in_every_thread(switch: str | None, kept: int) -> None:
    environment = {name: value for name, value in os.environ.items() if name != SWITCH}
    environment |= {} if switch is None else {SWITCH: switch}
    done = subprocess.run([sys.executable, "-c", PROBE], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == kept


@pytest.mark.parametrize("command", [Convert, Evaluate, Generate, Predict, Translate])
def test_commands_that_compute_flush(command: type) -> None:
    assert hasattr(command.run, "__wrapped__")


@pytest.mark.parametrize("before", [False, True])
def test_afterwards_it_is_as_before(before: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SWITCH, raising=False)
    torch.set_flush_denormal(before)
    try:
        with flush_denormals():
            assert flushes_denormals()
        assert flushes_denormals() == before
        monkeypatch.setenv(SWITCH, "0")
        with flush_denormals():
            assert not flushes_denormals()
        assert flushes_denormals() == before
    finally:
        torch.set_flush_denormal(False)


def test_a_switch_that_is_neither_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "yes")
    with pytest.raises(ValueError, match=f"{SWITCH} must be 0 or 1, got 'yes'"), flush_denormals():
        pass
