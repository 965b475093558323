"""From a candidate to its report: the subject that explains it best, what is wrong with it, and where."""

import contextlib
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from headwork.checking import finding
from headwork.checking.calling import Candidate
from headwork.checking.flags import try_flags
from headwork.checking.invariants import Broken, broken
from headwork.checking.judging import Evidence, Explanation, explain, gather
from headwork.checking.option import Mistake
from headwork.checking.pointing import Line, find_line, in_cell, own_source
from headwork.checking.problems import could_not_run
from headwork.checking.report import Finding, Report
from headwork.checking.runner import ProgramDiedError, ProgramError
from headwork.checking.shrinking import pair, smallest_case
from headwork.checking.subjects.attention import NO_CAUSAL


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """The tensors are small: a second thread costs more than it gives, and much more on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def judge(candidate: Candidate, found: finding.Found, hints: int = 3) -> Report:
    """The subject that explains a candidate best, as a report."""
    with one_thread():
        return _judge(candidate, found, hints)


def _judge(candidate: Candidate, found: finding.Found, hints: int) -> Report:
    candidate.program.errors.clear()
    best: tuple[float, Evidence, Explanation | None] | None = None
    problem: ProgramError | ProgramDiedError | None = None
    start = time.process_time()
    for i, subject in enumerate(found.subjects):
        if time.process_time() - start > 40 and best is not None:
            break
        try:
            evidence = gather(candidate, subject)
            explanation = explain(evidence, seconds=4.0 if found.sure else 1.5) if evidence.readings else None
            if explanation is not None and explanation.mistakes and not _is_exact(explanation, candidate):
                explanation = None
        except (ProgramError, ProgramDiedError) as error:
            problem = error
            if isinstance(error, ProgramDiedError):
                break
            continue
        problem = evidence.error or problem
        rank = (
            3.0
            if not evidence.readings
            else 2.5 + 0.2 * subject.strict  # what may be another architecture is not accused
            if explanation is None
            else len(explanation.mistakes) * 0.9
        ) + 0.01 * i
        if best is None or rank < best[0]:
            best = (rank, evidence, explanation)
        if explanation is not None and not explanation.mistakes:
            break
    if best is None or not best[1].readings:
        return could_not_run(candidate, found, problem, hints)
    try:
        return _report(candidate, found, best[1], best[2], hints)
    except ProgramDiedError as error:
        return could_not_run(candidate, found, error, hints)


def _is_exact(explanation: Explanation, candidate: Candidate) -> bool:
    """A mistake that agrees only roughly is one only where the program computes in single precision."""
    return explanation.exact or not candidate.source or _may_be_single(candidate)


def _may_be_single(candidate: Candidate) -> bool:
    signs = r"(?i)float|half|type_as|torch\.tensor\(|as_tensor|\.to\(|dtype"
    return not candidate.program.double or bool(re.search(signs, candidate.source))


def _report(
    candidate: Candidate, found: finding.Found, evidence: Evidence, explanation: Explanation | None, hints: int
) -> Report:
    subject = evidence.subject
    faults = broken(candidate, evidence, explanation)
    notes = [b.sentence for b in faults if b.mild]
    hard = [b for b in faults if not b.mild]
    read_as = explanation.reading.said if explanation else evidence.readings[0][0].said
    common: dict[str, Any] = {
        "file": candidate.filename, "name": candidate.name, "subject": subject.title, "line": candidate.facts.get("line"), "place": candidate.place, "hints": hints, "seed": candidate.program.first_seed,
    }  # fmt: skip
    if explanation is None:
        if hard:
            findings = tuple(_of_broken(candidate, b) for b in hard)
            return Report(
                verdict="wrong",
                sentence=findings[0].sentence,
                findings=findings,
                read_as=read_as,
                notes=tuple(notes),
                certainty="it agrees with no known mistake; this holds for every right program",
                **common,
            )
        own = own_source(candidate.source, candidate.name) if candidate.source else ""
        if re.search(r"\.half\(|float16|torch\.half", own):
            sentence = "It computes in half precision, which is too coarse to tell right from wrong: let it compute in the dtype of its input, and check it again."
            return Report(verdict="unknown", sentence=sentence, read_as=read_as, notes=tuple(notes), **common)
        certain = found.sure and re.search(subject.certain, finding.snake(candidate.name))
        if subject.strict and certain and evidence.readings[0][0].facts.get("named", True):
            sentence = f"This is not {subject.title}, and no mistake that is known gives its numbers."
            finding_ = Finding("unexplained", sentence, ("Compare with the definition.", "Which step differs?"), None)
            return Report(
                verdict="wrong",
                sentence=sentence,
                findings=(finding_,),
                read_as=read_as,
                notes=tuple(notes),
                case=_case_of_evidence(evidence),
                **common,
            )
        sentence = f"It is not known what this is: it agrees neither with {subject.title} nor with a mistake that is known (it may be another architecture)."
        return Report(verdict="unknown", sentence=sentence, read_as=read_as, notes=tuple(notes), **common)
    mistakes = list(explanation.mistakes)
    if re.search(r"(?i)causal|masked", candidate.name) and _sees_the_future(explanation):
        mistakes.append(NO_CAUSAL)
    findings = (
        *(_of_mistake(candidate, m) for m in mistakes),
        *(_of_broken(candidate, b) for b in hard if not mistakes),
    )
    read_as = (*read_as, *subject.said(explanation.how))
    common["remarks"] = tuple(
        _of_mistake(candidate, m) for m in (*sees_nothing(explanation), *wrong_corner(explanation))
    )
    if not findings and explanation.reading.facts.get("partial"):
        masked = [r for r, _, _ in evidence.readings if r.facts.get("meaning") and not r.facts.get("partial")]
        if masked:
            sentence = f"It is right where nothing is hidden, but with a mask it agrees with nothing that is known, whatever the mask may mean ({len(masked)} ways were tried)."
            return Report(verdict="unknown", sentence=sentence, read_as=read_as, notes=tuple(notes), **common)
    if not findings:
        tried = try_flags(candidate, subject, explanation)
        if tried.wrong:
            flag, wrong, those = tried.wrong[0]
            return _wrong(candidate, wrong, those, f"With {flag.said}: ", tuple(notes), common)
        common["remarks"] += tuple(
            _of_mistake(candidate, m, f"With {flag.said}: ") for flag, found in tried.right for m in wrong_corner(found)
        )
        rough = (
            "it computes in single precision somewhere"
            if _may_be_single(candidate)
            else "the rest may be a constant, such as eps"
        )
        but = f", with {len(common['remarks'])} remark{'s' * (len(common['remarks']) > 1)}" if common["remarks"] else ""
        sentence = f"Right{but}: equal to {subject.title} {'to 1e-7' if explanation.exact else f'to 3e-5 ({rough})'} on {explanation.n_inputs} random inputs."
        return Report(
            verdict="right",
            sentence=sentence,
            read_as=read_as,
            notes=tuple(notes),
            certainty="; ".join(
                [
                    *([f"right as well with {', '.join(flag.said for flag, _ in tried.right)}"] if tried.right else []),
                    f"not looked at: {', '.join([*tried.not_looked_at, 'half precision', 'speed', 'training'])}",
                ]
            ),
            not_looked_at=tried.not_looked_at,
            **common,
        )
    return _wrong(candidate, explanation, tuple(mistakes), "", tuple(notes), common, hard)


def _wrong(
    candidate: Candidate,
    explanation: Explanation,
    mistakes: tuple[Mistake, ...],
    when: str,
    notes: tuple[str, ...],
    common: dict[str, Any],
    hard: Sequence[Broken] = (),
) -> Report:
    findings = (
        *(_of_mistake(candidate, m, when) for m in mistakes),
        *(_of_broken(candidate, b) for b in hard if not mistakes),
    )
    certainty = f"certain: agrees with {'that mistake' if len(findings) == 1 else 'these mistakes together'} on {explanation.n_inputs} of {explanation.n_inputs} inputs, and with nothing else known"
    if explanation.others:
        others = " or ".join(" and ".join(m.sentence for m in o) for o in explanation.others[:2])
        certainty = f"agrees on {explanation.n_inputs} of {explanation.n_inputs} inputs; so would: {others}"
    if not mistakes:
        certainty = "its numbers are right in one call; this is not"
    case = smallest_case(replace(explanation, mistakes=mistakes)) if mistakes else None
    shown = None if case is None else (case[0], *pair(case[1], case[2]))
    return Report(
        verdict="wrong",
        sentence=findings[0].sentence,
        findings=findings,
        read_as=(*explanation.reading.said, *explanation.subject.said(explanation.how)),
        notes=notes,
        certainty=certainty,
        case=shown,
        **common,
    )


def _sees_the_future(explanation: Explanation) -> bool:
    roles = explanation.reading.facts.get("roles", ())
    masked = "mask" in str(explanation.reading.said) and "no mask" not in str(explanation.reading.said)
    return not explanation.how.get("causal") and not masked and tuple(roles) == ("x",)


def _case_of_evidence(evidence: Evidence) -> tuple[str, str, str] | None:
    from headwork.checking.shrinking import describe

    reading, case, yours = evidence.readings[0]
    try:
        right = evidence.subject.expected(case, reading, reading.wirings[0], {})
    except (RuntimeError, KeyError, ValueError, IndexError):
        return None
    return describe(case), *pair(yours, right)


BLIND = Mistake("blind", "NaN", "A query that sees no key gets NaN, and one layer later every token has it: the softmax of a row of minus infinity is 0 / 0.", "Look at a row that is masked as a whole.", "What is the softmax of minus infinity alone?", ("fill", "mask", "softmax"), "a-row-of-minus-infinity")  # fmt: skip
CORNER = Mistake("aligned", "first key", "With fewer queries than keys (a cache) the causal mask is in the wrong corner: the first query is on the first key, where the last query should be on the last key.", "Look at the corner of the causal mask.", "Which keys may a single new query see?", ("triangle", "causal", "mask"), "a-row-of-minus-infinity")  # fmt: skip
"""Remarks: programs that many call right do so, as PyTorch does, and their numbers are right wherever it does not matter."""


def wrong_corner(explanation: Explanation) -> list[Mistake]:
    return [CORNER] if explanation.how.get("aligned") == "first key" else []


def sees_nothing(explanation: Explanation) -> list[Mistake]:
    """What the mask hides is one query's every key, or else a whole sentence, or everything, as its rank allows."""
    case = explanation.subject.cases(explanation.reading, 0)
    visible = case.get("visible")
    if visible is None or visible.ndim != 4:
        return []
    for hidden in ((..., 0, slice(None)), (0,), (...,)):
        blind = visible.clone()
        blind[hidden] = False
        try:
            output = explanation.reading.run({**case, "visible": blind}).get("output")
        except (ProgramError, ProgramDiedError):
            return []
        if output is not None:
            return [BLIND] if bool(output.isnan().any()) else []
    return []


def _of_mistake(candidate: Candidate, mistake: Mistake, when: str = "") -> Finding:
    line = _line(candidate, mistake.point)
    sentence = when + (mistake.sentence[0].lower() + mistake.sentence[1:] if when else mistake.sentence)
    return Finding(mistake.name, sentence, (mistake.look, mistake.ask), line, mistake.claim)


def _line(candidate: Candidate, point: Sequence[str]) -> Line | None:
    line = find_line(candidate.source, candidate.name, point) if candidate.source else None
    return in_cell(candidate.source, line) if line is not None and candidate.filename.endswith(".ipynb") else line


def _of_broken(candidate: Candidate, fault: Broken) -> Finding:
    line = _line(candidate, fault.point)
    return Finding(
        fault.name,
        fault.sentence,
        ("An invariant is broken.", "What should not change the result, and does?"),
        line,
        fault.claim,
    )
