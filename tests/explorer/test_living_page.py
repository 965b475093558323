"""A living page, opened from disk: it computes what PyTorch computes, and asks nobody for anything."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import torch
from tests.explorer.living_browser import chromium, engine_page, wait_for_address
from tests.explorer.test_living import CONFIGS, NEAR, input_of, lively, near, run_engine, run_pytorch

from headwork import choices
from headwork.data import Tokenizer
from headwork.explorer import questions as q
from headwork.explorer.answering import Answering
from headwork.explorer.export import export_page
from headwork.explorer.living import unpack
from headwork.explorer.one_file import join_modules, one_file
from headwork.explorer.subject import Subject
from headwork.models import MODEL_CONFIGS
from headwork.serialise import config_from_dict

pytestmark = pytest.mark.slow

DOCS = Path(__file__).parents[2] / "docs" / "explorer"
DEMOS = ("digits-vit", "digits-gaussian", "dates", "text-gpt")
WITHIN_A_MINUTE = 60_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


class LivingPage:
    """A page that was opened by its file, with all that it asked for and complained about."""

    def __init__(self, browser: Any, path: Path) -> None:
        self.page = browser.new_page()
        self.page.set_default_timeout(WITHIN_A_MINUTE)
        self.requests, self.complaints = list[str](), list[str]()
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda said: self.complaints.append(said.text) if said.type == "error" else None)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.goto(path.as_uri())
        self.wait()

    def wait(self) -> None:
        """Until the newest answer is shown."""
        self.page.wait_for_selector("#page .answer strong")
        self.page.wait_for_selector("#page:not([data-busy])")

    def numbers(self, pane: str) -> list[list[str]]:
        """The cells of a picture "as numbers", each row with its name first."""
        self.page.click(f".pane-{pane} .pane-top button[aria-label='show as numbers']")
        rows = self.page.eval_on_selector_all(
            "dialog tbody tr", "rows => rows.map(row => [...row.cells].map(cell => cell.textContent))"
        )
        self.page.click("dialog header button:last-child")
        return rows

    def state(self) -> dict[str, Any]:
        """What the address keeps."""
        wait_for_address(self.page)
        text = parse_qs(urlsplit(self.page.url).fragment)["state"][0]
        return json.loads(text)

    def type(self, text: str) -> None:
        self.page.fill("textarea >> nth=0", text)
        self.wait()

    def draw_one(self) -> None:
        """A vertical stroke on an empty image."""
        self.page.get_by_role("button", name="Clear").click()
        canvas = self.page.locator("canvas.draw").bounding_box()
        x, y, high = canvas["x"] + canvas["width"] / 2, canvas["y"], canvas["height"]
        self.page.mouse.move(x, y + high / 8)
        self.page.mouse.down()
        self.page.mouse.move(x, y + 7 * high / 8, steps=5)
        self.page.mouse.up()
        self.wait()

    def close(self, path: Path) -> None:
        assert self.requests == [path.as_uri()]
        assert self.complaints == []
        self.page.close()


def check_answer(page: LivingPage, answering: Answering) -> None:
    """The answer and the map that the page shows are those of PyTorch for what its address says."""
    state = page.state()
    about = q.question_from_json(
        {"question": "Read", "about": {key: state[key] for key in ("input", "off", "moved") if key in state}}
    )
    [expected] = answering(about)
    top = {each["name"]: (each["probability"], each["logit"]) for each in expected.header["answer"]["top"]}
    shown = {name: (float(p), float(logit)) for name, p, logit in page.numbers("input")}
    assert shown.keys() == top.keys()
    assert torch.allclose(torch.tensor(list(shown.values())), torch.tensor([top[name] for name in shown]), atol=NEAR)
    attention, head = state["focus"]
    [expected] = answering(q.Map(about.about, attention, head))
    weights = torch.tensor([[float(cell) for cell in cells] for _, *cells in page.numbers("map")])
    assert torch.allclose(weights, torch.tensor(expected.arrays["weights"]), atol=NEAR)


def check_page(browser: Any, path: Path, answering: Answering) -> None:
    page = LivingPage(browser, path)
    if answering.subjects[0].description.input == "image":
        page.draw_one()
    else:
        page.type("a dad had a cab")
    page.page.locator(".pane-heads input[type=checkbox]").nth(1).click()
    page.wait()
    assert page.state()["off"] == [[0, 1]]
    check_answer(page, answering)
    page.close(path)


def small_text() -> Subject:
    tokenizer = Tokenizer.characters(["abcdefgh </script>"])
    config = replace(CONFIGS["GPT"], vocab=len(tokenizer), position=choices.LearnedPositions(max_tokens=19))
    return Subject.of(lively(config), tokenizer=tokenizer, name="</title><b>&")


def small_image() -> Subject:
    return Subject.of(lively(replace(CONFIGS["ViT"], n_channels=1)))


@pytest.mark.parametrize("make", [small_text, small_image])
def test_a_living_page_computes_from_disk(browser: Any, tmp_path: Path, make: Callable[[], Subject]) -> None:
    subject = make()
    answering = Answering(subject, text=None if subject.tokenizer is None else "a bad </script>")
    path = tmp_path / "a page.html"
    assert "living" in export_page(answering, path)
    check_page(browser, path, answering)


@pytest.mark.slow
@pytest.mark.parametrize("name", DEMOS)
def test_the_pages_of_the_demo_models_compute_what_pytorch_does(browser: Any, name: str) -> None:
    """The model is rebuilt in PyTorch from what the page holds: nothing else is needed."""
    check_page(browser, DOCS / f"{name}.html", Answering(rebuild(demo(name))))


@pytest.mark.slow
@pytest.mark.parametrize("name", DEMOS)
def test_the_demo_models_are_those_of_pytorch_at_every_point(browser: Any, name: str) -> None:
    model = rebuild(demo(name)).model
    page = engine_page(browser)
    for seed in range(3):
        torch.manual_seed(seed)
        inputs, given = input_of(model)
        expected, found = run_pytorch(model, inputs), run_engine(page, model, given)
        assert set(found) == set(expected)
        assert [point for point in found if not near(found[point], expected[point])] == []
    page.close()


@pytest.mark.slow
def test_gaussian_heads_are_moved_by_the_keyboard(browser: Any) -> None:
    page = LivingPage(browser, DOCS / "digits-gaussian.html")
    disc = page.page.get_by_role("slider", name="head 2")
    for key in ("ArrowUp", "ArrowRight", "ArrowRight", "+"):
        disc.press(key)
    page.wait()
    [moved] = page.state()["moved"]
    assert (moved["attention"], moved["head"]) == (0, 2)
    check_answer(page, Answering(rebuild(demo("digits-gaussian"))))
    page.close(DOCS / "digits-gaussian.html")


def demo(name: str) -> dict[str, Any]:
    text = (DOCS / f"{name}.html").read_text(encoding="utf-8")
    return json.loads(text.split('id="living">')[1].split("</script>")[0])


def rebuild(data: dict[str, Any]) -> Subject:
    model = config_from_dict(data["config"], MODEL_CONFIGS).build()
    model.load_state_dict(unpack(data["weights"]))
    characters = "".join(data["tokens"]["strings"][4:]) if data["tokens"] else None
    tokenizer = None if characters is None else Tokenizer.characters([characters])
    return Subject.of(model, tokenizer=tokenizer, labels=data["about"]["labels"], name=data["about"]["name"])


def test_a_model_that_the_engine_cannot_compute_is_recorded_and_says_why(tmp_path: Path) -> None:
    config = replace(CONFIGS["GPT"], position=choices.RelativePositions(), n_layers=1)
    answering = Answering(Subject.of(lively(config)))
    said = export_page(answering, tmp_path / "page.html")
    assert "recorded (the engine has no RelativeShifts)" in said
    assert 'id="living"' not in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_modules_are_joined_in_order_each_in_its_own_scope(tmp_path: Path) -> None:
    (tmp_path / "a.js").write_text('import { one as two } from "./b/b.js";\nconst x = 1;\n', encoding="utf-8")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "b.js").write_text("const x = 2;\nexport const one = x;\n", encoding="utf-8")
    joined = join_modules("a.js", tmp_path)
    assert joined.index('modules["b/b.js"]') < joined.index('modules["a.js"]')
    assert 'const { one: two } = modules["b/b.js"];' in joined
    assert "return { one };" in joined
    for wrong, why in (
        ('import { y } from "./a.js";\n', "in a circle"),
        ("export default 1;\n", "by name"),
        ('const x = "</script>";\n', "end the script"),
    ):
        (tmp_path / "b" / "b.js").write_text(wrong.replace("./a.js", "../a.js"), encoding="utf-8")
        with pytest.raises(ValueError, match=why):
            join_modules("a.js", tmp_path)


def test_the_policy_of_the_page_names_its_script_and_its_style_and_nothing_else() -> None:
    text = one_file("living.js", "a & b", {"living": {"text": "</script><script>"}})
    policy = text.split('Content-Security-Policy" content="')[1].split('"')[0]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    assert "http" not in policy
    assert "<title>a &amp; b</title>" in text
    assert text.count("</script>") == 2
