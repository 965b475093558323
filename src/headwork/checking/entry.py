"""From a file, a folder or an object to reports."""

import contextlib
import inspect
import re
import textwrap
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from headwork.checking import finding, runner
from headwork.checking.calling import Candidate, missing_parts, unknown_arguments
from headwork.checking.flags import try_flags
from headwork.checking.invariants import Broken, broken
from headwork.checking.judging import Evidence, Explanation, explain, gather
from headwork.checking.option import Mistake
from headwork.checking.pointing import Line, find_line, in_cell, names_bound_at, own_source
from headwork.checking.report import Finding, Report
from headwork.checking.runner import ForkServer, Program, ProgramDiedError, ProgramError, Walls
from headwork.checking.shrinking import pair, smallest_case
from headwork.checking.subjects.attention import NO_CAUSAL
from headwork.checking.subjects.blocks import USUAL_SIZES
from headwork.checking.subjects.every import SUBJECTS


def subject_names() -> tuple[str, ...]:
    return tuple(s.name for s in SUBJECTS)


def check(thing: Any, *, subject: str | None = None, hints: int = 3, seed: int | None = None) -> Report:
    """Tell what is wrong with somebody's function, class or module, in words.

    It runs in a copy of this process. `subject` says what it is meant to be, where its name does not.

    >>> def softmax(x):
    ...     return x.exp() / x.exp().sum(0)
    >>> print(hw.check(softmax).sentence)
    The softmax runs over the first axis: the columns sum to 1, and the rows should.
    """
    check_subject(subject)
    check_hints(hints)
    if not callable(thing):
        raise TypeError(f"thing must be a function, a class or an nn.Module, got {type(thing).__name__}")
    is_module = isinstance(thing, nn.Module)
    kind = type(thing) if is_module else thing
    name = getattr(kind, "__name__", "it")
    try:
        source = textwrap.dedent(inspect.getsource(kind))
        filename = inspect.getsourcefile(kind) or ""
    except (OSError, TypeError):
        source, filename = "", ""
    shown = Path(filename).name if filename and not filename.startswith("<") else "your code"
    known = {**getattr(inspect.unwrap(kind), "__globals__", {}), name: thing}
    for double in (True, False):
        made = thing
        if is_module:
            made = _copied(thing, double)
        program = runner.fork_with({name: made}, known, double=double, walls=Walls())
        try:
            facts, _ = runner.receive_description(program)
            if seed is not None:
                program.first_seed = seed
            found = finding.find(facts["names"], source, SUBJECTS, wanted=name, as_=subject)
            if not found:
                raise ValueError(f"{name} must be something that can be called, got {type(thing).__name__}")
            candidate = Candidate(name, facts["names"][name], program, source, shown, facts)
            report = judge(candidate, found[0], hints)
        finally:
            program.close()
        if report.verdict != "failed" or not double or not _wants_single(report):
            return report
    return report


def _copied(module: nn.Module, double: bool) -> nn.Module:
    import copy

    return copy.deepcopy(module).to("cpu", torch.float64 if double else torch.float32).eval()


def check_subject(subject: str | None) -> None:
    if subject is not None and subject not in subject_names():
        from headwork.checks import nearest

        raise ValueError(f"as must be one of the subjects, got {subject!r}{nearest(subject, subject_names())}")


def check_hints(hints: int) -> None:
    if not 0 <= hints <= 3:
        raise ValueError(f"hints must lie in 0 .. 3, got {hints}")


def check_file(
    path: Path,
    name: str | None = None,
    *,
    subject: str | None = None,
    hints: int = 3,
    walls: Walls = Walls(),
    server: ForkServer | None = None,
    seed: int | None = None,
    shown: str | None = None,
) -> list[Report]:
    """A report for every candidate of a file; raises ValueError where there is none."""
    check_subject(subject)
    check_hints(hints)
    if not path.is_file():
        raise ValueError(f"file must be a Python file or a notebook that exists, got {path}")
    source = finding.read_source(path)
    with contextlib.ExitStack() as stack:
        forks = server or stack.enter_context(ForkServer())
        said = shown or path.name
        reports = _check_source(source, path, name, subject, hints, walls, forks, seed, said, double=True)
        for i, report in enumerate(reports):
            if _wants_single(report) and report.name != path.name:  # not the file as a whole
                again = _check_source(source, path, report.name, subject, hints, walls, forks, seed, said, double=False)
                reports[i] = again[0]
        return reports


def _wants_single(report: Report) -> bool:
    """Whether it could not run in double precision, or agreed with nothing there."""
    return report.verdict in ("failed", "unknown") and bool(
        re.search(r"(?i)dtype|double|float|scalar type", report.sentence)
    )


