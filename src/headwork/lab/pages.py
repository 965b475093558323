"""The pages of the lab: one for each claim, an index with the table of verdicts, and the errata."""

import io
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from headwork.figures import plot_style
from headwork.lab.catalogue import DOCUMENTS, SHEETS, TITLES, place
from headwork.lab.claim import Finding
from headwork.lab.questions import document_page, page_name
from headwork.lab.slips import MINOR, SLIPS
from headwork.lab.verdict import show
from headwork.serialise import config_to_dict
from headwork.tables import Table

AnyFinding = Finding[Any, Any]
ERRATA = ("where", "printed", "right", "measured")

WHAT_A_SHEET_IS = " (a sheet is one of the [five university assignments](../sources.md) that the claims come from)"


def write_page(finding: AnyFinding, folder: Path, *, svg: bool = False) -> list[Path]:
    """The Markdown page of a claim and its picture, NAME.md and NAME.png; for slides, NAME.svg too."""
    page, picture = folder / f"{finding.claim.name}.md", folder / f"{finding.claim.name}.png"
    picture.write_bytes(_picture(finding))
    page.write_text(claim_page(finding), encoding="utf-8")
    if not svg:
        return [page, picture]
    drawing = picture.with_suffix(".svg")
    with plot_style():
        finding.draw().savefig(drawing, metadata={"Date": None})
    return [page, picture, drawing]


def write_index(findings: Sequence[AnyFinding], folder: Path) -> list[Path]:
    """The pages that need every claim: `index.md`, `errata.md`, one for each document, and for several seeds those."""
    pages = {"index.md": index_page(findings), "errata.md": errata_page(findings)}
    pages |= {page_name(document): document_page(document) for document in SHEETS}
    if all(finding.n_seeds > 1 for finding in findings):
        pages["seeds.md"] = seeds_page(findings)
    for name, text in pages.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in pages]


def claim_page(finding: AnyFinding) -> str:
    claim = finding.claim
    setup = {name: value for name, value in config_to_dict(finding.setup).items() if name != "kind"}
    parts = [
        f"# {claim.name}",
        f"**{claim.says}**",
        f"{claim.source}{WHAT_A_SHEET_IS}. Verdict: **{finding.outcome}**.",
        f"![{claim.says}]({claim.name}.png)",
        finding.table().markdown(),
        f"{finding.verdict.reason} {claim.confidence}",
        f"## Why\n\n{claim.explanation}",
    ]
    if claim.errata:
        parts += ["## What the document says", Table(ERRATA, tuple(_rows_of_errata([finding]))).markdown()]
    if any(check.near for check in finding.verdict.checks):
        parts += [
            "## Near, and wrong",
            "Theories that are off by a little, held against the same measurement with the same tolerance:",
            finding.verdict.table_of_near().markdown(),
        ]
    if finding.broken is not None:
        parts += [
            "## Broken on purpose",
            "The same experiment at a small size, with one thing wrong, which the check has to notice:",
            finding.table_of_broken().markdown(),
        ]
    parts += [
        f"## Run it\n\n```\nheadwork lab {claim.name}\n```",
        "With " + ", ".join(f"{name} = {_setting(value)}" for name, value in setup.items()) + ".",
    ]
    return "\n\n".join(parts) + "\n"


def index_page(findings: Sequence[AnyFinding]) -> str:
    """Every claim with its verdict, by document."""
    n_hold = sum(finding.holds for finding in findings)
    parts = [
        "# The lab",
        "Every claim is a small program: a prediction, a measurement, a tolerance and a verdict, with a figure. "
        f"**{n_hold} of {len(findings)} hold.** The claims come from five [university assignments](../sources.md), "
        "called sheets. Where a sheet contradicts the measurement, the [errata](errata.md) list it. "
        "`headwork lab NAME` runs one claim, `headwork lab --all` runs all of them, and `make lab` writes these pages "
        "again. [How to add a claim](ADDING.md).",
        "Every question of the sheets, line by line, with its answer: "
        + ", ".join(f"[{sheet}]({page_name(sheet)})" for sheet in SHEETS)
        + ".",
    ]
    columns = ("question", "claim", "what", "predicted", "measured", "tolerance", "verdict")
    for document in DOCUMENTS:
        rows = [
            (question, f"[{found.claim.name}]({found.claim.name}.md): {found.claim.says}", *cells, found.outcome)
            for found in findings
            for question, cells in _questions(found, document)
        ]
        if rows:
            parts += [f"## {TITLES[document]}", Table(columns, tuple(sorted(rows))).markdown()]
    return "\n\n".join(parts) + "\n"


