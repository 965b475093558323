"""The rule for every claim: tolerances with a reason, theories that are near and rejected, and no code shared.

A tolerance is at most 5 standard deviations over seeds, a proven bound, or rounding as a multiple of eps. What is
predicted is computed in `verdict` or in functions called `predict...`, and by nothing of the library: it is the library
that is measured.
"""

import ast
import dataclasses
import importlib
import inspect

import pytest
from tests.lab.test_claims import NAMES, TRAINED, every_claim, of_the_clock, small

from headwork.cli.lab import too_wide
from headwork.lab import find
from headwork.lab.verdict import EPS, N_SD, ROUNDING, about, at_least, exact, same

MOST_EPS = 2**20
"""Rounding adds up over long sums, but not beyond 2e-10 for numbers of order 1."""


FAR = 2
"""Tolerances that a near theory is off by, so that a measurement one tolerance off still tells it apart."""


@every_claim
def test_each_tolerance_has_its_reason(name):
    claim = find(name)
    for check in small(name).verdict.checks:
        if check.relation != "same" and not isinstance(check.predicted, str):
            assert check.basis != "none", check.what
        if check.basis == "rounding":
            assert check.tolerance <= MOST_EPS * EPS * max(1.0, abs(check.predicted)), check.what
        if check.basis == "sd":
            assert " SD" in claim.confidence or "standard" in claim.confidence
        if check.basis == "bound":
            assert "bound" in claim.confidence


@pytest.mark.parametrize(
    ("name", "seed"),
    [
        pytest.param(name, seed, marks=pytest.mark.slow if seed or name in TRAINED else ())
        for name in NAMES
        for seed in range(3)
    ],
)
def test_each_check_rejects_a_theory_that_is_near(name, seed):
    for check in small(name, seed).verdict.checks:
        assert check.near, f"{check.what}: no theory that is near, and wrong"
        if not of_the_clock(check):
            for theory in check.near:
                assert not theory.holds, f"{check.what}: {theory.what} is not told apart"
                assert seed or theory.distance >= FAR, f"{check.what}: {theory.what}, off by {theory.distance:.3g}"


@every_claim
def test_prediction_and_measurement_share_no_code(name):
    module = importlib.import_module(f"headwork.lab.claims.{name.replace('-', '_')}")
    functions, library = _read(inspect.getsource(module))
    predictions = {known for known in functions if known.startswith("predict")}
    predicted = _reached({"verdict"} | predictions, functions, stop=set())
    measured = _reached({"run"}, functions, stop=predictions)
    assert not (predicted & library), "the library is what is measured, not what predicts"
    assert not (predicted & measured & set(functions)), "one function on both sides"


def _read(source):
    """The names that each function of a file speaks of, and the names that come from the library."""
    tree = ast.parse(source)
    functions = {node.name: _names(node) for node in tree.body if isinstance(node, ast.FunctionDef)}
    library = {
        alias.asname or alias.name.partition(".")[0]
        for node in tree.body
        if isinstance(node, ast.ImportFrom | ast.Import)
        for alias in node.names
        if (getattr(node, "module", None) or alias.name).startswith("headwork")
        and not (getattr(node, "module", None) or alias.name).startswith("headwork.lab")
    }
    return functions, library


def _names(function):
    """Those in its body: a type beside an argument is no code."""
    return {node.id for part in function.body for node in ast.walk(part) if isinstance(node, ast.Name)}


def _reached(start, functions, stop):
    reached, todo = set(), [name for name in start if name in functions]
    while todo:
        name = todo.pop()
        if name not in reached:
            reached.add(name)
            reached |= functions[name] - functions.keys()
            todo += [other for other in functions[name] & functions.keys() if other not in stop]
    return reached


def test_shared_code_is_found():
    source = """
from headwork.functional import attend
def predict(x): return helper(x)
def helper(x): return x
def run(setup): return attend(helper(setup)), predict(setup)
def verdict(result): return result
"""
    functions, library = _read(source)
    assert library == {"attend"}
    assert _reached({"run"}, functions, stop={"predict"}) >= {"run", "attend", "helper"}
    assert "predict" not in _reached({"run"}, functions, stop={"predict"})
    assert "helper" in _reached({"verdict", "predict"}, functions, stop=set())


def test_a_tolerance_is_one_of_three():
    assert about("mean", 0, 0.1, sd=0.03).tolerance == pytest.approx(N_SD * 0.03)
    assert about("mean", 0, 0.1, bound=0.2).tolerance == 0.2
    assert about("mean", 4, 4, eps=8).tolerance == 32 * EPS
    assert about("mean", 0.1, 0.1, eps=8).tolerance == 8 * EPS
    assert about("mean", 0, 0).tolerance == ROUNDING
    with pytest.raises(ValueError, match=r"one of sd, bound and eps says what 'mean' may be off by, got sd and eps"):
        about("mean", 0, 0, sd=1, eps=1)


def test_a_near_theory_is_held_against_the_same_measurement():
    check = about("mean", 0.5, 0.52, sd=0.01, near={"a third": 1 / 3, "0.53": 0.53})
    assert (check.holds, check.sharp) == (True, False)
    assert [theory.holds for theory in check.near] == [False, True]
    assert check.nearest.what == "0.53"
    assert exact("loop", 1e-16, near={"an index off": 0.2}).sharp
    assert not exact("loop", 1e-16, near={"the same": 2e-16}).sharp
    assert same("shape", "2 x 3", "2 x 3", near={"transposed": "3 x 2"}).sharp
    assert not at_least("lead", 0.1, 0.3, near={"a larger lead": 0.2}).sharp
    assert at_least("lead", 0.1, 0.3, near={"none": about("", 0.0, 0.3, sd=0.02)}).sharp


def test_a_claim_that_cannot_tell_does_not_hold():
    claim = find("temperature")
    blunt = dataclasses.replace(
        claim,
        verdict=lambda result: dataclasses.replace(
            claim.verdict(result), checks=(about("x", 0, 0, sd=1, near={"1": 1}),)
        ),
    )
    finding = blunt.examine(claim.small, 2)
    assert (finding.n_held, finding.n_sharp, finding.holds) == (2, 0, False)
    assert finding.outcome == "holds: 2 of 2 seeds, and so does a theory that is near and wrong"
    assert finding.too_wide() == ["x"]
    assert too_wide([finding]) == ["temperature, x"]
