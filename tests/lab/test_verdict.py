"""When a check holds."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwork.lab.verdict import ROUNDING, Check, Verdict, about, at_least, at_most, exact, same

numbers = st.floats(allow_nan=False, allow_infinity=False, width=16)


@given(numbers, numbers, st.floats(0, 100))
def test_about_is_a_distance(predicted, measured, tolerance):
    assert about("x", predicted, measured, tolerance).holds == (abs(predicted - measured) <= tolerance)


@given(numbers, numbers)
def test_bounds_are_one_sided(bound, measured):
    assert at_most("x", bound, measured).holds == (measured <= bound)
    assert at_least("x", bound, measured).holds == (measured >= bound)


@pytest.mark.parametrize("make", [about, at_most, at_least])
def test_nan_never_holds(make):
    assert not make("x", 1.0, math.nan, 10.0).holds
    assert not make("x", math.nan, 1.0, 10.0).holds
    assert not same("x", math.nan, math.nan).holds


def test_words_are_the_same_or_not():
    assert same("shape", "6 x 6", "6 x 6").holds
    assert not same("shape", "6 x 6", "768 x 768").holds
    assert not same("count", 3, 3.0000001).holds
    assert not Check("shape", "3", 3.0).holds


def test_one_failure_is_enough_and_becomes_the_headline():
    good, bad = about("good", 1, 1, 0.0), about("bad", 1, 2, 0.5)
    assert Verdict((good, good), "because").reason == "because"
    verdict = Verdict((good, bad, good), "because")
    assert not verdict.holds
    assert verdict.headline is bad
    assert verdict.reason == "bad: predicted 1, measured 2, tolerance 0.5."


def test_exact_is_nothing_up_to_rounding():
    assert exact("x", -1e-13) == about("x", 0, -1e-13)
    assert exact("x", ROUNDING).holds
    assert not exact("x", 2 * ROUNDING).holds
    assert not exact("x", math.nan).holds
    assert not exact("x", 1e-16, eps=0).holds


def test_a_verdict_is_a_table():
    verdict = Verdict((at_most("small", 1, 0.5), about("off", 1, 2, 0.5)), "because")
    assert verdict.table().rows == (
        ("small", "at most 1", "0.5", "none", "holds"),
        ("off", "1", "2", "0.5", "fails"),
    )


def test_nothing_judged_is_refused():
    with pytest.raises(ValueError, match="checks must hold at least one comparison"):
        Verdict((), "because")


def test_a_bound_is_printed_as_one():
    assert str(at_least("x", 2, 1)) == "x: predicted at least 2, measured 1"
