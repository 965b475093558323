"""What a subject is: one function of ours with options, whose values are right, conventions or mistakes."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

Case = dict[str, Any]
"""Inputs by role (`q`, `k`, `visible`, ...), in our own layout and meaning."""

How = Mapping[str, object]
"""Values of options; an option that is not there has its right value."""

Weights = dict[str, Any]
"""Parameters of a program by the part they play."""


@dataclass(frozen=True)
class Mistake:
    """A wrong value of an option: the sentence for the report, two hints before it, and what to point at in the code."""

    option: str
    value: object
    sentence: str
    look: str
    ask: str
    point: tuple[str, ...] = ()
    claim: str | None = None

    @property
    def name(self) -> str:
        return f"{self.option}: {self.value}"


@dataclass(frozen=True)
class Convention:
    """Another value of an option that is as right, and what the report says about it."""

    option: str
    value: object
    said: str


@dataclass(frozen=True)
class Reading:
    """One way to call a program and to understand its answer.

    `run` gives the tensors of an answer by role, in our layout, or raises ProgramError; `wirings` are the possible parts
    that its parameters play; `facts` are what the equations must know (number of heads, eps, ...).
    """

    said: tuple[str, ...]
    run: Callable[[Case], dict[str, Tensor]]
    cost: float = 0
    wirings: tuple[Weights, ...] = ({},)
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Subject:
    """Something that people program, how it is read, and everything that is known to go wrong with it."""

    name: str
    title: str
    pattern: str
    """Names of functions and classes that are probably this."""
    mistakes: tuple[Mistake, ...]
    conventions: tuple[Convention, ...]
    readings: Callable[[Any], Iterable[Reading]]
    cases: Callable[[Reading, int], Case]
    """A random case by its number; number 0 tells most apart."""
    expected: Callable[[Case, Reading, Weights, How], Tensor]
    kinds: tuple[str, ...] = ("function",)
    strict: bool = True
    """Whether whatever agrees with nothing known is wrong; if not, it may be another architecture."""
    certain: str = ".*"
    """Names that can be nothing else; another is not accused of being none of what is known."""
    n_cases: int = 5
    reads: Callable[[How], bool] = lambda how: True
    """Which combinations of conventions exist."""

    def hows(
        self,
        n_mistakes: int,
        facts: Mapping[str, Any],
        base: How | None = None,
        mistakes: Sequence[Mistake] | None = None,
        already: tuple[Mistake, ...] = (),
    ) -> Iterator[tuple[How, tuple[Mistake, ...]]]:
        """Every combination of conventions with so many mistakes, each of another option; or so many more than a base."""
        may, gone = facts.get("may"), facts.get("not", ())
        for chosen in itertools.combinations(self.mistakes if mistakes is None else mistakes, n_mistakes):
            wrong: dict[str, object] = {m.option: m.value for m in chosen}
            if len(wrong) < n_mistakes or any(m.option in wrong for m in already):
                continue
            if any((m.option, m.value) in gone for m in chosen):
                continue
            if base is not None:
                yield {**base, **wrong}, (*already, *chosen)
                continue
            options: dict[str, list[object]] = {}
            for convention in self.conventions:
                if (
                    convention.option not in wrong
                    and (may is None or convention.option in may)
                    and (convention.option, convention.value) not in gone
                ):
                    options.setdefault(convention.option, [None]).append(convention.value)
            for values in itertools.product(*options.values()):
                how = {**{k: v for k, v in zip(options, values, strict=True) if v is not None}, **wrong}
                if self.reads(how):
                    yield how, chosen

    def said(self, how: How) -> tuple[str, ...]:
        return tuple(c.said for c in self.conventions if how.get(c.option) == c.value and c.said)
