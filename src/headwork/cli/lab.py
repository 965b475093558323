"""`headwork lab`."""

import ast
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from headwork.checks import check_positive
from headwork.tables import Table, printable

if TYPE_CHECKING:
    from headwork.lab.claim import Claim, Experiment, Finding

DEFAULT_FOLDER = Path("out/lab")
ENOUGH_SEEDS = 20
"""To tell whether a tolerance is too wide."""


@dataclass(frozen=True)
class Lab:
    """Run claims of the five documents: predicted, measured, judged and drawn. Without a name, list them."""

    name: Annotated[
        Positional[str | None],
        arg(metavar="[NAME]", help='The claim to run, or a question, such as "ETH 2(e)".'),
    ] = None
    document: Annotated[
        str | None, arg(metavar="SHEET", help="Answer every question of a sheet: NYU, ETH, C182, QMUL or EECS.")
    ] = None
    all: Annotated[bool, arg(help="Run every claim; write the index and the errata too.")] = False
    out: Annotated[
        Path | None,
        arg(metavar="FOLDER", help=f"Folder for pages and figures ({DEFAULT_FOLDER} unless given; none with --json)."),
    ] = None
    seed: Annotated[int, arg(help="Where the random numbers start.")] = 0
    seeds: Annotated[int, arg(help="Repeat with so many seeds; a claim has to hold for every one.")] = 1
    set: Annotated[
        tuple[str, ...], arg(metavar="FIELD=VALUE ...", help="Other values for the setup of the claim.")
    ] = ()
    svg: Annotated[bool, arg(help="Draw each figure as SVG too, for slides.")] = False
    json: Annotated[bool, arg(help="Print JSON for a program to read.")] = False

    def run(self) -> None:
        self._check()
        asked = self._asked()
        if asked is not None:
            print(answer(asked, as_json=self.json))
            return
        if self.name is None and not self.all:
            print(list_claims(as_json=self.json))
            return
        claims = self._claims()
        folder = self.out or (None if self.json else DEFAULT_FOLDER)
        if folder is not None:
            make_writable(folder)
        findings = self._run_all(claims, folder) if self.all else [self._run_one(*claims[0], folder)]
        failed = [finding.claim.name for finding in findings if not finding.holds]
        if failed:
            raise RuntimeError(f"{len(failed)} of {len(findings)} claims fail: {', '.join(failed)}")
        wide = too_wide(findings) if self.seeds >= ENOUGH_SEEDS else []
        if wide:
            raise RuntimeError("a tolerance is more than 5 standard deviations over seeds: " + "; ".join(wide))

    def _asked(self) -> str | None:
        """The question, or the sheet, that is to be answered."""
        from headwork.lab.questions import is_question

        if self.document is not None:
            return self.document
        return self.name if self.name is not None and is_question(self.name) else None

    def _check(self) -> None:
        check_positive(seeds=self.seeds)
        if self.document is not None and (self.name is not None or self.all):
            raise ValueError(f"document is for a whole sheet: leave out name and --all, got {self.document!r}")
        if self.name is not None and self.all:
            raise ValueError(f"all runs every claim: leave out the name, got {self.name!r}")
        if self.set and self.name is None:
            raise ValueError(f"set is for one claim: give its name, got {' '.join(self.set)}")
        if self.out is not None and self.name is None and not self.all:
            raise ValueError(f"out is for claims that run: give a name or --all, got {self.out}")
        if self.svg and self.name is None and not self.all:
            raise ValueError("svg is for claims that run: give a name or --all, got neither")
        if self.svg and self.json and self.out is None:
            raise ValueError("svg needs a folder: give --out beside --json, got none")

    def _claims(self) -> "list[tuple[Claim[Any, Any], Experiment]]":
        """What to run, with which setup: whatever is wrong with them is found here, before anything runs."""
        from headwork.lab import find, labels

        changes = {"seed": self.seed, **dict(map(read_setting, self.set))}
        names = [label.name for label in labels()] if self.name is None else [self.name]
        return [(claim, claim.change(claim.setup, changes)) for claim in map(find, names)]

    def _run_one(self, claim: "Claim[Any, Any]", setup: "Experiment", folder: Path | None) -> "Finding[Any, Any]":
        from headwork.lab.pages import write_page

        finding = claim.examine(setup, self.seeds, broken=True)
        print(json.dumps(finding.as_dict(), indent=2) if self.json else describe(finding))
        if folder is not None:
            for path in write_page(finding, folder, svg=self.svg):
                print(printable(str(path)), file=sys.stderr)
        return finding

    def _run_all(
        self, claims: "list[tuple[Claim[Any, Any], Experiment]]", folder: Path | None
    ) -> "list[Finding[Any, Any]]":
        """One after the other, each page as soon as it can be written, so that Ctrl-C keeps what is done."""
        from rich.console import Console
        from rich.progress import Progress

        from headwork.lab.pages import write_index, write_page

        console = Console(stderr=True, soft_wrap=True, highlight=False)
        findings = []
        with Progress(console=console, disable=not console.is_terminal, transient=True) as progress:
            task = progress.add_task("", total=len(claims))
            for claim, setup in claims:
                progress.update(task, description=claim.name)
                finding = claim.examine(setup, self.seeds, broken=True)
                if folder is not None:
                    write_page(finding, folder, svg=self.svg)
                findings.append(finding)
                done = f"{len(findings)}/{len(claims)}"
                progress.console.print(f"{done:>7} {claim.name}: {finding.outcome} ({finding.seconds:.1f} s)")
                progress.advance(task)
        if folder is not None:
            write_index(findings, folder)
        if self.json:
            print(json.dumps([finding.as_dict() for finding in findings], indent=2))
        else:
            print(table_of_verdicts(findings))
        return findings


