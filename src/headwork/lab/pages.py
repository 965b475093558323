"""The pages of the lab: one for each claim, an index with the table of verdicts, and the errata."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from headwork.figures import plot_style
from headwork.lab.claim import Finding
from headwork.lab.documents import DOCUMENTS, TITLES
from headwork.lab.verdict import Check
from headwork.lab.wording import show
from headwork.serialise import config_to_dict

AnyFinding = Finding[Any, Any]


def write_page(finding: AnyFinding, folder: Path) -> tuple[Path, Path]:
    """The Markdown page of a claim and its picture, NAME.md and NAME.png."""
    page, picture = folder / f"{finding.claim.name}.md", folder / f"{finding.claim.name}.png"
    picture.write_bytes(_picture(finding))
    page.write_text(claim_page(finding), encoding="utf-8")
    return page, picture


def write_index(findings: Sequence[AnyFinding], folder: Path) -> tuple[Path, Path]:
    """The pages that need every claim: `index.md` and `errata.md`."""
    index, errata = folder / "index.md", folder / "errata.md"
    index.write_text(index_page(findings), encoding="utf-8")
    errata.write_text(errata_page(findings), encoding="utf-8")
    return index, errata


def claim_page(finding: AnyFinding) -> str:
    claim, verdict = finding.claim, finding.verdict
    setup = {name: value for name, value in config_to_dict(finding.setup).items() if name != "kind"}
    checks = [[*_cells(check), _word(check.holds)] for check in verdict.checks]
    broken = [[what, *_cells(bad.headline), _word(bad.holds)] for what, bad in claim.break_on_purpose().items()]
    parts = [
        f"# {claim.name}",
        f"**{claim.says}**",
        f"{claim.source}. Verdict: **{_word(verdict.holds)}**.",
        f"![{claim.says}]({claim.name}.png)",
        _table(["", "predicted", "measured", "tolerance", ""], checks),
        f"{verdict.reason} {claim.confidence}",
        f"## Why\n\n{claim.explanation}",
        *(_erratum_section(finding) if claim.errata else []),
        "## Broken on purpose\n\nThe same test, at a small size, with something wrong:",
        _table(["what is wrong", "the check that tells", "predicted", "measured", "tolerance", ""], broken),
        f"## Run it\n\n```\nheadwork lab {claim.name}\n```",
        "With " + ", ".join(f"{name} = {_setting(value)}" for name, value in setup.items()) + ".",
    ]
    return "\n\n".join(parts) + "\n"


def index_page(findings: Sequence[AnyFinding]) -> str:
    """Every claim with its verdict, by document."""
    n_hold = sum(finding.verdict.holds for finding in findings)
    parts = [
        "# The lab",
        "Every claim is a small program: a prediction, a measurement, a tolerance and a verdict, with a figure. "
        f"**{n_hold} of {len(findings)} hold.** Where a [document](../sources.md) says something else than the "
        "measurement, the [errata](errata.md) list it. `headwork lab NAME` runs one claim, `headwork lab --all` runs "
        "all, and `make lab` writes these pages anew. [How to add a claim](ADDING.md).",
    ]
    header = ["question", "claim", "what", "predicted", "measured", "tolerance", "verdict"]
    for document in DOCUMENTS:
        rows = [_index_row(finding) for finding in findings if finding.claim.document == document]
        if rows:
            parts += [f"## {TITLES[document]}", _table(header, rows)]
    return "\n\n".join(parts) + "\n"


def _index_row(finding: AnyFinding) -> list[str]:
    claim, verdict = finding.claim, finding.verdict
    return [
        claim.question,
        f"[{claim.name}]({claim.name}.md): {claim.says}",
        *_cells(verdict.headline),
        _word(verdict.holds),
    ]


def errata_page(findings: Sequence[AnyFinding]) -> str:
    """Every slip found in the documents, by document."""
    parts = [
        "# Errata",
        "Slips found in the [documents](../sources.md), each with the measurement that shows it. "
        "This page is written by `make lab` from the claims.",
    ]
    for document in DOCUMENTS:
        rows = [
            [erratum.where, erratum.printed, erratum.right, f"{erratum.measured(finding.result)} {_link(finding)}"]
            for finding in findings
            if finding.claim.document == document
            for erratum in finding.claim.errata
        ]
        if rows:
            parts += [f"## {TITLES[document]}", _table(["where", "printed", "right", "measured"], rows)]
    return "\n\n".join(parts) + "\n"


def _picture(finding: AnyFinding) -> bytes:
    """A PNG of at most 128 colours, which is small; the same figure is the same file."""
    drawn, small = io.BytesIO(), io.BytesIO()
    with plot_style():
        finding.draw().savefig(drawn, format="png")
    Image.open(drawn).convert("RGB").quantize(128).save(small, format="png", optimize=True)
    return small.getvalue()


def _erratum_section(finding: AnyFinding) -> list[str]:
    rows = [
        [erratum.where, erratum.printed, erratum.right, erratum.measured(finding.result)]
        for erratum in finding.claim.errata
    ]
    return ["## What the document says", _table(["where", "printed", "right", "measured"], rows)]


def _table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *([cell.replace("|", r"\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cells(check: Check) -> list[str]:
    return [check.what, check.prediction, show(check.measured), show(check.tolerance) if check.tolerance else "none"]


def _link(finding: AnyFinding) -> str:
    return f"([{finding.claim.name}]({finding.claim.name}.md))"


def _setting(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _word(holds: bool) -> str:
    return "holds" if holds else "fails"
