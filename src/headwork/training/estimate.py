"""How long a run will take and how much memory, from a few steps of a copy of its model."""

import copy
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from statistics import fmean
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from numpy import ndarray
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from headwork.batches import to_device
from headwork.data import Dataset, Examples
from headwork.seeds import unchanged_rng_states
from headwork.tasks import Task
from headwork.training.machine import resident_bytes
from headwork.training.optimiser import clip_gradient, make_optimiser, set_learning_rate
from headwork.training.plan import Plan, lengths_of, ordered_batches

PIECES = 5
"""How many times what a step keeps a process comes to hold if every batch has another shape.

What was freed is kept (`keep_memory`), and fits the next tensors in pieces only. Measured: 4.7 after 6 epochs of one
run of the recipe multi30k in bfloat16, where the compiled products of each shape are kept too.
"""
SHARE_TRIED, MOST_TRIED, ENOUGH = 20, 20, 1.0
"""Tried is one step of so many, and of each length at most so many, or those of so many seconds.

One step says little on a machine that does other work. Measured with two threads beside eight other programs, for the
recipe digits-vit: 0.21 to 11.6 s a step, half of them less than 0.8 s, and 2.2 s on average.
"""


class Estimate(NamedTuple):
    """Minutes of the steps and evaluations to come; bytes of the whole process, or on the device if that is another."""

    minutes: float
    n_bytes: int
    device: str = "cpu"

    def __str__(self) -> str:
        """In a line for people.

        >>> print(Estimate(minutes=12.34, n_bytes=3 * 2**28))
        about 12 minutes with all evaluations, and 0.8 GB of memory with PyTorch and the data
        >>> print(Estimate(minutes=0.005, n_bytes=2**18, device="cuda"))
        less than a second with all evaluations, and 1 MB of memory on cuda
        >>> print(Estimate(minutes=0.02, n_bytes=2**28))
        about 1 second with all evaluations, and 256 MB of memory with PyTorch and the data
        """
        n, unit = (self.minutes, "minute") if self.minutes >= 1.5 else (60 * self.minutes, "second")
        long = f"about {n:.0f} {unit}{'s' * (round(n) != 1)}" if n >= 1 else "less than a second"
        gigabytes, megabytes = self.n_bytes / 2**30, max(self.n_bytes / 2**20, 1)
        much = f"{gigabytes:.1f} GB" if gigabytes >= 0.5 else f"{megabytes:.0f} MB"
        what = "with PyTorch and the data" if self.device == "cpu" else f"on {self.device}"
        return f"{long} with all evaluations, and {much} of memory {what}"


