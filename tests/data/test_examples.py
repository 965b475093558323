"""Every data set: a batch depends on the seed, the epoch and the indices, and on nothing else."""

import pickle
import subprocess
import sys
import typing
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jaxtyping import jaxtyped
from sklearn.model_selection import train_test_split

from headwork.data import Batch, Dataset, Examples
from headwork.data.examples import choose, random_numbers, split_by_label
from tests.data.conftest import CONFIGS, VARIED, load


def parts(data: Dataset) -> tuple[Examples, Examples, Examples]:
    return data.train, data.valid, data.test


def assert_equal(one: Batch, other: Batch) -> None:
    assert type(one) is type(other)
    for name, a, b in zip(one._fields, one, other, strict=True):
        assert torch.equal(a, b), name


def test_the_axes_are_those_of_the_annotations(any_set):
    for part in parts(any_set):
        for epoch in (None, 3):
            batch = part.batch([0, 5, 2, 2, 7], epoch)
            hints = typing.get_type_hints(type(batch))
            with jaxtyped("context"):
                for name, value in zip(batch._fields, batch, strict=True):
                    assert isinstance(value, hints[name]), name
            assert all(len(value) == 5 for value in batch)


def test_every_set_is_one_of_examples(any_set):
    assert all(isinstance(part, Examples) and len(part) > 0 for part in parts(any_set))
    if hasattr(any_set.task, "labels"):
        every = any_set.train.batch(range(len(any_set.train))).label
        assert set(every.tolist()) == set(range(len(any_set.task.labels)))


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_an_example_is_the_same_in_any_batch(any_set, data):
    """Alone, among others, in any order: only padding may be added."""
    for part in (any_set.train, any_set.test):
        indices = data.draw(st.lists(st.integers(0, len(part) - 1), min_size=1, max_size=6))
        epoch = data.draw(st.none() | st.integers(0, 2**31))
        among = part.batch(indices, epoch)
        for place, index in enumerate(indices):
            alone = part.batch([index], epoch)
            for name, many, one in zip(among._fields, among, alone, strict=True):
                row = many[place]
                if row.ndim == 1 and len(row) > one.shape[1]:
                    padding = row[one.shape[1] :]
                    assert (padding == padding[0]).all()
                    row = row[: one.shape[1]]
                assert torch.equal(row, one[0]), name


def test_without_an_epoch_nothing_varies(any_set):
    for part in parts(any_set):
        assert_equal(part.batch([4, 1]), part.batch([4, 1], None))


def test_only_the_training_part_varies(any_set):
    for part in (any_set.valid, any_set.test):
        assert_equal(part.batch([3, 0, 1]), part.batch([3, 0, 1], epoch=2))


def test_epochs_and_seeds_differ(varied_set):
    indices = list(range(20))
    one, other = load(varied_set, seed=0).train, load(varied_set, seed=1).train
    clean = one.batch(indices)
    assert_equal(clean, other.batch(indices))
    seen = [part.batch(indices, epoch) for part in (one, other) for epoch in (0, 1)]
    for i, a in enumerate([clean, *seen]):
        for b in [clean, *seen][:i]:
            assert not torch.equal(a[0], b[0])


@pytest.mark.parametrize("name", sorted(set(CONFIGS) - set(VARIED)))
def test_what_does_not_vary_says_the_same_in_each_epoch(name):
    train = load(name).train
    assert_equal(train.batch([1, 2, 3]), train.batch([1, 2, 3], epoch=5))


def test_an_old_epoch_comes_back(varied_set):
    """Though only the newest tables are kept."""
    train = load(varied_set).train
    before = train.batch([6, 2], epoch=0)
    for epoch in range(1, 12):
        train.batch([0], epoch)
    assert_equal(train.batch([6, 2], epoch=0), before)


def test_global_random_numbers_are_neither_used_nor_spent(any_set):
    torch.manual_seed(1)
    np.random.seed(1)  # noqa: NPY002 the old global state is what must not matter
    random_numbers.cache_clear()
    one = any_set.train.batch([3, 8], epoch=1)
    torch.manual_seed(2)
    np.random.seed(2)  # noqa: NPY002
    random_numbers.cache_clear()
    state = torch.get_rng_state()
    assert_equal(any_set.train.batch([3, 8], epoch=1), one)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_batch_is_a_copy(any_set):
    """Whoever changes a batch in place changes no data."""
    before = any_set.train.batch([0, 1])
    changed = any_set.train.batch([0, 1])
    for value in changed:
        value.logical_not_() if value.dtype == torch.bool else value.mul_(0)
    assert_equal(any_set.train.batch([0, 1]), before)
    assert not torch.equal(changed[0], before[0])


