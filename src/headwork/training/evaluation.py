"""How good a model is on a split of the data."""

from collections.abc import Iterator

import torch
from torch import nn

from headwork.batches import Batch, to_device
from headwork.data import Examples
from headwork.tasks import Evaluation, Task


def evaluate(
    task: Task, model: nn.Module, examples: Examples, batch_size: int, device: torch.device | str = "cpu"
) -> Evaluation:
    """All metrics of a task over all examples; the model is taken as it is."""
    return task.evaluate(model, (to_device(batch, device) for batch in batches(examples, batch_size)))


def batches(examples: Examples, batch_size: int) -> Iterator[Batch]:
    """All examples in their own order, as they are."""
    for first in range(0, len(examples), batch_size):
        yield examples.batch(range(first, min(first + batch_size, len(examples))))