def _check_source(
    source: str,
    path: Path,
    name: str | None,
    subject: str | None,
    hints: int,
    walls: Walls,
    forks: ForkServer,
    seed: int | None,
    shown: str,
    double: bool,
) -> list[Report]:
    program, facts = _load(source, path, walls, forks, seed, double)
    try:
        found = finding.find(facts["names"], source, SUBJECTS, name, subject)
        if name is not None and name not in facts["names"]:
            from headwork.checks import nearest

            missing = _missing(facts)
            if re.search(rf"(?m)^\s*(def|class)\s+{re.escape(name)}\b", source):
                return [
                    Report(
                        shown, name, "", "failed", f"{name} could not be defined: {missing or 'its definition failed'}."
                    )
                ]
            raise ValueError(f"{path} has no {name!r}{nearest(name, facts['names'])}")
        guessed = False
        if not found and subject is not None:
            found = [
                finding.Found(n, tuple(s for s in SUBJECTS if s.name == subject and f["kind"] in s.kinds))
                for n, f in facts["names"].items()
            ]
            found = [f for f in found if f.subjects]
            guessed = True
        elif not found:
            found = finding.guess(facts["names"], SUBJECTS)
            guessed = True
        reports: list[Report] = []
        for each in found:
            if program.dead is not None:
                program, facts = _load(source, path, walls, forks, seed, double)
            candidate = Candidate(each.name, facts["names"][each.name], program, source, shown, facts)
            reports.append(judge(candidate, each, hints))
        if guessed:
            reports = [r for r in reports if r.verdict in ("right", "wrong")]
        if not reports:
            missing = _missing(facts)
            if missing and not facts["names"]:
                return [Report(shown, path.name, "", "failed", f"It could not run: {missing}.")]
            there = ", ".join(list(facts["names"])[:8]) or "no functions or classes"
            raise ValueError(
                f"nothing to check was found in {path}: it has {there}; a NAME and --as SUBJECT, or a comment `# headwork: attention` above"
                " a definition, says what is what"
            )
        skipped = tuple(f"line {s['line']} was left out: {_words(s)}" for s in facts["skipped"])
        return [_with_notes(r, skipped) for r in reports]
    finally:
        program.close()


def _with_notes(report: Report, notes: Sequence[str]) -> Report:
    return replace(report, notes=(*report.notes, *notes))


def _load(
    source: str, path: Path, walls: Walls, forks: ForkServer, seed: int | None, double: bool
) -> tuple[Program, dict[str, Any]]:
    folder = path.resolve().parent
    package: list[str] = []
    root = folder
    while (root / "__init__.py").exists():
        package.insert(0, root.name)
        root = root.parent
    paths = [str(p) for p in (folder, *folder.parents[:3])]
    if package:  # its root comes first: a file in it may be called as it is
        paths.insert(0, str(root))
    if walls.untrusted:
        paths = []
    program = forks.start(walls)
    program.double = double
    if seed is not None:
        program.first_seed = seed
    try:
        return program, program.load(
            source, str(path), paths, ".".join(package) or (folder.name if not walls.untrusted else "")
        )
    except (ProgramError, ProgramDiedError):
        program.close()
        raise


def _words(problem: dict[str, Any]) -> str:
    kind, message = problem["type"], problem["message"]
    if kind == "ModuleNotFoundError":
        return f"the package {problem['missing']!r} is not installed"
    if kind == "TooSlowError":
        return "it took more than 5 seconds (does it train there?)"
    if kind == "EOFError":
        return "it asks for input"
    return f"{kind}: {message}".rstrip(": ")


def _missing(facts: dict[str, Any]) -> str:
    return "; ".join(f"line {s['line']}: {_words(s)}" for s in facts["skipped"][:2])


def check_class(
    folder: Path,
    *,
    subject: str | None = None,
    name: str | None = None,
    walls: Walls = Walls(),
    seed: int | None = None,
) -> Iterator[tuple[str, list[Report]]]:
    """Every submission of a folder: a .py file, a notebook, or a folder with one of either; a row for each."""
    if not folder.is_dir():
        raise ValueError(f"class must be a folder of submissions, got {folder}")
    submissions = sorted(
        p
        for p in folder.iterdir()
        if p.suffix in (".py", ".ipynb") or (p.is_dir() and not p.name.startswith((".", "__")))
    )
    if not submissions:
        raise ValueError(f"class must be a folder with .py files, notebooks or folders of them, got {folder}")
    with ForkServer() as forks:
        for submission in submissions:
            files = (
                [submission]
                if submission.is_file()
                else sorted(p for p in submission.rglob("*") if p.suffix in (".py", ".ipynb"))
            )
            reports: list[Report] = []
            for file in files:
                try:
                    reports += check_file(file, name, subject=subject, walls=walls, server=forks, seed=seed)
                except ValueError as error:
                    if len(files) == 1:
                        reports.append(Report(file.name, submission.name, "", "failed", str(error)))
                except (ProgramDiedError, ProgramError) as error:
                    reports.append(Report(file.name, submission.name, "", "failed", f"It could not run: {error}."))
            yield (
                submission.name,
                reports or [Report(submission.name, submission.name, "", "failed", "Nothing was found to check.")],
            )


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
        return _could_not_run(candidate, found, problem, hints)
    try:
        return _report(candidate, found, best[1], best[2], hints)
    except ProgramDiedError as error:
        return _could_not_run(candidate, found, error, hints)


