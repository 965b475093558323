"""Run a model in evaluation mode for a while."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Without dropout inside the block; afterwards every module has its own mode back.

    >>> dropout = nn.Dropout()
    >>> with evaluation_mode(dropout):
    ...     print(dropout.training)
    False
    >>> dropout.training
    True
    """
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode
