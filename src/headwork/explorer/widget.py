"""The page in a notebook (Jupyter, Colab, VS Code, marimo), over anywidget: extra `notebook`."""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn

from headwork.explorer.answering import Answering
from headwork.explorer.answers import encode, refused
from headwork.explorer.one_file import PAGE, join_modules
from headwork.explorer.opening import open_subject
from headwork.explorer.questions import RefusedError, question_from_json
from headwork.explorer.subject import AnyTokenizer, Subject
from headwork.explorer.worker import Worker
from headwork.extras import need


def explore(
    model: nn.Module | Path | str,
    *,
    against: nn.Module | Path | str | None = None,
    tokenizer: AnyTokenizer | None = None,
    labels: Sequence[str] | None = None,
    text: str | None = None,
    image: Path | str | None = None,
) -> Any:
    """The explorer of a model in a notebook cell: a model, or what `headwork explore` takes.

    A tokenizer and labels are for a model that is passed itself; a folder has its own.
    """
    need("anywidget")
    import anywidget
    import traitlets

    def subject(given: nn.Module | Path | str) -> Subject:
        if isinstance(given, nn.Module):
            return Subject.of(given, tokenizer=tokenizer, labels=labels)
        return open_subject(given)

    other = None if against is None else subject(against)
    path = None if image is None else Path(image)
    answering = Answering(subject(model), other, text=text, image=path)

    class Explorer(anywidget.AnyWidget):
        """The page, and the thread that answers it."""

        _esm = traitlets.Unicode(widget_script()).tag(sync=True)
        _css = traitlets.Unicode((PAGE / "style.css").read_text(encoding="utf-8")).tag(sync=True)

    made = Explorer()
    worker = Worker(answering)

    def answer(widget: Any, content: Any, buffers: object) -> None:
        threading.Thread(target=answer_message, args=(worker, content, widget.send), daemon=True).start()

    made.on_msg(answer)
    return made


def widget_script() -> str:
    """All modules of the page as one, which exports what anywidget calls."""
    return join_modules("widget.js") + '\nexport default { render: modules["widget.js"].render };\n'


def answer_message(worker: Worker, content: Any, send: Any) -> None:
    """Send the parts of the answer to a message of the page, each with the number of its question."""
    asked: dict[str, Any] = content if isinstance(content, dict) else {}
    number = asked.get("number") if isinstance(asked.get("number"), int) else 0
    try:
        question = question_from_json(asked.get("question"))
    except RefusedError as error:
        send({"number": number}, buffers=[encode(refused(str(error)))])
        return
    for part in worker.ask("notebook", str(asked.get("place")), int(number or 0), question):
        send({"number": number}, buffers=[encode(part)])
