"""Everything a run needs to go on as if nothing had happened, in folders that are whole or not there at all.

The model is in safetensors as `hw.load` reads it, the rest in safetensors and JSON: nothing that could execute code.
"""

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from shutil import rmtree
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.optim import Optimizer

from headwork.storage.folders import DamagedError, new_folder, replace_file, verify
from headwork.storage.models import BEST, WEIGHTS, n_bytes, read_json, read_tensors, write_json, write_tensors
from headwork.training.optimisation import Average

REST, STATE = "training.safetensors", "state.json"
WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)
"""From any number of processes, as if there were one."""


@dataclass
class Progress:
    """Where a run stands."""

    step: int = 0
    part: int = 0
    """How many parts of the next step have been accumulated already."""
    shares: dict[str, tuple[float, float]] = field(default_factory=dict)
    """The figures on the training data since the last evaluation, as (total, weight)."""
    best_step: int | None = None
    best_figure: float | None = None
    n_worse: int = 0
    """Evaluations since the best one."""
    seconds: float = 0.0


@dataclass
class Learner:
    """What learns: the model as it is and as it is called, its optimiser, and its average."""

    model: nn.Module
    called: nn.Module
    optimiser: Optimizer
    average: Average | None = None

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """The model as it is to be judged: without dropout, and with the averaged weights if there are such."""
        self.called.eval()
        if self.average is not None:
            self.average.swap(self.model)
        try:
            yield
        finally:
            if self.average is not None:
                self.average.swap(self.model)
            self.called.train()

    def load(self, weights: dict[str, Any]) -> None:
        """These weights, from one process or for many."""
        set_model_state_dict(self.model, weights, options=StateDictOptions(full_state_dict=True))


def save_checkpoint(
    run: Path, learner: Learner, progress: Progress, beside: Mapping[str, str], *, writes: bool
) -> Path:
    """Write `checkpoints/step-...`; every process takes part, and the one that `writes` does."""
    path = run / "checkpoints" / f"step-{progress.step:08d}"
    if progress.part:
        path = path.with_name(f"{path.name}-part-{progress.part:04d}")
    own = cast(dict[str, Tensor], get_model_state_dict(learner.model, options=WHOLE))
    optimiser = get_optimizer_state_dict(learner.model, learner.optimiser, options=WHOLE)
    if not writes or path.exists():
        return path
    settings, rest = _flatten(optimiser)
    if progress.part:
        rest |= {f"gradient.{name}": p.grad for name, p in learner.model.named_parameters() if p.grad is not None}
    if learner.average is not None:
        rest |= {f"own.{name}": tensor for name, tensor in own.items()}
    rest |= {"random.torch": torch.get_rng_state()}
    best = own if learner.average is None else learner.average.state
    with new_folder(path, n_bytes(best) + n_bytes(rest)) as folder:
        write_tensors(best, folder / WEIGHTS)
        write_tensors(rest, folder / REST)
        write_json({"progress": asdict(progress), "optimiser": settings, "random": _other_chances()}, folder / STATE)
        for name, text in beside.items():
            (folder / name).write_text(text, encoding="utf-8")
    return path


def load_checkpoint(path: Path, learner: Learner) -> Progress:
    """Put the learner where the checkpoint was; raise if one bit of it is not what was written."""
    verify(path)
    best, rest, state = read_tensors(path / WEIGHTS), read_tensors(path / REST), read_json(path / STATE)
    own = _under("own.", rest) if learner.average is not None else best
    learner.load(own)
    if learner.average is not None:
        learner.average.state = best
    if _under("optimiser.", rest):  # before its first step an optimiser has no state, and must not be given one
        optimiser = _unflatten(cast(list[dict[str, Any]], state["optimiser"]), rest)
        set_optimizer_state_dict(
            learner.model, learner.optimiser, optimiser, options=StateDictOptions(full_state_dict=True)
        )
    for name, gradient in _under("gradient.", rest).items():
        parameter = learner.model.get_parameter(name)
        parameter.grad = gradient.to(parameter.device)
    torch.set_rng_state(rest["random.torch"])
    _set_other_chances(cast(dict[str, Any], state["random"]))
    progress = Progress(**cast(dict[str, Any], state["progress"]))
    progress.shares = {name: (total, weight) for name, (total, weight) in progress.shares.items()}
    return progress


def checkpoints(run: Path) -> list[Path]:
    """All checkpoints of a run, the newest first."""
    return sorted((path for path in (run / "checkpoints").glob("step-*") if path.is_dir()), reverse=True)


def find_whole(run: Path) -> tuple[Path | None, list[str]]:
    """The newest checkpoint that is whole, and what is wrong with those after it."""
    problems = []
    for path in checkpoints(run):
        try:
            verify(path)
        except DamagedError as error:
            problems.append(str(error))
        else:
            return path, problems
    return None, problems


def mark_best(run: Path, step: int) -> None:
    replace_file(run / BEST, f'{{"checkpoint": "step-{step:08d}"}}\n')


def prune(run: Path, keep: int, best_step: int | None) -> None:
    """Keep the newest checkpoints and the best."""
    for path in checkpoints(run)[keep:]:
        if best_step is None or path.name != f"step-{best_step:08d}":
            rmtree(path, ignore_errors=True)


def _flatten(state: Mapping[str, Any]) -> tuple[list[dict[str, Any]], dict[str, Tensor]]:
    """An optimiser's state as settings for JSON and tensors by name."""
    tensors = {
        f"optimiser.{key}.{name}": torch.as_tensor(value)
        for name, values in state["state"].items()
        for key, value in values.items()
        if value is not None
    }
    return state["param_groups"], tensors


def _unflatten(groups: list[dict[str, Any]], rest: Mapping[str, Tensor]) -> dict[str, Any]:
    state: dict[str, dict[str, Tensor]] = {}
    for name, tensor in _under("optimiser.", rest).items():
        key, parameter = name.split(".", 1)
        state.setdefault(parameter, {})[key] = tensor
    return {
        "state": state,
        "param_groups": [{k: tuple(v) if k == "betas" else v for k, v in g.items()} for g in groups],
    }


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _other_chances() -> dict[str, Any]:
    """The states of Python's and NumPy's generators: nothing here draws from them, but a user's data set may."""
    numpy_state: Any = np.random.get_state(legacy=True)  # noqa: NPY002
    kind, keys, *more = numpy_state
    return {"python": random.getstate(), "numpy": [kind, keys.tolist(), *more]}


def _set_other_chances(states: Mapping[str, Any]) -> None:
    version, words, gauss = states["python"]
    random.setstate((version, tuple(words), gauss))
    kind, keys, *more = states["numpy"]
    np.random.set_state((kind, np.array(keys, dtype=np.uint32), *more))  # noqa: NPY002
