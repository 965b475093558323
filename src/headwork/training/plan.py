"""How long a run is, when it evaluates and saves, and which examples each step sees."""

import math
import multiprocessing
import pickle
import signal
import threading
import traceback
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from torch.utils.data import DataLoader, Dataset, get_worker_info

from headwork.batches import Batch, to_device
from headwork.data import Examples
from headwork.seeds import derive_seed
from headwork.training.config import TrainingConfig
from headwork.training.stopping import leave_signals_to_parent

N_LOGGED = 1000
"""Training steps that are logged at most: a long run logs every so many."""


@dataclass(frozen=True)
class Plan:
    """The steps of a run, and which part of a step's batch goes to which process."""

    n_examples: int
    training: TrainingConfig
    rank: int = 0
    n_processes: int = 1
    sequential: bool = False
    """The examples come in their own order, as those of a stream do."""
    lengths: "Lengths | None" = None
    """Of the texts, if those of about the same length are to share a batch."""

    @classmethod
    def of(cls, examples: Examples, training: TrainingConfig, rank: int = 0, n_processes: int = 1) -> "Plan":
        lengths = None
        if training.batch_by_length:
            of_each = lengths_of(examples)
            if of_each is None:
                raise ValueError(f"batch_by_length is for texts with lengths, got {type(examples).__name__}, without")
            lengths = Lengths(of_each)
        return cls(len(examples), training, rank, n_processes, getattr(examples, "sequential", False), lengths)

    def __post_init__(self) -> None:
        batch_size, n_parts = self.training.batch_size, self.training.accumulate * self.n_processes
        if batch_size > self.n_examples:
            raise ValueError(
                f"batch_size must be at most the number of training examples, {self.n_examples}, got {batch_size}: "
                f"give a smaller one (`--batch-size {self.n_examples}` or less)"
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

    @property
    def n_evaluations(self) -> int:
        """One after every so many steps, and one after the last."""
        return math.ceil(self.n_steps / self.evaluate_every)

    @property
    def part_size(self) -> int:
        """The examples that go through the model at once."""
        return self.training.batch_size // (self.training.accumulate * self.n_processes)

    def evaluates(self, step: int) -> bool:
        return step % self.evaluate_every == 0 or step == self.n_steps

    def logs(self, step: int) -> bool:
        return step % math.ceil(self.n_steps / N_LOGGED) == 0

    def saves(self, step: int) -> bool:
        every = self.training.save_every
        return self.evaluates(step) or (every is not None and step % every == 0)

    def parts(self, step: int) -> list[tuple[int, list[int]]]:
        """The epoch and the examples of each part of a step that this process works on."""
        epoch, within = divmod(step, self.steps_per_epoch)
        batch_size = self.training.batch_size
        first = within * batch_size
        batch = self.order(epoch)[first : first + batch_size]
        size = self.part_size
        mine = range(self.rank * size, batch_size, size * self.n_processes)
        return [(epoch, list(batch[at : at + size])) for at in mine]

    def order(self, epoch: int) -> list[int] | range:
        """The examples of an epoch, in the order in which they are seen."""
        if self.sequential:
            return range(self.n_examples)
        seed = derive_seed(self.training.seed, "order", epoch)
        if self.lengths is not None:
            return shuffled_by_length(self.lengths, self.training.batch_size, seed)
        return shuffled(self.n_examples, seed)


@dataclass(frozen=True, eq=False)
class Lengths:
    """The number of tokens of each example."""

    values: Int[np.ndarray, "example"]


def lengths_of(examples: Examples) -> Int[np.ndarray, "example"] | None:
    """The number of tokens of each example; None if these are no texts."""
    found = getattr(examples, "lengths", None)
    return None if found is None else np.asarray(found)


@lru_cache(maxsize=2)
def shuffled(n: int, seed: int) -> list[int]:
    return torch.randperm(n, generator=torch.Generator().manual_seed(seed)).tolist()


N_SORTED = 50
"""Batches whose examples are sorted together: enough to have little padding, and different batches in each epoch."""


@lru_cache(maxsize=2)
def shuffled_by_length(lengths: Lengths, batch_size: int, seed: int) -> list[int]:
    """At random, but examples of about the same length share a batch; the batches of an epoch are mixed again.

    >>> order = shuffled_by_length(Lengths(np.array([1, 9, 2, 9, 1, 9, 2])), batch_size=2, seed=0)
    >>> [[1, 9, 2, 9, 1, 9, 2][i] for i in order]
    [2, 2, 1, 1, 9, 9, 9]
    """
    order = np.array(shuffled(len(lengths.values), seed))
    stretch = N_SORTED * batch_size
    for first in range(0, len(order), stretch):
        part = order[first : first + stretch]
        order[first : first + stretch] = part[np.argsort(lengths.values[part], kind="stable")]
    n_batches = len(order) // batch_size
    mixed = np.array(shuffled(n_batches, derive_seed(seed, "batches")), dtype=np.int64)
    whole = order[: n_batches * batch_size].reshape(n_batches, batch_size)[mixed]
    return [*whole.flatten().tolist(), *order[n_batches * batch_size :].tolist()]


def shuffled_batches(examples: Examples, batch_size: int, *, seed: int, epoch: int) -> Iterator[Batch]:
    """The batches of an epoch, in the order in which `hw.train` sees them; the few that fill none are left out.

    >>> examples = hw.data.Digits().load(0).train
    >>> len(list(shuffled_batches(examples, 100, seed=0, epoch=0))) == len(examples) // 100
    True
    """
    plan = Plan.of(examples, TrainingConfig(batch_size=batch_size, epochs=1, seed=seed))
    for step in range(epoch * plan.steps_per_epoch, (epoch + 1) * plan.steps_per_epoch):
        for _, indices in plan.parts(step):
            yield examples.batch(indices, epoch)


class WorkerDiedError(RuntimeError):
    """A loader worker is gone, and its batches with it."""


class Failed(NamedTuple):
    """What a loader worker gives instead of a batch: the error, and where it was raised."""

    error: Exception
    where: str


class Fetch(Dataset[Batch | Failed]):
    """Whole batches at once, so that a data set can work on all its examples in one operation."""

    def __init__(self, examples: Examples) -> None:
        self.examples = examples

    def __getitem__(self, part: tuple[int | None, list[int]]) -> Batch | Failed:
        epoch, indices = part
        if get_worker_info() is None:
            return self.examples.batch(indices, epoch)
        try:
            return self.examples.batch(indices, epoch)
        except Exception as error:  # whatever it is, the process that waits for the batch raises it
            return Failed(_sendable(error), f"in a loader worker:\n{traceback.format_exc()}")


def _sendable(error: Exception) -> Exception:
    """The error, or one that says the same if it cannot go from process to process."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def as_it_is(batch: Any) -> Any:
    """PyTorch would turn a tuple into a list."""
    return batch


def training_batches(plan: Plan, examples: Examples, first_step: int) -> Iterator[list[Batch]]:
    """The parts of each step, together; with loader workers they are made ahead, and are the same."""
    loader = DataLoader(
        Fetch(examples),
        batch_size=None,
        sampler=(part for step in range(first_step, plan.n_steps) for part in plan.parts(step)),
        num_workers=plan.training.workers,
        collate_fn=as_it_is,
        worker_init_fn=leave_signals_to_parent,
    )
    others = set(multiprocessing.active_children())
    batches = iter(loader)
    workers = set(multiprocessing.active_children()) - others
    for _ in range(first_step, plan.n_steps):
        try:
            parts = [_received(next(batches)) for _ in range(plan.training.accumulate)]
        except Exception as error:
            with _undisturbed():
                dead = _find_dead(workers) if isinstance(error, RuntimeError | OSError | EOFError) else ""
                _end(workers)
            if dead:
                raise WorkerDiedError(f"a loader worker {dead}") from None
            raise
        yield parts


def _received(batch: Batch | Failed) -> Batch:
    if isinstance(batch, Failed):
        batch.error.add_note(batch.where)
        raise batch.error
    return batch


def _find_dead(workers: Collection[BaseProcess]) -> str:
    """How one of the workers has ended; nothing if none has, within a second."""
    ended = wait([worker.sentinel for worker in workers], timeout=1)
    for code in (worker.exitcode for worker in workers if worker.sentinel in ended):
        if code == -signal.SIGKILL:
            return "was killed (SIGKILL), as the system does when memory runs out"
        if code is not None and code < 0:
            return f"was stopped by {signal.Signals(-code).name}"
        return f"ended with the exit code {code}"
    return ""


def _end(workers: Collection[BaseProcess]) -> None:
    """At once: PyTorch would wait five seconds for each that is busy or waits for one that is gone."""
    for worker in workers:
        worker.kill()
    for worker in workers:
        worker.join()


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Without PyTorch's handler of SIGCHLD, which raises as soon as a worker was killed.

    If it does so after the system has told how the worker ended and before `multiprocessing` has written that down,
    nobody will ever know, and the worker counts as running. Handlers run in the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before, is_off = None, False
    while not is_off:
        with suppress(RuntimeError):  # of a signal that has come already
            before, is_off = signal.signal(signal.SIGCHLD, signal.SIG_DFL), True
    try:
        yield
    finally:
        signal.signal(signal.SIGCHLD, before or signal.SIG_DFL)


def ordered_batches(examples: Examples, batch_size: int, device: torch.device | str = "cpu") -> Iterator[Batch]:
    """All examples once, in their own order and as they are, for an evaluation."""
    for first in range(0, len(examples), batch_size):
        yield to_device(examples.batch(range(first, min(first + batch_size, len(examples)))), device)
