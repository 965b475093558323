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
    """Find mistakes in attention code and show the line.

    The file runs in a process of its own, with limits of time, memory, files and output. That is enough for your own
    code. Somebody else's code needs --untrusted, which also takes away network, files and environment; --class and
    --gradescope always run with it, unless you type --trusted.
    Points: 1 for right, 0.5 for one mistake, 0.25 for more, 0 for what could not be judged.
    Exit code 1: something is wrong; 2: nothing found, or asked wrongly; 3: the NAME, the file or a submission could not
    be judged; 0: the rest.
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
    trusted: Annotated[
        bool, arg(help="The submissions of --class or --gradescope may do what you may do on this machine.")
    ] = False
    without_wall: Annotated[
        tuple[str, ...],
        arg(metavar="WALL ...", help="Do without walls that this machine cannot build: processes, network, files."),
    ] = ()
    seconds: Annotated[float, arg(help="How long one call may take; a whole submission may take 15 times as long.")] = (
        20.0
    )
    seed: Annotated[int | None, arg(help="Where the random numbers start; another at every run unless given.")] = None

    def run(self) -> None:
        if self.as_ == "list":
            from headwork.checking.entry import subject_names

            print("\n".join(subject_names()))
            return
        self._check()
        from headwork.checking.report import plain
        from headwork.checking.runner import MissingWallError, ProgramDiedError, ProgramError
        from headwork.checking.walls import limited_memory

        try:
            with limited_memory():
                self._run_class(self.class_) if self.class_ is not None else self._run_file()
        except MissingWallError as error:
            raise CheckedError(str(error), 3) from None
        except (ProgramDiedError, ProgramError) as error:
            raise CheckedError(plain(f"{self.file} could not run: {error}"), 3) from None

    def _run_file(self) -> None:
        from headwork.checking import check_file
        from headwork.checking.report import exit_code, gradescope

        assert self.file is not None
        reports = check_file(
            self.file, self.name, subject=self.as_, hints=self.hints, walls=self._walls(), seed=self.seed
        )
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
        if self.trusted and self.untrusted:
            raise ValueError("give --trusted or --untrusted, not both")
        if self.without_wall and not self._is_untrusted:
            raise ValueError(f"without-wall is for --untrusted, got {' '.join(self.without_wall)} without it")

    @property
    def _is_untrusted(self) -> bool:
        """Whoever grades runs the programs of others."""
        return self.untrusted or (not self.trusted and (self.class_ is not None or self.gradescope is not None))

    def _walls(self) -> "Walls":
        from headwork.checking import Walls

        return Walls(untrusted=self._is_untrusted, without=self.without_wall, seconds=self.seconds)

    def _run_class(self, folder: Path) -> None:
        from headwork.checking import check_class
        from headwork.checking.report import count_mistakes, exit_code, plain

        rows: list[tuple[str, list[Report]]] = []
        for submission, reports in check_class(
            folder, subject=self.as_, name=self.name, walls=self._walls(), seed=self.seed
        ):
            rows.append((submission, reports))
            print(plain(f"{submission}: {summary(reports)}"), file=sys.stderr)
        if self.csv is not None:
            write_table(self.csv, rows)
        if self.json:
            print(json.dumps({name: [r.to_dict() for r in reports] for name, reports in rows}, indent=2))
        codes = [exit_code(reports) for _, reports in rows]
        n_right = sum(all(r.right for r in reports) for _, reports in rows)
        n_open = sum(all(r.verdict in ("failed", "unknown") for r in reports) for _, reports in rows)
        undecided = [f"{n_open} of {len(rows)}: could not be judged"] if n_open else []
        if not self.json:
            print("\n".join([f"{n_right} of {len(rows)}: right", *count_mistakes(rows), *undecided]))
        for code, words in ((1, "are wrong"), (3, "could not be judged")):
            if code in codes:
                raise CheckedError(f"{codes.count(code)} of {len(rows)} submissions {words}", code)


def print_reports(reports: "list[Report]", hints: int) -> None:
    if len(reports) > 1:
        names = ", ".join(r.name for r in reports)
        print(f"{len(reports)} candidates were found and checked: {names} (a NAME checks one)\n")
    order = {"wrong": 0, "unknown": 1, "failed": 2, "right": 3}
    print("\n\n".join(r.text(hints) for r in sorted(reports, key=lambda r: order[r.verdict])))


def summary(reports: "list[Report]") -> str:
    """Mistakes, or what else is not right, with the lines that were left out; remarks come last."""
    wrong = [f.sentence for r in reports for f in r.findings]
    other = [words for r in reports if not r.right for words in (r.sentence, *r.notes)]
    remarks = list(dict.fromkeys(f.sentence for r in reports for f in r.remarks))
    return " ".join([*(dict.fromkeys(wrong or other) or ["right"]), *(["but:", *remarks] if remarks else [])])


def write_table(path: Path, rows: "list[tuple[str, list[Report]]]") -> None:
    from headwork.checking.report import plain

    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["submission", "verdict", "points", "of", "mistakes", "remarks", "feedback", "read as"])
        for submission, reports in rows:
            verdicts = {r.verdict for r in reports}
            verdict = next(v for v in ("wrong", "failed", "unknown", "right") if v in verdicts)
            mistakes = "; ".join(dict.fromkeys(f.name for r in reports for f in r.findings))
            remarks = "; ".join(dict.fromkeys(f.name for r in reports for f in r.remarks))
            read_as = " | ".join("; ".join(r.read_as) for r in reports if r.read_as)
            points = sum(r.points for r in reports)
            texts = [cell(plain(text)) for text in (submission, mistakes, remarks, summary(reports), read_as)]
            table.writerow([texts[0], verdict, points, len(reports), *texts[1:]])


def cell(text: str) -> str:
    """What a spreadsheet would take for a formula is made a text."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text
