"""Real signals to real processes: they save, say how to go on, and can be stopped at once."""

import os
import signal
import time
from pathlib import Path

import pytest
from tests.training.conftest import Children
from tests.training.small_runs import differences, read_log, small_run

from headwork.training import Run, StoppedError, StopRequest
from headwork.training.checkpoints import checkpoints, find_whole


def endless(folder: Path, **changes: object) -> Run:
    """A run that is still at it when the signal comes."""
    run = small_run(folder, "translator", steps=10**6, evaluate_every=10**6, save_every=20, dropout=0.1, **changes)
    folder.mkdir()
    run.write()
    return run


def newest(run: Run) -> str:
    path, problems = find_whole(run.folder)
    assert not problems
    return "" if path is None else path.name


@pytest.mark.slow
def test_every_signal_to_one_run(tmp_path: Path, children: Children) -> None:
    """Stopped by Ctrl-C, by SIGTERM, by SIGTERM to the whole group, and killed: it goes on after each."""
    run = endless(tmp_path / "run", workers=1, accumulate=3)
    for number, group, code in (
        (signal.SIGINT, False, 130),
        (signal.SIGTERM, False, 143),
        (signal.SIGTERM, True, 143),
        (signal.SIGINT, True, 130),
        (signal.SIGKILL, False, -9),
    ):
        before = newest(run)
        child = children.headwork("train", "--resume", run.folder)
        child.wait_until(lambda before=before: newest(run) > before)
        child.kill(number, group=group)
        assert child.wait() == code, child.said
        step = int(newest(run)[5:13])
        if code > 0:
            where = f"saved at step {step} of 1000000; go on with `headwork train --resume {run.folder}`"
            assert f"stopped by {number.name} and {where}" in child.said
            assert "Traceback" not in child.said
        if before:
            assert f"going on from step {int(before[5:13])} of 1000000" in child.said


@pytest.mark.usefixtures("heard")
def test_only_a_second_ctrl_c_is_impatience() -> None:
    """Whatever comes before and between."""
    stop = StopRequest()
    with pytest.raises(KeyboardInterrupt), stop.listening():  # noqa: PT012
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
            signal.raise_signal(number)
        assert stop.signal_number == signal.SIGTERM
        signal.raise_signal(signal.SIGINT)


@pytest.mark.slow
def test_a_second_ctrl_c_stops_at_once(tmp_path: Path, children: Children) -> None:
    run = endless(tmp_path / "run")
    child = children.start("tests.training.child_work:slowly", ["train", "--resume", str(run.folder)])
    child.wait_until(lambda: "thinking" in child.said)
    child.kill(signal.SIGINT)
    child.kill(signal.SIGTERM)  # as whoever started many processes passes it on
    child.wait_until(lambda: "heard SIGINT" in child.said and "heard SIGTERM" in child.said)
    time.sleep(0.3)  # neither of them ends it
    assert "stopped" not in child.said
    child.kill(signal.SIGINT)
    assert child.wait() == 130, child.said
    how = f"go on with `headwork train --resume {run.folder}`"
    assert f"headwork: stopped at once, without saving; {how}\n" in child.said
    assert checkpoints(run.folder) == []


def test_two_processes_do_not_work_on_one_run(tmp_path: Path, children: Children) -> None:
    run = endless(tmp_path / "run")
    first = children.headwork("train", "--resume", run.folder)
    first.wait_until(lambda: newest(run))
    second = children.headwork("train", "--resume", run.folder)
    assert second.wait() == 1
    assert f"another process is at work on {run.folder}" in second.said
    first.kill(signal.SIGTERM)
    assert first.wait() == 143


def test_a_fresh_process_goes_on_bitwise(tmp_path: Path, children: Children) -> None:
    """A real signal, at whatever moment it comes, and the same end as if it had not."""
    settings = {"steps": 120, "evaluate_every": 50, "accumulate": 3, "dropout": 0.1, "ema": 0.9, "workers": 2}
    runs = [small_run(tmp_path / name, "gpt", **settings) for name in ("alone", "stopped")]
    for run in runs:
        run.folder.mkdir()
        run.write()
    alone = children.start("tests.training.child_work:train_run", runs[0].folder)
    stopped = children.start("tests.training.child_work:train_until_stopped", runs[1].folder, 110)
    stopped.wait_until(lambda: newest(runs[1]))
    stopped.kill(signal.SIGTERM)
    assert stopped.wait() == 70
    assert "StoppedError" in stopped.said
    assert children.start("tests.training.child_work:train_run", runs[1].folder).wait() == 0
    assert alone.wait() == 0
    assert differences(runs[1].folder, runs[0].folder) == []
    assert sum(row["split"] != "step" for row in read_log(runs[0].folder)) == 7


@pytest.mark.usefixtures("heard")
def test_a_request_is_heard_only_while_listening() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    stop = StopRequest()
    with stop.listening():
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
    assert stop.signal_number == signal.SIGTERM
    stop = StopRequest()
    with pytest.raises(KeyboardInterrupt), stop.listening():  # noqa: PT012
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
    assert {number: signal.getsignal(number) for number in before} == before


def test_exit_codes_are_those_of_the_shell() -> None:
    assert StoppedError(signal.SIGINT).exit_code == 130
    assert StoppedError(signal.SIGTERM).exit_code == 143
