"""From a file, a folder or an object to reports."""

import ast
import contextlib
import inspect
import linecache
import os
import re
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from headwork.checking import finding, runner
from headwork.checking.calling import Candidate
from headwork.checking.pointing import place_of
from headwork.checking.problems import missing_words, words_of
from headwork.checking.report import Report
from headwork.checking.runner import (
    CALLS_OF_A_FILE,
    ForkServer,
    MissingWallError,
    Program,
    ProgramDiedError,
    ProgramError,
    Walls,
)
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
    source, filename, line = _source_of(kind)
    shown = Path(filename).name if Path(filename).is_file() else "your code"
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
            known_facts = {**facts["names"][name], "line": line}
            candidate = Candidate(name, known_facts, program, source, shown, facts)
            report = judge(candidate, found[0], hints)
        finally:
            program.close()
        if report.verdict != "failed" or not double or not _wants_single(report):
            return report
    return report


def _source_of(kind: Any) -> tuple[str, str, int | None]:
    """A definition with as many empty lines before it as its file or cell has, so that lines have their numbers."""
    try:
        lines, first = inspect.getsourcelines(kind)
        filename = inspect.getsourcefile(kind) or ""
    except (OSError, TypeError):
        lines, first, filename = _source_of_cell(kind)
    if not lines:
        return "", "", None
    first = max(first, 1)  # of a whole file, 0
    return "\n" * (first - 1) + textwrap.dedent("".join(lines)), filename, first


def _source_of_cell(kind: Any) -> tuple[list[str], int, str]:
    """A class of a notebook: Python knows where its methods are, but not where it is itself."""
    for method in vars(kind).values() if inspect.isclass(kind) else ():
        if inspect.isfunction(method):
            filename = method.__code__.co_filename
            lines = linecache.getlines(filename)
            with contextlib.suppress(SyntaxError):
                for node in ast.walk(ast.parse("".join(lines))):
                    if isinstance(node, ast.ClassDef) and node.name == kind.__name__:
                        return lines[node.lineno - 1 : node.end_lineno], node.lineno, filename
    return [], 0, ""


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
    own: Path | None = None,
) -> list[Report]:
    """A report for every candidate of a file; raises ValueError where there is none.

    `own` is a folder from which an untrusted program may import.
    """
    check_subject(subject)
    check_hints(hints)
    if not path.is_file():
        raise ValueError(f"file must be a Python file or a notebook that exists, got {path}")
    source = finding.read_source(path)
    said = shown or path.name
    deadline = time.monotonic() + CALLS_OF_A_FILE * walls.seconds
    with contextlib.ExitStack() as stack:
        forks = server or stack.enter_context(ForkServer())
        load = partial(_load, source, path, walls, forks, seed, deadline, own and own.resolve())
        try:
            reports = _check_source(source, path, name, subject, hints, load, said)
            for i, report in enumerate(reports):
                if _wants_single(report) and report.name != path.name:  # not the file as a whole
                    again = _check_source(source, path, report.name, subject, hints, partial(load, double=False), said)
                    reports[i] = again[0]
            return reports
        except (ValueError, ProgramError, ProgramDiedError, MissingWallError):
            raise
        except Exception as error:  # what the program says of itself may be of any shape
            sentence = f"It could not be judged ({type(error).__name__}: {error})."
            return [Report(said, path.name, "", "failed", sentence)]


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
    load: Callable[[], tuple[Program, dict[str, Any]]],
    shown: str,
) -> list[Report]:
    program, facts = load()
    try:
        found = finding.find(facts["names"], source, SUBJECTS, name, subject)
        if name is not None and name not in facts["names"]:
            from headwork.checks import nearest

            missing = missing_words(facts, source, path.name)
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
        skipped = tuple(
            f"{place_of(source, path.name, s['line'])} was left out: {words_of(s)}" for s in facts["skipped"]
        )
        reports: list[Report] = []
        for i, each in enumerate(found):
            if time.monotonic() > program.deadline:
                sentence = f"{len(found) - i} of {len(found)} candidates were not judged, for want of time."
                reports.append(Report(shown, path.name, "", "failed", sentence))
                break
            if program.dead is not None:
                program, facts = load()
            candidate = Candidate(each.name, facts["names"][each.name], program, source, shown, facts)
            reports.append(judge(candidate, each, hints))
        if guessed:
            reports = [r for r in reports if r.verdict in ("right", "wrong")]
        if not reports:
            missing = missing_words(facts, source, path.name)
            if missing and not facts["names"]:
                return [Report(shown, path.name, "", "failed", f"It could not run: {missing}.")]
            there = ", ".join(list(facts["names"])[:8]) or "no functions or classes"
            left_out = "".join(f"{note}; " for note in skipped[:2])
            raise ValueError(
                f"nothing to check was found in {path}: {left_out}it has {there}; a NAME and --as SUBJECT, or a comment `# headwork: attention` above"
                " a definition, says what is what"
            )
        return [_with_notes(r, skipped) for r in reports]
    finally:
        program.close()


