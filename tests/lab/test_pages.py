"""What the pages say, and that those in docs/lab belong to the claims."""

import dataclasses
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from headwork.lab import find, labels
from headwork.lab.catalogue import SHEETS
from headwork.lab.pages import claim_page, errata_page, index_page, write_index, write_page
from headwork.lab.questions import document_page, page_name
from headwork.lab.verdict import Verdict, about

DOCS = Path(__file__).parents[2] / "docs" / "lab"
NAMES = [label.name for label in labels()]
LARGEST_PICTURE = 100_000
SHEETS_PAGES = {"nyu.md", "eth.md", "c182.md", "qmul.md", "eecs-182.md"}


@pytest.fixture(scope="module")
def findings():
    return [claim.examine(claim.small, broken=True) for claim in map(find, ("temperature", "variance-of-dot-product"))]


def test_a_page_has_claim_source_figure_numbers_reason_and_what_breaks_it(findings):
    page = claim_page(findings[1])
    claim = findings[1].claim
    assert page.startswith("# variance-of-dot-product\n")
    for part in (
        f"**{claim.says}**",
        "C182 sheet, question 1(b)",
        "Verdict: **holds**",
        "(variance-of-dot-product.png)",
        claim.explanation,
        claim.confidence,
        "| the formula as the sheet prints it |",
        "headwork lab variance-of-dot-product",
        "n_samples = 10000",
        "| a theory that is near, and wrong |",
        "mu'mu once",
    ):
        assert part in page
    check = findings[1].verdict.checks[0]
    assert f"| {check.what} | {check.prediction} |" in page
    assert page.count("| fails |") == len(claim.broken)


def test_writing_a_page_runs_nothing(findings, tmp_path):
    def must_not_run(setup):
        raise AssertionError

    claim = dataclasses.replace(findings[1].claim, run=must_not_run)
    write_page(dataclasses.replace(findings[1], claim=claim), tmp_path)
    without = claim_page(dataclasses.replace(findings[1], claim=claim, broken=None))
    assert "Broken on purpose" not in without


def test_a_claim_that_fails_says_so():
    claim = find("temperature")
    finding = claim.examine(claim.change(claim.small, {"scale": "none"}))
    page = claim_page(finding)
    assert "Verdict: **fails**" in page
    assert f"{finding.verdict.headline}." in page
    assert "**0 of 1 hold.**" in index_page([finding])


def test_a_page_says_what_a_sheet_is(findings):
    assert "(a sheet is one of the [five university assignments](../sources.md)" in claim_page(findings[0])
    assert "called sheets" in index_page(findings)


def test_the_index_is_the_table_of_verdicts(findings):
    index = index_page(findings)
    assert "**2 of 2 hold.**" in index
    for finding in findings:
        assert f"[{finding.claim.name}]({finding.claim.name}.md): {finding.claim.says}" in index
        assert f"| {finding.verdict.headline.what} | {finding.verdict.headline.prediction} |" in index
    assert index.index("New York University") < index.index("Berkeley")


def test_the_errata_have_the_place_the_print_the_right_and_the_measurement(findings):
    page = errata_page(findings)
    erratum = findings[1].claim.errata[0]
    assert f"| {erratum.where} | {erratum.printed} | {erratum.right} | {erratum.measured(findings[1].result)}" in page
    assert "ETH" not in page


def test_tables_survive_a_bar(findings):
    check = about("|W|_1", 1, 1, 0.0)
    page = claim_page(dataclasses.replace(findings[0], verdict=Verdict((check,), "So.")))
    assert r"| \|W\|_1 | 1 | 1 | none | holds |" in page


def test_the_same_finding_is_the_same_file(findings, tmp_path):
    first = [path.read_bytes() for path in write_page(findings[0], tmp_path)]
    assert first == [path.read_bytes() for path in write_page(findings[0], tmp_path)]
    assert first[1].startswith(b"\x89PNG")
    assert len(first[1]) < LARGEST_PICTURE
    assert {path.name for path in write_index(findings, tmp_path)} == {"index.md", "errata.md", *SHEETS_PAGES}


@pytest.mark.parametrize("name", NAMES)
def test_the_docs_have_the_page_of_every_claim(name):
    """`make lab` writes them."""
    page = (DOCS / f"{name}.md").read_text(encoding="utf-8")
    claim = find(name)
    assert f"**{claim.says}**" in page
    assert claim.explanation in page
    assert "Verdict: **holds**" in page
    assert 0 < (DOCS / f"{name}.png").stat().st_size < LARGEST_PICTURE


def test_the_docs_have_no_page_of_a_claim_that_is_gone():
    pages = (
        {path.name for path in DOCS.glob("*.md")} - {"index.md", "errata.md", "ADDING.md", "seeds.md"} - SHEETS_PAGES
    )
    assert pages == {f"{name}.md" for name in NAMES}


def test_the_index_in_the_docs_lists_every_claim_and_nothing_fails():
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    assert f"**{len(NAMES)} of {len(NAMES)} hold.**" in index
    errata = (DOCS / "errata.md").read_text(encoding="utf-8")
    for name in NAMES:
        assert f"({name}.md)" in index
        assert not find(name).errata or f"({name}.md)" in errata


@pytest.mark.parametrize("document", SHEETS)
def test_the_docs_have_the_answers_to_every_question(document):
    assert (DOCS / page_name(document)).read_text(encoding="utf-8") == document_page(document)


def test_the_index_lists_other_questions_too():
    claim = find("perturbed-key-or-query")
    index = index_page([claim.examine(claim.small)])
    assert "| 1.1(e) | [perturbed-key-or-query](perturbed-key-or-query.md)" in index
    assert "| 1.1(f) | [perturbed-key-or-query](perturbed-key-or-query.md)" in index


def test_seeds_have_a_page_of_deviations_and_nearest_theories(tmp_path):
    claim = find("kept-or-diluted")
    finding = claim.examine(dataclasses.replace(claim.small, seed=7), 3)
    paths = write_index([finding], tmp_path)
    page = (tmp_path / "seeds.md").read_text(encoding="utf-8")
    assert tmp_path / "seeds.md" in paths
    assert "1 of 1 claims hold at every seed that was tried" in page
    assert "1 at the 3 seeds from 7 on" in page
    assert "| order 1.9: 1.9 |" in page


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda path: path.stem)
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / link).exists(), link


def test_a_figure_as_svg_for_slides(findings, tmp_path):
    _, _, drawing = write_page(findings[0], tmp_path, svg=True)
    assert drawing == tmp_path / "temperature.svg"
    first = drawing.read_text()
    assert ElementTree.fromstring(first).tag == "{http://www.w3.org/2000/svg}svg"
    assert not re.search('href="(?!#|data:)', first)  # it needs no other file
    write_page(findings[0], tmp_path, svg=True)
    assert drawing.read_text() == first
