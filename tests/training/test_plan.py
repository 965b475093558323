"""Every example comes once in an epoch, whoever works on it, and always at the same place."""

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.training.small_runs import small_run

from headwork.seeds import derive_seed, seed_everything
from headwork.training import TrainingConfig
from headwork.training.plan import Plan, shuffled, training_batches


def plan(n_examples: int, rank: int = 0, n_processes: int = 1, **training: object) -> Plan:
    return Plan(n_examples, TrainingConfig(**{"batch_size": 6, "epochs": 3, **training}), rank, n_processes)


@given(st.integers(6, 60), st.sampled_from([1, 2, 3]), st.sampled_from([1, 2]), st.integers(0, 99))
def test_an_epoch_has_every_example_once(n_examples: int, accumulate: int, n_processes: int, seed: int) -> None:
    if 6 % (accumulate * n_processes):
        return
    plans = [plan(n_examples, rank, n_processes, accumulate=accumulate, seed=seed) for rank in range(n_processes)]
    for epoch in range(2):
        first = epoch * plans[0].steps_per_epoch
        seen = [
            index
            for step in range(first, first + plans[0].steps_per_epoch)
            for each in plans
            for of_epoch, part in each.parts(step)
            for index in part
            if of_epoch == epoch
        ]
        assert len(seen) == len(set(seen)) == n_examples // 6 * 6
        assert set(seen) <= set(range(n_examples))


@given(st.sampled_from([1, 2, 3, 6]), st.sampled_from([1, 2, 3, 6]), st.integers(0, 20))
def test_a_step_has_the_same_examples_in_the_same_order_however_it_is_split(
    accumulate: int, n_processes: int, step: int
) -> None:
    """Part after part, and in each part process after process."""
    if 6 % (accumulate * n_processes):
        return
    ((_, whole),) = plan(41).parts(step)
    plans = [plan(41, rank, n_processes, accumulate=accumulate) for rank in range(n_processes)]
    parts = zip(*(each.parts(step) for each in plans), strict=True)
    assert [index for of_all in parts for _, part in of_all for index in part] == whole


@pytest.mark.parametrize("name", ["batch_size", "epochs", "evaluate_every", "patience"])
def test_a_number_of_thirty_digits_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be at most 1,000,000,000, got 999,999,"):
        plan(20, **{name: 10**30 - 1})


def test_the_order_differs_from_epoch_to_epoch_and_seed_to_seed() -> None:
    orders = {tuple(shuffled(20, derive_seed(seed, "order", epoch))) for seed in range(3) for epoch in range(3)}
    assert len(orders) == 9


def test_seeds_for_different_purposes_are_unrelated() -> None:
    seeds = {derive_seed(*words) for words in ((0, "order", 1), (0, "dropout", 1), (1, "order", 0), (0, "order", 1, 0))}
    assert len(seeds) == 4
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_all_generators_start_anew() -> None:
    def draw() -> tuple[float, float, float]:
        return torch.rand(1).item(), random.random(), float(np.random.random())  # noqa: NPY002

    seed_everything(7)
    first = draw()
    assert draw() != first
    seed_everything(7)
    assert draw() == first
    seed_everything(8)
    assert not set(draw()) & set(first)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_examples": 5}, "batch_size must be at most the number of training examples, 5, got 6"),
        ({"n_examples": 9, "n_processes": 4}, r"multiple of accumulate x processes, 1 x 4, got 6"),
        ({"n_examples": 9, "n_processes": 3, "accumulate": 3}, r"multiple of accumulate x processes, 3 x 3, got 6"),
    ],
)
def test_plans_that_do_not_work_out(changes: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plan(**changes)


def test_when_it_evaluates_and_saves() -> None:
    every_epoch = plan(20)
    assert [step for step in range(1, 10) if every_epoch.evaluates(step)] == [3, 6, 9]
    often = plan(20, epochs=None, steps=8, evaluate_every=3, save_every=2)
    assert [step for step in range(1, 9) if often.evaluates(step)] == [3, 6, 8]
    assert [step for step in range(1, 9) if often.saves(step)] == [2, 3, 4, 6, 8]


def test_workers_change_nothing(tmp_path: Path) -> None:
    """With augmentation, in the middle of the second epoch."""
    run = small_run(tmp_path / "run", augment=True, accumulate=3)
    data = run.load_data()
    alone = Plan(len(data.train), run.config.training)
    helped = Plan(len(data.train), replace(run.config.training, workers=2))
    for ours, theirs in zip(
        training_batches(alone, data.train, 7), training_batches(helped, data.train, 7), strict=True
    ):
        for a, b in zip(ours, theirs, strict=True):
            assert all(map(torch.equal, a, b))