def _is_exact(explanation: Explanation, candidate: Candidate) -> bool:
    """A mistake that agrees only roughly is one only where the program computes in single precision."""
    return explanation.exact or bool(
        not candidate.source
        or re.search(r"(?i)float|half|type_as|torch\.tensor\(|as_tensor|\.to\(|dtype", candidate.source)
    )


def _could_not_run(
    candidate: Candidate, found: finding.Found, problem: ProgramError | ProgramDiedError | None, hints: int
) -> Report:
    subject = found.subjects[0].title if found.sure and found.subjects else ""
    if problem is None and candidate.program.errors:
        of_names = [
            e
            for e in candidate.program.errors
            if e.kind in ("NameError", "AttributeError", "ImportError", "ModuleNotFoundError")
        ]
        problem = (of_names or candidate.program.errors)[0]
    if isinstance(problem, ProgramError):
        line = f" (line {problem.line})" if problem.line else ""
        sentence = _problem_words(problem) + line
        skipped = candidate.everything.get("skipped", []) if candidate.source else []
        reasons = [
            s for s in skipped if problem.missing in {s.get("missing"), *names_bound_at(candidate.source, s["line"])}
        ]
        if problem.missing and reasons:
            sentence = f"It could not run: {_words(reasons[0])} (line {reasons[0]['line']})"
        elif unknown := unknown_arguments(candidate, USUAL_SIZES):
            sentence = (
                f"It could not be made: what its constructor wants as {', '.join(unknown)} was not understood ({problem}); make"
                f" one in the file (mine = {candidate.name}(...)), and check mine"
            )
    elif problem is not None:
        sentence = f"It could not run: {problem}"
    elif missing := missing_parts(candidate, USUAL_SIZES):
        sentence = (
            f"It could not be made: its constructor takes modules ({', '.join(missing)}) that no class of the file makes;"
            f" make one in the file (mine = {candidate.name}(...)), and check mine"
        )
    else:
        arguments = ", ".join(p["name"] for p in candidate.parameters)
        sentence = (
            f"It could not be called: its arguments ({arguments}) were not understood; --as SUBJECT says what it is"
        )
    return Report(
        candidate.filename,
        candidate.name,
        subject,
        "failed",
        sentence + ".",
        line=candidate.facts.get("line"),
        hints=hints,
        seed=candidate.program.first_seed,
    )


def _problem_words(problem: ProgramError) -> str:
    if problem.kind == "TooSlowError":
        return "It did not come to an end within 20 seconds"
    if "can't allocate memory" in problem.message or problem.kind == "MemoryError":
        return "It asked for more memory than it may have (4 GB)"
    if problem.kind == "EOFError":
        return "It asks for input"
    if problem.kind == "SystemExit":
        return "It ended itself"
    if "CUDA" in problem.message:
        return "It needs a GPU (CUDA), and check runs on the processor: use x.device instead of 'cuda'"
    return f"It could not run: {problem}"


def _report(
    candidate: Candidate, found: finding.Found, evidence: Evidence, explanation: Explanation | None, hints: int
) -> Report:
    subject = evidence.subject
    faults = broken(candidate, evidence, explanation)
    notes = [b.sentence for b in faults if b.mild]
    hard = [b for b in faults if not b.mild]
    read_as = explanation.reading.said if explanation else evidence.readings[0][0].said
    common: dict[str, Any] = {
        "file": candidate.filename, "name": candidate.name, "subject": subject.title, "line": candidate.facts.get("line"), "hints": hints, "seed": candidate.program.first_seed,
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
    notes += _other_notes(explanation)
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
        sentence = f"Right: equal to {subject.title} {'to 1e-7' if explanation.exact else 'to 3e-5 (it computes in single precision somewhere)'} on {explanation.n_inputs} random inputs."
        return Report(
            verdict="right",
            sentence=sentence,
            read_as=read_as,
            notes=tuple(notes),
            certainty="; ".join(
                [
                    *([f"right as well with {', '.join(tried.right)}"] if tried.right else []),
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


def _other_notes(explanation: Explanation) -> list[str]:
    """A query that sees nothing: NaN is usual, and said."""
    case = explanation.subject.cases(explanation.reading, 0)
    visible = case.get("visible")
    if visible is None or visible.ndim != 4:
        return []
    case["visible"] = visible.clone()
    case["visible"][:, :, 0] = False
    try:
        output = explanation.reading.run(case).get("output")
    except (ProgramError, ProgramDiedError):
        return []
    if output is None or not bool(output.isnan().any()):
        return []
    return ["a query that sees nothing returns NaN (this is usual; Headwork returns zeros)"]


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
