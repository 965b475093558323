"""Which options explain a program's numbers: the fewest mistakes that agree on every input, and with which reading."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from headwork.checking.calling import Candidate
from headwork.checking.option import Case, How, Mistake, Reading, Subject, Weights
from headwork.checking.runner import ProgramDiedError, ProgramError

UNREADABLE = (RuntimeError, ValueError, IndexError, KeyError, TypeError, AttributeError)
"""What an answer of another shape than any that is known raises here, in this process."""
TOLERANCE = 1e-7
ROUGH = 3e-5
"""Of the largest number, for programs that compute in single precision somewhere."""


@dataclass(frozen=True)
class Explanation:
    """A reading, the parts of its parameters and the options under which our equation gives the program's numbers."""

    subject: Subject
    reading: Reading
    weights: Weights
    how: How
    mistakes: tuple[Mistake, ...]
    n_inputs: int
    exact: bool
    others: tuple[tuple[Mistake, ...], ...] = ()
    """Other mistakes that would give the same numbers."""


@dataclass
class Evidence:
    """Every reading that ran, with its answer to the first case."""

    subject: Subject
    readings: list[tuple[Reading, Case, Tensor]] = field(default_factory=list)
    error: ProgramError | None = None
    n_tried: int = 0
    right: "Explanation | None" = None
    perhaps: "Explanation | None" = None
    """Right with masks that are the same for all sentences or queries, where others ran and were wrong."""


def gather(candidate: Candidate, subject: Subject, limit: int = 300) -> Evidence:
    """Run the candidate in every way in which it might be meant, until one is right.

    What it does where everything is visible comes first: only what agrees there can be right with a mask too.
    """
    evidence = Evidence(subject)
    bases: dict[object, list[Explanation]] = {}
    try:
        for reading in subject.readings(candidate):
            evidence.n_tried += 1
            case = subject.cases(reading, 0)
            try:
                answer = reading.run(case)
            except ProgramError as error:
                evidence.error = error
                if error.is_final:
                    break
                continue
            except UNREADABLE as error:
                if isinstance(error, ProgramDiedError):
                    raise
                continue
            if "output" in answer:
                found = (reading, case, answer["output"])
                evidence.readings.append(found)
                if reading.facts.get("partial"):
                    bases[_way(reading)] = explanations(subject, [found], 0)
                    continue
                agreed = _right(subject, found, bases, evidence)
                if agreed is not None and not _is_less_general(reading, evidence):
                    evidence.right = agreed
                    return evidence
                evidence.perhaps = evidence.perhaps or agreed
            if evidence.n_tried > limit:
                break
    except ProgramError as error:
        evidence.error = error
    except UNREADABLE as error:
        if isinstance(error, ProgramDiedError):
            raise
    evidence.readings.sort(key=lambda found: found[0].cost)
    return evidence


def _way(reading: Reading) -> tuple[object, ...]:
    """What all readings share that differ in their masks only."""
    return (*reading.said[:2], reading.facts.get("shape"), id(reading.facts.get("block")), reading.facts.get("target"))


def _right(
    subject: Subject,
    found: tuple[Reading, Case, Tensor],
    bases: dict[object, list[Explanation]],
    evidence: Evidence,
) -> Explanation | None:
    """A reading without mistakes, among what was right where everything is visible."""
    reading = found[0]
    meaning = reading.facts.get("meaning")
    if meaning is None:
        return next(iter(explanations(subject, [found], 0)), None)
    key: object = _way(reading)
    if key not in bases:  # it does not run without a mask: with one that hides nothing
        key = (key, meaning)
        if key not in bases:
            bases[key] = []
            kinds = dict.fromkeys(reading.facts.get("kinds", {}), "all")
            facts = {**reading.facts, "kinds": kinds, "mask kind": "all", "partial": True}
            open_reading = replace(reading, cost=reading.cost + 0.6, facts=facts)
            case = subject.cases(open_reading, 0)
            try:
                answer = open_reading.run(case)
            except ProgramError:
                answer = {}
            if "output" in answer:
                evidence.readings.append((open_reading, case, answer["output"]))
                bases[key] = explanations(subject, [evidence.readings[-1]], 0)
    for base in bases[key]:
        for how in (base.how, {k: v for k, v in base.how.items() if k not in ("causal", "aligned")}):
            agreed = explanations(subject, [found], 0, base=replace(base, how=how))
            if agreed:
                return agreed[0]
            if "causal" not in base.how:
                break
    return None