def _questions(found: AnyFinding, document: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The questions of a document that a claim answers; its numbers stand beside the first."""
    claim = found.claim
    if claim.document == document:
        yield claim.question, found.verdict.headline.cells
    for other, question in map(place, claim.also):
        if other == document:
            yield question, ("", "", "", "")


def seeds_page(findings: Sequence[AnyFinding]) -> str:
    """How much each check varies with the seed, what it tolerates, and the nearest wrong theory that it rejects."""
    rows = []
    for found in findings:
        for check, sd in zip(found.verdict.checks, found.spread, strict=True):
            nearest = check.nearest
            wrong = "" if nearest is None else f"{nearest.what}: {show(nearest.predicted)}"
            off = "" if nearest is None or not math.isfinite(nearest.distance) else f"{nearest.distance:,.3g}"
            cells = check.cells
            deviation = "" if sd is None else show(sd)
            rows.append((found.claim.name, cells[0], cells[1], cells[2], deviation, cells[3], wrong, off))
    tried = Counter((found.first_seed, found.n_seeds) for found in findings)
    seeds = ", ".join(f"{n} at the {many} seeds from {first:,} on" for (first, many), n in tried.items())
    held = [found for found in findings if found.holds]
    columns = (
        "claim",
        "check",
        "predicted",
        "measured (first seed)",
        "SD over seeds",
        "tolerance",
        "nearest wrong theory",
        "off by, in tolerances",
    )
    parts = [
        "# Seeds",
        f"{len(held)} of {len(findings)} claims hold at every seed that was tried, and reject every near wrong theory "
        f"there: {seeds}. At other seeds a check may fail: its tolerance leaves a chance.",
        "A tolerance of `5 SD` is five standard deviations as the claim expects them; what they were over the seeds "
        "is beside it.",
        Table(columns, tuple(rows)).markdown(),
    ]
    return "\n\n".join(parts) + "\n"


def errata_page(findings: Sequence[AnyFinding]) -> str:
    """Every error found in the documents, by document."""
    parts = [
        "# Errata",
        "Errors found in the [five sheets](../sources.md), each with the measurement that shows it. "
        "This page is written by `make lab` from the claims.",
    ]
    for document in DOCUMENTS:
        group = [finding for finding in findings if finding.claim.document == document and finding.claim.errata]
        rows = list(_rows_of_errata(group, link=True))
        rows += SLIPS.get(document, ())
        if rows:
            parts += [f"## {TITLES[document]}", Table(ERRATA, tuple(rows)).markdown()]
        if document in MINOR:
            parts.append("Minor: " + "; ".join(MINOR[document]) + ".")
    return "\n\n".join(parts) + "\n"


def _picture(finding: AnyFinding) -> bytes:
    """A PNG of at most 128 colours, which is small; the same figure is the same file."""
    drawn, small = io.BytesIO(), io.BytesIO()
    with plot_style():
        finding.draw().savefig(drawn, format="png")
    Image.open(drawn).convert("RGB").quantize(128).save(small, format="png", optimize=True)
    return small.getvalue()


def _rows_of_errata(findings: Sequence[AnyFinding], *, link: bool = False) -> Iterator[tuple[str, str, str, str]]:
    for finding in findings:
        page = f" ([{finding.claim.name}]({finding.claim.name}.md))" if link else ""
        for erratum in finding.claim.errata:
            yield erratum.where, erratum.printed, erratum.right, erratum.measured(finding.result) + page


def _setting(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
