"""One answer for each question; the last forward passes are kept, so that a closer look costs nothing."""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from headwork.convert import to_convolution
from headwork.explorer import questions as q
from headwork.explorer.answers import Part, part
from headwork.explorer.continuing import MOST_NEW, continue_text
from headwork.explorer.effects import effects
from headwork.explorer.encoding import encode_input, start_input
from headwork.explorer.examples import examples, training
from headwork.explorer.lens import lens
from headwork.explorer.moving import mean_alpha, nearest_convolution, save_moved
from headwork.explorer.questions import About, Input, Progress, Question, RefusedError
from headwork.explorer.reading import (
    LARGEST_MAP,
    Reading,
    at_checkpoint,
    changed,
    encode_changed,
    in_blocks,
    interruptible,
    looks,
    position_of,
    read,
    row_of_answer,
    shares,
    thumbnails,
)
from headwork.explorer.subject import Subject
from headwork.inspection import cost, record, trace

N_TOP, N_KEPT, LARGEST_TENSOR = 64, 3, 256


def never() -> None:
    """For whoever waits for an answer, however long it takes."""


class Answering:
    """Answers questions about one model, or about two to compare; for one thread at a time.

    >>> answering = Answering(Subject.of(hw.models.published("digits-vit").build()))
    >>> pixels = tuple([0.0] * 64)
    >>> [found] = answering(q.Map(q.About(q.Input(pixels=pixels)), attention=0, head=1))
    >>> found.arrays["weights"].shape
    (17, 17)
    """

    def __init__(
        self,
        subject: Subject,
        against: Subject | None = None,
        *,
        text: str | None = None,
        image: Path | None = None,
        begun: Input | None = None,
    ) -> None:
        self.subjects = [subject] if against is None else [subject, against]
        if against is not None and against.description.input != subject.description.input:
            raise ValueError(
                f"against must read what the model reads, {subject.description.input}, "
                f"got one that reads {against.description.input}"
            )
        self.begun = start_input(subject, text, image) if begun is None else begun
        try:
            encode_input(subject, self.begun)
        except RefusedError as error:
            raise ValueError(str(error).rstrip(".")) from None
        self.at: tuple[tuple[int, str], Subject] | None = None
        self.readings: OrderedDict[About, Reading] = OrderedDict()

    def __call__(self, question: Question, progress: Progress = never) -> Iterator[Part]:
        """The parts of the answer, one by one."""
        match question:
            case q.Describe():
                yield self.describe()
            case q.Read():
                yield from self.read(question, progress)
            case q.Map():
                yield self.map(question, progress)
            case q.Lens():
                yield lens(self.subject(question.about), question.about, progress)
            case q.Effects():
                subject = self.subject(question.about)
                yield from effects(subject, question, lambda about: self.reading(about, progress), progress)
            case q.Continue():
                yield from continue_text(self.subject(question.about), question, progress)
            case q.Cost():
                yield self.cost(question)
            case q.Tensor():
                yield self.tensor(question, progress)
            case q.Convolution():
                yield self.convolution(question, progress)
            case q.Examples():
                yield examples(self.subjects[0], question.n, progress)
            case q.Training():
                yield training(self.subjects[0])
            case q.Save():
                yield part({"folder": str(save_moved(self.subject(question.about), question.about.moved))})

    def subject(self, about: About) -> Subject:
        if not 0 <= about.model < len(self.subjects):
            raise RefusedError(f"model must lie in 0 .. {len(self.subjects) - 1}, got {about.model}")
        if about.checkpoint is None:
            return self.subjects[about.model]
        key = (about.model, about.checkpoint)
        if self.at is None or self.at[0] != key:
            self.at = key, at_checkpoint(self.subjects[about.model], about.checkpoint)
        return self.at[1]

    def reading(self, about: About, progress: Progress) -> Reading:
        """The forward pass, or the one of before."""
        if about not in self.readings:
            self.readings[about] = read(self.subject(about), about, progress)
            while len(self.readings) > N_KEPT:
                self.readings.popitem(last=False)
        self.readings.move_to_end(about)
        return self.readings[about]

    def describe(self) -> Part:
        subject = self.subjects[0]
        known = subject.description
        image = {
            "size": list(subject.image_size),
            "channels": known.n_channels,
            "grid": list(subject.grid),
            "n_extra": subject.n_extra,
        }
        gaussian = [
            {
                "attention": number,
                "centre": layer.centre.tolist(),
                "alpha": mean_alpha(layer.alpha.detach()).tolist(),
                "grid": list(subject.grid),
            }
            for number, layer in subject.gaussian.items()
        ]
        return part(
            {
                "name": subject.name,
                "input": known.input,
                "output": known.output,
                "n_outputs": known.n_outputs,
                "vocab": known.vocab,
                "labels": None if subject.labels is None else list(subject.labels),
                "has_tokenizer": subject.tokenizer is not None,
                "max_tokens": known.max_tokens,
                "pools_first": row_of_answer(subject, None) == 0,
                "limits": {"tokens": subject.most_tokens, "map": LARGEST_MAP, "new_tokens": MOST_NEW},
                "image": image if known.input == "image" else None,
                "attention": [vars(each) for each in subject.attention],
                "layers": list(subject.lens_layers),
                "gaussian": gaussian,
                "can": self.can(),
                "checkpoints": [{"name": name, "step": _step(name)} for name in subject.checkpoints()],
                "n_examples": 0 if subject.data is None else len(subject.data.test),
                "start": q._without_defaults(self.begun),
                "n_parameters": sum(p.numel() for p in subject.model.parameters()),
                "against": self.subjects[1].name if len(self.subjects) > 1 else None,
                "n_models": len(self.subjects),
                "alike": all(
                    each.attention == subject.attention and each.grid == subject.grid for each in self.subjects
                ),
                "precision": "float32",
            }
        )

    def can(self) -> list[str]:
        """The questions that have an answer for this model."""
        subject = self.subjects[0]
        found = ["Describe", "Read", "Cost", "Tensor"]
        answers = subject.description.output != "hidden state"
        found += ["Map"] if subject.attention else []
        found += ["Effects"] if subject.attention and answers else []
        found += ["Lens"] if subject.lens_layers and answers else []
        found += ["Continue"] if subject.description.output == "next token" else []
        found += ["Convolution", "Save"] if subject.gaussian else []
        found += ["Examples"] if subject.data is not None else []
        return found + (["Training"] if subject.run is not None else [])

    def read(self, question: q.Read, progress: Progress) -> Iterator[Part]:
        yield self.forward_pass(question, progress)
        if question.map is not None:
            yield self.map(q.Map(question.about, *question.map), progress)

    def forward_pass(self, question: q.Read, progress: Progress) -> Part:
        subject, reading = self.subject(question.about), self.reading(question.about, progress)
        position = position_of(subject, reading, question.position)
        scores = reading.output if position is None else reading.output[position]
        arrays: dict[str, Any] = {"logits": scores}
        where, most = list[dict[str, list[float]]](), list[dict[str, list[float]]]()
        row = row_of_answer(subject, position)
        if reading.encoded.pixels is not None:
            arrays["pixels"] = reading.encoded.pixels
        for number, compute in reading.weights.items():
            progress()
            weights = compute()
            arrays[f"peaks.{number}"] = weights.amax((1, 2))
            if subject.description.input == "image":
                arrays[f"looks.{number}"] = looks(subject, weights)
            else:
                arrays[f"thumbnails.{number}"] = thumbnails(weights)
                where.append(shares(weights, subject.attention[number]))
                if row is not None:
                    largest = weights[:, row].max(-1)
                    most.append({"key": largest.indices.tolist(), "weight": largest.values.tolist()})
        sequences = [vars(each) for each in reading.encoded.sequences]
        header: dict[str, Any] = {
            "sequences": sequences,
            "n_unknown": reading.encoded.n_unknown,
            "seconds": reading.seconds,
            "answer": self.answer(subject, scores, position),
            "finite": bool(scores.isfinite().all()),
            **({"shares": where, "row": row, "most": most} if where else {}),
        }
        if subject.is_pair:
            more = reading.continuation
            header["translation"] = subject.decode(sequences[1]["ids"][1:])
            header["continuation"] = None if more is None else subject.decode(more)
        return part(header, **arrays)

    def answer(self, subject: Subject, scores: torch.Tensor, position: int | None) -> dict[str, Any]:
        kind = subject.description.output
        if kind == "hidden state":
            return {"kind": kind, "position": position, "top": []}
        chances = scores.softmax(-1)
        best = scores.nan_to_num(-1e30).topk(min(N_TOP, len(scores))).indices.tolist()
        return {
            "kind": kind,
            "position": position,
            "top": [
                {"id": i, "name": subject.name_of(i), "logit": float(scores[i]), "probability": float(chances[i])}
                for i in best
            ],
        }

    def map(self, question: q.Map, progress: Progress) -> Part:
        subject, number = self.subject(question.about), question.attention
        if not 0 <= number < len(subject.attention) or not 0 <= question.head < subject.attention[number].n_heads:
            raise RefusedError(f"There is no head {question.head} in attention {number}.")
        weights = self.reading(question.about, progress).weights[number]()[question.head]
        block = -(-max(weights.shape) // LARGEST_MAP)
        about = {"attention": number, "head": question.head, "block": block, "shape": list(weights.shape)}
        return part(about, weights=in_blocks(weights[None], [block, block])[0])

    def cost(self, question: q.Cost) -> Part:
        subject = self.subject(question.about)
        inputs = encode_changed(subject, question.about).inputs
        found, points = cost(subject.model, *inputs), trace(subject.model, *inputs)
        return part(
            {
                "rows": [vars(row) for row in found.rows],
                "by_operation": found.by_operation(),
                "flops": found.flops,
                "n_parameters": found.n_parameters,
                "parameter_bytes": found.parameter_bytes,
                "activation_bytes": found.activation_bytes,
                "verdict": found.verdict(),
                "points": [vars(row) for row in points],
            }
        )

    def tensor(self, question: q.Tensor, progress: Progress) -> Part:
        """The numbers at one point, as `hw.record` has them."""
        subject = self.subject(question.about)
        inputs = encode_changed(subject, question.about).inputs
        try:
            with (
                changed(subject, question.about),
                interruptible(subject, progress),
                record(subject.model, question.name) as seen,
            ):
                subject.model(*inputs)
                value = seen[question.name].float()
        except (ValueError, KeyError) as error:
            raise RefusedError(f"{str(error).strip(chr(34))}.") from None
        shown = value.reshape(1, -1) if value.ndim < 2 else value[(0,) * (value.ndim - 2)]
        point = dict(subject.model.named_modules()).get(question.name)
        about = {
            "name": question.name,
            "axes": str(getattr(point, "axes", "")).split(),
            "shape": list(value.shape),
            "mean": float(value.mean()),
            "deviation": float(value.std(correction=0)),
            "low": float(value.min()),
            "high": float(value.max()),
        }
        return part(about, values=shown[:LARGEST_TENSOR, :LARGEST_TENSOR])

    def convolution(self, question: q.Convolution, progress: Progress) -> Part:
        """The nearest convolution of a layer, and what the model says with convolutions in all of them."""
        about, subject = question.about, self.subject(question.about)
        inputs = encode_input(subject, about.input).inputs
        with changed(subject, replace(about, off=())), torch.inference_mode(False), torch.no_grad():
            found = nearest_convolution(subject, question.attention, question.kernel_size)
            arrays = {"kernel": found.kernel, "single_pixel": found.single_pixel}
            progress()
            network = self.as_convolutions(subject, question.kernel_size)
            if network is not None:
                arrays["probabilities"] = network(*inputs)[0].float().softmax(-1)
        return part({"error_bound": found.error_bound, "kernel_size": question.kernel_size}, **arrays)

    def as_convolutions(self, subject: Subject, kernel_size: int) -> nn.Module | None:
        try:
            return to_convolution(subject.model, kernel_size=(kernel_size, kernel_size)).model.eval()
        except (ValueError, TypeError):
            return None


def _step(name: str) -> int | None:
    digits = "".join(character for character in name if character.isdigit())
    return int(digits) if digits else None
