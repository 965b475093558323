"""Predicted beside measured, and whether they agree.

>>> verdict = Verdict(checks=(about("variance", 64.0, 63.2, tolerance=3.2),), why="The terms add.")
>>> verdict.holds
True
>>> print(verdict.checks[0])
variance: predicted 64, measured 63.2, tolerance 3.2
"""

from dataclasses import dataclass
from typing import Literal

from headwork.lab.wording import Value, show

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
    def reason(self) -> str:
        """Why it holds, or what fails."""
        return self.why if self.holds else f"{self.headline}."

    @property
    def headline(self) -> Check:
        """The check that stands for all: the first one that fails, or else the first one."""
        return next((check for check in self.checks if not check.holds), self.checks[0])


def about(what: str, predicted: float, measured: float, tolerance: float) -> Check:
    """A number that may be off by the tolerance; `about("difference", 0, error, 1e-12)` says that two things agree."""
    return Check(what, predicted, measured, tolerance, "about")


def same(what: str, predicted: Value, measured: Value) -> Check:
    """A count, or a shape in words, that has to be exactly so."""
    return Check(what, predicted, measured, 0.0, "same")


def at_most(what: str, predicted: float, measured: float, tolerance: float = 0.0) -> Check:
    """A number that may not be larger."""
    return Check(what, predicted, measured, tolerance, "at most")


def at_least(what: str, predicted: float, measured: float, tolerance: float = 0.0) -> Check:
    """A number that may not be smaller."""
    return Check(what, predicted, measured, tolerance, "at least")
