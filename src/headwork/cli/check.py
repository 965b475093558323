"""`headwork check`."""

import csv
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

if TYPE_CHECKING:
    from headwork.checking import Report, Walls


class CheckedError(RuntimeError):
    """What was found, as an exit code: the report itself has been printed."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@dataclass(frozen=True)
class Check:
    """Tell what is wrong with somebody's attention code, in words.

    The file runs in a process of its own, with limits of time, memory, files and output. That is enough for your own
    code; for somebody else's, --untrusted also takes away network, files and environment.
    Exit code 0: right; 1: wrong; 2: nothing found, or asked wrongly; 3: it could not run, or is not known.
    """

    file: Annotated[Positional[Path | None], arg(metavar="[FILE]", help="A .py file or a notebook.")] = None
    name: Annotated[
        Positional[str | None], arg(metavar="[NAME]", help="The function or class; all that are known, unless given.")
    ] = None
    as_: Annotated[
        str | None,
        arg(
            name="as",
            metavar="SUBJECT",
            help="What it is meant to be, where its name does not say (`--as list` lists them).",
        ),
    ] = None
    hints: Annotated[int, arg(help="0: right or wrong; 1: where to look; 2: a question; 3: everything.")] = 3
    json: Annotated[bool, arg(help="Print JSON for a program to read.")] = False
    gradescope: Annotated[Path | None, arg(metavar="FILE", help="Write Gradescope's results.json.")] = None
    class_: Annotated[Path | None, arg(name="class", metavar="FOLDER", help="Check every submission of a folder.")] = (
        None
    )
    csv: Annotated[Path | None, arg(metavar="FILE", help="Write a row for each submission of the class.")] = None
    untrusted: Annotated[bool, arg(help="The code is somebody else's: no network, no files, no environment.")] = False
    without_wall: Annotated[
        tuple[str, ...],
        arg(metavar="WALL ...", help="Do without walls that this machine cannot build: processes, network, files."),
    ] = ()
    seconds: Annotated[float, arg(help="How long one call may take.")] = 20.0
    seed: Annotated[int | None, arg(help="Where the random numbers start; another at every run unless given.")] = None

    def run(self) -> None:
        if self.as_ == "list":
            from headwork.checking.entry import subject_names

            print("\n".join(subject_names()))
            return
        self._check()
        if self.class_ is not None:
            self._run_class(self.class_)
            return
        assert self.file is not None
        from headwork.checking import check_file
        from headwork.checking.report import exit_code, gradescope
        from headwork.checking.runner import ProgramDiedError, ProgramError

        try:
            reports = check_file(
                self.file, self.name, subject=self.as_, hints=self.hints, walls=self._walls(), seed=self.seed
            )
        except (ProgramDiedError, ProgramError) as error:
            raise CheckedError(f"{self.file} could not run: {error}", 3) from None
        if self.gradescope is not None:
            self.gradescope.write_text(gradescope(reports, self.hints), encoding="utf-8")
        if self.json:
            print(json.dumps([r.to_dict() for r in reports], indent=2))
        else:
            print_reports(reports, self.hints)
        code = exit_code(reports)
        if code:
            told = {1: ("wrong",), 3: ("unknown", "failed")}[code]
            n = sum(r.verdict in told for r in reports)
            words = ("is wrong", "are wrong") if code == 1 else ("could not be judged",) * 2
            raise CheckedError(f"{n} of {len(reports)} checked {words[n != 1]}", code)

    def _check(self) -> None:
        from headwork.checks import check_above_zero

        check_above_zero(seconds=self.seconds)
        if not 0 <= self.hints <= 3:
            raise ValueError(f"hints must lie in 0 .. 3, got {self.hints}")
        if (self.file is None) == (self.class_ is None):
            raise ValueError(
                "give a FILE to check, or --class FOLDER" + (", not both" if self.file else ", got neither")
            )
        if self.csv is not None and self.class_ is None:
            raise ValueError(f"csv is for a class: give --class FOLDER, got --csv {self.csv} without it")
        if self.json and self.gradescope is not None:
            raise ValueError("give --json or --gradescope, not both")
        if self.without_wall and not self.untrusted:
            raise ValueError(f"without-wall is for --untrusted, got {' '.join(self.without_wall)} without it")

    def _walls(self) -> "Walls":
        from headwork.checking import Walls

        return Walls(untrusted=self.untrusted, without=self.without_wall, seconds=self.seconds)

    def _run_class(self, folder: Path) -> None:
        from headwork.checking import check_class
        from headwork.checking.report import count_mistakes

        rows: list[tuple[str, list[Report]]] = []
        for submission, reports in check_class(
            folder, subject=self.as_, name=self.name, walls=self._walls(), seed=self.seed
        ):
            rows.append((submission, reports))
            print(f"{submission}: {summary(reports)}", file=sys.stderr)
        if self.csv is not None:
            write_table(self.csv, rows)
        if self.json:
            print(json.dumps({name: [r.to_dict() for r in reports] for name, reports in rows}, indent=2))
            return
        n_right = sum(all(r.right for r in reports) for _, reports in rows)
        n_open = sum(all(r.verdict in ("failed", "unknown") for r in reports) for _, reports in rows)
        undecided = [f"{n_open} of {len(rows)}: could not be judged"] if n_open else []
        print("\n".join([f"{n_right} of {len(rows)}: right", *count_mistakes(rows), *undecided]))


def print_reports(reports: "list[Report]", hints: int) -> None:
    if len(reports) > 1:
        names = ", ".join(r.name for r in reports)
        print(f"{len(reports)} candidates were found and checked: {names} (a NAME checks one)\n")
    order = {"wrong": 0, "unknown": 1, "failed": 2, "right": 3}
    print("\n\n".join(r.text(hints) for r in sorted(reports, key=lambda r: order[r.verdict])))


def summary(reports: "list[Report]") -> str:
    wrong = [f.sentence for r in reports for f in r.findings] or [r.sentence for r in reports if not r.right]
    return " ".join(dict.fromkeys(wrong)) or "right"


def write_table(path: Path, rows: "list[tuple[str, list[Report]]]") -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["submission", "verdict", "points", "of", "mistakes", "feedback"])
        for submission, reports in rows:
            verdicts = {r.verdict for r in reports}
            verdict = next(v for v in ("wrong", "failed", "unknown", "right") if v in verdicts)
            mistakes = "; ".join(dict.fromkeys(f.name for r in reports for f in r.findings))
            table.writerow(
                [submission, verdict, sum(r.points for r in reports), len(reports), mistakes, summary(reports)]
            )
