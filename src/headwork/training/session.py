"""The files of a run while it is trained."""

import math
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import cast

from headwork.batches import Batch, n_tokens
from headwork.metric import Logged, MetricRow
from headwork.storage.folders import MANIFEST, locked, sweep, verify
from headwork.storage.models import CONFIG, WEIGHTS, check_tensors, find_model, read_tensors
from headwork.training.checkpoints import (
    Progress,
    at_step,
    best_checkpoint,
    find_whole,
    is_whole,
    keep_best,
    load_checkpoint,
    prune,
    save_checkpoint,
    set_aside,
)
from headwork.training.display import Display
from headwork.training.learner import Learner
from headwork.training.plan import Plan
from headwork.training.recorder import Recorder, Watcher
from headwork.training.run import Run
from headwork.training.starts import RunStart, add_start


class Session:
    """The files of a run while it is trained: locked, resumed, recorded, saved. Of all processes one writes."""

    def __init__(self, run: Run, learner: Learner, plan: Plan, display: Display, wait: Callable[[], object]) -> None:
        self.run, self.learner, self.plan, self.display, self.wait_for_all = run, learner, plan, display, wait
        self.writes, self.recorder, self.leaving = plan.rank == 0, cast(Recorder | None, None), ExitStack()

    def __enter__(self) -> "Session":
        folder = self.run.folder
        if (folder / MANIFEST).exists():
            raise ValueError(f"run must be the folder of a run, got {folder}, which is one of its checkpoints")
        with ExitStack() as stack:
            if self.writes:
                stack.enter_context(locked(folder))
                self.run.check_folder()
            stack.callback(self.display.stop)
            self.leaving = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.leaving.close()

    def resume(self, watchers: Sequence[Watcher] = ()) -> Progress:
        """The newest checkpoint that is whole, or the beginning."""
        folder = self.run.folder
        path, problems = find_whole(folder)
        for problem in problems.values():
            self.display.say(f"{problem}; this checkpoint is not used")
        began = (folder / CONFIG).exists()
        if path is None:
            self.check_can_begin(is_damaged=bool(problems))
        progress = Progress() if path is None else load_checkpoint(path, self.learner)
        self.check_best(progress, is_damaged=bool(problems))
        self.wait_for_all()
        if self.writes:
            for each in (folder, folder / "checkpoints"):
                sweep(each)
            for damaged in problems:
                set_aside(damaged)
            self.run.write()
            add_start(folder, RunStart.now(progress.step, self.device, self.plan.n_processes))
            keep_best(folder, progress)
            self.recorder = Recorder(folder, progress.step, watchers)
            self.leaving.callback(self.recorder.close)
        if path is None and self.run.own_weights:  # the seed cannot bring them back
            self.save(progress)
        if path is not None and progress.step == self.plan.n_steps:
            longer = f"a new run with `--from {folder}` trains its model longer"
            self.display.say(f"finished at step {progress.step}: {longer}")
        elif path is not None:
            self.display.say(f"going on from step {progress.step} of {self.plan.n_steps}")
        elif began:
            self.display.say("no checkpoint can be used: beginning again at step 0")
        if progress.step == 0:
            self.watch(0)
        self.display.start(self.plan.n_steps, progress.step)
        return progress

    @property
    def device(self) -> str:
        return next((parameter.device.type for parameter in self.learner.model.parameters()), "cpu")

    def check_best(self, progress: Progress, *, is_damaged: bool) -> None:
        """Forget a best that is lost: those that come will be compared with each other.

        If a checkpoint after this one is damaged, a better one may have come after this one, and will come again.
        """
        best = best_checkpoint(self.run.folder, progress)
        if best is None or is_whole(best) or (is_damaged and not best.exists()):
            return
        self.display.say(f"the best checkpoint, {best}, is damaged or missing: the best is chosen again from here on")
        progress.forget_best()

    def has_best(self, progress: Progress) -> bool:
        best = best_checkpoint(self.run.folder, progress)
        return best is not None and best.exists()

    def make_best(self, progress: Progress, valid: dict[str, float]) -> None:
        """Let the best be where the run stands."""
        progress.forget_best()
        metric = self.run.task.metrics[0]
        progress.after_evaluation(metric, valid[metric.name])
        self.save(progress)

    def check_can_begin(self, *, is_damaged: bool) -> None:
        folder, again = self.run.folder, "begin again in another folder"
        if not is_damaged and (folder / WEIGHTS).exists():
            raise ValueError(
                f"run must have a checkpoint to go on from, got {folder}, which holds its model and none of "
                f"its checkpoints: {again}"
            )
        if is_damaged and self.run.own_weights:
            raise ValueError(
                f"run must have a whole checkpoint, since it began with weights of its own, got none: {again}"
            )

    def evaluated(self, progress: Progress, valid: dict[str, float]) -> None:
        """Record the metrics, and whether they are the best so far."""
        metric = self.run.task.metrics[0]
        is_best, train = progress.after_evaluation(metric, valid[metric.name])
        self.display.evaluated(
            progress.step / self.plan.steps_per_epoch, {"train": train, "valid": valid}, self.run.task, best=is_best
        )
        self.record("train", progress.step, train, progress.seconds)
        self.record("valid", progress.step, valid, progress.seconds)
        self.watch(progress.step)

    def stepped(self, progress: Progress, values: dict[str, float]) -> None:
        """Record a training step; in float16 its gradient may be infinite, and is then left out."""
        finite = {name: value for name, value in values.items() if math.isfinite(value)}
        self.record("step", progress.step, finite, progress.seconds)

    def record(self, split: Logged, step: int, values: dict[str, float], seconds: float) -> None:
        if self.recorder is not None:
            self.recorder.record(MetricRow(step, step / self.plan.steps_per_epoch, split, values, seconds))

    def watch(self, step: int) -> None:
        """Call the watchers, unless the model is sharded, so that no process has it."""
        if self.recorder is not None and self.plan.training.strategy != "fsdp":
            self.recorder.watch(self.learner.model, step)

    def save(self, progress: Progress) -> None:
        """Write a checkpoint; those that are neither new nor the best are removed."""
        folder = self.run.folder
        if self.recorder is not None:
            self.recorder.write_waiting()
        save_checkpoint(folder, self.learner, progress, self.run.files(), writes=self.writes)
        if self.writes:
            if progress.best_step == progress.step:
                keep_best(folder, progress)
            prune(folder, at_step(folder, progress.step, progress.part), best_checkpoint(folder, progress))
        self.wait_for_all()

    def restore_best(self) -> None:
        """Load the weights of the best checkpoint, for the last evaluation."""
        best = find_model(self.run.folder)
        verify(best, (WEIGHTS,))
        self.learner.ema = None
        tensors = read_tensors(best / WEIGHTS)
        check_tensors(tensors, self.learner.model.state_dict(), best / WEIGHTS)
        self.learner.load(tensors)


class Clock:
    """Seconds of training over all starts of a run, the speed since the last start, and that of one step."""

    def __init__(self, progress: Progress, n_processes: int = 1) -> None:
        self.begun = self.step_begun = time.monotonic()
        self.seconds_before, self.first_step, self.n_processes = progress.seconds, progress.step, n_processes

    @property
    def seconds(self) -> float:
        return self.seconds_before + time.monotonic() - self.begun

    def steps_per_second(self, step: int) -> float:
        elapsed = time.monotonic() - self.begun
        return (step - self.first_step) / elapsed if elapsed > 0 else 0.0

    def next_step(self) -> None:
        """A step begins here: to wait for its batch is part of it, the evaluation before it is not."""
        self.step_begun = time.monotonic()

    def speed(self, n_examples: int, parts: Sequence[Batch]) -> dict[str, float]:
        """Examples, and tokens if these are text, per second of the step that has just ended."""
        seconds = time.monotonic() - self.step_begun
        counts = {"examples": n_examples, "tokens": self.n_processes * sum(map(n_tokens, parts))}
        return {f"{what}_per_second": n / seconds for what, n in counts.items() if n and seconds > 0}
