"""Predicted beside measured, and whether they agree.

>>> verdict = Verdict(checks=(about("variance", 64.0, 63.2, tolerance=3.2),), why="The terms add.")
>>> verdict.holds
True
>>> print(verdict.checks[0])
variance: predicted 64, measured 63.2, tolerance 3.2
"""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from headwork.tables import Table

ROUNDING = 1e-12
"""What double precision may leave of two computations of the same thing, for numbers of order 1."""

Value = float | str
"""Numbers are compared within a tolerance; words (such as a shape) have to be the same."""
Relation = Literal["about", "same", "at most", "at least"]


@dataclass(frozen=True)
class Check:
    """One thing that was predicted, what was measured instead, and how far they may be apart."""

    what: str
    predicted: Value
    measured: Value
    tolerance: float = 0.0
    relation: Relation = "about"

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
        """For a table: what, predicted, measured, tolerance."""
        return self.what, self.prediction, show(self.measured), show(self.tolerance) if self.tolerance else "none"


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


def about(what: str, predicted: float, measured: float, tolerance: float = ROUNDING) -> Check:
    """A number that may be off by the tolerance."""
    return Check(what, predicted, measured, tolerance, "about")


def exact(what: str, difference: float, tolerance: float = ROUNDING) -> Check:
    """A difference of two computations of the same thing: 0, up to rounding.

    >>> print(exact("the matrix form against the loop", 2e-16))
    the matrix form against the loop: predicted 0, measured 2e-16, tolerance 1e-12
    """
    return about(what, 0, difference, tolerance)


def same(what: str, predicted: Value, measured: Value) -> Check:
    """A count, or a shape in words, that has to be exactly so."""
    return Check(what, predicted, measured, 0.0, "same")


def at_most(what: str, predicted: float, measured: float, tolerance: float = 0.0) -> Check:
    """A number that may not be larger."""
    return Check(what, predicted, measured, tolerance, "at most")


def at_least(what: str, predicted: float, measured: float, tolerance: float = 0.0) -> Check:
    """A number that may not be smaller."""
    return Check(what, predicted, measured, tolerance, "at least")


def largest_difference(a: Tensor, b: Tensor) -> float:
    """The largest absolute difference of two tensors of the same shape.

    >>> largest_difference(torch.zeros(2), torch.tensor([0.0, -3.0]))
    3.0
    """
    if a.shape != b.shape:
        raise ValueError(f"a and b must have the same shape, got {tuple(a.shape)} and {tuple(b.shape)}")
    return (a - b).abs().max().item()
