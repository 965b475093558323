"""The page in a real Chromium: its numbers, its keyboard, what it asks for, and what it says when something is wrong."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.explorer.living_browser import chromium
from tests.explorer.models import SUBJECTS, text_model, text_subject, tokenizer
from tests.explorer.test_answering import answering_of

import headwork as hw
from headwork.explorer.answering import Answering
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
        "() => JSON.parse(atob(location.hash.slice(7).replaceAll('-', '+').replaceAll('_', '/'))).input.pixels.some((p) => p > 0.5)"
    )
    page.wait_for_timeout(200)
    state = page.evaluate("JSON.parse(atob(location.hash.slice(7).replaceAll('-', '+').replaceAll('_', '/')))")
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
    assert "gives" in said
    assert "rank" in said
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
        "() => JSON.parse(atob(location.hash.slice(7).replaceAll('-', '+').replaceAll('_', '/'))).input.pixels.filter((p) => p > 0).length > 0"
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
    page.get_by_text("1 moved").wait_for()
    page.get_by_text("no output of this layer is off by more than").wait_for()
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
    page.locator(".pane-whatif textarea").fill("the do")
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
    page.wait_for_timeout(150)
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


def test_what_is_wrong_is_said_and_the_page_goes_on(site: Site) -> None:
    page = site.open("text")
    area = page.locator(".writing textarea")
    area.fill("a" * 65)
    page.get_by_text("This is 65 tokens. The model is shown up to 64: take 1 away. Nothing was cut.").wait_for()
    area.fill("")
    page.get_by_text("Type something").wait_for()
    area.fill("fine é")
    settled(page, "fine �")
    page.get_by_text("1 token is not known to the model").wait_for()
    assert page.locator(".status").inner_text() == ""


def test_a_picture_of_any_size_and_a_file_that_is_none(site: Site, tmp_path: Path) -> None:
    from PIL import Image

    page = site.open("image")
    Image.new("RGBA", (300, 7), (255, 255, 255, 255)).save(tmp_path / "wide.png")
    Image.new("1", (3, 500), 1).save(tmp_path / "tall.png")
    for name in ("wide.png", "tall.png"):
        page.get_by_role("button", name="Clear").click()
        page.locator("input[type=file]").set_input_files(tmp_path / name)
        page.wait_for_function(
            "() => JSON.parse(atob(location.hash.slice(7).replaceAll('-', '+').replaceAll('_', '/'))).input.pixels.every((p) => p > 0.99)"
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
    page.get_by_text("The program behind this page has ended. Start `headwork explore` again.").wait_for()
    page.close()
    server.worker.close()


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
    page.locator("textarea").first.fill("3 99")
    page.get_by_text("Ids must lie in 0 .. 31, got 99.").wait_for()

    def broken() -> Answering:
        subject = text_subject()
        with torch.no_grad():
            next(subject.model.get_submodule("layers.1").parameters()).fill_(float("nan"))
        return Answering(subject, text="abc")

    page = site.open("nan", answering=broken)
    page.get_by_text("Some scores are not numbers").wait_for()


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
        subject.model(*subject.encode(answering.begun).inputs)
    np.testing.assert_allclose(found, seen["layers.1.attention.weights"][0, 1], atol=1e-6)
    page.locator(".tick input").first.click()
    page.get_by_text("1 head is off").wait_for()
    page.get_by_role("button", name="Clear").click()
    page.get_by_role("status").get_by_text("This was not recorded in this page").wait_for()
    assert {url.split(":")[0] for url in asked} <= {"file", "data", "blob"}
    page.close()


def test_the_page_is_small_and_its_own() -> None:
    files = {path: data for path, (_, data) in page_files().items() if not path.startswith("/engine/")}
    assert sum(map(len, files.values())) < 150_000
    text = b"".join(files.values()).decode()
    assert "https://" not in text
    assert json.dumps("http://www.w3.org/2000/svg") in text
