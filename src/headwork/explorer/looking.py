"""What each layer would answer, token by token; and how an answer moves with what another input gives."""

from collections.abc import Iterator
from itertools import groupby
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headwork.explorer.answers import Part, part
from headwork.explorer.questions import About, Effects, RefusedError
from headwork.explorer.reading import Reading, changed, interruptible, position_of
from headwork.explorer.subject import Progress, Subject
from headwork.inspection import patching_effects, record
from headwork.inspection.logit_lens import answer_after_layers

TOP = 5
AT_ONCE = 2**24
"""Scores that are computed at once: 64 MB."""


def lens(subject: Subject, about: About, progress: Progress) -> Part:
    """The best answers of each layer at each token, and for classifiers its answer on the whole."""
    if not subject.lens_layers:
        raise RefusedError("This model does not say where its layers are: there is nothing to look through.")
    if subject.description.output == "hidden state":
        raise RefusedError("This model gives vectors, not answers: a lens has nothing to show.")
    encoded, output = subject.encode(about.input), subject.description.output
    with changed(subject, about), interruptible(subject, progress):
        with record(subject.model, *subject.lens_layers) as seen:
            subject.model(*encoded.inputs)
        by_layer, wholes = [], []
        for name in subject.lens_layers:
            progress()
            hidden = seen[name]
            if output == "class":
                wholes.append(answer_after_layers(subject.model, hidden, *encoded.inputs)[0])
            by_layer.append(_per_token(subject, hidden, encoded.inputs, output))
    ids = torch.stack([each[0] for each in by_layer])
    strings = {i: subject.name_of(i) for i in set(ids.flatten().tolist())}
    arrays = {"ids": ids, "probabilities": torch.stack([each[1] for each in by_layer])}
    if wholes:
        arrays["whole"] = torch.stack(wholes).float().softmax(-1)
    return part({"names": list(subject.lens_layers), "strings": strings}, **arrays)


def _per_token(
    subject: Subject, hidden: Tensor, inputs: tuple[Tensor, ...], output: str
) -> tuple[Int[Tensor, "token top"], Float[Tensor, "token top"]]:
    """The best outputs at each token and their probabilities."""
    n_outputs = subject.description.n_outputs
    ids, chances = [], []
    for some in torch.split(hidden, max(AT_ONCE // n_outputs, 1), dim=1):
        if output == "class":
            scores = _alone(subject.model, some[0])
        else:
            scores = answer_after_layers(subject.model, some, *inputs)[0]
        best = scores.float().softmax(-1).topk(min(TOP, n_outputs))
        ids.append(best.indices)
        chances.append(best.values)
    return torch.cat(ids), torch.cat(chances)


def _alone(model: Any, hidden: Float[Tensor, "token d_model"]) -> Float[Tensor, "token class"]:
    """What a classifier answers from each token, as if that were all that is pooled."""
    norm = model.layers.final_norm
    rows = (hidden if norm is None else norm(hidden))[:, None]
    if hasattr(model, "head"):
        return model.head(rows, model.embedding, None)
    pooling = model.pooling
    return model.classifier(pooling(rows.expand(-1, pooling.n_vectors, -1)))


def effects(subject: Subject, question: Effects, reading: Reading, progress: Progress) -> Iterator[Part]:
    """One row for each attention or layer: the logit of the answer with one place from the other input."""
    if question.axis not in ("head", "token"):
        raise RefusedError(f"axis must be head or token, got {question.axis[:40]!r}")
    position = position_of(subject, reading, None)
    scores = reading.output if position is None else reading.output[position]
    answer = int(scores.argmax()) if question.answer is None else question.answer
    if not 0 <= answer < len(scores):
        raise RefusedError(f"answer must lie in 0 .. {len(scores) - 1}, got {answer}")
    other, here = subject.encode(question.other), reading.encoded
    for mine, theirs in zip(here.inputs, other.inputs, strict=True):
        if mine.shape != theirs.shape:
            raise RefusedError(
                f"Both inputs must have as many tokens: this one has {mine.shape[1]}, the second {theirs.shape[1]}. "
                "Change the second until they match."
            )

    def metric(output: Tensor) -> Tensor:
        progress()
        return output[0, answer] if position is None else output[0, position, answer]

    if question.axis == "head":
        points: tuple[str, ...] = tuple(f"{a.name}.heads" for a in subject.attention)
        rows = [a.short for a in subject.attention]
    else:
        points, rows = subject.description.layers, [n.replace(".", " ") for n in subject.description.layers]
    if not points:
        raise RefusedError("This model has no attention heads to put in.")
    with changed(subject, question.about):
        try:
            found = patching_effects(subject.model, other.inputs, here.inputs, points, metric, each=question.axis)
            with torch.inference_mode():
                values = {"clean": float(metric(subject.model(*other.inputs)))}
        except ValueError as error:
            if "tell the clean input" in str(error):
                raise RefusedError("Both inputs give the same answer: change the second one.") from None
            raise
        about: dict[str, Any] = {"axis": question.axis, "answer": answer, "name": subject.name_of(answer)}
        about |= {"names": rows, "own": float(scores[answer]), "other": values["clean"], "position": position}
        for row, (_, cells) in enumerate(groupby(found, key=lambda effect: effect.name)):
            yield part({**about, "row": row}, metric=torch.tensor([cell.metric for cell in cells]))
