"""What the user sees while a model learns: a bar in a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Protocol, TextIO, runtime_checkable

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from headwork.metric import Metric
from headwork.processes import is_first_process
from headwork.tables import one_line
from headwork.tasks import Task, metrics_by_name

Values = Mapping[str, Mapping[str, float]]
"""The metrics of each split, by name."""
LINE_EVERY = 15.0
"""Seconds between plain lines within an epoch."""


@runtime_checkable
class Display(Protocol):
    """Shows what happens."""

    def start(self, n_steps: int, step: int) -> None: ...

    def stepped(self, step: int, loss: float, examples_per_second: float) -> None: ...

    def evaluated(self, epoch: float, values: Values, task: Task, *, best: bool) -> None: ...

    def say(self, text: str) -> None: ...

    def stop(self) -> None: ...


class Quiet:
    """Shows nothing; the others say an evaluation in one line."""

    def start(self, n_steps: int, step: int) -> None:
        """Nothing."""

    def stepped(self, step: int, loss: float, examples_per_second: float) -> None:
        """Nothing."""

    def evaluated(self, epoch: float, values: Values, task: Task, *, best: bool) -> None:
        self.say(in_words(epoch, values, task, best))

    def say(self, text: str) -> None:
        """Nothing."""

    def stop(self) -> None:
        """Nothing."""


class Lines(Quiet):
    """Plain lines, for a file or a log."""

    def __init__(self, file: TextIO | None = None) -> None:
        self.file = file or sys.stderr
        self.n_steps = 0
        self.last_line = self.begun = time.monotonic()
        self.first_step = 0

    def start(self, n_steps: int, step: int) -> None:
        self.n_steps, self.first_step, self.begun = n_steps, step, time.monotonic()

    def stepped(self, step: int, loss: float, examples_per_second: float) -> None:
        if time.monotonic() - self.last_line > LINE_EVERY:
            self.say(
                f"step {step}/{self.n_steps}  loss {loss:.4f}  {examples_per_second:,.0f} examples/s  "
                f"{self._time_left(step)} left"
            )

    def say(self, text: str) -> None:
        print(one_line(text), file=self.file, flush=True)
        self.last_line = time.monotonic()

    def _time_left(self, step: int) -> str:
        """As h:mm:ss, so that nobody takes minutes for hours."""
        done = step - self.first_step
        seconds = (time.monotonic() - self.begun) / max(done, 1) * (self.n_steps - step)
        return str(timedelta(seconds=int(seconds)))


class Bar(Quiet):
    """A bar with loss, metric, examples per second and time left; a line for each evaluation above it."""

    def __init__(self, console: Console | None = None) -> None:
        self.progress = Progress(
            TextColumn("step"),
            MofNCompleteColumn(),
            BarColumn(),
            TextColumn("{task.fields[metrics]}"),
            TimeRemainingColumn(),
            console=console or Console(stderr=True),
        )
        self.task: TaskID | None = None

    def start(self, n_steps: int, step: int) -> None:
        self.progress.start()
        self.task = self.progress.add_task("training", total=n_steps, completed=step, metrics="")

    def stepped(self, step: int, loss: float, examples_per_second: float) -> None:
        assert self.task is not None
        metrics = f"loss {loss:.4f}  {examples_per_second:,.0f} examples/s"
        self.progress.update(self.task, completed=step, metrics=metrics)

    def say(self, text: str) -> None:
        self.progress.console.print(one_line(text), highlight=False, markup=False)

    def stop(self) -> None:
        self.progress.stop()


def make_display() -> Display:
    """A bar in a terminal, lines in a notebook or a file; of many processes the first speaks for all."""
    if not is_first_process():
        return Quiet()
    return Bar() if sys.stderr.isatty() else Lines()


def in_words(epoch: float, values: Values, task: Task, best: bool) -> str:
    """One evaluation in one line.

    >>> values = {"train": {"loss": 0.5, "accuracy": 0.91}, "valid": {"loss": 0.25, "accuracy": 0.975}}
    >>> in_words(3, values, hw.tasks.Classification(("cat", "dog")), best=True)
    'epoch 3    train: loss 0.5000, accuracy 91.00 %    valid: loss 0.2500, accuracy 97.50 %    best so far'
    """
    splits = [f"{split}: {show(of_split, task)}" for split, of_split in values.items()]
    return "    ".join([f"epoch {epoch:.4g}", *splits, *(["best so far"] if best else [])])


def show(values: Mapping[str, float], task: Task) -> str:
    """Metrics with their names, as the task says that people read them."""
    known = metrics_by_name(task)
    metrics = [(known.get(name, Metric(name)), value) for name, value in values.items()]
    return ", ".join(f"{metric.label} {metric.show(value)}" for metric, value in metrics)
