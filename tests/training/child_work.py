"""What children are told to do, besides the command line."""

import os
import resource
import signal
import time
from pathlib import Path
from types import FrameType

from tests.training.small_runs import StopAfter

from headwork import training
from headwork.cli import main
from headwork.training import StoppedError, StopRequest, display, loop, open_run
from headwork.training.display import Lines


def train_run(folder: str) -> None:
    training.train_run(open_run(Path(folder)), Lines())


class Waiting(Lines):
    """Does not end before a signal comes, however late that is."""

    def __init__(self, request: StopRequest, last_step: int) -> None:
        super().__init__()
        self.request, self.last_step = request, last_step

    def stepped(self, step: int, loss: float, examples_per_second: float) -> None:
        while step == self.last_step and self.request.signal_number is None:
            time.sleep(0.01)


def train_until_stopped(folder: str, last_step: int) -> None:
    stop = StopRequest()
    training.train_run(open_run(Path(folder)), Waiting(stop, last_step), stop)


def with_small_files(n_bytes: int, words: list[str]) -> int:
    """The command line on a disk where no file can be larger than that: it fails as a full one does, while writing."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, resource.RLIM_INFINITY))
    return main(words)


class Slow(Lines):
    """Takes its time over the third step."""

    def stepped(self, step: int, loss: float, examples_per_second: float) -> None:
        if step == 3:
            self.say("thinking")
            for _ in range(30_000):  # a signal that another thread receives does not end a sleep
                time.sleep(0.01)


class Telling(StopRequest):
    """Says what it hears: two signals of a kind are one if the second comes before the first was heard."""

    def _hear(self, number: int, frame: FrameType | None) -> None:
        os.write(1, f"heard {signal.Signals(number).name}\n".encode())
        super()._hear(number, frame)


def slowly(words: list[str]) -> int:
    display.make_display = Slow
    loop.StopRequest = Telling
    return main(words)


def train_to_the_seventh_step(folder: str) -> int:
    run = open_run(Path(folder))
    try:
        training.train_run(run, Lines(), StopAfter(7))
    except StoppedError as error:
        return error.exit_code
    return 0
