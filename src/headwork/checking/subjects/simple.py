"""Functions and modules of one tensor: how they are made and called."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from headwork.checking.calling import Assignment, Candidate, assignments, call
from headwork.checking.constructing import make
from headwork.checking.runner import Made, ProgramError, Result
from headwork.checking.subjects.blocks import USUAL_SIZES
from headwork.checking.wiring import random_parameters


@dataclass(frozen=True)
class Target:
    """A function, or a module that was made with random parameters."""

    candidate: Candidate
    id: str | int
    parameters: dict[str, Tensor]
    made: Made | None
    passed: Mapping[str, Any]

    def call(self, assignment: Assignment, values: Mapping[str, Any]) -> Result:
        return call(self.candidate, self.id, assignment, values)


def targets(candidate: Candidate, sizes: Mapping[str, Any] | None = None, fill: bool = True) -> Iterator[Target]:
    """The candidate, made in every way; `fill` gives its parameters random numbers."""
    if candidate.kind == "function":
        yield Target(candidate, candidate.name, {}, None, {})
        return
    for made, passed in make(candidate, {**USUAL_SIZES, **(sizes or {})}):
        parameters = random_parameters(made.shapes) if fill else {}
        made.set(parameters)
        yield Target(candidate, made.id, parameters, made, passed)


def ways(
    candidate: Candidate,
    role_sets: Sequence[Sequence[str]],
    optional: Sequence[str] = (),
    fixed: Mapping[str, Any] | None = None,
    sizes: Mapping[str, Any] | None = None,
    fill: bool = True,
) -> Iterator[tuple[Target, Sequence[str], Assignment]]:
    """Every target with every assignment of roles to its arguments."""
    usual = {"dropout": None, "flag": None, **(fixed or {})}
    for target in targets(candidate, sizes, fill):
        for roles in role_sets:
            for assignment in assignments(candidate.parameters, roles, optional, usual):
                yield target, roles, assignment


def works(run: Any, *arguments: Any) -> bool:
    """Whether it runs and answers with an output."""
    try:
        return "output" in run(*arguments)
    except ProgramError as error:
        if error.is_final:
            raise
        return False
