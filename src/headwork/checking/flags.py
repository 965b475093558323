"""Options that a program has besides its inputs: each is tried, or named as not looked at."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from headwork.checking.calling import Candidate, role_of
from headwork.checking.judging import Explanation, explain, gather
from headwork.checking.names import ROLES, SIZE_NAMES
from headwork.checking.option import Mistake, Subject
from headwork.checking.runner import ProgramDiedError, ProgramError
from headwork.checking.subjects.attention import NO_CAUSAL

MOST_TRIED = 6
KNOWN = ("causal", "norm_first", "bias")
"""Options whose names say what they should do; where another gives other numbers, it may be meant to."""


@dataclass(frozen=True)
class Flag:
    """An argument of a call or of the constructor with a value that is not its default."""

    name: str
    value: bool | str
    in_constructor: bool

    @property
    def said(self) -> str:
        return f"{self.name}={self.value!r}"

    @property
    def role(self) -> str | None:
        if self.in_constructor:
            return role_of(self.name, KNOWN, SIZE_NAMES)
        return role_of(self.name, ("causal",), ROLES)


@dataclass(frozen=True)
class Tried:
    """What came of trying every option."""

    right: tuple[tuple[Flag, Explanation], ...]
    """Options under which it is right as well."""
    not_looked_at: tuple[str, ...]
    wrong: tuple[tuple[Flag, Explanation, tuple[Mistake, ...]], ...]


def try_flags(candidate: Candidate, subject: Subject, explanation: Explanation) -> Tried:
    """Switch every flag that a right program has, one at a time."""
    passed, made_with = what_was_passed(candidate, explanation)
    right: list[tuple[Flag, Explanation]] = []
    wrong: list[tuple[Flag, Explanation, tuple[Mistake, ...]]] = []
    tried: set[str] = set()
    for n, flag in enumerate(flags(candidate, passed, made_with)):
        if n >= MOST_TRIED:
            break
        verdict = _try(candidate, subject, explanation, flag)
        if verdict is None:
            continue
        tried.add(flag.name)
        found, mistakes = verdict
        if mistakes:
            wrong.append((flag, found, mistakes))
        else:
            right.append((flag, found))
    calls = [p["name"] for p in candidate.parameters if p["name"] not in passed | tried]
    makes = [
        p["name"]
        for p in candidate.facts.get("init") or []
        if candidate.kind == "class"
        and p["kind"] not in ("VAR_POSITIONAL", "VAR_KEYWORD")
        and p["name"] not in tried
        and (p["name"] not in made_with or made_with[p["name"]] is None)
        and role_of(p["name"], ("eps", "device", "dtype", "dropout"), SIZE_NAMES) is None
    ]
    configs = [
        f"{name}.{key}"
        for name, value in made_with.items()
        if isinstance(value, Mapping)
        for key, own in value.items()
        if own is None or own is False
    ]
    return Tried(tuple(right), tuple(dict.fromkeys([*calls, *makes, *configs])), tuple(wrong))


def what_was_passed(candidate: Candidate, explanation: Explanation) -> tuple[set[str], dict[str, Any]]:
    """Names of arguments that the explaining reading gives a value, and what the constructor was given."""
    program = candidate.program
    program.passed.clear()
    for number in range(2):
        try:
            explanation.reading.run(explanation.subject.cases(explanation.reading, number))
        except (ProgramError, ProgramDiedError):
            continue
    made: dict[str, Any] = {}
    for name, value in program.constructed.get(program.target, {}).items():
        content = getattr(value, "content", value)
        made[name] = (
            dict(value.kwargs) if getattr(value, "kind", "") == "new" else content if content is not None else "given"
        )
        if value is None:
            made[name] = None
    return set(program.passed), made


def flags(candidate: Candidate, passed: set[str], made_with: Mapping[str, Any]) -> Iterator[Flag]:
    """Booleans with the other value, and strings with those that the program compares them to."""
    of_call = [(p, False) for p in candidate.parameters if p["name"] not in passed]
    of_class = [(p, True) for p in candidate.facts.get("init") or [] if candidate.kind == "class"]
    for p, in_constructor in (*of_call, *of_class):
        name, default = p["name"], p["default"]
        if in_constructor and name in made_with:
            default = made_with[name]
        is_flag = isinstance(default, bool) or p["annotation"] == "bool"
        named = role_of(name, KNOWN, SIZE_NAMES) if in_constructor else role_of(name, ("causal",), ROLES)
        if is_flag or (named == "causal" and default is None):
            yield Flag(name, not default, in_constructor)
        elif isinstance(default, str):
            compared = re.findall(rf"\b{re.escape(name)}\s*==\s*[\"'](\w+)[\"']", candidate.source)
            for value in dict.fromkeys(compared):
                if value != default:
                    yield Flag(name, value, in_constructor)


def _try(
    candidate: Candidate, subject: Subject, explanation: Explanation, flag: Flag
) -> tuple[Explanation, tuple[Mistake, ...]] | None:
    """What explains it, with its mistakes; None where that cannot be told."""
    given = {flag.name: flag.value}
    other = replace(candidate, made_with=given) if flag.in_constructor else replace(candidate, options=given)
    try:
        evidence = gather(other, subject)
        found = explain(evidence, seconds=2.0) if evidence.readings else None
    except (ProgramError, ProgramDiedError):
        return None
    if found is None:
        return None
    mistakes = found.mistakes
    if flag.role == "causal" and flag.value is True and not mistakes and not found.how.get("causal"):
        if not candidate_takes(found, "causal"):
            return None
        mistakes = (NO_CAUSAL,)
    return (found, mistakes) if flag.role is not None or not mistakes else None


def candidate_takes(explanation: Explanation, option: str) -> bool:
    """Whether a subject knows an option at all."""
    return any(c.option == option for c in explanation.subject.conventions)
