"""The pictures of the explorer in the documents, docs/explorer-*.png and docs/living.png, from four runs.

python docs/make_screenshots.py runs        # runs/digits-vit, runs/dates, runs/digits-gaussian and runs/text-gpt
python docs/make_screenshots.py runs next   # only those whose name has "next" in it
"""

import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

from headwork.explorer.answering import Answering
from headwork.explorer.opening import open_subject
from headwork.explorer.server import Server
from headwork.explorer.worker import Worker

DOCS = Path(__file__).parent
CHROMIUMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SEVEN = [(0.22, 0.14), (0.74, 0.14), (0.42, 0.92)]
"""The corners of a drawn 7, as shares of the width and the height."""


@contextmanager
def served(run: Path) -> Iterator[str]:
    """The address of the explorer of a run."""
    worker = Worker(Answering(open_subject(run)))
    with Server(worker) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.url
        server.shutdown()
    worker.close()


def draw(page: Any, corners: list[tuple[float, float]]) -> None:
    """Strokes with the mouse on an empty image."""
    page.get_by_role("button", name="Clear").click()
    box = page.locator("canvas.draw").bounding_box()
    points = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in corners]
    page.mouse.move(*points[0])
    page.mouse.down()
    for point in points[1:]:
        page.mouse.move(*point, steps=6)
    page.mouse.up()
    page.mouse.move(5, 5)
    settle(page)


def settle(page: Any) -> None:
    page.wait_for_selector("#page:not([data-busy]) .verdict")
    page.wait_for_timeout(400)


def switch_off(page: Any, *heads: tuple[int, int]) -> None:
    for layer, head in heads:
        page.get_by_label(f"layer {layer}, head {head} on", exact=True).click()
    settle(page)


def tab(page: Any, name: str) -> Any:
    page.get_by_role("tab", name=name, exact=True).click()
    settle(page)
    return page.locator(".tabs")


def digits(page: Any) -> Any:
    draw(page, SEVEN)
    page.get_by_role("button", name="Try each head off").click()
    page.wait_for_function("() => document.querySelector('.pane-heads > .note').textContent.endsWith('.')")
    page.locator(".head-map").nth(13).click()
    tab(page, "Lens")
    return page


def dates(page: Any) -> Any:
    page.locator("textarea").first.fill("dimanche 15 novembre 2026")
    settle(page)
    page.locator(".tokens").nth(1).locator(".token").nth(7).click()
    settle(page)
    return page


def text(page: Any) -> Any:
    page.locator("textarea").first.fill("The import statement ")
    settle(page)
    tab(page, "Next")
    return page


def what_if(page: Any) -> Any:
    page.locator("textarea").first.fill("dimanche 15 novembre 2026")
    settle(page)
    found = tab(page, "What if")
    page.locator(".pane-whatif textarea").fill("dimanche 15 décembre 2026")
    page.get_by_role("button", name="Compute").click()
    page.get_by_text("Row 6 of 6").wait_for()
    return found


def next_token(page: Any) -> Any:
    page.locator("textarea").first.fill("The import statement ")
    settle(page)
    found = tab(page, "Next")
    page.locator("#hw-top_k").fill("5")
    settle(page)
    return found


def cache(page: Any) -> Any:
    found = tab(page, "Cache")
    page.get_by_role("button", name="with and without").click()
    page.get_by_text("ms for each with the cache").wait_for()
    return found


def gaussian(page: Any) -> Any:
    found = tab(page, "Gaussian heads")
    disc = page.get_by_role("slider", name="head 2")
    for key in ("ArrowDown",) * 6 + ("+",) * 2:
        disc.press(key)
    settle(page)
    return found


def cost(page: Any) -> Any:
    found = tab(page, "Shapes and cost")
    page.get_by_role("button", name="layers.1.attention.weights", exact=True).click()
    settle(page)
    return found


def training(page: Any) -> Any:
    found = tab(page, "Training")
    page.locator(".chart svg").wait_for()
    return found


def living(page: Any) -> Any:
    draw(page, SEVEN)
    return page


PICTURES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "explorer-digits": ("digits-vit", digits),
    "explorer-dates": ("dates", dates),
    "explorer-text": ("text-gpt", text),
    "explorer-what-if": ("dates", what_if),
    "explorer-next": ("text-gpt", next_token),
    "explorer-cache": ("text-gpt", cache),
    "explorer-gaussian": ("digits-gaussian", gaussian),
    "explorer-cost": ("digits-vit", cost),
    "explorer-training": ("digits-gaussian", training),
    "living": ("digits-vit", living),
}


def main(runs: Path, only: str = "") -> None:
    path = next(found for name in CHROMIUMS if (found := shutil.which(name)))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        for name, (run, make) in PICTURES.items():
            if only not in name:
                continue
            page = browser.new_page(viewport={"width": 1250, "height": 1000})
            if name == "living":
                page.goto((DOCS / "explorer" / f"{run}.html").as_uri())
                picture = make_picture(page, make)
            else:
                with served(runs / run) as url:
                    page.goto(url)
                    picture = make_picture(page, make)
            (DOCS / f"{name}.png").write_bytes(picture)
            print(f"{name}.png, {len(picture) // 1000} kB", flush=True)
            page.close()
        browser.close()


def make_picture(page: Any, make: Callable[[Any], Any]) -> bytes:
    """What `make` returns, the whole page or an element of it, once everything on it is there; in 256 colours."""
    settle(page)
    found = make(page)
    page.evaluate("scrollTo(0, 0)")
    page.wait_for_timeout(300)
    picture, small = found.screenshot(full_page=True) if found is page else found.screenshot(), BytesIO()
    whole = Image.open(BytesIO(picture)).convert("RGB")
    colours = whole.quantize(256, method=Image.Quantize.MAXCOVERAGE)
    whole.quantize(palette=colours, dither=Image.Dither.FLOYDSTEINBERG).save(small, "PNG", optimize=True)
    return small.getvalue()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:3])
