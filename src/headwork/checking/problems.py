"""Words for what could not be loaded, made or called."""

from functools import partial
from typing import Any

from headwork.checking import finding
from headwork.checking.calling import Candidate
from headwork.checking.constructing import missing_parts, unknown_arguments
from headwork.checking.pointing import names_bound_at, place_of
from headwork.checking.report import Report
from headwork.checking.runner import ProgramDiedError, ProgramError
from headwork.checking.subjects.blocks import USUAL_SIZES


def words_of(problem: dict[str, Any]) -> str:
    kind, message = problem["type"], problem["message"]
    if kind == "ModuleNotFoundError":
        return f"the package {problem['missing']!r} is not installed"
    if kind == "TooSlowError":
        return "it took more than 5 seconds (does it train there?)"
    if kind == "EOFError":
        return "it asks for input"
    if kind == "TclError" or "display" in message.lower():
        return "it opens a window"
    return f"{kind}: {message}".rstrip(": ")


def missing_words(facts: dict[str, Any], source: str, filename: str) -> str:
    return "; ".join(f"{place_of(source, filename, s['line'])}: {words_of(s)}" for s in facts["skipped"][:2])


def could_not_run(
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
        place = partial(place_of, candidate.source, candidate.filename)
        line = f" ({place(problem.line)})" if problem.line else ""
        sentence = _problem_words(problem, candidate.program.walls.seconds) + line
        skipped = candidate.everything.get("skipped", []) if candidate.source else []
        reasons = [
            s for s in skipped if problem.missing in {s.get("missing"), *names_bound_at(candidate.source, s["line"])}
        ]
        if problem.missing and reasons:
            sentence = f"It could not run: {words_of(reasons[0])} ({place(reasons[0]['line'])})"
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
        place=candidate.place,
        hints=hints,
        seed=candidate.program.first_seed,
    )


def _problem_words(problem: ProgramError, seconds: float) -> str:
    if problem.kind == "TooSlowError":
        return f"It did not come to an end within {seconds:g} seconds"
    if "can't allocate memory" in problem.message or problem.kind == "MemoryError":
        return "It asked for more memory than it may have (4 GB)"
    if problem.kind == "EOFError":
        return "It asks for input"
    if problem.kind == "SystemExit":
        return "It ended itself"
    if "CUDA" in problem.message:
        return "It needs a GPU (CUDA), and check runs on the processor: use x.device instead of 'cuda'"
    return f"It could not run: {problem}"