def _is_less_general(reading: Reading, evidence: Evidence) -> bool:
    """Whether a mask for every sentence and query ran with the same meaning, and was not right."""
    meaning = reading.facts.get("meaning")
    return (
        meaning is not None
        and not reading.facts.get("general", True)
        and any(
            r.facts.get("meaning") == meaning and r.facts.get("general") and not r.facts.get("partial")
            for r, _, _ in evidence.readings
        )
    )


def close(yours: Tensor, right: Tensor, tolerance: float, forgive_nan: bool, masked: bool = False) -> bool:
    """Equal up to a part of the largest number; `masked`: where our answer is NaN, a query saw nothing, and any will do."""
    if yours.shape != right.shape:
        return False
    if masked and bool(right.isnan().any()):
        there = ~right.isnan()
        if there.double().mean() < 0.3:  # hardly anything is left to agree with
            return False
        yours, right = yours[there], right[there]
    known = right.isfinite()
    if not bool(known.all()):
        if not torch.equal(known, yours.isfinite()):
            return False
        yours, right = yours[known], right[known]
    finite = yours.isfinite()
    if not bool(finite.all()):
        if not forgive_nan or finite.double().mean() < 0.3:
            return False
        yours, right = yours[finite], right[finite]
    size = float(right.abs().max()) if right.numel() else 0.0
    return bool(((yours - right).abs() <= tolerance * max(size, 1e-3)).all())


def explain(evidence: Evidence, seconds: float = 12.0) -> Explanation | None:
    """The fewest mistakes that agree on every input; no mask is inverted that is right under another meaning."""
    found = _explain(evidence, seconds)
    return None if found is None else under_another_meaning(evidence, found) or found


def under_another_meaning(evidence: Evidence, found: Explanation) -> Explanation | None:
    """The same options without an inverted mask, where the mask means something else."""
    meaning = found.reading.facts.get("meaning")
    rest = tuple(m for m in found.mistakes if (m.option, m.value) != ("hidden", "inverted"))
    if meaning is None or rest == found.mistakes:
        return None
    how = {option: value for option, value in found.how.items() if option != "hidden"}
    for reading, case, yours in evidence.readings:
        if reading.facts.get("meaning") not in (None, meaning) and not reading.facts.get("partial"):
            agreed = _agreeing(found.subject, reading, case, yours, found.weights, [(how, rest)], float("inf"))
            if (first := next(iter(agreed), None)) is not None:
                return first
    return None


def _explain(evidence: Evidence, seconds: float) -> Explanation | None:
    """The fewest mistakes that agree on every input.

    A program that takes a mask and also runs without one is explained without it first; what was found holds with a mask
    as well, and only mistakes about masks are left to find. `seconds` of the processor are for pairs of mistakes; single
    ones, which are few, have three times as many, so that a slow machine names them too.
    """
    if evidence.right is not None:
        return evidence.right
    subject = evidence.subject
    if evidence.perhaps is not None:
        base = evidence.perhaps
        general = [
            f
            for f in evidence.readings
            if f[0].facts.get("general")
            and not f[0].facts.get("partial")
            and f[0].facts["meaning"] == base.reading.facts["meaning"]
        ]
        found = explanations(subject, general, 1, base=base, mistakes=_about_masks(subject))
        return _choose(found) if found else base
    partial = [found for found in evidence.readings if found[0].facts.get("partial")]
    whole = [found for found in evidence.readings if not found[0].facts.get("partial")]
    deadline = time.process_time() + 3 * seconds
    for n_mistakes in (0, 1, 2):
        deadline = time.process_time() + seconds if n_mistakes == 2 else deadline
        bases = explanations(subject, partial, n_mistakes, deadline)
        for n_more in (0, 1) if bases else ():
            found = [
                best
                for base in bases
                for best in explanations(
                    subject, whole, n_more, deadline + seconds, base=base, mistakes=_about_masks(subject)
                )
            ]
            if found:
                return _choose(found)
        if bases:
            return _choose(bases)
    if partial:
        return None
    for n_mistakes in (1, 2):
        deadline = time.process_time() + seconds * (3 if n_mistakes == 1 else 1)
        found = explanations(subject, whole, n_mistakes, deadline)
        if found:
            return _choose(found)
    return None


