"""The batches of training in the order of the plan, made ahead by loader processes if wanted."""

from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader, Dataset, Sampler

from headwork.data import Batch, Examples
from headwork.training.plan import Plan
from headwork.training.stopping import leave_signals_to_parent


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


def as_it_is(batch: Any) -> Any:
    """PyTorch would turn a tuple into a list."""
    return batch


def training_batches(plan: Plan, examples: Examples, first_step: int) -> Iterator[list[Batch]]:
    """The parts of each step, together; with loader workers they are made ahead, and are the same."""
    loader = DataLoader(
        Fetch(examples),
        batch_size=None,
        sampler=Parts(plan, first_step),
        num_workers=plan.training.workers,
        collate_fn=as_it_is,
        worker_init_fn=leave_signals_to_parent,
    )
    batches = iter(loader)
    for _ in range(first_step, plan.n_steps):
        yield [next(batches) for _ in range(plan.training.accumulate)]
