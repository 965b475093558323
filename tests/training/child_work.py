"""What children are told to do, besides the command line."""

import resource
import time
from pathlib import Path

from headwork.cli import main
from headwork.training import display, open_run, train
from headwork.training.display import Lines


def train_run(folder: str) -> None:
    train(open_run(Path(folder)), Lines())


def with_small_files(n_bytes: int, words: list[str]) -> int:
    """The command line on a disk where no file can be larger than that: it fails as a full one does, while writing."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, resource.RLIM_INFINITY))
    return main(words)


class Slow(Lines):
    """Takes its time over the third step."""

    def stepped(self, step: int, loss: float, examples_per_second: float) -> None:
        if step == 3:
            self.say("thinking")
            time.sleep(300)


def slowly(words: list[str]) -> int:
    display.make_display = Slow
    return main(words)
