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
every_claim = pytest.mark.parametrize("name", NAMES)


@cache
def small(name, seed=0):
    claim = find(name)
    return claim.examine(dataclasses.replace(claim.small, seed=seed))


@every_claim
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_it_holds(name, seed):
    verdict = small(name, seed).verdict
    assert verdict.holds, f"{name} fails: {verdict.headline}"


@pytest.mark.parametrize(("name", "what"), [(name, what) for name in NAMES for what in find(name).broken])
def test_it_fails_when_broken(name, what):
    claim = find(name)
    verdict = claim.examine(claim.change(claim.small, claim.broken[what])).verdict
    assert not verdict.holds, f"{name} holds although broken: {what}"


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


@every_claim
def test_it_is_pure(name):
    """The same setup gives the same numbers (but for times and rounding); nobody else's random numbers change."""
    first, claim = small(name).verdict, find(name)
    torch.rand(1)
    before = torch.get_rng_state()
    again = claim.examine(dataclasses.replace(claim.small, seed=0)).verdict
    assert torch.get_rng_state().equal(before)
    for check, other in zip(first.checks, again.checks, strict=True):
        if "time" not in check.what:
            assert (check.what, check.predicted) == (other.what, pytest.approx(other.predicted))
            words = isinstance(other.measured, str)
            assert check.measured == (other.measured if words else pytest.approx(other.measured, rel=1e-6, abs=1e-9))


@every_claim
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
