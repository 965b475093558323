"""Everything a run needs to be resumed bit for bit, in folders that are whole or not there at all.

The model is in safetensors as `hw.load` reads it, the rest in safetensors and JSON: nothing that could execute code.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from shutil import rmtree
from typing import Any

import torch
from torch import Tensor

from headwork.metric import Metric, MetricSum, MetricSums
from headwork.seeds import rng_states, set_rng_states
from headwork.storage.folders import MANIFEST, link_file, new_folder, replace_file, verify
from headwork.storage.models import (
    BEST,
    WEIGHTS,
    check_finite,
    check_tensors,
    n_bytes,
    read_tensors,
    write_json,
    write_tensors,
)
from headwork.storage.sealed_json import DamagedError, read_json, sealed
from headwork.training.learner import Learner
from headwork.training.nonfinite import NonFiniteError

REST, STATE = "training.safetensors", "state.json"
OPTIMISER, GRADIENT, OWN, CHANCES = "optimiser.", "gradient.", "own.", "random.torch"
"""What the names in `training.safetensors` begin with."""
N_KEPT = 2
"""Checkpoints besides the best: if the newest is damaged, there is one before it."""


@dataclass
class Progress:
    """Where a run stands, which its steps, evaluations and checkpoints share; changed by its own methods only."""

    step: int = 0
    part: int = 0
    """How many parts of the next step have been accumulated already."""
    of_parts: MetricSums = field(default_factory=MetricSums)
    """On these parts, so that the loss of a step is that of all its parts, wherever the run was stopped."""
    metrics: MetricSums = field(default_factory=MetricSums)
    """On the training data, since the last evaluation."""
    best_step: int | None = None
    best_value: float | None = None
    n_worse: int = 0
    """Evaluations since the best one."""
    seconds: float = 0.0

    def after_part(self, scores: Mapping[str, MetricSum]) -> None:
        self.metrics.add(scores)
        self.of_parts.add(scores)
        self.part += 1

    def after_step(self) -> None:
        self.step, self.part, self.of_parts = self.step + 1, 0, MetricSums()

    def after_evaluation(self, metric: Metric, value: float) -> tuple[bool, dict[str, float]]:
        """Whether it is the best so far, and the training metrics since the last evaluation, which start again."""
        train, self.metrics = self.metrics.means(), MetricSums()
        if metric.is_better(value, self.best_value):
            self.best_step, self.best_value, self.n_worse = self.step, value, 0
            return True, train
        self.n_worse += 1
        return False, train

    def forget_best(self) -> None:
        """Its checkpoint is lost: from here on the best is chosen again."""
        self.best_step, self.best_value, self.n_worse = None, None, 0

    def at(self, seconds: float) -> None:
        self.seconds = seconds

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"metrics": self.metrics.sums, "of_parts": self.of_parts.sums}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Progress":
        pairs = {
            key: {name: (float(total), float(weight)) for name, (total, weight) in data[key].items()}
            for key in ("metrics", "of_parts")
        }
        progress = cls(**{**data, **{key: MetricSums(sums) for key, sums in pairs.items()}})
        best, value = progress.best_step, progress.best_value
        counts = (progress.step, progress.part, progress.n_worse, *(() if best is None else (best,)))
        numbers = (
            progress.seconds,
            *(() if value is None else (value,)),
            *(x for sums in pairs.values() for pair in sums.values() for x in pair),
        )
        if not all(type(count) is int and count >= 0 for count in counts) or (best or 0) > progress.step:
            raise ValueError(f"step, part, best_step and n_worse must be 0, 1, 2, ..., got {data}")
        if not all(type(number) in (int, float) and math.isfinite(number) for number in numbers):
            raise ValueError(f"seconds, best_value and metrics must be finite numbers, got {data}")
        if (best is None) != (value is None):
            raise ValueError(f"best_step and best_value belong together, got {best} and {value}")
        return progress


def save_checkpoint(
    run: Path, learner: Learner, progress: Progress, beside: Mapping[str, str], *, writes: bool
) -> None:
    """Write `checkpoints/step-...`; every process takes part, and the one that `writes` does."""
    path = at_step(run, progress.step, progress.part)
    own, averaged = learner.weights(), learner.averaged_weights()
    settings, optimiser = learner.optimiser_state()
    if not writes or is_whole(path):
        return
    if path.exists():
        set_aside(path)
    rest = {OPTIMISER + name: tensor for name, tensor in optimiser.items()}
    if progress.part:
        rest |= {GRADIENT + name: p.grad for name, p in learner.model.named_parameters() if p.grad is not None}
    if averaged is not None:
        rest |= {OWN + name: tensor for name, tensor in own.items()}
    best = own if averaged is None else averaged
    _check_finite(best | rest, path)
    rest |= {CHANCES: torch.get_rng_state()}
    state = {
        "progress": progress.to_json(),
        "optimiser": settings,
        "scaler": learner.scaler_state(),
        "random": rng_states(),
    }
    with new_folder(path, n_bytes(best) + n_bytes(rest)) as folder:
        write_tensors(best, folder / WEIGHTS)
        write_tensors(rest, folder / REST)
        write_json(state, folder / STATE, indent=None)  # thousands of numbers that nobody reads
        for name, text in beside.items():
            (folder / name).write_text(text, encoding="utf-8")


def load_checkpoint(path: Path, learner: Learner) -> Progress:
    """Put the learner where the checkpoint was; raise if one bit of it is not what was written."""
    verify(path, (WEIGHTS, REST, STATE))
    best, rest, state = read_tensors(path / WEIGHTS), read_tensors(path / REST), read_json(path / STATE)
    own = learner.model.state_dict()
    check_tensors(best, own, path / WEIGHTS)
    check_finite(rest, str(path / REST))
    if unknown := [name for name in rest if not name.startswith((OPTIMISER, GRADIENT, OWN, CHANCES))]:
        raise DamagedError(f"{path / REST} is damaged: it has the unknown {unknown[0]}")
    try:
        progress = Progress.from_json(state["progress"])
        if path.name != at_step(path, progress.step, progress.part).name:
            raise ValueError(f"step and part must be those of {path.name}, got {progress.step} and {progress.part}")
        if learner.ema is None:
            learner.load(best)
        else:
            check_tensors(_under(OWN, rest), own, path / REST)
            learner.load_average(best)
            learner.load(_under(OWN, rest))
        learner.load_optimiser(state["optimiser"], _under(OPTIMISER, rest))
        learner.load_scaler(state["scaler"])
        for name, gradient in _under(GRADIENT, rest).items():
            parameter = learner.model.get_parameter(name)
            parameter.grad = gradient.to(parameter.device)
        torch.set_rng_state(rest[CHANCES])
        set_rng_states(state["random"])
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError, OverflowError) as error:
        raise DamagedError(f"{path / STATE} and {REST} do not fit the run: {type(error).__name__}: {error}") from error
    return progress


def at_step(run: Path, step: int, part: int = 0) -> Path:
    """The folder of the checkpoint of a step, or of a part of the next one; their names sort as they were written.

    >>> at_step(Path("runs/a"), 20, part=3).name
    'step-00000020-part-0003'
    """
    return run / "checkpoints" / (f"step-{step:08d}" + (f"-part-{part:04d}" if part else ""))


def checkpoints(run: Path) -> list[Path]:
    """All checkpoints of a run, the newest first."""
    return sorted((path for path in (run / "checkpoints").glob("step-*") if path.is_dir()), reverse=True)


def find_whole(run: Path) -> tuple[Path | None, dict[Path, str]]:
    """The newest checkpoint that is whole, and what is wrong with those after it."""
    problems = {}
    for path in checkpoints(run):
        try:
            verify(path)
        except DamagedError as error:
            problems[path] = str(error)
        else:
            return path, problems
    return None, problems


def is_whole(path: Path) -> bool:
    try:
        verify(path)
    except DamagedError:
        return False
    return True


def set_aside(path: Path) -> None:
    """Rename a damaged checkpoint, so that it can be written again."""
    aside = path.with_name(f"damaged-{path.name}")
    rmtree(aside, ignore_errors=True)
    path.rename(aside)


def prune(run: Path, newest: Path, best: Path | None) -> None:
    """Keep the newest checkpoints and the best; nothing that is half removed goes by a checkpoint's name.

    What others have put there, under names of checkpoints that are still to come or without a manifest, does not count.
    """
    written = [path for path in checkpoints(run) if path <= newest and (path / MANIFEST).is_file()]
    for path in written[N_KEPT:]:
        if path != best:
            gone = path.with_name(f".gone-{path.name}.part")
            path.rename(gone)
            rmtree(gone, ignore_errors=True)


def best_checkpoint(run: Path, progress: Progress) -> Path | None:
    return None if progress.best_step is None else at_step(run, progress.best_step)


def keep_best(run: Path, progress: Progress) -> None:
    """Name the best in the run's folder; again when a run is resumed, which may have been killed before this.

    It is missing if a better one came after the checkpoint that the run is resumed from; then that will come again.
    """
    best = best_checkpoint(run, progress)
    if best is not None and best.exists():
        verify(best, (WEIGHTS,))
        replace_file(run / BEST, sealed({"checkpoint": best.name}) + "\n")
        link_file(best / WEIGHTS, run / WEIGHTS)


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _check_finite(tensors: Mapping[str, Tensor], path: Path) -> None:
    """A checkpoint with a number that is not finite is of no use to anybody."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise NonFiniteError(
                f"{path.name} would not be finite, first in {name}. "
                "The run is kept as it was at its last checkpoint; try a smaller learning rate"
            )
