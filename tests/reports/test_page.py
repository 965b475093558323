"""A page is whole, needs nothing from outside, takes no markup from text, and is the same every time."""

import math
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headwork.figures import Figure, Picture, figure_to_svg
from headwork.reports import page as page_module
from headwork.reports.page import STYLE, Facts, Page
from headwork.tables import Table, show

from .reading import read_page

EVIL = "<script>alert('1')</script> & \"quoted\" <img src=http://example.org onerror=x>"


def some_figure(title="a title"):
    figure = Figure(figsize=(15, 2), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot([1, 2, 3], color="black")
    left.set_title(title, parse_math=False)
    right.imshow([[0, 1], [2, 3]], interpolation="none")
    right.imshow([[0, 1], [2, 3]], interpolation="none")
    return figure


def some_page(text="words"):
    page = Page(text, text, text)
    page.add("", Facts(((text, text), ("parameters", 12_345))))
    page.add(text, text, Picture(some_figure(text), text, text), Picture(some_figure(text), text))
    page.add("Numbers", Table((text, "loss"), ((text, 0.5), ("other", None)), text))
    page.add("More numbers", Table((text, "loss"), ((text, 0.5),), text, folded=True))
    return page


def test_a_page_has_what_was_added():
    reader = read_page(some_page().html())
    assert reader.inside("title") == reader.inside("h1") == ["words"]
    assert reader.inside("h2") == ["words", "Numbers", "More numbers"]
    assert reader.inside("dd") == ["words", "12,345"]
    assert reader.inside("figcaption") == ["words", "words"]
    assert reader.inside("td") == ["words", "0.5", "other", "–", "words", "0.5"]
    assert reader.inside("summary") == ["words"]
    assert reader.inside("footer") == ["words"]
    assert len(reader.named("svg")) == 2


def test_the_contents_lead_to_the_headings():
    reader = read_page(some_page().html())
    assert [link["href"][1:] for link in reader.named("a")] == [heading["id"] for heading in reader.named("h2")]


def test_every_picture_has_a_caption_and_words_for_who_cannot_see_it():
    page = Page("x")
    page.add("", Picture(some_figure(), "the caption", "in words"), Picture(some_figure(), "only a caption"))
    reader = read_page(page.html())
    assert [svg["aria-label"] for svg in reader.named("svg")] == ["in words", "only a caption"]
    assert {svg["role"] for svg in reader.named("svg")} == {"img"}


def test_text_stays_text():
    """`read_page` refuses scripts, handlers and outside addresses; here all text holds some."""
    reader = read_page(some_page(EVIL).html())
    plain = " ".join(EVIL.split())
    assert reader.inside("h1") == reader.inside("figcaption")[:1] == [plain]
    assert plain in reader.inside("text")
    assert reader.named("svg")[0]["aria-label"] == EVIL


@settings(max_examples=20, deadline=None)
@given(st.text())
def test_any_text_is_text(text):
    page = Page(text, text)
    page.add(text, text, Table((text, "n"), ((text, 1),), text), Facts(((text, text),)))
    read_page(page.html().encode("utf-8", errors="replace").decode())


@pytest.mark.parametrize("text", ['id="x" href="#y" url(#z) #000000', "$a$ and $b", "中文 😀", "_hidden"])
def test_labels_of_figures_are_shown_letter_by_letter(text):
    page = Page("labels")
    page.add("", Picture(some_figure(text), "a caption"))
    assert text in read_page(page.html()).inside("text")


def test_the_same_input_gives_the_same_bytes(tmp_path):
    page = some_page()
    page.write(tmp_path / "a.html")
    page.write(tmp_path / "again.html")
    some_page().write(tmp_path / "b.html")
    assert len({path.read_bytes() for path in tmp_path.iterdir()}) == 1


def test_a_figure_stays_as_it_was_first_drawn():
    """matplotlib's layout moves some panels, like these, a little at every drawing."""
    figure = Figure(figsize=(4, 2), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot([1, 2, 3], label="line")
    left.set_title("a title")
    left.legend()
    right.imshow([[0, 1], [2, 3]], interpolation="none")
    assert figure_to_svg(figure, "x") == figure_to_svg(figure, "x")


def test_black_follows_the_page_and_other_colours_stay():
    figure = some_figure()
    figure.axes[0].plot([3, 2, 1], color="#123456")
    svg = figure_to_svg(figure, "one")
    assert "#000000" not in svg
    assert "stroke: currentColor" in svg
    assert "#123456" in svg


def photographs():
    figure = Figure(figsize=(3, 1.5), layout="constrained")
    for ax in figure.subplots(1, 2):
        ax.imshow(torch.rand(150, 150, 3).numpy(), interpolation="none")
    return Picture(figure, "noise", "<noise>")


def test_large_drawings_become_pixels(monkeypatch):
    assert "<svg" in page_module.embed_picture(photographs(), "x")
    monkeypatch.setattr(page_module, "LARGEST_SVG", 100_000)
    page = Page("x")
    page.add("", photographs())
    reader = read_page(page.html())
    (image,) = reader.named("img")
    assert image["src"].startswith("data:image/webp;base64,")
    assert image["alt"] == "<noise>"
    assert not reader.named("svg")
    torch.manual_seed(3)
    first = page_module.embed_picture(photographs(), "x")
    torch.manual_seed(3)
    assert page_module.embed_picture(photographs(), "x") == first


def test_writing_is_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "new" / "report.html"
    Page("before").write(path)
    before = path.read_bytes()
    page = Page("after")
    monkeypatch.setattr("pathlib.Path.write_bytes", fail_halfway)
    with pytest.raises(OSError, match="disk full"):
        page.write(path)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == ["report.html"]


def fail_halfway(path, data):
    with path.open("wb") as file:
        file.write(data[: len(data) // 2])
    raise OSError("disk full")


def test_letters_that_cannot_be_encoded_do_not_stop_the_page(tmp_path):
    Page("\ud800").write(tmp_path / "x.html")
    read_page((tmp_path / "x.html").read_text(encoding="utf-8"))


def test_narrow_screens_shrink_figures_and_keep_words_whole():
    rules = STYLE.read_text(encoding="utf-8")
    (of_figures,) = re.findall(r"^figure svg, figure img \{(.*)\}", rules, flags=re.MULTILINE)
    assert "max-width: 100%" in of_figures
    assert "min-width" not in of_figures
    for heading in ("h1", "h2", r"\.headline"):
        (rule,) = re.findall(rf"^{heading} \{{(.*)\}}", rules, flags=re.MULTILINE)
        assert "overflow-wrap: break-word" in rule


# --- tables ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"),
        (math.nan, "–"),
        (math.inf, "–"),
        (0.123456, "0.1235"),
        (1.0, "1"),
        (999.96, "1000"),
        (1234.5, "1,234"),
        (10**20, "100,000,000,000,000,000,000"),
        (-0.00001234, "-1.234e-05"),
        ("words", "words"),
    ],
)
def test_cells_are_shown_as_people_read_them(value, shown):
    assert show(value) == shown


def test_numbers_stand_on_the_right():
    table = Table(("name", "n", "none"), (("a", 1, None), ("bcd", 20, None)))
    assert table.text() == "name   n  none\na      1     –\nbcd   20     –"
    assert '<td class="number" data-name="n">20</td>' in table.html()
    assert '<td data-name="name">bcd</td>' in table.html()


def test_a_table_that_ends_with_a_text_is_prose():
    assert '<table class="prose">' in Table(("n", "text"), ((1, "words"),)).html()
    assert '<table class="numbers">' in Table(("text", "n"), (("words", 1),)).html()


def test_a_row_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="a row must have a cell for each column"):
        Table(("a", "b"), ((1,),))


def test_names_of_classes_break_between_words_and_long_facts_have_a_row():
    command = "headwork train digits-vit --epochs 1 --out runs/one"
    html = Facts((("model", "VisionTransformer"), ("command", command))).html()
    assert "<div><dt>model</dt><dd>Vision<wbr>Transformer</dd></div>" in html
    assert '<div class="long"><dt>command</dt>' in html
    style = STYLE.read_text()
    assert re.search(r"\ndd {[^}]*overflow-wrap: break-word", style)
    assert re.search(r"figure svg, figure img {[^}]*max-width: 100%", style)


def test_a_flag_of_a_command_does_not_break():
    """Browsers break after a hyphen: `-` on one line and `-out` on the next."""
    page = Page("title")
    page.add("", Facts((("command", "headwork train digits-vit --out runs/<1>"),)))
    assert "<dd>headwork train digits-vit <span>--out</span> runs/&lt;1&gt;</dd>" in page.html()
    assert "dd span { display: inline-block;" in page.html()
