"""Predicted beside measured, whether they agree, and whether a theory that is wrong by a little would be noticed.

>>> variance = about("variance", 64.0, 63.2, sd=0.6, near={"one term less": 63 * 0.9})
>>> verdict = Verdict(checks=(variance,), why="The terms add.")
>>> verdict.holds, verdict.sharp
(True, True)
>>> print(verdict.checks[0])
variance: predicted 64, measured 63.2, tolerance 3
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from torch import Tensor

from headwork.tables import Table

EPS = 2.0**-52
"""The spacing of double precision at 1."""
ROUNDING = 4096 * EPS
"""What double precision may leave of two computations of the same thing, for numbers of order 1: 9e-13."""
N_SD = 5
"""A measurement that varies with the seed may be off by so many standard deviations, and by no more."""

Value = float | str
"""Numbers are compared within a tolerance; words (such as a shape) have to be the same."""
Relation = Literal["about", "same", "at most", "at least"]
Basis = Literal["sd", "bound", "rounding", "none"]
"""Why a tolerance is as large as it is: `N_SD` standard deviations over seeds, a proven bound, or rounding."""


@dataclass(frozen=True)
class Check:
    """One thing that was predicted, what was measured instead, and how far they may be apart."""

    what: str
    predicted: Value
    measured: Value
    tolerance: float = 0.0
    relation: Relation = "about"
    basis: Basis = "none"
    near: tuple["Check", ...] = ()
    """The same comparison for theories that are wrong by a little, each called by its own name: all have to fail."""

    @property
    def sd(self) -> float | None:
        """The standard deviation over seeds that the tolerance stands for, if it is one."""
        return self.tolerance / N_SD if self.basis == "sd" else None

    @property
    def sharp(self) -> bool:
        """Whether every near wrong theory is rejected."""
        return not any(theory.holds for theory in self.near)

    @property
    def distance(self) -> float:
        """How far the measurement is from the prediction, in tolerances: it holds up to 1.

        >>> about("mean", 0.5, 0.53, sd=0.01).distance
        0.6
        """
        if isinstance(self.predicted, str) or isinstance(self.measured, str) or self.relation == "same":
            return 0.0 if self.predicted == self.measured else math.inf
        off = self.measured - self.predicted
        off = {"at most": max(off, 0.0), "at least": max(-off, 0.0)}.get(self.relation, abs(off))
        return round(off / self.tolerance, 9) if self.tolerance else (0.0 if off == 0 else math.inf)

    @property
    def nearest(self) -> "Check | None":
        """The near wrong theory that comes closest to the measurement."""
        return min(self.near, key=lambda theory: theory.distance, default=None)

    @property
    def holds(self) -> bool:
        """NaN never holds."""
        if isinstance(self.predicted, str) or isinstance(self.measured, str) or self.relation == "same":
            return self.predicted == self.measured
        match self.relation:
            case "about":
                return abs(self.measured - self.predicted) <= self.tolerance
            case "at most":
                return self.measured <= self.predicted + self.tolerance
            case "at least":
                return self.measured >= self.predicted - self.tolerance

    def __str__(self) -> str:
        tolerance = f", tolerance {show(self.tolerance)}" if self.tolerance else ""
        return f"{self.what}: predicted {self.prediction}, measured {show(self.measured)}{tolerance}"

    @property
    def prediction(self) -> str:
        """The prediction with its relation: `at most 0.1`."""
        bound = f"{self.relation} " if self.relation in ("at most", "at least") else ""
        return bound + show(self.predicted)

    @property
    def cells(self) -> tuple[str, str, str, str]:
        """For a table: what, predicted, measured, tolerance and what it is made of."""
        of = {"sd": f" ({N_SD} SD)", "bound": " (bound)", "rounding": " (rounding)", "none": ""}[self.basis]
        return self.what, self.prediction, show(self.measured), show(self.tolerance) + of if self.tolerance else "none"


@dataclass(frozen=True)
class Verdict:
    """All that a claim predicts, and why it comes out so; the first check is the headline."""

    checks: tuple[Check, ...]
    why: str

    def __post_init__(self) -> None:
        if not self.checks:
            raise ValueError("checks must hold at least one comparison, got none: nothing would be judged")

    @property
    def holds(self) -> bool:
        return all(check.holds for check in self.checks)

    @property
    def sharp(self) -> bool:
        """Whether each check rejects every theory that is wrong by a little."""
        return all(check.sharp for check in self.checks)

    @property
    def word(self) -> str:
        return word(self.holds)

    @property
    def reason(self) -> str:
        """Why it holds, or what fails."""
        return self.why if self.holds else f"{self.headline}."

    @property
    def headline(self) -> Check:
        """The check that stands for all: the first one that fails, or else the first one."""
        return next((check for check in self.checks if not check.holds), self.checks[0])

    def table(self) -> Table:
        """Every prediction beside its measurement."""
        rows = tuple((*check.cells, word(check.holds)) for check in self.checks)
        return Table(("", "predicted", "measured", "tolerance", ""), rows)

    def table_of_near(self) -> Table:
        """The theories that are wrong by a little, and how far off each is, in tolerances."""
        rows = tuple(
            (check.what, theory.what, theory.prediction, show(theory.measured), _times(theory), _rejected(theory))
            for check in self.checks
            for theory in check.near
        )
        return Table(("the check", "a theory that is near, and wrong", "predicts", "measured", "off by", ""), rows)


def _times(theory: Check) -> str:
    """How far a near theory is off, in tolerances; a word or a bound without tolerance is right or wrong."""
    return f"{theory.distance:,.3g} tolerances" if math.isfinite(theory.distance) else "more than none"


def _rejected(theory: Check) -> str:
    return "not told apart" if theory.holds else "rejected"


def word(holds: bool) -> str:
    return "holds" if holds else "fails"


def show(value: Value) -> str:
    """Four digits are enough to compare.

    >>> show(12345.678), show(12), show(0.123456), show(1e-13), show("6 x 6")
    ('12,346', '12', '0.1235', '1e-13', '6 x 6')
    """
    if isinstance(value, str):
        return value
    is_whole = abs(value) < 1e9 and (abs(value) >= 1000 or value == round(value))
    return f"{value:,.0f}" if is_whole else f"{value:.4g}"


Near = Mapping[str, Value | Check]
"""Theories that are wrong by a little (a constant, an exponent, an index off), and what each would predict.

