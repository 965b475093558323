"""Everything a run needs to go on as if nothing had happened, in folders that are whole or not there at all.

The model is in safetensors as `hw.load` reads it, the rest in safetensors and JSON: nothing that could execute code.
"""

import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from shutil import rmtree
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from headwork.storage.folders import DamagedError, new_folder, replace_file, verify
from headwork.storage.models import BEST, WEIGHTS, n_bytes, read_json, read_tensors, write_json, write_tensors
from headwork.training.learner import Learner
from headwork.training.nonfinite import NonFiniteError

REST, STATE = "training.safetensors", "state.json"


@dataclass
class Progress:
    """Where a run stands."""

    step: int = 0
    part: int = 0
    """How many parts of the next step have been accumulated already."""
    shares: dict[str, tuple[float, float]] = field(default_factory=dict)
    """The figures on the training data since the last evaluation, as (total, weight)."""
    best_step: int | None = None
    best_value: float | None = None
    n_worse: int = 0
    """Evaluations since the best one."""
    seconds: float = 0.0


def save_checkpoint(
    run: Path, learner: Learner, progress: Progress, beside: Mapping[str, str], *, writes: bool
) -> None:
    """Write `checkpoints/step-...`; every process takes part, and the one that `writes` does."""
    path = at_step(run, progress.step, progress.part)
    own, averaged = learner.weights(), learner.averaged_weights()
    settings, optimiser = learner.optimiser_state()
    if not writes or path.exists():
        return
    rest = {f"optimiser.{name}": tensor for name, tensor in optimiser.items()}
    if progress.part:
        rest |= {f"gradient.{name}": p.grad for name, p in learner.model.named_parameters() if p.grad is not None}
    if averaged is not None:
        rest |= {f"own.{name}": tensor for name, tensor in own.items()}
    best = own if averaged is None else averaged
    _check_finite(best | rest, path)
    rest |= {"random.torch": torch.get_rng_state()}
    state = {
        "progress": asdict(progress),
        "optimiser": settings,
        "scaler": learner.scaler_state(),
        "random": _other_chances(),
    }
    with new_folder(path, n_bytes(best) + n_bytes(rest)) as folder:
        write_tensors(best, folder / WEIGHTS)
        write_tensors(rest, folder / REST)
        write_json(state, folder / STATE)
        for name, text in beside.items():
            (folder / name).write_text(text, encoding="utf-8")


def load_checkpoint(path: Path, learner: Learner) -> Progress:
    """Put the learner where the checkpoint was; raise if one bit of it is not what was written."""
    verify(path)
    best, rest = read_tensors(path / WEIGHTS), read_tensors(path / REST)
    state = cast(dict[str, Any], read_json(path / STATE))
    if learner.average is None:
        learner.load(best)
    else:
        learner.load_average(best)
        learner.load(_under("own.", rest))
    learner.load_optimiser(state["optimiser"], _under("optimiser.", rest))
    learner.load_scaler(state["scaler"])
    for name, gradient in _under("gradient.", rest).items():
        parameter = learner.model.get_parameter(name)
        parameter.grad = gradient.to(parameter.device)
    torch.set_rng_state(rest["random.torch"])
    _set_other_chances(state["random"])
    stood = state["progress"]
    return Progress(**stood | {"shares": {name: tuple(share) for name, share in stood["shares"].items()}})


def at_step(run: Path, step: int, part: int = 0) -> Path:
    """Where the checkpoint of a step is, or of a part of the next one; their names sort as they were written.

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


def set_aside(path: Path) -> None:
    """Let a damaged checkpoint be none any more, since its step will be reached again."""
    aside = path.with_name(f"damaged-{path.name}")
    rmtree(aside, ignore_errors=True)
    path.rename(aside)


def mark_best(run: Path, path: Path) -> None:
    replace_file(run / BEST, f'{{"checkpoint": "{path.name}"}}\n')


def prune(run: Path, keep: int, best: Path | None) -> None:
    """Keep the newest checkpoints and the best; nothing that is half removed goes by a checkpoint's name."""
    for path in checkpoints(run)[keep:]:
        if path != best:
            gone = path.with_name(f".gone-{path.name}.part")
            path.rename(gone)
            rmtree(gone, ignore_errors=True)


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _check_finite(tensors: Mapping[str, Tensor], path: Path) -> None:
    """What is not a number is not kept: going on from it would lead nowhere."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise NonFiniteError(
                f"{path.name} would not be finite, first in {name}. "
                "The run is kept as it was at its last checkpoint; try a smaller learning rate"
            )


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
