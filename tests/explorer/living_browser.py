"""Chromium for the tests of the explorer: it runs the modules of the page as they are, without a network."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import headwork.explorer

PAGE = Path(headwork.explorer.__file__).parent / "page"
CHROMIUMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser of Playwright's API over the Chromium of this machine; skips where there is none, unless it must be."""
    path = next((found for name in CHROMIUMS if (found := shutil.which(name))), None)
    if path is None:
        must_be = os.environ.get("HEADWORK_NEEDS_BROWSER")
        (pytest.fail if must_be else pytest.skip)(f"there is no browser: install one of {', '.join(CHROMIUMS)}")
    sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


def wait_for_address(page: Any) -> None:
    """Until the address has the state of the page, which writes it at most once in 300 ms.

    The timers of one page fire in their order, so this one comes after that of the page however busy the machine is.
    """
    page.evaluate("() => new Promise((done) => setTimeout(done, 400))")


def engine_page(browser: Any) -> Any:
    """A page that can import the modules of the engine, from the files beside this package."""
    page = browser.new_page()

    def answer(route: Any) -> None:
        name = route.request.url.removeprefix("http://engine.test/")
        if name == "":
            route.fulfill(body="<!doctype html>", content_type="text/html")
        elif name.endswith(".js") and (PAGE / name).is_file():
            route.fulfill(body=(PAGE / name).read_text(encoding="utf-8"), content_type="text/javascript")
        else:
            route.abort()

    page.route("**/*", answer)
    page.goto("http://engine.test/")
    return page


RUN = """async ({config, weights, input, options}) => {
    const [{ Model }, { readWeights }] = await Promise.all(
        ["model", "weights"].map((name) => import(`./engine/${name}.js`)));
    if (input.image) input.image.data = Float32Array.from(input.image.data);
    const { points } = new Model(config, readWeights(weights)).run(input, options ?? {});
    const text = ({ shape, data }) => ({ shape, data: Array.from(data, (x) => Number.isFinite(x) ? x : String(x)) });
    return Object.fromEntries(Object.entries(points).map(([name, point]) => [name, text(point)]));
}"""
"""What passed each point in one forward pass; infinities as words, since JSON has none."""

ASK = """async ({data, questions}) => {
    const [{ livingAsk }, { Refused }] = await Promise.all([import("./engine/ask.js"), import("./ask.js")]);
    const ask = livingAsk(data);
    const answers = [];
    for (const question of questions) {
        const parts = [];
        try {
            for await (const { header, arrays } of ask(question)) {
                const asText = ([name, { shape, data }]) => [name, { shape, data: Array.from(data) }];
                parts.push({ header, arrays: Object.fromEntries(Object.entries(arrays).map(asText)) });
            }
        } catch (error) {
            if (!(error instanceof Refused)) throw error;
            parts.push({ refused: error.message });
        }
        answers.push(parts);
    }
    return answers;
}"""