@unchanged_rng_states()
def estimate(
    model: nn.Module,
    task: Task,
    data: Dataset,
    plan: Plan,
    step: int = 0,
    *,
    device: torch.device | str = "cpu",
    autocast: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> Estimate:
    """From steps on short, median and long texts, or on one batch of what has no lengths; the model is left as it is.

    Between these lengths the time is a straight line, which is averaged over the batches of an epoch. The memory is
    that of the longest, and more where lengths differ. An evaluation is timed on one batch of the validation data.
    """
    training, device = plan.training, torch.device(device)
    there = resident_bytes() if device.type == "cpu" else 0
    trial = Trial(model, task, plan, device, autocast)
    parts, widths = choose_parts(plan, data.train, step)
    trial.step(data.train, parts[0])  # takes memory from the system and makes the optimiser's state: not timed
    n_tried = min(max((plan.n_steps - step) // SHARE_TRIED, 1), MOST_TRIED)
    taken = {part.width: trial.steps(data.train, part, n_tried) for part in parts}
    to_come = trial.n_bytes(step, PIECES if len(parts) > 1 and device.type == "cpu" else 1)
    of_evaluated = trial.evaluate(data.valid, training.batch_size)
    known = sorted(taken)
    of_part = float(np.interp(widths, known, [taken[width].of_batch for width in known]).mean())
    of_optimiser = fmean(each.of_optimiser for each in taken.values())
    n_steps, n_evaluations = plan.n_steps - step, plan.n_evaluations - step // plan.evaluate_every
    n_evaluated = (n_evaluations + 1) * len(data.valid) + len(data.test)  # in the end the best, on both
    seconds = n_steps * (training.accumulate * of_part + of_optimiser) + n_evaluated * of_evaluated
    return Estimate(seconds / 60, there + to_come, device.type)


class Part(NamedTuple):
    """Examples that go through the model at once, and how long the longest of them is; 0 if they have no lengths."""

    width: int
    epoch: int
    indices: list[int]


def choose_parts(plan: Plan, examples: Examples, step: int) -> tuple[list[Part], Int[ndarray, "part"]]:
    """Some parts of the batches of an epoch, the longest first, and the widths of all of them."""
    lengths = lengths_of(examples)
    if lengths is None or lengths.shape != (plan.n_examples,):
        return [Part(0, *plan.parts(step)[0])], np.zeros(1, dtype=np.int64)
    epoch = step // plan.steps_per_epoch
    n_steps = min(plan.n_steps - epoch * plan.steps_per_epoch, plan.steps_per_epoch)
    every = np.array(plan.order(epoch)[: n_steps * plan.training.batch_size]).reshape(-1, plan.part_size)
    widths = lengths[every].max(1)
    sorted_by_width = np.argsort(widths, kind="stable")
    chosen = {int(widths[i]): every[i].tolist() for i in sorted_by_width[[-1, len(widths) // 2, 0]]}
    return [Part(width, epoch, indices) for width, indices in chosen.items()], widths


class Seconds(NamedTuple):
    """What a step takes."""

    of_batch: float
    of_optimiser: float


class Trial:
    """A copy of a model with an optimiser of its own, whose steps change nothing."""

    def __init__(
        self,
        model: nn.Module,
        task: Task,
        plan: Plan,
        device: torch.device,
        autocast: Callable[[], AbstractContextManager[object]],
    ) -> None:
        self.model, self.task, self.plan, self.device, self.autocast = (
            copy.deepcopy(model),
            task,
            plan,
            device,
            autocast,
        )
        self.optimiser = make_optimiser(plan.training.optimiser, self.model)
        set_learning_rate(self.optimiser, 0.0)
        self.kept = dict[int, int]()
        """The bytes of each tensor that the longest step so far keeps for its backward pass, by its place."""

    def now(self) -> float:
        """The time, when all that was asked of the device is done."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    def step(self, examples: Examples, part: Part) -> Seconds:
        kept = dict[int, int]()

        def count(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            if not isinstance(tensor, nn.Parameter):
                kept[storage.data_ptr()] = storage.nbytes()
            return tensor

        self.model.train()
        begun = self.now()
        batch = to_device(examples.batch(part.indices, part.epoch), self.device)
        if self.plan.training.workers:  # which make the batches meanwhile
            begun = self.now()
        with self.autocast(), saved_tensors_hooks(count, lambda tensor: tensor):
            loss = self.task.score(self.model, batch)["loss"].total
        assert isinstance(loss, Tensor)
        loss.backward()  # type: ignore[no-untyped-call]
        passed = self.now()
        clip_gradient(self.model, self.plan.training.clip)
        self.optimiser.step()
        self.optimiser.zero_grad()
        self.kept = max(self.kept, kept, key=lambda each: sum(each.values()))
        return Seconds(passed - begun, self.now() - passed)

    def steps(self, examples: Examples, part: Part, n: int) -> Seconds:
        """What a step takes on average over n of them, or over those of a second."""
        found = list[Seconds]()
        while len(found) < n and sum(map(sum, found)) < ENOUGH:
            found.append(self.step(examples, part))
        return Seconds(*map(fmean, zip(*found, strict=True)))

    def evaluate(self, examples: Examples, batch_size: int) -> float:
        """Seconds for each example."""
        self.model.eval()
        begun = self.now()
        with self.autocast():
            self.task.evaluate(self.model, islice(ordered_batches(examples, batch_size, self.device), 1))
        return (self.now() - begun) / min(batch_size, len(examples))

    def n_bytes(self, step: int, pieces: int = 1) -> int:
        """Of the gradients, the optimiser's state, and what a step keeps with the gradient of the largest tensor in it.

        The weights and their average are in the memory of this process already, and in a run that goes on the state is.
        """
        parameters = list(self.model.parameters())
        states = [state for states in self.optimiser.state.values() for state in states.values()]
        of_optimiser = _n_bytes([state for state in states if isinstance(state, Tensor)])
        of_step = pieces * (sum(self.kept.values()) + max(self.kept.values(), default=0))
        to_come = _n_bytes([parameter for parameter in parameters if parameter.requires_grad]) + of_step
        if self.device.type == "cpu":
            return to_come if step else to_come + of_optimiser
        return to_come + of_optimiser + _n_bytes(parameters) * (1 if self.plan.training.ema is None else 2)


def _n_bytes(tensors: list[Tensor] | list[nn.Parameter]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