def _about_masks(subject: Subject) -> list[Mistake]:
    about = ("hidden", "mask_of", "causal", "memory_mask", "target_mask", "source_padding")
    return [m for m in subject.mistakes if m.option in about]


def _choose(found: Sequence[Explanation]) -> Explanation:
    """The most plausible reading; other mistakes under it that would give the same numbers are kept as others."""
    chosen = min(found, key=lambda e: (e.reading.cost, len(e.how)))
    ties = {
        tuple(m.name for m in e.mistakes): e.mistakes
        for e in found
        if e.mistakes != chosen.mistakes and e.reading.cost <= chosen.reading.cost
    }
    return replace(chosen, others=tuple(ties.values()))


def explanations(
    subject: Subject,
    readings: Sequence[tuple[Reading, Case, Tensor]],
    n_mistakes: int,
    deadline: float = float("inf"),
    base: Explanation | None = None,
    mistakes: Sequence[Mistake] | None = None,
) -> list[Explanation]:
    """All options with so many (more) mistakes that give the numbers of the most plausible reading that has any."""
    found: list[Explanation] = []
    for i, (reading, case, yours) in enumerate(readings):
        if found and reading.cost > found[0].reading.cost:  # they come in the order of their costs
            break
        if n_mistakes == 2 and i >= 3:
            break
        for weights in [base.weights] if base else reading.wirings[: 200 if n_mistakes < 2 else 2]:
            if time.process_time() > deadline:
                break
            hows = subject.hows(
                n_mistakes, reading.facts, base.how if base else None, mistakes, base.mistakes if base else ()
            )
            new = list(_agreeing(subject, reading, case, yours, weights, hows, deadline))
            found += new
            if new:
                break
    return found


def _agreeing(
    subject: Subject,
    reading: Reading,
    case: Case,
    yours: Tensor,
    weights: Weights,
    hows: Iterable[tuple[How, tuple[Mistake, ...]]],
    deadline: float,
) -> Iterable[Explanation]:
    others: list[tuple[Case, Tensor]] | None = None
    unchanged = isinstance(case.get("x"), Tensor) and case["x"].shape == yours.shape and torch.equal(case["x"], yours)
    # Where a mask hides nothing, what is made of it under one meaning is what another mistake makes of it under the other.
    blind = reading.facts.get("partial") and reading.facts.get("meaning") is not None
    for how, mistakes in hows:
        if blind and any(m.option in ("hidden", "mask_of") for m in mistakes):
            continue
        if mistakes and unchanged:  # what returns its input is none of these, and no mistake in one
            return
        if time.process_time() > deadline:
            return
        rules = {"forgive_nan": len(mistakes) > 0, "masked": bool(how.get("causal") or how.get("hidden"))}
        right = _expected(subject, case, reading, weights, how)
        if right is None or not close(yours, right, ROUGH, **rules):
            continue
        if mistakes and not bool(yours.isfinite().all()) and not _matters(subject, case, reading, weights, right):
            continue
        if others is None:
            others = list(_more_cases(subject, reading))
        rights = [(y, _expected(subject, c, reading, weights, how)) for c, y in others]
        if all(r is not None and close(y, r, ROUGH, **rules) for y, r in rights):
            pairs = [(yours, right), *((y, r) for y, r in rights if r is not None)]
            exact = all(close(y, r, TOLERANCE, **rules) for y, r in pairs)
            yield Explanation(subject, reading, weights, how, mistakes, 1 + len(others), exact)


def _matters(subject: Subject, case: Case, reading: Reading, weights: Weights, right: Tensor) -> bool:
    """Whether no right program gives these numbers of ours: mistakes that change nothing would explain every NaN."""
    rights = (_expected(subject, case, reading, weights, how) for how, _ in subject.hows(0, reading.facts))
    return not any(r is not None and close(r, right, TOLERANCE, forgive_nan=False, masked=True) for r in rights)


def _expected(subject: Subject, case: Case, reading: Reading, weights: Weights, how: How) -> Tensor | None:
    try:
        return subject.expected(case, reading, weights, how)
    except (RuntimeError, KeyError, IndexError, ValueError, ZeroDivisionError):  # these options do not fit these sizes
        return None


def _more_cases(subject: Subject, reading: Reading) -> Iterable[tuple[Case, Tensor]]:
    for number in range(1, subject.n_cases):
        case = subject.cases(reading, number)
        try:
            answer = reading.run(case)
        except ProgramError:
            continue
        if "output" in answer:
            yield case, answer["output"]
