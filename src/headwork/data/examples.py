"""A data set is three lists of examples that do not overlap, and any of them gives any batch at any time.

Nothing is drawn from a stream that moves on. The random numbers of an example are a function of the seed, the epoch and
the example's own index, so a run that is resumed, shuffled otherwise or spread over processes sees the same examples.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from torch import Tensor

from headwork.batches import Batch
from headwork.data.tokenizer import AnyTokenizer
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
    tokenizer: AnyTokenizer | None = None
    found: tuple[str, ...] = ()
    """What is in the files of a user's own, in lines to be shown before training."""
    digest: str | None = None
    """Of those files, so that a run notices when they change."""


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


class Split(NamedTuple):
    """The indices of each part, in rising order."""

    train: list[int]
    valid: list[int]
    test: list[int]


def split_by_label(labels: Sequence[int] | Int[ndarray, "example"], n_valid: int, n_test: int, seed: int) -> Split:
    """A random split in which each part has each label in the same share.

    >>> split = split_by_label([0, 1] * 10, n_valid=4, n_test=6, seed=0)
    >>> [len(part) for part in split]
    [10, 4, 6]
    """
    check_sizes(len(labels), n_valid, n_test, at_least=len(set(labels)))
    every = np.asarray(labels)
    rest, test = take_apart(every, np.arange(len(labels)), n_test, seed)
    train, valid = take_apart(every, rest, n_valid, seed)
    return Split(*(sorted(part.tolist()) for part in (train, valid, test)))


def take_apart(
    labels: Int[ndarray, "example"],
    indices: Int[ndarray, "some"],
    n_taken: int,
    seed: int,
    sizes: Int[ndarray, "example"] | None = None,
    n_kept: int = 1,
) -> tuple[Int[ndarray, "rest"], Int[ndarray, "taken"]]:
    """What `train_test_split(indices, test_size=n_taken, stratify=labels[indices])` of scikit-learn gives.

    Written out, since to import that takes a second, which is as long as some epochs. With `sizes` an index stands for
    a group of so many examples, which are counted, and of each label at least one group is taken if `n_kept` are left.
    """
    chance = np.random.RandomState(seed)
    weights = np.ones(len(indices), dtype=np.int64) if sizes is None else sizes[indices]
    _, of_each, n_members = np.unique(labels[indices], return_inverse=True, return_counts=True)
    counts = np.bincount(of_each, weights=weights).astype(np.int64)
    n_left = _shares(counts, int(counts.sum()) - n_taken, chance)
    n_out = _shares(counts - n_left, n_taken, chance)
    rest, taken = list[int](), list[int]()
    by_label = np.split(np.argsort(of_each, kind="stable"), np.cumsum(n_members)[:-1])
    for members, left, out in zip(by_label, n_left, n_out, strict=True):
        mixed = members[chance.permutation(len(members))]
        is_out = np.arange(len(mixed)) >= left if sizes is None else _choose_groups(weights[mixed], int(out), n_kept)
        rest.extend(mixed[~is_out])
        taken.extend(mixed[is_out])
    return indices[chance.permutation(rest)], indices[chance.permutation(taken)]


def _choose_groups(sizes: Int[ndarray, "group"], n: int, n_kept: int) -> Bool[ndarray, "group"]:
    """Groups of about n examples together, one group at least, but for `n_kept` groups.

    A group of more than a tenth of them is taken only where the others are not enough, the smallest first, so that
    copies of one example do not decide what is measured.
    """
    order = np.argsort(np.where(sizes > max(1, n // 10), sizes, 0), kind="stable")
    is_taken, n_wanted = np.zeros(len(sizes), dtype=bool), max(n, 1)
    for place, group in enumerate(order[: max(len(order) - n_kept, 0)]):
        if sizes[group] <= n_wanted or place == 0:
            is_taken[group] = True
            n_wanted -= sizes[group]
    return is_taken


def _shares(counts: Int[ndarray, "label"], n: int, chance: np.random.RandomState) -> Int[ndarray, "label"]:
    """How many of each label are among n: their shares, rounded down, and 1 more where most is missing."""
    exact = counts / counts.sum() * n
    shares = np.floor(exact)
    missing = exact - shares
    for value in np.unique(missing)[::-1]:
        n_more = int(n - shares.sum())
        if n_more > 0:
            (equal,) = np.nonzero(missing == value)
            shares[chance.choice(equal, size=min(len(equal), n_more), replace=False)] += 1
    return shares.astype(np.int64)


def check_sizes(n_examples: int, n_valid: int, n_test: int, at_least: int) -> None:
    """Each part must have an example of each label at least.

    >>> check_sizes(1797, n_valid=1000, n_test=1000, at_least=10)
    Traceback (most recent call last):
    ValueError: n_valid + n_test must leave 10 or more of 1797 examples to train on, got n_valid=1000 and n_test=1000
    """
    for name, count in (("n_valid", n_valid), ("n_test", n_test)):
        if count < at_least:
            raise ValueError(f"{name} must be {at_least} or more, got {count}")
    if n_examples - n_valid - n_test < at_least:
        raise ValueError(
            f"n_valid + n_test must leave {at_least} or more of {n_examples} examples to train on, "
            f"got n_valid={n_valid} and n_test={n_test}"
        )


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