def make_writable(folder: Path) -> None:
    """Make the folder, and raise ValueError or OSError now if nothing can be written there later."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise ValueError(f"out must be a folder, got the file {folder}") from None
    with tempfile.TemporaryFile(dir=folder):
        pass


def read_setting(text: str) -> tuple[str, object]:
    """FIELD=VALUE, the value as Python writes it, or else as a word.

    >>> read_setting("widths=(4, 8)"), read_setting("scale=1/d")
    (('widths', (4, 8)), ('scale', '1/d'))
    """
    field, equals, value = text.partition("=")
    if not equals or not field:
        raise ValueError(f"set must be FIELD=VALUE, got {text!r}")
    try:
        return field, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return field, value


def describe(finding: "Finding[Any, Any]") -> str:
    """The claim, each prediction beside its measurement, the verdict, and how the broken variants fail."""
    claim, verdict = finding.claim, finding.verdict
    return "\n\n".join(
        [
            f"{claim.says}\n({claim.source})",
            finding.table().text(),
            f"{claim.name} {finding.outcome}. {verdict.reason}\n{claim.confidence}",
            f"Near, and wrong:\n{verdict.table_of_near().text()}",
            f"Broken on purpose, at a small size:\n{finding.table_of_broken().text()}",
        ]
    )


def too_wide(findings: "Sequence[Finding[Any, Any]]") -> list[str]:
    """The checks that tolerate more than they may; times depend on the machine, and are left out."""
    return [
        f"{finding.claim.name}, {what}"
        for finding in findings
        for what in finding.too_wide()
        if "time" not in what.replace(",", "").split()
    ]


def table_of_verdicts(findings: "Sequence[Finding[Any, Any]]") -> str:
    columns = ("claim", "document", "question", "predicted", "measured", "tolerance", "verdict")
    rows = tuple(
        (claim.name, claim.document, claim.question, *finding.verdict.headline.cells[1:], finding.outcome)
        for finding in findings
        for claim in (finding.claim,)
    )
    n_hold = sum(finding.holds for finding in findings)
    return f"{Table(columns, rows).text()}\n\n{n_hold} of {len(findings)} hold."


def answer(asked: str, *, as_json: bool) -> str:
    """A question, or all of a sheet: what it asks, the answer, where it is measured, and what is missing."""
    from headwork.lab.catalogue import TITLES, place
    from headwork.lab.questions import describe_question, find_questions, questions

    document, wanted = place(asked)
    found = find_questions(asked) if wanted else questions(document)
    if as_json:
        rows = [asdict(question) | {"measured": question.measured} for question in found]
        return json.dumps(rows, indent=2, ensure_ascii=False)
    parts = [describe_question(question) for question in found]
    return "\n\n".join(parts if wanted else [TITLES[document], *parts])


def list_claims(*, as_json: bool) -> str:
    from headwork.lab import labels
    from headwork.lab.catalogue import TITLES

    if as_json:
        return json.dumps([asdict(label) for label in labels()], indent=2)
    parts = []
    for document, group in groupby(labels(), key=lambda label: label.document):
        rows = tuple(("", label.question, label.name, label.says) for label in group)
        table = Table(("", "question", "claim", "what it says"), rows)
        parts.append(f"{document}: {TITLES[document]}\n{table.text()}")
    return "\n\n".join(parts)
