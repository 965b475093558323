"""One HTML file to hand on: living if the engine can compute the model in a browser, recorded for any other."""

import base64
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from headwork.explorer import questions as q
from headwork.explorer.answering import Answering
from headwork.explorer.answers import Part, encode, refused
from headwork.explorer.living import lacks, living_page
from headwork.explorer.one_file import one_file
from headwork.explorer.questions import About, Input, Question, RefusedError
from headwork.storage.folders import replace_file

LARGEST_PAGE = 20_000_000
"""Bytes of recorded answers."""
N_EXAMPLES = 12


def export_page(answering: Answering, path: Path, *, living: bool = True) -> str:
    """Write the page, and say in a sentence what it is."""
    subject = answering.subjects[0]
    why = lacks(subject.model, subject.tokenizer) if living else ["it was asked for"]
    if len(answering.subjects) > 1:
        why.append("it compares two models")
    if why:
        text, left_out = recorded_page(answering)
        said = f"recorded ({'; '.join(why)}): it shows what was computed now"
        said += f", without {left_out} answers that would not fit into {LARGEST_PAGE // 10**6} MB" if left_out else ""
    else:
        text, said = living_page(answering), "living: the model is inside and computes in the browser"
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, text)
    return f"{path}, {path.stat().st_size / 1e6:.1f} MB, {said}"


def recorded_page(answering: Answering) -> tuple[str, int]:
    """The page with the answers in it, and how many were left out."""
    answers: list[list[Any]] = []
    n_bytes, n_left = 0, 0
    for question in worth_asking(answering):
        if n_bytes > LARGEST_PAGE:
            n_left += 1
            continue
        frames = b"".join(encode(part) for part in _answer(answering, question))
        if n_bytes + 4 * len(frames) / 3 > LARGEST_PAGE:
            n_left += 1
            continue
        answers.append([{"question": type(question).__name__, **asdict(question)}, base64.b64encode(frames).decode()])
        n_bytes += 4 * len(frames) // 3
    return one_file("recorded.js", answering.subjects[0].name, {"recorded": answers}), n_left


def _answer(answering: Answering, question: Question) -> list[Part]:
    """All parts; a page that only has the answers can neither continue texts nor save."""
    try:
        parts = list(answering(question))
    except RefusedError as error:
        return [refused(str(error))]
    if isinstance(question, q.Describe):
        kept = [name for name in parts[0].header["can"] if name not in ("Continue", "Save", "Effects")]
        parts[0].header.update(can=kept, checkpoints=[])
    return parts


def worth_asking(answering: Answering) -> Iterator[Question]:
    """What a visitor would ask, the most likely first: each head looked at, then each switched off, then examples."""
    subject, start = answering.subjects[0], answering.begun
    can = answering.can()
    heads = [(a, head) for a, attention in enumerate(subject.attention) for head in range(attention.n_heads)]
    yield q.Describe()
    for model in range(len(answering.subjects)):
        yield q.Read(About(start, model=model))
    about = About(start)
    yield from (q.Map(about, *head) for head in heads)
    if "Lens" in can:
        yield q.Lens(about)
    yield q.Cost(about)
    yield from (q.Convolution(about, number) for number in subject.gaussian)
    yield from ([q.Training()] if "Training" in can else [])
    others: list[Input] = []
    if "Examples" in can:
        yield q.Examples(24)
        others = _example_inputs(answering)
    for head in heads:
        changed = About(start, off=(head,))
        yield q.Read(changed)
        yield from (q.Map(changed, *other) for other in heads if len(heads) <= 32)
    for given in others:
        yield q.Read(About(given))
        yield from (q.Map(About(given), *head) for head in heads)
        yield q.Lens(About(given))


def _example_inputs(answering: Answering) -> list[Input]:
    """The worst examples as the page would send them."""
    [found] = answering(q.Examples(24))
    rows = found.header["rows"][:N_EXAMPLES]
    if "pixels" in found.arrays:
        return [Input(pixels=tuple(each.flatten().tolist())) for each in found.arrays["pixels"][: len(rows)]]
    return [Input(text=row["text"]) for row in rows]