def test_another_process_sees_the_same():
    program = """
import pickle, sys
sets = pickle.load(sys.stdin.buffer)
pickle.dump([part.batch([5, 3, 9], epoch=4) for part in sets], sys.stdout.buffer)
"""
    sets = [load(name).train for name in CONFIGS]
    done = subprocess.run([sys.executable, "-c", program], input=pickle.dumps(sets), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    for part, there in zip(sets, pickle.loads(done.stdout), strict=True):
        assert_equal(part.batch([5, 3, 9], epoch=4), there)


def test_a_whole_set_can_be_pickled(any_set):
    again = pickle.loads(pickle.dumps(any_set))
    assert_equal(again.train.batch([2, 4], 1), any_set.train.batch([2, 4], 1))
    assert again.task == any_set.task
    assert (again.tokenizer is None) == (any_set.tokenizer is None)
    if again.tokenizer is not None:
        assert again.tokenizer.to_json() == any_set.tokenizer.to_json()


# --- the table of random numbers -----------------------------------------------------------------------------------


def test_rows_do_not_depend_on_how_many_there_are():
    assert torch.equal(random_numbers(3, 5, 100, 2)[:7], random_numbers(3, 5, 7, 2))


def test_seed_and_epoch_do_not_stand_for_each_other():
    tables = [random_numbers(seed, epoch, 11, 2) for seed, epoch in ((0, 1), (1, 0), (1, 1), (0, 0), (2**40, 0))]
    for i, a in enumerate(tables):
        assert not any(torch.equal(a, b) for b in tables[:i])


def test_the_numbers_fill_the_interval():
    numbers = random_numbers(0, 0, 20_000, 2)
    assert numbers.min() >= 0
    assert numbers.max() < 1
    torch.testing.assert_close(numbers.mean(0), torch.full((2,), 0.5).double(), atol=0.01, rtol=0)
    assert abs(float(numbers.T.corrcoef()[0, 1])) < 0.03


@pytest.mark.parametrize(
    ("arguments", "message"),
    [((-1, 0), "seed must be 0 or more, got -1"), ((0, -3), "epoch must be 0 or more, got -3")],
)
def test_numbers_below_zero_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        random_numbers(*arguments, 3, 2)


@pytest.mark.parametrize(
    ("indices", "message"),
    [
        ([], "at least one example, got none"),
        ([0, 5], r"indices must lie in 0 .. 4, got 5"),
        ([2, -1, 3], r"indices must lie in 0 .. 4, got -1"),
        (range(6), r"got 5"),
    ],
)
def test_examples_that_are_not_there(indices, message):
    with pytest.raises(ValueError, match=message):
        choose(indices, 5)


def test_every_set_checks_its_indices(any_set):
    for part in parts(any_set):
        with pytest.raises(ValueError, match="indices must lie in"):
            part.batch([len(part)])


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


@given(
    counts=st.lists(st.integers(12, 40), min_size=2, max_size=5),
    n_valid=st.integers(5, 11),
    n_test=st.integers(5, 11),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=50, deadline=None)
def test_a_split_is_that_of_scikit_learn(counts: list[int], n_valid: int, n_test: int, seed: int) -> None:
    """The split of a data set must not change: it says which examples a model has not seen."""
    labels = np.random.default_rng(seed).permutation(np.repeat(range(len(counts)), counts))
    rest, test = train_test_split(range(len(labels)), test_size=n_test, stratify=labels, random_state=seed)
    train, valid = train_test_split(rest, test_size=n_valid, stratify=labels[rest], random_state=seed)
    assert split_by_label(labels, n_valid, n_test, seed) == (sorted(train), sorted(valid), sorted(test))


def test_the_digits_are_those_of_scikit_learn_which_is_not_imported() -> None:
    program = (
        "import sys, headwork as hw; data = hw.data.Digits(augment=False).load(); assert 'sklearn' not in sys.modules\n"
        "import torch; from sklearn.datasets import load_digits; from headwork.data.examples import split_by_label\n"
        "theirs = load_digits(); split = split_by_label(theirs.target, 300, 300, 0)\n"
        "for part, indices in zip((data.train, data.valid, data.test), split):\n"
        "    batch = part.batch(range(len(part)))\n"
        "    assert torch.equal(batch.image[:, 0] * 16, torch.tensor(theirs.images[indices]).float())\n"
        "    assert batch.label.tolist() == theirs.target[indices].tolist()"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300)
