"""How good a model is on a split of the data."""

from collections.abc import Iterator
from typing import TypeVar

import torch
from torch import nn

from headwork.data import Batch, Examples
from headwork.tasks import AnyTask, Sums, add_to, means

B = TypeVar("B", bound=Batch)


@torch.no_grad()
def measure_all(
    task: AnyTask, model: nn.Module, examples: Examples, batch_size: int, device: torch.device | str = "cpu"
) -> dict[str, float]:
    """All figures of a task over all examples; the model is taken as it is."""
    sums: Sums = {}
    for batch in batches(examples, batch_size):
        add_to(sums, task.measure(model, on_device(batch, device)))
    return means(sums)


def batches(examples: Examples, batch_size: int) -> Iterator[Batch]:
    """All examples in their own order, as they are."""
    for first in range(0, len(examples), batch_size):
        yield examples.batch(range(first, min(first + batch_size, len(examples))))


def on_device(batch: B, device: torch.device | str) -> B:
    return type(batch)(*(tensor.to(device) for tensor in batch))
