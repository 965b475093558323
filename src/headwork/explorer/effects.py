"""How an answer moves if one place of the model gets the value that another input gives there."""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import groupby
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from headwork.explorer.answers import Part, part
from headwork.explorer.questions import About, Effects, Input, Progress, RefusedError
from headwork.explorer.reading import Reading, changed, encode_changed, position_of, writes_itself
from headwork.explorer.subject import Subject
from headwork.inspection import patching_effects


def effects(
    subject: Subject, question: Effects, read: Callable[[About], Reading], progress: Progress
) -> Iterator[Part]:
    """One row for each attention or layer: the answer with one place from the other input."""
    if question.axis not in ("head", "token"):
        raise RefusedError(f"axis must be head or token, got {question.axis[:40]!r}")
    about, given = _with_one_target(subject, question)
    reading = read(about)
    position = position_of(subject, reading, None)
    scores = reading.output if position is None else reading.output[position]
    answer = int(scores.argmax()) if question.answer is None else question.answer
    if not 0 <= answer < len(scores):
        raise RefusedError(f"answer must lie in 0 .. {len(scores) - 1}, got {answer}")
    other, here = encode_changed(subject, replace(about, input=given)), reading.encoded
    _check_same_length(here.inputs, other.inputs)
    found = deque[Tensor]()

    def metric(output: Tensor) -> Tensor:
        progress()
        found.append((output[0] if position is None else output[0, position]).float())
        return found[-1][answer]

    points, about_rows = _rows(subject, question.axis)
    with changed(subject, about):
        try:
            cells = patching_effects(subject.model, other.inputs, here.inputs, points, metric, each=question.axis)
        except ValueError as error:
            if "tell the clean input" in str(error):
                raise RefusedError("Both inputs give the same answer: change the second one.") from None
            raise
        theirs, ours = (_said(subject, found.popleft(), answer) for _ in range(2))
        header: dict[str, Any] = {"axis": question.axis, "answer": answer, "name": subject.name_of(answer)}
        header |= {"names": [name for name, _ in about_rows], "own": ours, "other": theirs, "position": position}
        header["begun"] = subject.decode(here.sequences[1].ids[1:]) if subject.is_pair else None
        for row, (_, group) in enumerate(groupby(cells, key=lambda effect: effect.name)):
            moved = [_said(subject, found.popleft(), answer) for _ in group]
            yield part(
                {**header, "row": row, "sequence": about_rows[row][1], "said": [each["name"] for each in moved]},
                metric=torch.tensor([each["logit"] for each in moved]),
                share=torch.tensor([each["share"] for each in moved]),
            )


def _with_one_target(subject: Subject, question: Effects) -> tuple[About, Input]:
    """Translations are compared with one target: the one that is given, or up to where the model's own two differ."""
    about, other = question.about, question.other
    if not subject.is_pair or not writes_itself(other):
        return about, other
    if not writes_itself(about.input):
        return about, replace(other, target=about.input.target, target_ids=about.input.target_ids)
    both = (encode_changed(subject, replace(about, input=each)) for each in (about.input, other))
    first, second = (each.sequences[1].ids for each in both)
    same = next(
        (i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), min(len(first), len(second))
    )
    if same == len(first) == len(second):
        raise RefusedError("Both inputs give the same translation: change the second one.")
    here, there = (replace(each, target_ids=tuple(first[:same])) for each in (about.input, other))
    return replace(about, input=here), there


def _check_same_length(here: tuple[Tensor, ...], there: tuple[Tensor, ...]) -> None:
    for mine, theirs in zip(here, there, strict=True):
        if mine.shape != theirs.shape:
            raise RefusedError(
                f"Both inputs must have as many tokens: this one has {mine.shape[1]}, the second {theirs.shape[1]}. "
                "Change the second until they match."
            )


def _rows(subject: Subject, axis: str) -> tuple[tuple[str, ...], list[tuple[str, int]]]:
    """The points whose values are put in, and of each its name and the sequence that its tokens are of."""
    if not subject.attention:
        raise RefusedError("This model has no attention heads to put in.")
    if axis == "head":
        return tuple(f"{a.name}.heads" for a in subject.attention), [(a.short, a.query) for a in subject.attention]
    known = {f"{a.stack}.{a.layer}": (a.short, a.query) for a in subject.attention if a.kind == "self"}
    layers = subject.description.layers
    return layers, [known.get(name, (name.replace(".", " "), 0)) for name in layers]


def _said(subject: Subject, scores: Float[Tensor, "output"], answer: int) -> dict[str, Any]:
    """What the model says by these scores, and what it gives to the answer."""
    chances, best = scores.softmax(-1), int(scores.argmax())
    known = {"name": subject.name_of(best), "probability": float(chances[best])}
    return {**known, "logit": float(scores[answer]), "share": float(chances[answer])}
