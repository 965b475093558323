"""Texts as examples: one with a label, a pair of them, or windows of a long one."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain

import numpy as np
import torch
from jaxtyping import Bool, Int
from numpy import ndarray
from torch import Tensor

from headwork import masks
from headwork.batches import IGNORE, MaskedBatch, PairBatch, TextBatch, TokenBatch
from headwork.data.examples import Examples, choose, random_numbers
from headwork.data.tokenizer import Tokenizer


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of different lengths, kept end to end in one tensor."""

    ids: Int[Tensor, "all_tokens"]
    starts: Int[Tensor, "row"]
    lengths: Int[Tensor, "row"]

    @classmethod
    def of(cls, rows: Iterable[Sequence[int]]) -> "Rows":
        """The rows one after the other.

        >>> Rows.of([[4, 5, 6], [7]])
        Rows(ids=tensor([4, 5, 6, 7]), starts=tensor([0, 3]), lengths=tensor([3, 1]))
        """
        rows = list(rows)
        lengths = [len(row) for row in rows]
        starts = list(accumulate(lengths, initial=0))[:-1]
        return cls(*(torch.tensor(list(part), dtype=torch.long) for part in (chain(*rows), starts, lengths)))

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def max_tokens(self) -> int:
        return int(self.lengths.max())

    def padded(self, chosen: Int[Tensor, "batch"]) -> tuple[Int[Tensor, "batch token"], Bool[Tensor, "batch token"]]:
        """The chosen rows, with padding behind them up to the longest, and which tokens are real.

        >>> Rows.of([[4, 5, 6], [7]]).padded(torch.tensor([1, 0]))[0]
        tensor([[7, 0, 0],
                [4, 5, 6]])
        """
        lengths = self.lengths[chosen]
        n_token = int(lengths.max())
        visible = masks.padding(lengths, n_token)[:, 0, 0]
        positions = self.starts[chosen, None] + torch.arange(n_token)
        return self.ids[positions.where(visible, 0)].where(visible, Tokenizer.pad), visible


@dataclass(frozen=True, eq=False)
class TextExamples:
    """Texts, each with a label."""

    texts: Rows
    labels: Int[Tensor, "example"]

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def lengths(self) -> Int[Tensor, "example"]:
        return self.texts.lengths

    @property
    def max_tokens(self) -> int:
        """The longest text."""
        return self.texts.max_tokens

    def batch(self, indices: Sequence[int], epoch: int | None = None) -> TextBatch:
        chosen = choose(indices, len(self))
        return TextBatch(*self.texts.padded(chosen), self.labels[chosen])


@dataclass(frozen=True, eq=False)
class PairExamples:
    """Sources and their translations, which carry BEGIN and END."""

    sources: Rows
    targets: Rows

    @classmethod
    def of(cls, pairs: Iterable[tuple[str, str]], tokenizer: Tokenizer) -> "PairExamples":
        """Pairs of texts as ids, in one vocabulary.

        >>> examples = PairExamples.of([("a", "b"), ("bb", "aab")], Tokenizer.characters(["ab"]))
        >>> batch = examples.batch([0, 1])
        >>> batch.target
        tensor([[1, 5, 0, 0],
                [1, 4, 4, 5]])
        >>> batch.next
        tensor([[   5,    2, -100, -100],
                [   4,    4,    5,    2]])
        """
        sources, targets = zip(*pairs, strict=True)
        return cls(
            sources=Rows.of(tokenizer.encode_all(sources)),
            targets=Rows.of([tokenizer.begin, *target, tokenizer.end] for target in tokenizer.encode_all(targets)),
        )

    def __len__(self) -> int:
        return len(self.sources)

    @property
    def lengths(self) -> Int[Tensor, "example"]:
        return self.sources.lengths + self.targets.lengths

    @property
    def max_tokens(self) -> int:
        """The longest source or target as the model reads it: without its last token."""
        return max(self.sources.max_tokens, self.targets.max_tokens - 1)

    def batch(self, indices: Sequence[int], epoch: int | None = None) -> PairBatch:
        chosen = choose(indices, len(self))
        whole, visible = self.targets.padded(chosen)
        has_next = visible[:, 1:]
        return PairBatch(
            *self.sources.padded(chosen),
            target=whole[:, :-1].where(has_next, Tokenizer.pad),
            next=whole[:, 1:].where(has_next, IGNORE),
        )


@dataclass(frozen=True, eq=False)
class WindowExamples:
    """A long text, cut into windows that lie side by side; in an epoch they start `anywhere`, if that is asked for.

    The last tokens, too few for a window, are left out.

    >>> windows = WindowExamples(torch.arange(10), n_context=3)
    >>> len(windows), windows.batch([0, 2])
    (3, TokenBatch(ids=tensor([[0, 1, 2],
            [6, 7, 8]]), next=tensor([[1, 2, 3],
            [7, 8, 9]])))
    """

    ids: Int[Tensor, "text_token"]
    n_context: int
    anywhere: bool = False
    seed: int = 0

    def __len__(self) -> int:
        return (len(self.ids) - 1) // self.n_context

    def batch(self, indices: Sequence[int], epoch: int | None = None) -> TokenBatch:
        chosen = choose(indices, len(self))
        starts = chosen * self.n_context
        if epoch is not None and self.anywhere:
            n_starts = len(self.ids) - self.n_context
            starts = (random_numbers(self.seed, epoch, len(self), 1)[chosen, 0] * n_starts).long()
        positions = starts[:, None] + torch.arange(self.n_context)
        return TokenBatch(self.ids[positions].long(), self.ids[positions + 1].long())


@dataclass(frozen=True, eq=False)
class MaskedExamples:
    """Windows of a text in which some tokens are masked as in BERT, others in each epoch if that `varies`.

    Of the chosen tokens 80 % become `mask`, 10 % any token of the vocabulary, and 10 % stay as they are.
    """

    windows: Examples
    mask: int
    n_tokens: int
    mask_probability: float = 0.15
    varies: bool = False
    seed: int = 0

    def __len__(self) -> int:
        return len(self.windows)

    def batch(self, indices: Sequence[int], epoch: int | None = None) -> MaskedBatch:
        whole = self.windows.batch(indices, epoch)[0]
        rows = [self._mask(row.numpy(), index, epoch) for row, index in zip(whole, indices, strict=True)]
        return MaskedBatch(*(torch.from_numpy(np.stack(part)) for part in zip(*rows, strict=True)))

    def _mask(self, row: ndarray, index: int, epoch: int | None) -> tuple[ndarray, ndarray]:
        """The row with its masks, and the original tokens under them: a function of seed, epoch and index."""
        words = (0, 0) if epoch is None or not self.varies else (self.seed, 1 + epoch)
        generator = np.random.default_rng([*words, index, *b"masks"])
        draw = generator.random(len(row))
        chosen = draw <= max(self.mask_probability, draw.min())  # one token at least, so that every window has a target
        how = generator.random(len(row))
        any_token = generator.integers(self.n_tokens, size=len(row))
        masked = np.where(how < 0.8, self.mask, np.where(how < 0.9, any_token, row))
        return np.where(chosen, masked, row), np.where(chosen, row, IGNORE)
