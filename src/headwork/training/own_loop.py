"""The state of a training loop of one's own in a folder: verified, whole or not there at all, and no pickle."""

from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from headwork.seeds import rng_states, set_rng_states
from headwork.storage.folders import new_folder, verify
from headwork.storage.models import WEIGHTS, n_bytes, read_tensors, write_json, write_tensors
from headwork.storage.sealed_json import read_json
from headwork.training.checkpoints import REST, STATE
from headwork.training.learner import Learner


def save_state(folder: Path | str, model: nn.Module, optimiser: Optimizer, **progress: Any) -> None:
    """Write the weights of any model, the state of its optimiser, all random generators, and numbers of your own.

    The folder must be new. `progress` is what JSON can hold, such as `step=500`.
    """
    weights, learner = model.state_dict(), Learner(model, model, optimiser)
    settings, tensors = learner.optimiser_state()
    rest = {f"optimiser.{name}": tensor for name, tensor in tensors.items()} | {"random.torch": torch.get_rng_state()}
    state = {"optimiser": settings, "random": rng_states(), "progress": progress}
    with new_folder(Path(folder), n_bytes(weights) + n_bytes(rest)) as staging:
        write_tensors(weights, staging / WEIGHTS)
        write_tensors(rest, staging / REST)
        write_json(state, staging / STATE)


def load_state(folder: Path | str, model: nn.Module, optimiser: Optimizer) -> dict[str, Any]:
    """Put model, optimiser and random generators back where they were; the numbers that were saved beside them.

    Raise if one bit of the folder is not what was written.
    """
    folder = Path(folder)
    verify(folder)
    rest, state = read_tensors(folder / REST), read_json(folder / STATE)
    model.load_state_dict(read_tensors(folder / WEIGHTS))
    of_optimiser = {
        name.removeprefix("optimiser."): tensor for name, tensor in rest.items() if name.startswith("optimiser.")
    }
    Learner(model, model, optimiser).load_optimiser(state["optimiser"], of_optimiser)
    torch.set_rng_state(rest["random.torch"])
    set_rng_states(state["random"])
    return state["progress"]