One that is compared in another way is a check of its own, such as `about` beside an `at_least`.
"""


def about(
    what: str,
    predicted: float,
    measured: float,
    tolerance: float | None = None,
    *,
    sd: float | None = None,
    bound: float | None = None,
    eps: float | None = None,
    near: Near | None = None,
) -> Check:
    """A number that may be off by `N_SD` standard deviations over seeds, a proven bound, or so many eps of rounding.

    Rounding, which it is unless said otherwise, grows with the number: eps times the larger of 1 and what is predicted.

    >>> print(about("a third", 1 / 3, 0.3333, bound=1e-4, near={"0.33": 0.33}))
    a third: predicted 0.3333, measured 0.3333, tolerance 0.0001
    """
    given = [name for name, value in (("sd", sd), ("bound", bound), ("eps", eps)) if value is not None]
    if tolerance is not None and not given:  # a claim of before the rule
        return _check(Check(what, predicted, measured, tolerance), near)
    if len(given) > 1:
        raise ValueError(f"one of sd, bound and eps says what {what!r} may be off by, got {' and '.join(given)}")
    if sd is not None:
        return _check(Check(what, predicted, measured, N_SD * sd, basis="sd"), near)
    if bound is not None:
        return _check(Check(what, predicted, measured, bound, basis="bound"), near)
    rounding = (ROUNDING if eps is None else eps * EPS) * max(1.0, abs(predicted))
    return _check(Check(what, predicted, measured, rounding, basis="rounding"), near)


def exact(what: str, difference: float, *, eps: float = 4096, near: Mapping[str, float] | None = None) -> Check:
    """A difference of two computations of the same thing: 0, up to rounding; near theories leave a larger one.

    >>> print(exact("the matrix form against the loop", 2e-16, near={"without the scale": 0.3}))
    the matrix form against the loop: predicted 0, measured 2e-16, tolerance 9.095e-13
    """
    check = Check(what, 0, difference, eps * EPS, basis="rounding")
    return _check(check, {name: replace(check, measured=left) for name, left in (near or {}).items()})


def same(what: str, predicted: Value, measured: Value, *, near: Near | None = None) -> Check:
    """A count, or a shape in words, that has to be exactly so."""
    return _check(Check(what, predicted, measured, relation="same"), near)


def at_most(what: str, predicted: float, measured: float, tolerance: float = 0.0, *, near: Near | None = None) -> Check:
    """A number that may not be larger, up to rounding; near theories are smaller bounds, which do not hold."""
    return _check(Check(what, predicted, measured, tolerance, "at most", "rounding"), near)


def at_least(
    what: str, predicted: float, measured: float, tolerance: float = 0.0, *, near: Near | None = None
) -> Check:
    """A number that may not be smaller, up to rounding; near theories are larger bounds, which do not hold."""
    return _check(Check(what, predicted, measured, tolerance, "at least", "rounding"), near)


def _check(check: Check, near: Near | None) -> Check:
    """The check, with what each near theory predicts in place of its own prediction."""
    theories = [
        replace(wrong, what=name) if isinstance(wrong, Check) else replace(check, what=name, predicted=wrong)
        for name, wrong in (near or {}).items()
    ]
    return replace(check, near=tuple(theories))


def largest_difference(a: Tensor, b: Tensor) -> float:
    """The largest absolute difference of two tensors of the same shape.

    >>> largest_difference(torch.zeros(2), torch.tensor([0.0, -3.0]))
    3.0
    """
    if a.shape != b.shape:
        raise ValueError(f"a and b must have the same shape, got {tuple(a.shape)} and {tuple(b.shape)}")
    return (a - b).abs().max().item()
