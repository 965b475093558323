"""What each layer would answer, token by token."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headwork.explorer.answers import Part, part
from headwork.explorer.questions import About, Progress, RefusedError
from headwork.explorer.reading import changed, encode_changed, interruptible
from headwork.explorer.subject import Subject
from headwork.inspection import record
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
    encoded, output = encode_changed(subject, about), subject.description.output
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
