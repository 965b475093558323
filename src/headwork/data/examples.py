"""A data set is three lists of examples, and any of them gives any batch at any time.

Nothing is drawn from a stream that moves on. The random numbers of an example are a function of the seed, the epoch and
the example's own index, so a run that is resumed, shuffled otherwise or spread over processes sees the same examples.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from headwork.batches import Batch
from headwork.data.tokenizer import Tokenizer
from headwork.tasks import Task


@runtime_checkable
class Examples(Protocol):
    """A list of examples that can be pickled; `batch` picks some of them.

    Without an epoch they come as they are; with one, varied at random if the data set does that.
    """

    def __len__(self) -> int: ...

    def batch(self, indices: Sequence[int], epoch: int | None = None) -> Batch: ...


@dataclass(frozen=True, eq=False)
class Dataset:
    """What is learned from, what the best model is chosen on, what it is judged by in the end; and what to learn."""

    train: Examples
    valid: Examples
    test: Examples
    task: Task
    tokenizer: Tokenizer | None = None


@runtime_checkable
class DataConfig(Protocol):
    """A frozen dataclass that says which data: `load` reads them. The seed drives what varies, never the split."""

    def load(self, seed: int = 0) -> Dataset: ...


@runtime_checkable
class HasBagOfWords(Protocol):
    """A data config of texts that can also say what counting words reaches on its test data, for the report."""

    def bag_of_words_accuracy(self) -> float: ...


def image_size(examples: Examples) -> tuple[int, int] | None:
    """The (rows, columns) of the pixels of the examples; None if they are not images.

    >>> image_size(hw.data.Digits().load().test)
    (8, 8)
    """
    first = examples.batch([0])[0]
    return (first.shape[2], first.shape[3]) if first.ndim == 4 and first.is_floating_point() else None


def check_seed(seed: int) -> None:
    if seed < 0:
        raise ValueError(f"seed must be 0 or more, got {seed}")


def choose(indices: Sequence[int], n_examples: int) -> Int[Tensor, "batch"]:
    """The indices as a tensor, if there are such examples.

    >>> choose([2, 0], 3)
    tensor([2, 0])
    >>> choose([2, -1], 3)
    Traceback (most recent call last):
    ValueError: indices must lie in 0 .. 2, got -1
    """
    if not len(indices):
        raise ValueError("indices must name at least one example, got none")
    for index in (min(indices), max(indices)):
        if not 0 <= index < n_examples:
            raise ValueError(f"indices must lie in 0 .. {n_examples - 1}, got {index}")
    return torch.tensor(indices)


@lru_cache(maxsize=4)
def random_numbers(seed: int, epoch: int, n_examples: int, n_numbers: int) -> Float[Tensor, "example number"]:
    """Numbers from [0, 1), a row for each example; the newest tables are kept, so a batch only looks its rows up.

    >>> random_numbers(seed=0, epoch=1, n_examples=100, n_numbers=2)[7]
    tensor([0.2300, 0.9299], dtype=torch.float64)
    """
    check_seed(seed)
    if epoch < 0:
        raise ValueError(f"epoch must be 0 or more, got {epoch}")
    # The word keeps these numbers apart from others that are drawn from the same seed and epoch, such as the order.
    generator = np.random.default_rng([seed, epoch, *b"examples"])
    return torch.from_numpy(generator.random((n_examples, n_numbers)))
