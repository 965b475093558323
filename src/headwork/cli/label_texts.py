"""Texts of a table and their labels, many at a time."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import nn

from headwork.batches import TextBatch, call_model
from headwork.cli.answers import check_finite
from headwork.cli.arguments import complain
from headwork.cli.asked import Asked, in_chunks
from headwork.data import AnyTokenizer
from headwork.data.found import Skipped
from headwork.data.text_examples import Rows
from headwork.data.text_table import NO_LIMIT
from headwork.data.unknown import is_mostly_unknown, why_unknown
from headwork.tasks import LabelTask

N_AT_ONCE = 64


class Labelled(NamedTuple):
    """A text and what it is taken for."""

    asked: Asked
    label: str
    probability: float


@dataclass
class TextLabeller:
    """A classifier of texts, which counts what it cannot read whole or at all."""

    model: nn.Module
    task: LabelTask
    tokenizer: AnyTokenizer
    limit: int | None
    """The tokens of a text that are read, the special ones among them."""
    skip_bad: bool = False
    n: int = 0
    bad: Skipped = field(default_factory=Skipped)
    cut: Skipped = field(default_factory=Skipped)
    strange: Skipped = field(default_factory=Skipped)

    def label(self, texts: Iterable[Asked]) -> Iterator[Labelled]:
        """The likeliest label of each text, in their order; an empty one has none."""
        for chunk in in_chunks(self._with_words(texts), N_AT_ONCE):
            yield from self._label(chunk)

    def complain(self) -> None:
        """Say what was counted."""
        if self.cut.n:
            complain(f"of {self.cut.n:,} longer texts {self.limit} tokens are read, the first at {self.cut.first}")
        if self.strange.n:
            complain(
                f"more than half of the tokens of {self.strange.n:,} texts are not known to the model, the first at "
                f"{self.strange.first}: the answers to them say little{why_unknown(self.tokenizer)}"
            )
        if self.bad.n:
            n_all = self.bad.n + self.n
            complain(f"skipped: empty texts ({self.bad.n:,} of {n_all:,}), the first at {self.bad.first}")

    def _with_words(self, texts: Iterable[Asked]) -> Iterator[Asked]:
        for asked in texts:
            if asked.text.strip():
                self.n += 1
                yield asked
            elif self.skip_bad:
                self.bad.add(asked.place)
            else:
                raise ValueError(
                    f"text must not be empty, got {asked.text!r} in {asked.place}: --skip-bad leaves it out"
                )

    def _label(self, chunk: list[Asked]) -> Iterator[Labelled]:
        rows = Rows.of(self._encode(chunk))
        batch = TextBatch(*rows.padded(torch.arange(len(chunk))), torch.zeros(len(chunk), dtype=torch.long))
        with torch.no_grad():
            best = self.task.probabilities(call_model(self.model, batch)).max(-1)
        for asked, probability, label in zip(chunk, best.values.tolist(), best.indices.tolist(), strict=True):
            name = self.task.labels[label]
            check_finite(asked.place, {name: probability})
            yield Labelled(asked, name, probability)

    def _encode(self, chunk: list[Asked]) -> list[list[int]]:
        """The tokens that are read; which texts have more of them, or hardly any that is known, is counted."""
        texts = [asked.text for asked in chunk]
        whole = self.tokenizer.encode_starts(texts, NO_LIMIT)
        read = whole if self.limit is None else self.tokenizer.encode_starts(texts, self.limit)
        for asked, every, ids in zip(chunk, whole, read, strict=True):
            if len(every) > len(ids):
                self.cut.add(asked.place)
            if is_mostly_unknown(ids, self.tokenizer):
                self.strange.add(asked.place)
        return read
