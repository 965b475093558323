"""Every claim, at small size: it holds, it would not if it were wrong, and it says what it has to say.

A claim file needs no test of its own; `headwork lab --all --seeds 20` (`make seeds`) is the long form of this one.
"""

import dataclasses
import io
import json
from functools import cache

import pytest
import torch
from matplotlib.text import Text

from headwork.lab import find, labels
from headwork.lab.catalogue import DOCUMENTS

NAMES = [label.name for label in labels()]
TRAINED = (
    "attention-aligns",
    "cls-gap-map",
    "cnn-against-vit",
    "heads-find-the-kernel",
    "heads-stay-soft",
    "heads-that-can-go",
    "more-epochs",
    "ten-thirty-fifty",
    "vit-positions-learn-a-layout",
)
"""Their networks take seconds to train."""


def case(name, *more, is_slow=False):
    return pytest.param(name, *more, marks=pytest.mark.slow if is_slow or name in TRAINED else ())


every_claim = pytest.mark.parametrize("name", list(map(case, NAMES)))


@cache
def small(name, seed=0):
    claim = find(name)
    return claim.examine(dataclasses.replace(claim.small, seed=seed))


def of_the_clock(check):
    """Times are measured when the lab runs, not here: a test may not depend on the machine and who else is at it."""
    return "time" in check.what.replace(",", "").split()


def failing(verdict):
    return [check for check in verdict.checks if not check.holds and not of_the_clock(check)]


@pytest.mark.parametrize(("name", "seed"), [case(name, seed, is_slow=seed > 0) for seed in range(3) for name in NAMES])
def test_it_holds(name, seed):
    assert failing(small(name, seed).verdict) == []


@pytest.mark.parametrize(("name", "what"), [case(name, what) for name in NAMES for what in find(name).broken])
def test_it_fails_when_broken(name, what):
    claim = find(name)
    verdict = claim.examine(claim.change(claim.small, claim.broken[what])).verdict
    assert failing(verdict), f"{name} holds although broken: {what}"


@pytest.mark.parametrize(
    ("name", "seconds_of", "holds"),
    [
        ("complexity", lambda n: (8 * n * 128**2, 4 * n**2 * 128), True),
        ("complexity", lambda n: (8 * n * 128**2, 4 * n**1.5 * 128**1.5), False),
        ("complexity", lambda n: (8 * n**1.5 * 128**1.5, 4 * n**2 * 128), False),
        ("cost_of_gaussian_heads", lambda _: (1.0, 0.95), True),
        ("cost_of_gaussian_heads", lambda _: (1.0, 1.05), False),
    ],
)
def test_times_are_judged(monkeypatch, name, seconds_of, holds):
    """By a clock that shows what it is told to."""
    claim = find(name)
    sizes = claim.small.lengths if name == "complexity" else claim.small.timed_sides
    seconds = [each for n in sizes for each in seconds_of(n)]
    monkeypatch.setattr(f"headwork.lab.claims.{name}.best_times", lambda _, *, rounds: seconds)
    verdict = claim.examine(claim.small).verdict
    assert verdict.holds == holds
    assert all(of_the_clock(check) for check in verdict.checks if not check.holds)


@every_claim
def test_it_says_what_it_has_to_say(name):
    claim = find(name)
    assert claim.broken
    assert claim.document in DOCUMENTS
    assert claim.question or claim.document == "beyond"
    assert claim.says.endswith(".")
    assert len(claim.says) <= 140, "one sentence"
    assert len(claim.explanation) >= 100, "the rest of the docstring derives it"
    assert claim.confidence.endswith(".")
    assert claim.small != claim.setup


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_it_is_pure(name):
    """The same setup gives the same numbers (but for times and rounding); nobody else's random numbers change."""
    first, claim = small(name).verdict, find(name)
    torch.rand(1)
    before = torch.get_rng_state()
    again = claim.examine(dataclasses.replace(claim.small, seed=0)).verdict
    assert torch.get_rng_state().equal(before)
    for check, other in zip(first.checks, again.checks, strict=True):
        if not of_the_clock(check):
            assert (check.what, check.predicted) == (other.what, pytest.approx(other.predicted))
            words = isinstance(other.measured, str)
            assert check.measured == (other.measured if words else pytest.approx(other.measured, rel=1e-6, abs=1e-9))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_its_figure_shows_prediction_and_measurement(name):
    figure = small(name).draw()
    assert figure.get_suptitle()
    assert any(ax.get_xlabel() and ax.get_ylabel() for ax in figure.axes)
    words = " ".join(text.get_text() for text in figure.findobj(Text))
    assert "predicted" in words
    assert "measured" in words
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=50)
    assert picture.getvalue().startswith(b"\x89PNG")


@every_claim
def test_it_can_be_printed_as_json(name):
    answer = json.loads(json.dumps(small(name).as_dict(), allow_nan=False))
    assert {"name", "document", "question", "predicted", "measured", "tolerance", "holds"} <= answer.keys()
    assert answer["name"] == name


@every_claim
def test_its_label_is_what_its_file_says(name):
    claim = find(name)
    label = next(label for label in labels() if label.name == name)
    assert (label.name, label.document, label.question, label.says) == (
        claim.name,
        claim.document,
        claim.question,
        claim.says,
    )
