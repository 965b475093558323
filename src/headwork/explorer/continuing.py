"""A text or a translation goes on, token by token, with what each cost."""

import time
from collections.abc import Iterator

import torch
from torch import Tensor

from headwork.explorer.answers import Part, part
from headwork.explorer.questions import Continue, Progress, RefusedError
from headwork.explorer.reading import changed, encode_changed
from headwork.explorer.subject import Subject
from headwork.generation import Greedy, Sample, pick
from headwork.generation.reading import TargetReader, TextReader
from headwork.layers.cache import DecoderCache

MOST_NEW = 200


def continue_text(subject: Subject, question: Continue, progress: Progress) -> Iterator[Part]:
    """One part for each new token; with the cache only the newest is read, without it the whole text again."""
    if subject.description.output != "next token":
        raise RefusedError("This model does not continue texts.")
    if not 1 <= question.n_tokens <= MOST_NEW:
        raise RefusedError(f"Between 1 and {MOST_NEW} tokens at a time, got {question.n_tokens}.")
    try:
        sampling = (
            Greedy()
            if question.temperature == 0
            else Sample(temperature=question.temperature, top_k=question.top_k, top_p=question.top_p)
        )
    except ValueError as error:
        raise RefusedError(f"{error}.") from None
    generator = torch.Generator().manual_seed(question.seed)
    inputs = encode_changed(subject, question.about).inputs
    ids, said = inputs[-1], list[int]()
    with changed(subject, question.about):
        read = _Reader(subject, inputs, cached=question.cache)
        for _ in range(question.n_tokens):
            progress()
            if ids.shape[1] >= subject.most_tokens:
                raise RefusedError(f"The model is shown up to {subject.most_tokens:,} tokens: the text is full.")
            start = time.perf_counter()
            logits = read(ids)
            milliseconds = 1000 * (time.perf_counter() - start)
            if not logits.isfinite().any():
                raise RefusedError("The scores of this model are not numbers: are all of its weights finite?")
            token = int(pick(logits, sampling, generator))
            said.append(token)
            ids = torch.cat([ids, torch.tensor([[token]])], dim=1)
            about = {
                "id": token,
                "string": subject.strings([token])[0],
                "milliseconds": milliseconds,
                "bytes": read.n_bytes(),
                "n_tokens": ids.shape[1] - 1,
                "text": subject.decode(said),
                "ended": token in subject.end,
            }
            yield part(about)
            if token in subject.end:
                return


class _Reader:
    """Scores the token after these ids: it reads what it has not read yet, or all of them without a cache."""

    def __init__(self, subject: Subject, inputs: tuple[Tensor, ...], *, cached: bool) -> None:
        self.subject, self.inputs, self.cached, self.n_read = subject, inputs, cached, 0
        self.reader = self._new() if cached else None

    def _new(self) -> TextReader | TargetReader:
        model = self.subject.model
        if self.subject.is_pair:
            return TargetReader(model, self.inputs[0])  # type: ignore[arg-type]  # it translates
        return TextReader(model)  # type: ignore[arg-type]  # it continues texts

    def __call__(self, ids: Tensor) -> Tensor:
        reader = self._new() if self.reader is None else self.reader
        new, self.n_read = ids[:, self.n_read if self.cached else 0 :], ids.shape[1]
        try:
            return reader(new)
        except ValueError as error:
            raise RefusedError(f"{error}.") from None

    def n_bytes(self) -> int:
        if self.reader is None:
            return 0
        cache: DecoderCache = self.reader.cache
        kept = [*(own.kept for own in cache.self_attention), *(memory.kept for memory in cache.cross_attention)]
        return sum(t.nbytes for pair in kept if pair is not None for t in pair)
