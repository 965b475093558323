"""The page in a notebook: the same questions and answers, as messages."""

from typing import Any

import numpy as np
import pytest
import torch
from tests.explorer.living_browser import chromium
from tests.explorer.models import text_model, text_subject, tokenizer

import headwork as hw
from headwork.explorer.answering import Answering
from headwork.explorer.answers import decode
from headwork.explorer.widget import answer_message, widget_script
from headwork.explorer.worker import Worker


def test_a_message_gets_the_parts_of_its_answer() -> None:
    worker, sent = Worker(Answering(text_subject(), text="abc")), list[tuple[Any, Any]]()
    question = {"question": "Map", "about": {"input": {"text": "the cat"}}, "attention": 0, "head": 1}
    answer_message(
        worker, {"place": "map", "number": 7, "question": question}, lambda c, buffers: sent.append((c, buffers))
    )
    assert [content for content, _ in sent] == [{"number": 7}] * 2
    [first], [last] = (list(decode(buffers[0])) for _, buffers in sent)
    with torch.no_grad(), hw.record(model := text_model().eval(), "layers.0.attention.weights") as seen:
        model(torch.tensor([tokenizer().encode("the cat")]))
    np.testing.assert_allclose(first.arrays["weights"], seen["layers.0.attention.weights"][0, 1], atol=1e-6)
    assert last.header["kind"] == "done"
    for nonsense in (None, {"number": "x"}, {"question": {"question": "Delete"}, "number": 3}):
        sent.clear()
        answer_message(worker, nonsense, lambda c, buffers: sent.append((c, buffers)))
        [refusal] = decode(sent[0][1][0])
        assert refusal.header["kind"] == "refused"
    worker.close()


def test_explore_makes_a_widget() -> None:
    pytest.importorskip("anywidget")
    widget = hw.explore(text_model(), tokenizer=tokenizer(), text="abc")
    assert "export default" in widget._esm
    assert ".headwork" in widget._css
    with pytest.raises(ValueError, match="model must be a folder that exists or a published name"):
        hw.explore("nothing")


@pytest.mark.slow
def test_the_script_of_the_widget_renders_in_a_browser() -> None:
    worker = Worker(Answering(text_subject(), text="abc"))
    with chromium() as browser:
        page = browser.new_page()
        problems: list[str] = []
        page.on("pageerror", lambda error: problems.append(str(error)))

        def ask(content: Any) -> list[list[int]]:
            sent: list[list[int]] = []
            answer_message(worker, content, lambda _, buffers: sent.append(list(buffers[0])))
            return sent

        page.expose_function("kernel", ask)
        page.set_content("<div id=cell></div>")
        page.evaluate(
            """async (script) => {
                const url = URL.createObjectURL(new Blob([script], { type: "text/javascript" }));
                const { default: widget } = await import(url);
                let listener;
                const model = {
                    on: (name, f) => { listener = f; },
                    send: async (content) => {
                        for (const bytes of await kernel(content))
                            listener({ number: content.number }, [new DataView(Uint8Array.from(bytes).buffer)]);
                    },
                };
                widget.render({ model, el: document.getElementById("cell") });
            }""",
            widget_script(),
        )
        page.locator(".verdict").wait_for()
        page.locator("textarea").fill("the cat")
        page.wait_for_function("() => document.querySelectorAll('.tokens .token').length === 7")
        assert problems == []
    worker.close()
