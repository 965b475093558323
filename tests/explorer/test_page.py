"""The page in a real Chromium: its numbers, its keyboard, what it asks for, and what it says when something is wrong."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.explorer.living_browser import chromium, wait_for_address
from tests.explorer.models import SUBJECTS, text_model, text_subject, tokenizer
from tests.explorer.test_answering import answering_of

import headwork as hw
from headwork.explorer.answering import Answering
from headwork.explorer.encoding import encode_input
from headwork.explorer.export import export_page
from headwork.explorer.server import Server, page_files
from headwork.explorer.subject import Subject
from headwork.explorer.worker import Worker

pytestmark = pytest.mark.slow
Opened = Callable[..., Any]


class Site:
    """A server for each kind of model, and pages of one browser that fail for any error or foreign request."""

    def __init__(self, browser: Any, stack: ExitStack) -> None:
        self.browser, self.stack, self.servers, self.problems = browser, stack, dict[str, Server](), list[str]()

    def server(self, name: str, answering: Callable[[], Answering]) -> Server:
        if name not in self.servers:
            worker = Worker(answering())
            self.stack.callback(worker.close)
            server = self.stack.enter_context(Server(worker))
            threading.Thread(target=server.serve_forever, daemon=True).start()
            self.stack.callback(server.shutdown)
            self.servers[name] = server
        return self.servers[name]

    def open(
        self, kind: str, *, url: str | None = None, answering: Callable[[], Answering] | None = None, **options: Any
    ) -> Any:
        page = self.browser.new_page(**{"viewport": {"width": 1400, "height": 1000}, **options})
        self.stack.callback(page.close)
        page.on("console", lambda message: self.problems.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        server = self.server(kind, answering or (lambda: answering_of(kind)))
        own = f"http://127.0.0.1:{server.guard.port}/"
        page.on(
            "request",
            lambda r: (
                self.problems.append(f"asked for {r.url}") if not r.url.startswith((own, "data:", "blob:")) else None
            ),
        )
        page.goto(url or server.url)
        page.locator(".answer p").first.wait_for()
        return page


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with ExitStack() as stack:
        browser = stack.enter_context(chromium())
        yield Site(browser, stack)


@pytest.fixture(autouse=True)
def nothing_wrong(site: Site) -> Iterator[None]:
    site.problems.clear()
    yield
    assert site.problems == []


def numbers_of(page: Any, pane: str) -> tuple[list[str], list[str], np.ndarray]:
    """What "as numbers" shows."""
    page.locator(f".pane-{pane} button[aria-label='show as numbers']").click()
    rows = page.locator("dialog table tr").evaluate_all(
        "rows => rows.map((row) => Array.from(row.children, (c) => c.textContent))"
    )
    page.keyboard.press("Escape")
    page.locator("dialog").wait_for(state="detached")
    return rows[0][1:], [row[0] for row in rows[1:]], np.array([[float(cell) for cell in row[1:]] for row in rows[1:]])


def settled(page: Any, text: str) -> None:
    """Wait until the map is of this text."""
    page.wait_for_function(
        "n => document.querySelectorAll('.tokens .token').length === n && document.querySelector('.map-grid').ariaRowCount == n",
        arg=len(text),
    )
    page.wait_for_function(
        "text => Array.from(document.querySelectorAll('.token'), (t) => t.textContent).join('') === text",
        arg=text.replace(" ", "␣"),
    )


@pytest.mark.parametrize("kind", SUBJECTS)
def test_every_pane_shows_and_says_what_it_shows(site: Site, kind: str) -> None:
    page = site.open(kind)
    page.locator(".map canvas, .patch-map").first.wait_for()
    for name in page.get_by_role("tab").all_inner_texts():
        page.get_by_role("tab", name=name, exact=True).click()
        panel = page.get_by_role("tabpanel")
        assert panel.locator("h2").inner_text() == name
        assert panel.locator(".about").inner_text().endswith(".")
        page.wait_for_timeout(60)
        assert panel.locator(".error").count() == 0
    page.locator(".lens td, .lens-patch").first.wait_for(state="attached")
    assert page.locator(".head-map").count() == sum(a.n_heads for a in SUBJECTS[kind]().attention)


def test_the_numbers_of_a_text_are_those_that_passed(site: Site) -> None:
    page = site.open("text")
    page.locator("textarea").fill("the cat")
    settled(page, "the cat")
    page.locator(".head-map").nth(3).click()
    page.wait_for_function("() => document.querySelector('.focus-name').textContent.startsWith('layer 1, head 1')")
    columns, rows, found = numbers_of(page, "map")
    assert "".join(rows) == "".join(columns) == "the␣cat"
    model = text_model().eval()
    ids = torch.tensor([tokenizer().encode("the cat")])
    with torch.no_grad(), hw.record(model, "layers.1.attention.weights") as seen:
        logits = model(ids)[0, -1]
    np.testing.assert_allclose(found, seen["layers.1.attention.weights"][0, 1], atol=1e-6)
    _, _, answer = numbers_of(page, "input")
    np.testing.assert_allclose(answer[:, 1], logits.sort(descending=True).values, atol=1e-6)
    np.testing.assert_allclose(answer[:, 0], logits.softmax(-1).sort(descending=True).values, atol=1e-6)
    page.get_by_role("tab", name="Lens", exact=True).click()
    page.locator(".lens td").first.wait_for()
    _, _, lens = numbers_of(page, "lens")
    with torch.no_grad():
        wanted = hw.lens(model, ids).logits[:, 0].softmax(-1).amax(-1)
    np.testing.assert_allclose(lens, wanted, atol=1e-6)


def test_the_numbers_of_an_image_are_those_that_passed_after_drawing(site: Site) -> None:
    page = site.open("image")
    page.get_by_role("button", name="Clear").click()
    box = page.locator("canvas.draw").bounding_box()
    page.mouse.move(box["x"] + 40, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + 150, box["y"] + 90, steps=4)
    page.mouse.up()
    page.wait_for_function(
        "() => JSON.parse(new URLSearchParams(location.hash.slice(1)).get('state')).input.pixels.some((p) => p > 0.5)"
    )
    wait_for_address(page)
    page.wait_for_selector("#page:not([data-busy])")
    state = page.evaluate("JSON.parse(new URLSearchParams(location.hash.slice(1)).get('state'))")
    pixels = torch.tensor(state["input"]["pixels"]).reshape(1, 1, 6, 8)
    assert 0 < float((pixels > 0).float().mean()) < 1
    page.locator("summary", has_text="All patches").click()
    _, _, found = numbers_of(page, "map")
    model = SUBJECTS["image"]().model
    with torch.no_grad(), hw.record(model, "layers.0.attention.weights") as seen:
        model(pixels)
    np.testing.assert_allclose(found, seen["layers.0.attention.weights"][0, 0], atol=1e-4)  # the address has 4 digits


def test_forty_keys_in_a_second_end_with_the_last_text(site: Site) -> None:
    page = site.open("text")
    worker = site.servers["text"].worker
    area = page.locator("textarea")
    area.fill("")
    before = worker.n_answered
    text = "the quick brown fox jumps over a lazy do"
    area.press_sequentially(text, delay=25)
    settled(page, text)
    _columns, rows, found = numbers_of(page, "map")
    assert len(rows) == 40
    model = text_model().eval()
    with torch.no_grad(), hw.record(model, "layers.0.attention.weights") as seen:
        model(torch.tensor([tokenizer().encode(text)]))
    np.testing.assert_allclose(found, seen["layers.0.attention.weights"][0, 0], atol=1e-6)
    assert worker.n_answered - before < 80
    assert not worker.waiting


def test_a_head_that_is_unticked_is_off(site: Site) -> None:
    page = site.open("image")
    first = page.locator(".verdict").inner_text()
    for tick in page.locator(".tick input").all():
        tick.click()
    page.get_by_text("4 heads are off").wait_for()
    bars = page.locator(".answer .bar-value").all_inner_texts()
    page.get_by_role("button", name="Switch all on").click()
    page.get_by_text("heads are off").wait_for(state="detached")
    page.wait_for_function("text => document.querySelector('.verdict').textContent === text", arg=first)
    assert bars != page.locator(".answer .bar-value").all_inner_texts()


def test_each_head_is_tried_and_what_the_answer_owes_to_it_is_said(site: Site) -> None:
    page = site.open("image")
    page.get_by_role("button", name="Try each head off").click()
    page.wait_for_function("() => document.querySelector('.pane-heads > .note').textContent.endsWith('.')")
    subject = SUBJECTS["image"]()
    inputs = encode_input(subject, answering_of("image").begun).inputs
    with torch.no_grad():
        was = subject.model(*inputs)[0].softmax(-1)
    shown = page.locator(".effect").all_inner_texts()
    losses = []
    for number, said in enumerate(shown):
        with torch.no_grad(), hw.ablate(subject.model, heads={f"layers.{number // 2}.attention": [number % 2]}):
            now = subject.model(*inputs)[0].softmax(-1)
        best = int(was.argmax())
        losses.append(float(was[best] - now[best]) + (int(now.argmax()) != best))
        if int(now.argmax()) != best:
            assert said == f"→ {subject.name_of(int(now.argmax()))}"
        elif abs(float(was[best] - now[best])) >= 0.005:
            assert said == f"{100 * was[best]:.0f} → {100 * now[best]:.0f} %"
        else:
            assert said == "same answer"
    most = int(np.argmax(losses))
    assert f"layer {most // 2}, head {most % 2}" in page.locator(".pane-heads > .note").inner_text()
    page.locator(".tick input").first.click()
    page.wait_for_function("() => document.querySelector('.effect').textContent === ''")  # it is of another state now


def test_a_class_can_be_the_goal(site: Site) -> None:
    """Which head to switch off for another answer: one that turns it, or the one without which that is likeliest."""
    page = site.open("image")
    subject = SUBJECTS["image"]()
    inputs = encode_input(subject, answering_of("image").begun).inputs
    shares = []
    for number in range(4):
        with torch.no_grad(), hw.ablate(subject.model, heads={f"layers.{number // 2}.attention": [number % 2]}):
            shares.append(subject.model(*inputs)[0].softmax(-1))
    table = torch.stack(shares)
    with torch.no_grad():
        was = int(subject.model(*inputs)[0].argmax())
    reached = set(table.argmax(1).tolist()) - {was}
    never = next(i for i in range(5) if i != was and i not in reached)
    for goal in (never, *reached):
        page.get_by_label("to change").select_option(subject.name_of(goal))
        page.wait_for_function("() => document.querySelector('.pane-heads > .note').textContent.endsWith('.')")
        best = int(table[:, goal].argmax())
        name, note = f"layer {best // 2}, head {best % 2}", page.locator(".pane-heads > .note").inner_text()
        assert name in note
        if goal == never:
            assert f"{name} matters most: without it, {subject.name_of(goal)} goes from" in note
            assert f"to {100 * table[best, goal]:.0f} %." in note
        else:
            assert f"{subject.name_of(was)} becomes" in note
    assert reached


def test_what_each_head_looks_at_is_said(site: Site) -> None:
    page = site.open("text")
    page.locator("textarea").fill("the cat sat")
    settled(page, "the cat sat")
    labels = page.locator(".look").all_inner_texts()
    assert len(labels) == 6
    model = text_model().eval()
    with torch.no_grad(), hw.record(model) as seen:
        model(torch.tensor([tokenizer().encode("the cat sat")]))
    for number, label in enumerate(labels):  # of the row that the answer is read from, the last
        row = seen[f"layers.{number // 2}.attention.weights"][0, number % 2, -1]
        best = int(row.argmax())
        place = {10: "itself", 9: "token before", 0: "first token"}.get(best, "“" + "the␣cat␣sat"[best] + "”")
        assert label.split("\n") == ([f"{100 * row[best]:.0f} %", place] if row[best] >= 0.25 else ["spread out"])
    assert "seen from “t”, the token that the answer is read from" in page.locator(".pane-heads .about").inner_text()
    page.locator(".head-map").nth(5).click()
    page.wait_for_function("() => document.querySelector('.focus-name').textContent.startsWith('layer 2, head 1')")
    assert "On average a row gives" in page.locator(".pane-map").inner_text()


def test_the_sentence_of_the_map_is_of_what_is_shown(site: Site) -> None:
    """Of the head and the text that are shown now; if nobody points, of the row from which the next token is chosen."""
    page = site.open("text")
    for text, number in (("the cat", 0), ("the cat", 4), ("a dog", 4)):
        page.locator(".writing textarea").fill(text)
        settled(page, text)
        page.locator(".head-map").nth(number).click()
        name = f"layer {number // 2}, head {number % 2}"
        page.wait_for_function("name => document.querySelector('.focus-name').textContent.startsWith(name)", arg=name)
        page.mouse.move(5, 5)
        columns, rows, found = numbers_of(page, "map")
        best = int(found[-1].argmax())
        said = page.locator(".pane-map .says").inner_text()
        start = f"“{rows[-1]}” gives {100 * found[-1, best]:.0f} % to “{columns[best]}”, the most of {len(text)}. "
        assert said.startswith(f"{start}From this row the model chooses the next token (here “")
    page.locator(".map-grid").focus()
    page.keyboard.press("Home")
    said = page.locator(".pane-map .says").inner_text()
    assert "From this row the model chooses the next token (your text has “" in said or "(here “" in said


def test_pointing_at_the_lens_and_typing_on(site: Site) -> None:
    """The token that is pointed at colours the others; a longer text has tokens that the old weights do not know."""
    page = site.open("text")
    page.locator(".writing textarea").fill("the cat")
    settled(page, "the cat")
    page.locator(".lens-table tbody td").last.hover()
    page.wait_for_function("() => document.querySelector('.lens .says').textContent.startsWith('Layer')")
    page.locator(".writing textarea").press_sequentially(" is here", delay=10)
    settled(page, "the cat is here")
    page.wait_for_function("() => document.querySelectorAll('.lens-table thead th').length === 16")
    page.mouse.move(5, 5)
    page.locator(".writing textarea").fill("a dog")
    settled(page, "a dog")
    page.wait_for_function("() => document.querySelectorAll('.lens-table thead th').length === 6")
    assert page.locator(".lens .says").inner_text() == ""


def test_nothing_is_cut_where_nothing_is_to_be_cut(site: Site) -> None:
    """However sharp the probabilities are: their sum reaches 1 before the last of them."""
    page = site.open("text")
    rows = page.evaluate("""async () => {
        const { sampled } = await import("/panes/next.js");
        const top = [9, -200, -300].map((logit, id) => ({ id, name: String(id), logit }));
        return sampled([9, -200, -300], top, { temperature: 0.1, top_k: 0, top_p: 1 });
    }""")
    assert [row["cut"] for row in rows] == [None, None, None]


def test_one_sentence_for_an_image_and_the_scale_of_its_picture(site: Site) -> None:
    page = site.open("image")
    page.locator("summary", has_text="All patches").click()
    _, names, found = numbers_of(page, "map")
    assert page.locator(".pane-map .says").count() == 1
    said = page.locator(".pane-map .says").inner_text()
    assert said.startswith(f"class token gives {100 * found[0].max():.0f} % to {names[int(found[0].argmax())]}")
    [glow, all_of_them] = page.locator(".pane-map .legend").all_inner_texts()
    assert glow.split()[-2:] == [f"{100 * found[0, 1:].max():.0f}", "%"]
    assert all_of_them.split()[-2:] == [f"{100 * found.max():.0f}", "%"]
    page.locator(".pane-map .map-grid").focus()  # the pair that is pointed at is the one that is said
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    cursor = page.locator(".pane-map [role=gridcell]").text_content()
    page.wait_for_function("said => document.querySelector('.pane-map .says').textContent === said", arg=cursor)


def test_a_translation_by_hand_is_not_taken_for_the_models(site: Site) -> None:
    page = site.open("pair")
    page.get_by_text("The model says").wait_for()
    own = page.locator(".verdict strong").inner_text()
    for tick in page.locator(".tick input").all()[4:]:
        tick.click()
    page.get_by_text("6 heads are off; with all heads as they were:").wait_for()
    page.wait_for_function("was => document.querySelector('.verdict strong').textContent !== was", arg=own)
    subject = SUBJECTS["pair"]()
    heads = {a.name: [0, 1] for a in subject.attention[2:]}
    with torch.no_grad(), hw.ablate(subject.model, heads=heads):
        said = encode_input(subject, answering_of("pair").begun).sequences[1].ids
    assert page.locator(".verdict strong").inner_text() == (subject.decode(said[1:]) or "(nothing)")
    page.get_by_role("button", name="Switch all on").click()
    page.get_by_text("heads are off").wait_for(state="detached")
    page.locator("textarea").nth(1).fill("le ch")
    page.get_by_text("You wrote le ch; the model").wait_for()
    assert "The model says" not in page.locator(".answer").inner_text()
    assert page.locator(".answer .note").last.inner_text() == "What comes after “h”:"


LABELS = """() => {
    window.labels_ = [];
    const write = CanvasRenderingContext2D.prototype.fillText;
    CanvasRenderingContext2D.prototype.fillText = function (text, x, y, ...rest) {
        const { a, b, e, f } = this.getTransform();
        if (this.canvas.closest(".map-grid")) window.labels_.push([text, Math.atan2(b, a), a * x + e, f + a * y, this.textAlign]);
        return write.call(this, text, x, y, ...rest);
    };
}"""


@pytest.mark.parametrize("length", [7, 20, 40, 64])
def test_labels_of_the_map_do_not_overlap(site: Site, length: int) -> None:
    page = site.open("text")
    page.evaluate(LABELS)
    text = ("the cat sat on a mat " * 4)[:length]
    page.locator(".writing textarea").fill(text)
    settled(page, text)
    page.evaluate("window.labels_ = []")
    page.get_by_role("button", name="light / dark").click()  # all is drawn once more
    page.wait_for_function("() => window.labels_.length")
    drawn = page.evaluate("window.labels_")
    rows = sorted({y for _, angle, _, y, align in drawn if align == "right"})
    columns = sorted({round(x, 3) for _, angle, x, _, align in drawn if align != "right" and angle == 0})
    assert len(rows) > 3
    assert min(np.diff(rows)) >= 12
    if columns:
        assert min(np.diff(columns)) >= 8
    leaning = sorted({round(x, 3) for _, angle, x, _, align in drawn if angle != 0})
    assert not leaning or min(np.diff(leaning)) >= 16


def test_panes_of_an_image_say_what_they_are(site: Site) -> None:
    page = site.open("image")
    assert "Next" not in page.get_by_role("tab").all_inner_texts()
    page.get_by_text("The model sees 6 x 8 pixels, cut into 12 patches of 2 x 2 pixels.").wait_for()
    page.get_by_role("tab", name="Lens", exact=True).click()
    page.locator(".lens td").first.wait_for()
    assert page.locator(".lens-table tbody th").all_inner_texts() == ["0", "1, the answer"]
    page.get_by_role("button", name="switch off: all heads of layer 1").click()
    page.get_by_text("2 heads are off").wait_for()
    page.get_by_role("button", name="switch on: all heads of layer 1").click()
    page.get_by_text("2 heads are off").wait_for(state="detached")


def test_pointing_at_a_token_shows_it_everywhere(site: Site) -> None:
    page = site.open("text")
    page.get_by_role("tab", name="Lens", exact=True).click()
    page.locator(".lens td").first.wait_for()
    page.locator(".token").nth(2).hover()
    page.locator(".lens .hover").first.wait_for()
    assert set(page.locator(".lens .hover").evaluate_all("cells => cells.map((c) => c.dataset.token)")) == {"2"}
    page.locator(".token").nth(2).click()
    assert page.locator(".token").nth(2).get_attribute("aria-pressed") == "true"
    assert "rgb" in (page.locator(".token").nth(1).get_attribute("style") or "")


def test_by_keyboard_alone(site: Site) -> None:
    page = site.open("text")
    seen = set()
    page.locator("body").press("Tab")
    for _ in range(80):
        seen.add(page.evaluate("document.activeElement.closest('.pane, .top')?.className.split(' ').pop() ?? ''"))
        page.keyboard.press("Tab")
    assert {"top", "pane-input", "pane-heads", "pane-map", "tabs", "pane-lens"} <= seen
    page.locator(".map-grid").focus()
    page.keyboard.press("End")
    page.keyboard.press("ArrowDown")
    said = page.locator(".pane-map .says").inner_text()
    assert re.match(r"“.” gives .* % to “.”, (the most|rank \d) of 3", said)
    page.keyboard.press("Enter")
    assert page.locator(".token[aria-pressed='true']").count() == 1
    page.locator("[role=tab][aria-selected=true]").focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("[role=tab][aria-selected=true]").inner_text() == "Next"
    image = site.open("image")
    image.get_by_role("button", name="Clear").press("Enter")
    image.locator("canvas.draw").focus()
    for key in ("ArrowUp", "ArrowLeft", "Space"):
        image.keyboard.press(key)
    image.wait_for_function(
        "() => JSON.parse(new URLSearchParams(location.hash.slice(1)).get('state')).input.pixels.filter((p) => p > 0).length > 0"
    )


def test_gaussian_heads_are_dragged_and_moved_by_keys(site: Site) -> None:
    page = site.open("gaussian")
    disc = page.locator("circle.disc").first
    disc.scroll_into_view_if_needed()
    before = disc.get_attribute("aria-valuetext")
    box = disc.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2 + 60, box["y"] + box["height"] / 2 + 30, steps=5)
    page.mouse.up()
    page.get_by_text("1 head was moved").wait_for()
    page.get_by_text("each number that this layer gives would change by").wait_for()
    disc.focus()
    now = float(disc.get_attribute("aria-valuenow"))
    page.keyboard.press("ArrowDown")
    page.wait_for_function(
        "was => Math.abs(document.querySelector('circle.disc').getAttribute('aria-valuenow') - was - 0.25) < 0.011",
        arg=now,
    )
    page.get_by_role("button", name="Put all back").click()
    page.wait_for_function(
        "text => document.querySelector('circle.disc').getAttribute('aria-valuetext') === text", arg=before
    )
    assert page.locator(".pane-gaussian .says").inner_text() == before
    page.locator(".pane-gaussian select").first.select_option("1")
    page.get_by_text("layer 1, head 0 looks").wait_for()
    page.locator(".head-map").nth(1).click()  # of the first layer
    page.get_by_text("layer 0, head 1 looks").wait_for()
    assert page.locator(".pane-gaussian select").first.input_value() == "0"


def test_while_a_head_is_dragged_only_what_changes_is_asked_for(site: Site) -> None:
    """The answer without changes once, the convolution every 150 ms, and at the end that of the last place."""
    page = site.open("gaussian")
    page.locator(".pane-gaussian .bars").wait_for()
    asked = list[dict[str, Any]]()
    page.on("request", lambda request: asked.append(request.post_data_json))
    disc = page.locator("circle.disc").first
    disc.scroll_into_view_if_needed()
    box = disc.bounding_box()
    at = [box["x"] + box["width"] / 2, box["y"] + box["height"] / 2]
    page.clock.install(time=0)
    page.clock.pause_at(1000)
    page.mouse.move(*at)
    page.mouse.down()
    for i in range(1, 61):
        page.mouse.move(at[0] + i, at[1])
        page.clock.run_for(20)
        page.wait_for_selector("#page:not([data-busy])")
    page.mouse.up()
    page.clock.resume()
    page.wait_for_selector("#page:not([data-busy])")
    page.wait_for_timeout(400)
    by_place = {
        place: [each for each in asked if each["place"] == place] for place in {each["place"] for each in asked}
    }
    assert len(by_place["before"]) == 1
    assert 2 <= len(by_place["reading"]) <= 61
    # At the end of the drag it is asked for once more, and with each answer that comes then.
    assert len(by_place["convolution"]) <= 60 * 20 / 150 + 3
    assert len(by_place["map"]) <= 1  # of the head that was taken; afterwards it comes with the reading
    last = by_place["reading"][-1]["question"]["about"]["moved"]
    assert by_place["convolution"][-1]["question"]["about"]["moved"] == last
    assert float(disc.get_attribute("aria-valuenow")) == pytest.approx(last[0]["centre"][0], abs=0.01)
    page.get_by_role("button", name="Put all back").click()
    page.get_by_text("1 head was moved").wait_for(state="detached")


def test_an_empty_image_has_no_answer(site: Site) -> None:
    page = site.open("image")
    page.locator(".tick input").first.click()
    page.get_by_text("1 head is off").wait_for()
    page.get_by_role("button", name="Clear").click()
    page.get_by_text("Draw something, and the model answers.").wait_for()
    assert page.locator(".answer .bars").count() == 0
    page.get_by_role("button", name="Try each head off").click()
    assert page.locator(".pane-heads > .note").inner_text() == ""
    page.locator("canvas.draw").click()
    page.locator(".answer .bars").wait_for()
    page.get_by_role("button", name="Switch all on").click()


def test_the_answer_stays_in_sight_while_heads_are_switched(site: Site) -> None:
    page = site.open("image", viewport={"width": 390, "height": 700})
    line = page.locator(".answer-bar p")
    page.locator(".answer").scroll_into_view_if_needed()
    page.wait_for_function("() => document.querySelector('.answer-bar p').textContent === ''")
    tick = page.locator(".tick input").last
    tick.scroll_into_view_if_needed()
    tick.click()
    page.wait_for_function("() => document.querySelector('.answer-bar p').textContent.includes('; before: ')")
    assert line.inner_text().startswith(page.locator(".verdict").inner_text())
    top = line.bounding_box()["y"]
    assert top == pytest.approx(0, abs=1)
    tick.click()
    page.wait_for_function("() => !document.querySelector('.answer-bar p').textContent.includes('; before: ')")


def test_all_heads_that_turn_the_answer_are_named(site: Site) -> None:
    """A model whose two heads of layer 0 cancel each other: the answer needs both."""

    def torn() -> Answering:
        answering = answering_of("image")
        subject = answering.subjects[0]
        begun = encode_input(subject, answering.begun).inputs
        with torch.no_grad():
            for parameter in subject.model.parameters():
                parameter.mul_(3)
            assert subject.model(*begun).isfinite().all()
        return answering

    page = site.open("torn", answering=torn)
    page.get_by_role("button", name="Try each head off").click()
    page.wait_for_function("() => document.querySelector('.pane-heads > .note').textContent.endsWith('.')")
    turned = [i for i, said in enumerate(page.locator(".effect").all_inner_texts()) if said.startswith("→")]
    note = page.locator(".pane-heads > .note").inner_text()
    assert len(turned) > 1
    assert note.startswith(f"The answer needs {len(turned)} heads.")
    assert all(f"layer {i // 2}, head {i % 2} (" in note for i in turned)


def test_what_if_is_streamed_into_a_table(site: Site) -> None:
    page = site.open("text")
    page.locator(".writing textarea").fill("the cat")
    settled(page, "the cat")
    page.get_by_role("tab", name="What if").click()
    page.locator(".pane-whatif textarea").fill("the dog")
    page.get_by_role("button", name="Compute").click()
    page.get_by_text("Row 3 of 3").wait_for()
    _columns, _rows, found = numbers_of(page, "whatif")
    assert found.shape == (3, 2)
    assert np.isfinite(found).all()
    assert np.abs(found).max() > 0
    assert page.locator(".compared-text").all_inner_texts() == ["the␣cat", "the␣dog"]
    model = text_model().eval()
    with torch.no_grad():
        logits = [model(torch.tensor([tokenizer().encode(each)]))[0, -1] for each in ("the cat", "the dog")]
    scores = {"own": float(logits[0].max()), "other": float(logits[1][logits[0].argmax()])}
    wanted = f"It is {scores['own']:.1f} for the first input and {scores['other']:.1f} for the second."
    assert wanted in page.locator(".pane-whatif").inner_text()
    row, column = divmod(int(np.abs(found).argmax()), 2)
    said = page.locator(".pane-whatif .says").inner_text()
    assert said.startswith(f"Taking layer {row}, head {column} from the second input ")
    assert f"from {scores['own']:.1f} to {scores['own'] + found[row, column]:.1f} (" in said
    assert page.locator(".pane-whatif .legend").inner_text().startswith("the score of ")
    page.locator(".pane-whatif textarea").fill("the do")
    page.get_by_text("The first has 7 tokens, the second 6: both must have as many.").wait_for()
    page.get_by_role("button", name="Compute").click()
    page.get_by_text("this one has 7, the second 6").wait_for()


def test_next_shows_what_is_cut_and_goes_on(site: Site) -> None:
    page, model = site.open("text"), text_model().eval()

    def scores(text: str) -> torch.Tensor:
        with torch.no_grad():
            return model(torch.tensor([tokenizer().encode(text)]))[:, -1]

    text = next(f"the {letter}at" for letter in "abcdefghijklmnop" if int(scores(f"the {letter}at").argmax()) > 3)
    page.locator(".writing textarea").fill(text)
    settled(page, text)
    page.get_by_role("tab", name="Next").click()
    page.locator("#hw-top_k").fill("3")
    page.locator("#hw-temperature").fill("0.5")
    page.wait_for_function("() => document.querySelectorAll('.pane-next .cut').length > 10")
    _, _, found = numbers_of(page, "next")
    wanted = hw.generation.probabilities(scores(text), hw.generation.Sample(temperature=0.5, top_k=3))[0]
    np.testing.assert_allclose(found[:, 0], wanted.sort(descending=True).values, atol=1e-5)
    page.get_by_role("button", name="Take the likeliest").click()
    page.wait_for_function("() => document.querySelectorAll('.tokens .token').length === 8")
    page.get_by_role("tab", name="Cache").click()
    page.get_by_role("button", name="with and without").click()
    page.get_by_text("ms for each with the cache").wait_for()


def test_the_address_restores_the_state(site: Site) -> None:
    page = site.open("text")
    page.locator(".writing textarea").fill("hello there")
    page.locator(".head-map").nth(4).click()
    page.locator(".tick input").nth(1).click()
    page.get_by_role("tab", name="Shapes and cost").click()
    settled(page, "hello there")
    wait_for_address(page)
    page.reload()
    settled(page, "hello there")
    assert page.locator(".writing textarea").input_value() == "hello there"
    assert not page.locator(".tick input").nth(1).is_checked()
    assert page.locator(".head-map").nth(4).get_attribute("aria-pressed") == "true"
    assert page.locator("[role=tab][aria-selected=true]").inner_text() == "Shapes and cost"
    assert "token=" not in page.url


@pytest.mark.parametrize(("kind", "scheme"), list(zip(SUBJECTS, ["light", "dark"] * 2, strict=True)))
def test_axe_finds_nothing(site: Site, kind: str, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page = site.open(kind, color_scheme=scheme, reduced_motion="reduce")
    for name in page.get_by_role("tab").all_inner_texts():
        page.get_by_role("tab", name=name, exact=True).click()
        page.wait_for_timeout(120)
        found = axe.run(page).response["violations"]
        assert [(each["id"], [node["html"][:120] for node in each["nodes"][:3]]) for each in found] == []


@pytest.mark.parametrize("width", [320, 390, 3840])
def test_it_fits_phones_and_projectors(site: Site, width: int) -> None:
    page = site.open("image", viewport={"width": width, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("document.querySelector('.pane-map canvas').getBoundingClientRect().right") <= width
    for name in page.get_by_role("tab").all_inner_texts():
        page.get_by_role("tab", name=name, exact=True).click()
        page.get_by_role("tabpanel").locator(".bars, td, .compared, .lens-patch").first.wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name


@pytest.mark.parametrize("kind", ["text", "pair"])
def test_the_map_stays_beside_the_heads_and_over_nothing(site: Site, kind: str) -> None:
    page = site.open(kind, viewport={"width": 1300, "height": 700})
    page.locator(".map-grid").first.wait_for()
    seen = []
    for y in range(0, 2000, 150):
        page.evaluate("y => scrollTo(0, y)", y)
        boxes = [page.locator(each).bounding_box() for each in (".pane-map", ".pane-heads", ".tabs")]
        seen.append(boxes[0]["y"])
        assert boxes[0]["y"] + boxes[0]["height"] <= boxes[2]["y"]
        assert boxes[0]["x"] >= boxes[1]["x"] + boxes[1]["width"]
    assert kind != "pair" or seen.count(seen[2]) > 1  # it has moved along


@pytest.mark.parametrize(("width", "n_heads"), [(320, 2), (390, 12), (800, 12), (1250, 4), (1250, 16)])
def test_no_head_is_cut_off(site: Site, width: int, n_heads: int) -> None:
    """All of them are on the page, without a box to scroll in."""
    config = replace(text_model().config, d_model=48, heads=hw.choices.Heads(n_heads=n_heads))
    page = site.open(
        f"{n_heads} heads",
        answering=lambda: Answering(Subject.of(config.build(), tokenizer=tokenizer()), text="abc"),
        viewport={"width": width, "height": 800},
    )
    assert page.locator(".head").count() == 3 * n_heads
    pane = page.locator(".pane-heads").bounding_box()
    for head in page.locator(".head").all():
        box = head.bounding_box()
        assert pane["x"] <= box["x"]
        assert box["x"] + box["width"] <= pane["x"] + pane["width"]
        assert box["y"] + box["height"] <= pane["y"] + pane["height"]


def test_what_is_wrong_is_said_and_the_page_goes_on(site: Site) -> None:
    page = site.open("text")
    area = page.locator(".writing textarea")
    area.fill("a" * 65)
    wrong = page.locator(".writing .status")  # under the box that it is about
    wrong.get_by_text(
        "it has 65 tokens, and this model can read 64 at most. Take 1 away; nothing was cut off."
    ).wait_for()
    assert wrong.inner_text().endswith("What is shown below is still of the input before.")
    assert area.bounding_box()["y"] < wrong.bounding_box()["y"] < page.locator(".tokens").bounding_box()["y"]
    assert page.locator(".answer").evaluate("e => Number(getComputedStyle(e).opacity)") < 1
    area.fill("")
    page.get_by_text("The text is empty: type something").wait_for()
    area.fill("fine é")
    settled(page, "fine �")
    page.get_by_text("1 token is not known to the model").wait_for()
    assert page.locator(".status").inner_text() == ""
    assert page.locator(".answer").evaluate("e => Number(getComputedStyle(e).opacity)") == 1


def test_a_picture_of_any_size_and_a_file_that_is_none(site: Site, tmp_path: Path) -> None:
    from PIL import Image

    page = site.open("image")
    Image.new("RGBA", (300, 7), (255, 255, 255, 255)).save(tmp_path / "wide.png")
    Image.new("1", (3, 500), 1).save(tmp_path / "tall.png")
    for name in ("wide.png", "tall.png"):
        page.get_by_role("button", name="Clear").click()
        page.locator("input[type=file]").set_input_files(tmp_path / name)
        page.wait_for_function(
            "() => JSON.parse(new URLSearchParams(location.hash.slice(1)).get('state')).input.pixels.every((p) => p > 0.99)"
        )
    (tmp_path / "text.png").write_text("no picture")
    page.locator("input[type=file]").set_input_files(tmp_path / "text.png")
    page.get_by_text("not a picture that the browser can read").wait_for()


def test_without_the_key_and_after_the_end(site: Site) -> None:
    server = Server(Worker(Answering(text_subject(), text="abc")))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    page = site.browser.new_page()
    page.goto(server.url.partition("#")[0])
    page.get_by_text("This page has no key. Open the address that `headwork explore` printed.").wait_for()
    page.close()
    page = site.browser.new_page()
    page.goto(server.url)
    page.locator(".verdict").wait_for()
    server.shutdown()
    server.server_close()
    page.locator("textarea").fill("more")
    page.get_by_role("status").get_by_text(
        "The program behind this page does not answer. If it has ended, start `headwork"
    ).wait_for()
    page.close()
    server.worker.close()


def test_asleep_in_between(site: Site, tmp_path: Path) -> None:
    """The program is stopped for a while and goes on, as on a laptop that sleeps: so does the page, by itself."""
    hw.save(text_model(), tmp_path / "model")
    command = [sys.executable, "-m", "headwork", "explore", str(tmp_path / "model"), "--no-browser", "--text", "3 1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        page = site.browser.new_page()
        page.goto(process.stdout.readline())
        page.locator(".verdict").wait_for()
        os.kill(process.pid, signal.SIGSTOP)
        page.locator("textarea").first.fill("3 1 4")
        page.wait_for_timeout(6000)  # longer than a connection may take to ask
        assert page.locator(".token").count() == 2
        os.kill(process.pid, signal.SIGCONT)
        page.wait_for_function("() => document.querySelectorAll('.token').length === 3")
        page.wait_for_function("() => document.querySelector('.map-grid').ariaRowCount == 3")
        assert page.locator(".status").inner_text() == ""
        page.close()
        process.terminate()


def test_a_connection_that_breaks_is_made_again(site: Site) -> None:
    """Before the answer, in the middle of it, and for longer than the page waits without a word."""
    page = site.browser.new_page()
    page.goto(site.server("text", lambda: answering_of("text")).url)
    page.locator(".verdict").wait_for()
    wrong = {"left": 2}

    def fail(route: Any) -> None:
        wrong["left"] -= 1
        if wrong["left"] < 0:
            route.continue_()
        elif wrong["left"] % 2:
            route.abort("connectionreset")
        else:
            route.fulfill(body=b"\x40\x00\x00\x00{", content_type="application/octet-stream")

    page.route("**/ask", fail)
    page.locator("textarea").first.fill("hello")
    settled(page, "hello")
    assert page.locator(".status").inner_text() == ""
    wrong["left"] = 10**6
    page.locator("textarea").first.fill("hello there")
    page.get_by_text("this page goes on by itself").wait_for()
    wrong["left"] = 0
    settled(page, "hello there")
    assert page.locator(".status").inner_text() == ""
    page.close()


def test_two_pages_at_once_do_not_disturb_each_other(site: Site) -> None:
    one, two = site.open("text"), site.open("text")
    one.locator("textarea").first.fill("first text")
    two.locator("textarea").first.fill("another one")
    settled(one, "first text")
    settled(two, "another one")


def test_a_model_without_a_tokenizer_and_one_whose_weights_are_no_numbers(site: Site) -> None:
    page = site.open("ids", answering=lambda: Answering(Subject.of(text_model())))
    page.locator("textarea").first.fill("3 1 4")
    page.wait_for_function(
        "() => Array.from(document.querySelectorAll('.token'), (t) => t.textContent).join() === '3,1,4'"
    )
    page.locator("textarea").first.fill("3 x")
    page.get_by_text("x is not an id. Type whole numbers, such as 3 1 4.").wait_for()
    page.locator("textarea").first.fill("3 99")
    page.get_by_text("Ids must lie in 0 .. 31, got 99.").wait_for()

    def broken() -> Answering:
        subject = text_subject()
        with torch.no_grad():
            next(subject.model.get_submodule("layers.1").parameters()).fill_(float("nan"))
        return Answering(subject, text="abc")

    page = site.open("nan", answering=broken)
    page.get_by_text("Some scores are not numbers").wait_for()


def test_many_heads_and_a_model_of_masked_tokens_or_of_vectors(site: Site) -> None:
    def encoder(head: Any) -> Callable[[], Answering]:
        heads, feed_forward = hw.choices.Heads(n_heads=12), hw.choices.FeedForward(d_ff=16)
        config = hw.models.EncoderConfig(vocab=31, d_model=24, n_layers=1, heads=heads, feed_forward=feed_forward, head=head)  # fmt: skip
        return lambda: Answering(Subject.of(config.build()), text="3 1 4")

    page = site.open("masked", answering=encoder(hw.choices.MaskedLMHead()))
    page.get_by_text("What may stand in the place of “4”:").wait_for()
    assert page.locator(".tick span").all_inner_texts() == [str(i) for i in range(12)]  # "head 10" has no room
    page = site.open("vectors", answering=encoder(hw.choices.NoHead()))
    page.get_by_text("This model gives a vector").wait_for()
    assert page.get_by_role("button", name="Try each head off").count() == 0


def test_long_texts_come_in_blocks(site: Site) -> None:
    page = site.open("long", answering=lambda: Answering(text_subject(max_tokens=2048), text="ab"))
    page.locator("textarea").first.fill("the cat sat on a mat " * 60)
    page.get_by_text("1,260 x 1,260 weights, each point the largest of 2 x 2").wait_for()


def test_pictures_are_saved(site: Site) -> None:
    page = site.open("text")
    for kind, starts in (("SVG", b"<svg"), ("PNG", b"\x89PNG")):
        with page.expect_download() as waiting:
            page.locator(f".pane-map button[aria-label='save as {kind}']").click()
        assert Path(waiting.value.path()).read_bytes().startswith(starts)
        assert waiting.value.suggested_filename == f"layer-0-head-0.{kind.lower()}"


def test_the_picture_of_a_large_map_is_saved_and_a_long_text_left_out_of_the_address(site: Site) -> None:
    page = site.open("long", answering=lambda: Answering(text_subject(max_tokens=2048), text="ab"))
    page.locator("textarea").first.fill("the cat sat on a mat " * 6)
    page.get_by_text("126 of at most 2,048 tokens").wait_for()
    page.wait_for_function("() => document.querySelector('.map-grid').ariaRowCount === '126'")
    with page.expect_download() as waiting:
        page.locator(".pane-map button[aria-label='save as PNG']").click()
    assert Path(waiting.value.path()).read_bytes().startswith(b"\x89PNG")
    page.locator("textarea").first.fill("the cat " * 20_000)
    page.get_by_text("this model can read 2,048 at most").wait_for()
    page.wait_for_function("() => !('input' in JSON.parse(new URLSearchParams(location.hash.slice(1)).get('state')))")
    page.locator("textarea").first.fill("the")
    page.get_by_text("3 of at most 2,048 tokens").wait_for()


def test_a_recorded_page_works_from_disk(site: Site, tmp_path: Path) -> None:
    answering = answering_of("image")
    said = export_page(answering, tmp_path / "page.html", living=False)
    assert "recorded" in said
    page = site.browser.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: site.problems.append(message.text) if message.type == "error" else None)
    page.goto((tmp_path / "page.html").as_uri())
    page.locator(".verdict").wait_for()
    page.locator(".head-map").nth(3).click()
    page.wait_for_function("() => document.querySelector('.focus-name').textContent.startsWith('layer 1, head 1')")
    page.locator("summary", has_text="All patches").click()
    _, _, found = numbers_of(page, "map")
    subject = answering.subjects[0]
    with torch.no_grad(), hw.record(subject.model, "layers.1.attention.weights") as seen:
        subject.model(*encode_input(subject, answering.begun).inputs)
    np.testing.assert_allclose(found, seen["layers.1.attention.weights"][0, 1], atol=1e-6)
    page.locator(".tick input").first.click()
    page.get_by_text("1 head is off").wait_for()
    page.get_by_role("button", name="Clear").click()
    page.get_by_role("status").get_by_text("This was not recorded in this page").wait_for()
    assert {url.split(":")[0] for url in asked} <= {"file", "data", "blob"}
    page.close()


def test_the_page_is_small_and_its_own() -> None:
    files = {path: data for path, (_, data) in page_files().items()}
    assert sum(map(len, files.values())) < 150_000
    text = b"".join(files.values()).decode()
    assert "https://" not in text
    assert json.dumps("http://www.w3.org/2000/svg") in text
