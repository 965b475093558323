"""Who keeps what a run finds out: figures, checkpoints, the best of them."""

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from headwork.storage.folders import MANIFEST, link_file, sweep, verify
from headwork.storage.lock import locked
from headwork.storage.models import CONFIG, WEIGHTS, load
from headwork.tasks import means
from headwork.training.checkpoints import (
    Progress,
    at_step,
    find_whole,
    load_checkpoint,
    mark_best,
    prune,
    save_checkpoint,
    set_aside,
)
from headwork.training.data_order import Plan
from headwork.training.display import Display
from headwork.training.learner import Learner
from headwork.training.log import Log, Watcher
from headwork.training.run import Run

N_KEPT = 2
"""Checkpoints besides the best: if the newest is damaged, there is one before it."""


class Keeper:
    """Of all processes one writes; the others keep in step."""

    def __init__(
        self,
        run: Run,
        learner: Learner,
        plan: Plan,
        display: Display,
        watchers: Sequence[Watcher] = (),
        wait: Callable[[], object] = lambda: None,
    ) -> None:
        self.run, self.learner, self.plan, self.display, self.watchers = run, learner, plan, display, watchers
        self.wait_for_all, self.writes = wait, plan.rank == 0
        self.log: Log | None = None
        self.leaving = ExitStack()

    def __enter__(self) -> "Keeper":
        folder = self.run.folder
        if (folder / MANIFEST).exists():
            raise ValueError(f"run must be the folder of a run, got {folder}, which is one of its checkpoints")
        if self.writes:
            self.leaving.enter_context(locked(folder))
        self.leaving.callback(self.display.stop)
        return self

    def __exit__(self, *_: object) -> None:
        self.leaving.close()

    def resume(self) -> Progress:
        """The newest checkpoint that is whole, or the beginning."""
        path, problems = find_whole(self.run.folder)
        for problem in problems.values():
            self.display.say(f"{problem}; this checkpoint is not used")
        if path is None and not problems and (self.run.folder / WEIGHTS).exists():
            raise ValueError(
                f"run must have a checkpoint to go on from, got {self.run.folder}, which holds its model and none of "
                "its checkpoints: begin again in another folder"
            )
        began = (self.run.folder / CONFIG).exists()
        progress = Progress() if path is None else load_checkpoint(path, self.learner)
        self.wait_for_all()
        if self.writes:
            for folder in (self.run.folder, self.run.folder / "checkpoints"):
                sweep(folder)
            for damaged in problems:
                set_aside(damaged)
            self.run.write()
            self.keep_best(progress)
            self.log = Log(self.run.folder, progress.step)
            self.leaving.callback(self.log.close)
        if path is not None:
            self.display.say(f"going on from step {progress.step} of {self.plan.n_steps}")
        elif began:
            self.display.say("no checkpoint can be used: beginning again at step 0")
        if progress.step == 0:
            self.watch(0)
        self.display.start(self.plan.n_steps, progress.step)
        return progress

    def evaluated(self, progress: Progress, valid: dict[str, float]) -> None:
        """Write the figures down, and whether they are the best so far."""
        task = self.run.task
        figure = valid[task.metric]
        before = progress.best_value
        is_best = before is None or (figure > before if task.best == "highest" else figure < before)
        if is_best:
            progress.best_step, progress.best_value, progress.n_worse = progress.step, figure, 0
        else:
            progress.n_worse += 1
        figures = {"train": means(progress.shares), "valid": valid}
        progress.shares = {}
        epoch = progress.step / self.plan.steps_per_epoch
        self.display.evaluated(epoch, figures, best=is_best)
        if self.log is not None:
            self.log.write("train", progress.step, epoch, figures["train"], progress.seconds)
            self.log.write("valid", progress.step, epoch, valid, progress.seconds)
            self.watch(progress.step)

    def watch(self, step: int) -> None:
        """Let the watchers look, unless the model is in pieces, so that nobody has it to look at."""
        if self.log is not None and self.plan.training.strategy != "fsdp":
            self.log.show(self.watchers, self.learner.model, step)

    def save(self, progress: Progress) -> None:
        """A checkpoint; those that are neither new nor the best go."""
        save_checkpoint(self.run.folder, self.learner, progress, self.run.files(), writes=self.writes)
        if self.writes:
            if progress.best_step == progress.step:
                self.keep_best(progress)
            prune(self.run.folder, N_KEPT, self.best(progress))
        self.wait_for_all()

    def best(self, progress: Progress) -> Path | None:
        return None if progress.best_step is None else at_step(self.run.folder, progress.best_step)

    def keep_best(self, progress: Progress) -> None:
        """Let the run's folder name and hold the best; again when a run goes on, which may have died before this.

        It is missing if a better one came after the checkpoint from which the run goes on; then that will come again.
        """
        best = self.best(progress)
        if best is not None and best.exists():
            verify(best)
            mark_best(self.run.folder, best)
            link_file(best / WEIGHTS, self.run.folder / WEIGHTS)

    def restore_best(self) -> None:
        """The weights of the best checkpoint, for the last evaluation."""
        self.learner.average = None
        self.learner.load(load(self.run.folder).state_dict())

    def finish(self, progress: Progress, test: dict[str, float]) -> None:
        if self.log is not None:
            assert progress.best_step is not None
            epoch = progress.best_step / self.plan.steps_per_epoch
            self.log.write("test", progress.best_step, epoch, test, progress.seconds)


class Clock:
    """Seconds of training over all starts of a run, and how fast it goes since the last."""

    def __init__(self, progress: Progress) -> None:
        self.begun = time.monotonic()
        self.seconds_before, self.first_step = progress.seconds, progress.step

    @property
    def seconds(self) -> float:
        return self.seconds_before + time.monotonic() - self.begun

    def steps_per_second(self, step: int) -> float:
        return (step - self.first_step) / (time.monotonic() - self.begun)
