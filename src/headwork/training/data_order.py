"""Which examples come when, and every other chance: functions of the seed and the place in the run, so they resume."""

import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from headwork.data import Batch, Examples
from headwork.training.config import TrainingConfig
from headwork.training.stopping import leave_signals_to_parent


def derive_seed(*words: int | str) -> int:
    """A seed for one purpose, unrelated to the seeds of all others.

    >>> derive_seed(0, "order", 1) != derive_seed(0, "order", 2)
    True
    """
    return int.from_bytes(hashlib.sha256(repr(words).encode()).digest()[:8], "big") >> 1


def seed_everything(seed: int) -> None:
    """Start every generator anew: PyTorch's for the weights, Python's and NumPy's for what a user's data may draw."""
    torch.manual_seed(derive_seed(seed, "weights"))
    random.seed(derive_seed(seed, "python"))
    np.random.seed(derive_seed(seed, "numpy") % 2**32)  # noqa: NPY002


@dataclass(frozen=True)
class Plan:
    """How long the run is, and which part of a step's batch goes to whom."""

    n_examples: int
    training: TrainingConfig
    rank: int = 0
    n_processes: int = 1

    def __post_init__(self) -> None:
        batch_size, n_parts = self.training.batch_size, self.training.accumulate * self.n_processes
        if batch_size > self.n_examples:
            raise ValueError(
                f"batch_size must be at most the number of training examples, {self.n_examples}, got {batch_size}"
            )
        if batch_size % n_parts:
            raise ValueError(
                f"batch_size must be a multiple of accumulate x processes, "
                f"{self.training.accumulate} x {self.n_processes}, got {batch_size}"
            )

    @property
    def steps_per_epoch(self) -> int:
        """The few examples that do not fill a batch are left out, others in every epoch."""
        return self.n_examples // self.training.batch_size

    @property
    def n_steps(self) -> int:
        return self.training.steps or (self.training.epochs or 0) * self.steps_per_epoch

    @property
    def evaluate_every(self) -> int:
        return self.training.evaluate_every or self.steps_per_epoch

    def evaluates(self, step: int) -> bool:
        return step % self.evaluate_every == 0 or step == self.n_steps

    def saves(self, step: int) -> bool:
        every = self.training.save_every
        return self.evaluates(step) or (every is not None and step % every == 0)

    def parts(self, step: int) -> list[tuple[int, list[int]]]:
        """The epoch and the examples of each part of a step that this process works on."""
        epoch, within = divmod(step, self.steps_per_epoch)
        batch_size = self.training.batch_size
        first = within * batch_size
        batch = shuffled(self.n_examples, derive_seed(self.training.seed, "order", epoch))[first : first + batch_size]
        size = batch_size // (self.training.accumulate * self.n_processes)
        mine = range(self.rank * size, batch_size, size * self.n_processes)
        return [(epoch, batch[at : at + size]) for at in mine]


@lru_cache(maxsize=2)
def shuffled(n: int, seed: int) -> list[int]:
    return torch.randperm(n, generator=torch.Generator().manual_seed(seed)).tolist()


class Parts(Sampler[tuple[int, list[int]]]):
    """The parts of all steps from the given one on."""

    def __init__(self, plan: Plan, first_step: int) -> None:
        self.plan, self.first_step = plan, first_step

    def __iter__(self) -> Iterator[tuple[int, list[int]]]:
        for step in range(self.first_step, self.plan.n_steps):
            yield from self.plan.parts(step)


class Fetch(Dataset[Batch]):
    """Whole batches at once, so that a data set can work on all its examples in one operation."""

    def __init__(self, examples: Examples) -> None:
        self.examples = examples

    def __getitem__(self, part: tuple[int | None, list[int]]) -> Batch:
        epoch, indices = part
        return self.examples.batch(indices, epoch)


def training_batches(plan: Plan, examples: Examples, first_step: int) -> Iterator[list[Batch]]:
    """The parts of each step, together; with loader workers they are made ahead, and are the same."""
    loader = DataLoader(
        Fetch(examples),
        batch_size=None,
        sampler=Parts(plan, first_step),
        num_workers=plan.training.workers,
        worker_init_fn=leave_signals_to_parent,
    )
    batches = iter(loader)
    for _ in range(first_step, plan.n_steps):
        yield [next(batches) for _ in range(plan.training.accumulate)]
