"""Setups, seeds and breaking on purpose."""

import re
from dataclasses import dataclass, replace

import pytest
import torch

from headwork.figures import Figure
from headwork.lab import find
from headwork.lab.claim import LARGEST_SIZE, Claim, Experiment, seeded
from headwork.lab.verdict import Verdict, about


@dataclass(frozen=True, kw_only=True)
class Setup(Experiment):
    """A coin that lands on its side."""

    n_samples: int = 100
    widths: tuple[int, ...] = (3, 5)
    bias: float = 0.0
    lucky: bool = True


@seeded
def run(setup: Setup) -> tuple[Setup, float]:
    return setup, torch.rand(setup.n_samples).mean().item() + setup.bias


def verdict(result: tuple[Setup, float]) -> Verdict:
    return Verdict((about("mean", 0.5, result[1], 0.2 if result[0].seed != 2 else 0.0),), "The mean of 0 .. 1 is 0.5.")


CLAIM = Claim(
    "some.where.a_small_claim",
    "The mean is\none half.\n\nBy symmetry.\n\nIndeed.",
    document="beyond",
    question="",
    setup=Setup(),
    small=Setup(n_samples=50),
    run=run,
    verdict=verdict,
    figure=lambda result: Figure(),
    broken={"a shift": {"bias": 1.0}},
    confidence="Sure.",
)


def test_the_docstring_is_the_claim():
    assert (CLAIM.name, CLAIM.says, CLAIM.explanation) == (
        "a-small-claim",
        "The mean is one half.",
        "By symmetry.\n\nIndeed.",
    )
    assert CLAIM.source == "Beyond the five documents"


def test_a_seeded_run_depends_on_its_seed_alone():
    torch.manual_seed(7)
    expected = torch.rand(1)
    torch.manual_seed(7)
    first = run(Setup())
    assert torch.rand(1).equal(expected)
    assert run(Setup()) == first
    assert run(Setup(seed=1))[1] != first[1]


def test_what_is_broken_fails_and_is_part_of_the_finding():
    finding = CLAIM.examine(Setup(), broken=True)
    assert finding.verdict.holds
    assert [(what, bad.holds) for what, bad in finding.broken.items()] == [("a shift", False)]
    (row,) = finding.as_dict()["broken"]
    assert (row["wrong"], row["holds"], row["what"]) == ("a shift", False, "mean")
    assert finding.table_of_broken().rows[0][0] == "a shift"
    assert finding.table_of_broken().rows[0][-1] == "fails"


def test_what_is_broken_runs_once_at_the_small_size_and_only_if_asked_for():
    setups = []

    def recorded(setup):
        setups.append(setup)
        return run(setup)

    claim = replace(CLAIM, run=recorded)
    finding = claim.examine(Setup(seed=3), n_seeds=2)
    assert setups == [Setup(seed=3), Setup(seed=4)]
    assert finding.broken is None
    assert finding.as_dict()["broken"] is None
    setups.clear()
    claim.examine(Setup(seed=3), n_seeds=2, broken=True)
    assert setups == [Setup(seed=3), Setup(seed=4), Setup(n_samples=50, bias=1.0)]


def test_the_outcome_counts_seeds():
    assert CLAIM.examine(Setup()).outcome == "holds"
    assert CLAIM.examine(Setup(bias=1.0)).outcome == "fails"
    assert CLAIM.examine(Setup(), n_seeds=4).outcome == "fails: 3 of 4 seeds"


def test_many_seeds_have_to_hold_and_the_first_that_fails_is_shown():
    finding = CLAIM.examine(Setup(), n_seeds=4)
    assert (finding.n_seeds, finding.n_held, finding.setup.seed, finding.verdict.holds) == (4, 3, 2, False)
    finding = CLAIM.examine(Setup(seed=3), n_seeds=2)
    assert (finding.n_held, finding.setup.seed, finding.verdict.holds) == (2, 3, True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_samples": 0}, f"n_samples must lie in 1 .. {LARGEST_SIZE:,}, got 0"),
        ({"n_samples": 10**20}, "n_samples must lie in 1 .."),
        ({"widths": (3, -1)}, "widths must lie in 1 .."),
        ({"widths": ()}, "widths must hold at least one value, got none"),
        ({"widths": 3}, "Setup.widths must be tuple, got 3"),
        ({"n_samples": "many"}, "Setup.n_samples must be int, got 'many'"),
        ({"seed": -1}, "seed must lie in 0 .. 2^63 - 1, got -1"),
        ({"n_sample": 3}, "setup of a-small-claim has no field 'n_sample'; did you mean 'n_samples'?"),
    ],
)
def test_a_setup_that_makes_no_sense_is_refused(changes, message, as_users_run_it):
    with pytest.raises(ValueError, match=re.escape(message)):
        CLAIM.change(CLAIM.setup, changes)


def test_numbers_json_does_not_know_become_words():
    finding = CLAIM.examine(Setup(bias=float("inf")))
    assert finding.as_dict()["measured"] == "inf"
    assert finding.as_dict()["holds"] is False


def test_a_real_number_may_be_nothing_and_a_size_may_not():
    claim = find("variance-of-dot-product")
    assert claim.change(claim.small, {"mean": 0}).mean == 0
    with pytest.raises(ValueError, match=r"n_samples must lie in 1 \.\. 100,000,000, got 0"):
        claim.change(claim.small, {"n_samples": 0})


def test_sizes_that_make_no_sense_are_said_to():
    claim = find("attention-in-matrix-form")
    with pytest.raises(ValueError, match=r"attention-in-matrix-form cannot be measured with Setup.*n_keys=1"):
        claim.examine(claim.change(claim.small, {"n_keys": 1}))
