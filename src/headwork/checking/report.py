"""What is told: the sentence first, then the line, the smallest case, how sure it is, and why it matters."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from headwork.checking.pointing import Line

Verdict = Literal["right", "wrong", "unknown", "failed"]
EXIT_CODES: dict[str, int] = {"right": 0, "wrong": 1, "unknown": 3, "failed": 3}


def plain(text: str) -> str:
    r"""Text that a terminal and every encoding bear: what is not printable is written as its escape.

    >>> print(plain("a\x1b[2Jb\ud800"))
    a\x1b[2Jb\ud800
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong: its name, sentence, hints, line, and the claim of the lab that measures it."""

    name: str
    sentence: str
    hints: tuple[str, ...]
    line: Line | None
    claim: str | None = None


@dataclass(frozen=True)
class Report:
    """What is known of one function or class. It prints itself; `right` says whether all is well."""

    file: str
    name: str
    subject: str
    verdict: Verdict
    sentence: str
    findings: tuple[Finding, ...] = ()
    remarks: tuple[Finding, ...] = ()
    """What is not wrong, and will be in some use: it costs no points."""
    line: int | None = None
    place: str = ""
    """The line in words: of a notebook, that of a cell."""
    read_as: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    case: tuple[str, str, str] | None = None
    """The smallest case: inputs, the program's answer, the right answer."""
    certainty: str = ""
    not_looked_at: tuple[str, ...] = ()
    """Arguments and options of the program that were left as they are."""
    seed: int = 0
    hints: int = 3

    @property
    def right(self) -> bool:
        return self.verdict == "right"

    @property
    def points(self) -> float:
        """1 for right, a half for one mistake, a quarter for more."""
        return 1.0 if self.right else 0.0 if self.verdict != "wrong" else 0.5 if len(self.findings) == 1 else 0.25

    def text(self, hints: int | None = None, hidden: bool = False) -> str:
        """The report as text; `hints` 0 says only whether it is right, 1 where to look, 2 what to ask, 3 everything."""
        hints = self.hints if hints is None else hints
        where = f", {self.place or f'line {self.line}'}" if self.line else ""
        lines = [
            f"{self.file}, {self.name}{where}: {self.subject}" if self.subject else f"{self.file}, {self.name}{where}"
        ]
        if self.verdict == "wrong" and hints < 3:
            lines.append("  This is not right yet.")
            for finding in self.findings:
                lines += [f"  hint: {hint}" for hint in finding.hints[:hints]]
            if hints < 2:
                lines.append(f"  more: --hints {hints + 1}")
            elif self.findings:
                lines.append("  everything: --hints 3")
            return "\n".join(map(plain, lines))
        lines.append(f"  {self.sentence}")
        lines += [f"  {finding.sentence}" for finding in self.findings[1:]]
        lines += [f"  {finding.line.place}:  {finding.line.text}" for finding in self.findings if finding.line]
        for remark in self.remarks:
            lines.append(f"  {'but' if self.right else 'also'}: {remark.sentence}")
            if remark.line is not None:
                lines.append(f"  {remark.line.place}:  {remark.line.text}")
        if self.certainty:
            lines.append(f"  {self.certainty}")
        if self.case is not None and not hidden:
            lines.append(f"  smallest case: {self.case[0]}")
            lines.append(f"    yours {self.case[1]}")
            lines.append(f"    right {self.case[2]}")
        if self.read_as:
            lines.append(f"  read as: {'; '.join(self.read_as)}")
        lines += [f"  also: {note}" for note in self.notes]
        lines += [
            f"  why it matters: headwork lab {claim}"
            for claim in dict.fromkeys(f.claim for f in (*self.findings, *self.remarks) if f.claim)
        ]
        return "\n".join(map(plain, lines))

    def __str__(self) -> str:
        return self.text()

    __repr__ = __str__

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "points": self.points, "right": self.right}


def exit_code(reports: Sequence[Report]) -> int:
    """Anything wrong is 1; what could not be judged is told, and decides only where nothing was; nothing at all is 2."""
    if not reports:
        return 2
    codes = {EXIT_CODES[r.verdict] for r in reports}
    return 1 if 1 in codes else 0 if 0 in codes else 3


def gradescope(reports: Sequence[Report], hints: int) -> str:
    """Gradescope's results.json: an entry for each candidate; hidden inputs are not shown."""
    tests = [
        {
            "name": plain(f"{r.name}: {r.subject}"),
            "score": r.points,
            "max_score": 1.0,
            "status": "passed" if r.right else "failed",
            "output": r.text(hints, hidden=True),
            "visibility": "visible",
            "tags": [f.name for f in r.findings],
        }
        for r in reports
    ]
    return json.dumps({"tests": tests, "output": "" if reports else "Nothing was found to check."}, indent=2)


def count_mistakes(rows: Sequence[tuple[str, Sequence[Report]]]) -> list[str]:
    """`31 of 80: The scores are scaled by ...`, the most frequent first, remarks among them."""
    counted = Counter(
        sentence for _, reports in rows for sentence in {f.sentence for r in reports for f in (*r.findings, *r.remarks)}
    )
    return [f"{n} of {len(rows)}: {plain(sentence)}" for sentence, n in counted.most_common()]
