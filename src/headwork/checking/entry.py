"""From a file, a folder or an object to reports."""

import contextlib
import inspect
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from headwork.checking import finding, runner
from headwork.checking.calling import Candidate
from headwork.checking.problems import missing_words, words_of
from headwork.checking.report import Report
from headwork.checking.runner import ForkServer, Program, ProgramDiedError, ProgramError, Walls
from headwork.checking.subjects.every import SUBJECTS
from headwork.checking.verdict import judge


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

            missing = missing_words(facts)
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
            missing = missing_words(facts)
            if missing and not facts["names"]:
                return [Report(shown, path.name, "", "failed", f"It could not run: {missing}.")]
            there = ", ".join(list(facts["names"])[:8]) or "no functions or classes"
            raise ValueError(
                f"nothing to check was found in {path}: it has {there}; a NAME and --as SUBJECT, or a comment `# headwork: attention` above"
                " a definition, says what is what"
            )
        skipped = tuple(f"line {s['line']} was left out: {words_of(s)}" for s in facts["skipped"])
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
