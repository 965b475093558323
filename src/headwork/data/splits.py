"""Which example is for training, which for choosing, and which for judging: each is in one part only."""

from collections.abc import Sequence
from typing import NamedTuple

from jaxtyping import Int
from numpy import ndarray

from headwork.extras import need


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
    need("sklearn")
    from sklearn.model_selection import train_test_split

    n, n_labels = len(labels), len(set(labels))
    check_sizes(n, n_valid, n_test, at_least=n_labels)
    rest, test = train_test_split(range(n), test_size=n_test, stratify=labels, random_state=seed)
    train, valid = train_test_split(rest, test_size=n_valid, stratify=[labels[i] for i in rest], random_state=seed)
    return Split(sorted(train), sorted(valid), sorted(test))


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
