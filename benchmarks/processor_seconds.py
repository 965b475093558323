"""Train a recipe by its own step, and count the processor seconds of training alone: other programs do not change them.

Evaluations and the reading of data before the first step are not counted; the making of batches is.
"""

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from headwork.batches import Batch
from headwork.data import Dataset
from headwork.functional.denormals import flush_denormals
from headwork.seeds import seed_everything
from headwork.training.checkpoints import Progress
from headwork.training.config import RunConfig
from headwork.training.fit import fit_to_data, task_for
from headwork.training.loop import build_model, evaluate, take_step
from headwork.training.machine import keep_memory, make_fabric, make_learner
from headwork.training.plan import Plan, training_batches
from headwork.training.stopping import StopRequest

N_TRIED = 12
"""Steps from which the seconds of one are taken, the first third of them left out."""


class Training:
    """A run in memory, without a folder: `go_on` takes steps, `valid` evaluates."""

    def __init__(self, config: RunConfig, data: Dataset) -> None:
        keep_memory()
        config = replace(config, model=fit_to_data(config.model, data))
        self.config, self.data, self.task = config, data, task_for(config.training, data)
        self.fabric = make_fabric(config.training)
        self.learner = make_learner(build_model(config), config.training, self.fabric)
        self.plan = Plan.of(data.train, config.training)
        self.batches = training_batches(self.plan, data.train, 0)
        self.progress, self.stop, self.seconds = Progress(), StopRequest(), 0.0

    @property
    def model(self) -> nn.Module:
        return self.learner.model

    @property
    def is_over(self) -> bool:
        return self.progress.step >= self.plan.n_steps

    @flush_denormals()
    def go_on(self, seconds: float) -> None:
        """Take steps for so many processor seconds, or to the end of the plan."""
        end = self.seconds + seconds
        while self.seconds < end and not self.is_over:
            begun = time.process_time()
            parts: list[Batch] = next(self.batches)
            take_step(self.fabric, self.learner, self.task, parts, self.plan, self.progress, self.stop)
            self.seconds += time.process_time() - begun

    def valid(self, part: str = "valid") -> dict[str, float]:
        """The metrics of the averaged weights, if there are such, on a part of the data."""
        examples = getattr(self.data, part)
        size = max(self.config.training.batch_size, 64)
        return evaluate(self.fabric, self.learner, self.task, examples, size, self.progress.step).metrics


def lasting(config: RunConfig, data: Dataset, seconds: float) -> RunConfig:
    """The run with as many steps as take so many processor seconds, by a trial of a few."""
    training = replace(config.training, epochs=None, steps=10**6)
    trial = Training(replace(config, training=training), data)
    times = []
    for _ in range(N_TRIED):
        before = trial.seconds
        trial.go_on(1e-9)
        times.append(trial.seconds - before)
    of_step = sum(times[N_TRIED // 3 :]) / len(times[N_TRIED // 3 :])
    seed_everything(config.training.seed)
    return replace(config, training=replace(training, steps=max(round(seconds / of_step), 10)))


def curve(training: Training, n_points: int, score: Callable[[Training], dict[str, float]]) -> list[dict[str, float]]:
    """Train to the end, and score after each of `n_points` equal parts of the steps."""
    points = []
    for point in range(1, n_points + 1):
        target = round(training.plan.n_steps * point / n_points)
        while training.progress.step < target:
            training.go_on(1e-9)
        points.append({"step": training.progress.step, "seconds": training.seconds, **score(training)})
    return points


class Rows(list[dict[str, Any]]):
    """What was trained, one row for each run, kept in a file of JSON lines: what is in it is not trained again.

    All runs of a file have the same conditions, such as the seconds that were planned.
    """

    def __init__(self, file: Path, **conditions: object) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        super().__init__(json.loads(line) for line in (file.read_text("utf-8").splitlines() if file.exists() else []))
        self.file, self.conditions = file, {**conditions, "threads": torch.get_num_threads()}
        for row in self:
            others = {name: row.get(name) for name in self.conditions}
            if others != self.conditions:
                raise SystemExit(f"{file} has runs of {others}, not of {self.conditions}: give another --out")

    def have(self, **keys: object) -> bool:
        return any(all(row[key] == value for key, value in keys.items()) for row in self)

    def add(self, row: dict[str, Any]) -> None:
        row = row | self.conditions
        self.append(row)
        print(row, flush=True)
        with self.file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(row) + "\n")
