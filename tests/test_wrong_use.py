"""Each of the wrong commands and calls is refused in a sentence."""

from pathlib import Path

import pytest

from tests.wrong_use import prepare, try_call, try_command, wrong_calls, wrong_commands


@pytest.fixture
def among_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(tmp_path)
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("among_files", "as_users_run_it")
def test_wrong_commands() -> None:
    commands = wrong_commands()
    assert len(commands) >= 200
    assert {" ".join(words): wrong for words in commands if (wrong := try_command(words))} == {}


@pytest.mark.usefixtures("among_files", "as_users_run_it")
def test_wrong_calls() -> None:
    calls = wrong_calls()
    assert len(calls) >= 120
    assert {name: wrong for name, call in calls.items() if (wrong := try_call(call))} == {}
