"""How fast the explorer answers, in a real Chromium: `python -m benchmarks.explorer RUN_OR_MODEL ...`.

For each model the best of several: from the start of the load to the first answer in the page, from a key stroke (or a
stroke of the pen) to the new maps on the screen, the server's part of it, and how many answers a second a dragged
Gaussian head gets. `--long` also opens a small decoder with 4,096 tokens and looks for frames that take too long.
"""

import sys
import threading
import time
from typing import Any

import torch
from playwright.sync_api import sync_playwright

import headwork as hw
from headwork.explorer import questions as q
from headwork.explorer.answering import Answering
from headwork.explorer.opening import open_subject
from headwork.explorer.server import Server
from headwork.explorer.subject import Subject
from headwork.explorer.worker import Worker

CHROMIUM = "/usr/bin/chromium"
N_STROKES = 12
WATCH = """() => {
    window.frames_ = []; let last = performance.now();
    const tick = (now) => { window.frames_.push(now - last); last = now; requestAnimationFrame(tick); };
    requestAnimationFrame(tick);
}"""
STROKE = """async (letter) => {
    const area = document.querySelector(".writing textarea");
    const read = () => document.querySelector(".tokens").childElementCount;
    const [shown, grid] = [read(), document.querySelector(".map-grid")];
    const isPair = document.querySelectorAll(".tokens").length > 1;
    const begun = performance.now();
    area.value += letter;
    area.dispatchEvent(new Event("input", { bubbles: true }));
    while (read() === shown || (!isPair && Number(grid.ariaRowCount) === shown))
        await new Promise(requestAnimationFrame);
    return performance.now() - begun;
}"""
PEN = """async () => {
    const begun = performance.now();
    const buttons = [...document.querySelectorAll(".drawing button")];
    const before = document.querySelector(".answer").textContent;
    buttons.find((b) => b.textContent === "Invert").click();
    while (document.querySelector(".answer").textContent === before) await new Promise(requestAnimationFrame);
    return performance.now() - begun;
}"""

DRAG = """async ([x, y]) => {
    const [answer, bound] = [".answer", ".pane-gaussian .bars"].map((name) => document.querySelector(name));
    const count = (box) => {
        let [n, last] = [0, box.innerHTML];
        const look = () => box.innerHTML !== last && (n++, (last = box.innerHTML));
        new MutationObserver(look).observe(box, { childList: true });
        return () => n;
    };
    const counts = [answer, bound.parentElement].map(count);
    const [disc, begun] = [document.querySelector("circle.disc"), performance.now()];
    for (let i = 0; performance.now() - begun < 2000; i++) {
        const place = { clientX: x + i % 80, clientY: y + (i >> 1) % 60, pointerId: 1, bubbles: true };
        disc.dispatchEvent(new PointerEvent("pointermove", place));
        await new Promise(requestAnimationFrame);
    }
    return counts.map((n) => 1000 * n() / (performance.now() - begun));
}"""
"""Moves with every frame, as a mouse does: Playwright's wait for each other. Only what differs counts as an answer."""


def serve(subject: Subject, **options: Any) -> Server:
    server = Server(Worker(Answering(subject, **options)))
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    return server


def measure(browser: Any, name: str) -> None:
    subject = open_subject(name)
    server = serve(subject)
    ready = []
    for _ in range(3):
        page = browser.new_page(viewport={"width": 1400, "height": 1600})
        begun = time.perf_counter()
        page.goto(server.url)
        page.locator(".answer .verdict, .answer p").first.wait_for()
        ready.append(time.perf_counter() - begun)
    page.wait_for_timeout(500)
    image = subject.description.input == "image"
    strokes = [page.evaluate(PEN) if image else page.evaluate(STROKE, "a") for _ in range(N_STROKES)]
    answering = Answering(open_subject(name))  # a model of its own: the server may still be computing with the other
    seconds = []
    for i in range(5):
        begun = time.perf_counter()
        list(answering(q.Read(q.About(answering.begun, off=((0, i % subject.attention[0].n_heads),)))))
        seconds.append(time.perf_counter() - begun)
    strokes.sort()
    line = f"{subject.name:<34} ready {min(ready):.2f} s   key stroke to maps: best {strokes[0]:.0f}, median "
    print(f"{line}{strokes[len(strokes) // 2]:.0f} ms   reading in the server {1000 * min(seconds):.1f} ms", flush=True)
    if subject.gaussian:
        drag(page)
    page.close()
    server.shutdown()


def drag(page: Any) -> None:
    """Answers and convolutions a second while a head is dragged for two seconds."""
    disc = page.locator("circle.disc").first
    disc.scroll_into_view_if_needed()
    box = disc.bounding_box()
    at = [box["x"] + box["width"] / 2, box["y"] + box["height"] / 2]
    page.mouse.move(*at)
    page.mouse.down()
    answers, bounds = page.evaluate(DRAG, at)
    page.mouse.up()
    print(f"{'':<34} dragging: {answers:.0f} answers shown a second, {bounds:.0f} convolutions", flush=True)


def long(browser: Any) -> None:
    torch.manual_seed(0)
    heads, feed_forward = hw.choices.Heads(n_heads=2), hw.choices.FeedForward(d_ff=32)
    position = hw.choices.LearnedPositions(max_tokens=4096)
    config = hw.models.DecoderConfig(vocab=300, d_model=16, n_layers=2, heads=heads, feed_forward=feed_forward, position=position)  # fmt: skip  # noqa: E501
    server = serve(Subject.of(config.build(), name="4,096 tokens"), text=" ".join(str(i % 300) for i in range(4095)))
    page = browser.new_page(viewport={"width": 1400, "height": 1600})
    page.goto(server.url)
    page.get_by_text("each point the largest of 4 x 4").wait_for()
    page.evaluate(WATCH)
    begun = time.perf_counter()
    page.locator("textarea").press("End")
    page.locator("textarea").press_sequentially(" 7")
    page.get_by_text("4,096 of at most 4,096 tokens").wait_for()
    milliseconds = 1000 * (time.perf_counter() - begun)
    page.wait_for_timeout(2000)
    worst = page.evaluate("Math.max(...window.frames_.slice(1))")
    print(f"4,096 tokens: a key to the map {milliseconds:.0f} ms; the longest frame {worst:.0f} ms", flush=True)
    server.shutdown()


def main() -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for name in sys.argv[1:]:
            long(browser) if name == "--long" else measure(browser, name)
        browser.close()


if __name__ == "__main__":
    main()