def _with_notes(report: Report, notes: Sequence[str]) -> Report:
    return replace(report, notes=(*report.notes, *notes))


def _load(
    source: str,
    path: Path,
    walls: Walls,
    forks: ForkServer,
    seed: int | None,
    deadline: float,
    own: Path | None,
    double: bool = True,
) -> tuple[Program, dict[str, Any]]:
    folder = path.resolve().parent
    package: list[str] = []
    root = folder
    while (root / "__init__.py").exists():
        package.insert(0, root.name)
        root = root.parent
    folders = [folder, *folder.parents[:3]]
    if package:  # its root comes first: a file in it may be called as it is
        folders.insert(0, root)
    if walls.untrusted:
        folders = [f for f in folders if own is not None and f.is_relative_to(own)]
    program = forks.start(walls, own)
    program.double, program.deadline = double, deadline
    if seed is not None:
        program.first_seed = seed
    try:
        name = ".".join(package) or (folder.name if folders else "")
        return program, program.load(source, str(path), [str(f) for f in folders], name)
    except (ProgramError, ProgramDiedError):
        program.close()
        raise


def check_class(
    folder: Path,
    *,
    subject: str | None = None,
    name: str | None = None,
    walls: Walls = Walls(untrusted=True),
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
            own = submission if submission.is_dir() else None
            judge = partial(check_file, name=name, subject=subject, walls=walls, server=forks, seed=seed, own=own)
            try:
                reports = _check_submission(submission, judge, time.monotonic() + CALLS_OF_A_FILE * walls.seconds)
            except MissingWallError:
                raise
            except Exception as error:  # none ends the class
                sentence = f"It could not be judged ({type(error).__name__}: {error})."
                reports = [Report(submission.name, submission.name, "", "failed", sentence)]
            yield submission.name, reports


def _check_submission(submission: Path, judge: Callable[[Path], list[Report]], deadline: float) -> list[Report]:
    found = [submission] if not submission.is_dir() or submission.is_symlink() else _files_below(submission)
    links = [file for file in found if file.is_symlink()]
    reports = [
        Report(file.name, submission.name, "", "failed", "It is a link, and links are not followed.") for file in links
    ]
    files = [file for file in found if file not in links]
    for i, file in enumerate(files):
        if time.monotonic() > deadline:
            sentence = f"{len(files) - i} of {len(files)} files were not judged, for want of time."
            reports.append(Report(file.name, submission.name, "", "failed", sentence))
            break
        try:
            reports += judge(file)
        except ValueError as error:
            if len(found) == 1:
                reports.append(Report(file.name, submission.name, "", "failed", str(error)))
        except (ProgramDiedError, ProgramError) as error:
            reports.append(Report(file.name, submission.name, "", "failed", f"It could not run: {error}."))
    return reports or [Report(submission.name, submission.name, "", "failed", "Nothing was found to check.")]


def _files_below(folder: Path) -> list[Path]:
    """Programs and notebooks; `os.walk` goes through no link."""
    found = (Path(above) / name for above, _, names in os.walk(folder) for name in names)
    return sorted(p for p in found if p.suffix in (".py", ".ipynb"))
