"""The pages of the lab: one for each claim, an index with the table of verdicts, and the errata."""

import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from headwork.figures import plot_style
from headwork.lab.catalogue import DOCUMENTS, TITLES
from headwork.lab.claim import Finding
from headwork.serialise import config_to_dict
from headwork.tables import Table

AnyFinding = Finding[Any, Any]

SHEETS = " (a sheet is one of the [five university assignments](../sources.md) that the claims come from)"


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


def write_index(findings: Sequence[AnyFinding], folder: Path) -> tuple[Path, Path]:
    """The pages that need every claim: `index.md` and `errata.md`."""
    index, errata = folder / "index.md", folder / "errata.md"
    index.write_text(index_page(findings), encoding="utf-8")
    errata.write_text(errata_page(findings), encoding="utf-8")
    return index, errata


def claim_page(finding: AnyFinding) -> str:
    claim = finding.claim
    setup = {name: value for name, value in config_to_dict(finding.setup).items() if name != "kind"}
    parts = [
        f"# {claim.name}",
        f"**{claim.says}**",
        f"{claim.source}{SHEETS}. Verdict: **{finding.outcome}**.",
        f"![{claim.says}]({claim.name}.png)",
        finding.table().markdown(),
        f"{finding.verdict.reason} {claim.confidence}",
        f"## Why\n\n{claim.explanation}",
    ]
    if claim.errata:
        parts += ["## What the document says", _table_of_errata([finding])]
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
    ]
    columns = ("question", "claim", "what", "predicted", "measured", "tolerance", "verdict")
    for document, group in _by_document(findings):
        rows = tuple(
            (
                claim.question,
                f"[{claim.name}]({claim.name}.md): {claim.says}",
                *found.verdict.headline.cells,
                found.outcome,
            )
            for found in group
            for claim in (found.claim,)
        )
        parts += [f"## {document}", Table(columns, rows).markdown()]
    return "\n\n".join(parts) + "\n"


def errata_page(findings: Sequence[AnyFinding]) -> str:
    """Every error found in the documents, by document."""
    parts = [
        "# Errata",
        "Errors found in the [five sheets](../sources.md), each with the measurement that shows it. "
        "This page is written by `make lab` from the claims.",
    ]
    for document, group in _by_document([finding for finding in findings if finding.claim.errata]):
        parts += [f"## {document}", _table_of_errata(group, link=True)]
    return "\n\n".join(parts) + "\n"


def _picture(finding: AnyFinding) -> bytes:
    """A PNG of at most 128 colours, which is small; the same figure is the same file."""
    drawn, small = io.BytesIO(), io.BytesIO()
    with plot_style():
        finding.draw().savefig(drawn, format="png")
    Image.open(drawn).convert("RGB").quantize(128).save(small, format="png", optimize=True)
    return small.getvalue()


def _by_document(findings: Sequence[AnyFinding]) -> Iterator[tuple[str, list[AnyFinding]]]:
    """The titles of the documents that have findings, with these."""
    for document in DOCUMENTS:
        group = [finding for finding in findings if finding.claim.document == document]
        if group:
            yield TITLES[document], group


def _table_of_errata(findings: Sequence[AnyFinding], *, link: bool = False) -> str:
    rows = []
    for finding in findings:
        page = f" ([{finding.claim.name}]({finding.claim.name}.md))" if link else ""
        for erratum in finding.claim.errata:
            rows.append((erratum.where, erratum.printed, erratum.right, erratum.measured(finding.result) + page))
    return Table(("where", "printed", "right", "measured"), tuple(rows)).markdown()


def _setting(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
