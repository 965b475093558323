"""How long a run will take and how much memory, from one step of a copy of its model."""

import copy
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from headwork.batches import Batch
from headwork.seeds import unchanged_rng_states
from headwork.tasks import Task
from headwork.training.config import SGD
from headwork.training.optimiser import make_optimiser, set_learning_rate
from headwork.training.plan import Plan


class Estimate(NamedTuple):
    """Minutes of the steps and evaluations to come; bytes of weights, optimiser, gradients and what a step keeps."""

    minutes: float
    n_bytes: int

    def __str__(self) -> str:
        """In a line for people.

        >>> print(Estimate(minutes=12.34, n_bytes=3 * 2**28))
        about 12 minutes, and 0.8 GB of memory beside the data
        >>> print(Estimate(minutes=0.005, n_bytes=2**20))
        less than a second, and 1 MB of memory beside the data
        >>> print(Estimate(minutes=0.02, n_bytes=2**20))
        about 1 second, and 1 MB of memory beside the data
        """
        n, unit = (self.minutes, "minute") if self.minutes >= 1.5 else (60 * self.minutes, "second")
        long = f"about {n:.0f} {unit}{'s' * (round(n) != 1)}" if n >= 1 else "less than a second"
        much = f"{self.n_bytes / 2**30:.1f} GB" if self.n_bytes >= 2**29 else f"{self.n_bytes / 2**20:.0f} MB"
        return f"{long}, and {much} of memory beside the data"


@unchanged_rng_states()
def estimate(
    model: nn.Module,
    task: Task,
    batch: Batch,
    n_valid: int,
    plan: Plan,
    step: int = 0,
    autocast: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> Estimate:
    """From the second of two steps on a part of a batch, in the precision of the run; the model is left as it is.

    What the optimiser takes does not depend on the batch. An evaluation costs a third of a step for each example: it
    goes forwards only, and may be more where it translates.
    """
    training, trial = plan.training, copy.deepcopy(model).train()
    optimiser = make_optimiser(training.optimiser, trial)
    set_learning_rate(optimiser, 0.0)
    of_batch, of_optimiser, kept = 0.0, 0.0, dict[int, int]()

    def count(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if not isinstance(tensor, nn.Parameter):
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    for _ in range(2):
        kept.clear()
        begun = time.perf_counter()
        with autocast(), saved_tensors_hooks(count, lambda tensor: tensor):
            loss = task.score(trial, batch)["loss"].total
        assert isinstance(loss, Tensor)
        loss.backward()  # type: ignore[no-untyped-call]
        passed = time.perf_counter()
        optimiser.step()
        of_batch, of_optimiser = passed - begun, time.perf_counter() - passed
        optimiser.zero_grad()
    of_example = of_batch / len(batch[-1])
    n_steps, n_evaluations = plan.n_steps - step, plan.n_evaluations - step // plan.evaluate_every
    n_seen = n_steps * training.batch_size / plan.n_processes + n_evaluations * n_valid / 3
    weights = sum(parameter.numel() * parameter.element_size() for parameter in trial.parameters())
    copies = 2 + (1 if isinstance(training.optimiser, SGD) else 2) + (training.ema is not None)
    seconds = of_example * n_seen + of_optimiser * n_steps
    return Estimate(seconds / 60, copies * weights + sum(kept.values()))
