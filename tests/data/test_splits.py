"""Parts do not overlap, and each has its share of each label."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwork.data.splits import split_by_label


@settings(max_examples=40, deadline=None)
@given(
    counts=st.lists(st.integers(20, 60), min_size=2, max_size=5),
    n_valid=st.integers(5, 15),
    n_test=st.integers(5, 15),
    seed=st.integers(0, 2**32 - 1),
)
def test_each_part_has_its_share_of_each_label(counts, n_valid, n_test, seed):
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))
    split = split_by_label(labels, n_valid, n_test, seed)
    assert sorted([*split.train, *split.valid, *split.test]) == list(range(len(labels)))
    assert (len(split.valid), len(split.test)) == (n_valid, n_test)
    for part in split:
        found = Counter(labels[part].tolist())
        for label, count in enumerate(counts):
            assert abs(found[label] - len(part) * count / len(labels)) < 2


def test_the_seed_says_which():
    labels = [0, 1, 2] * 30
    one, again, other = (split_by_label(labels, 9, 12, seed) for seed in (0, 0, 1))
    assert one == again
    assert all(a != b for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize(
    ("n_valid", "n_test", "message"),
    [
        (2, 9, "n_valid must be 3 or more, got 2"),
        (9, 0, "n_test must be 3 or more, got 0"),
        (9, -1, "n_test must be 3 or more, got -1"),
        (40, 48, "must leave 3 or more of 90 examples to train on, got n_valid=40 and n_test=48"),
    ],
)
def test_parts_without_room_for_each_label(n_valid, n_test, message):
    with pytest.raises(ValueError, match=message):
        split_by_label([0, 1, 2] * 30, n_valid, n_test, 0)
