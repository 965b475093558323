"""A long English text without a download: the reference manual inside every CPython, or a file of the user's own.

The manual is that of the Python at hand, so its text differs a little from one Python to the next.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch

from headwork import serialise
from headwork.checks import check_positive, check_probability
from headwork.data.examples import Dataset, check_seed
from headwork.data.inputs import read_text
from headwork.data.text_examples import MaskedExamples, WindowExamples
from headwork.data.tokenizer import BytePairs, Characters, Tokenizer, make_tokenizer
from headwork.tasks import MaskedTokens, NextToken

HELD_OUT = 0.05
"""The share of the text that is kept for validation, and again for the test."""


@dataclass(frozen=True, kw_only=True)
class BundledText(serialise.Checked):
    """Python's reference manual (`pydoc_data.topics`) in windows of `n_context` tokens."""

    tokenizer: Characters | BytePairs = Characters()
    n_context: int = 128

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(n_context=self.n_context)

    def read(self) -> str:
        return bundled_text()

    def load(self, seed: int = 0) -> Dataset:
        """The first 90 % of the text to train on, then 5 % and 5 %; `seed` says where the training windows start.

        The tokens are those of the training part.

        >>> text = BundledText(n_context=64).load()
        >>> text.train.batch([0, 1, 2]).ids.shape
        torch.Size([3, 64])
        """
        parts = make_windows(self.read(), self.tokenizer, self.n_context, seed)
        return Dataset(parts.train, parts.valid, parts.test, NextToken(), parts.tokenizer)


@dataclass(frozen=True, kw_only=True)
class TextFile(serialise.Checked):
    """A UTF-8 file in windows of `n_context` tokens."""

    path: str
    tokenizer: Characters | BytePairs = Characters()
    n_context: int = 128

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(n_context=self.n_context)

    def read(self) -> str:
        return read_text(Path(self.path))

    def load(self, seed: int = 0) -> Dataset:
        """The parts and tokens as those of `BundledText`."""
        parts = make_windows(self.read(), self.tokenizer, self.n_context, seed)
        return Dataset(parts.train, parts.valid, parts.test, NextToken(), parts.tokenizer)


@dataclass(frozen=True, kw_only=True)
class MaskedText(serialise.Checked):
    """The windows of a text with some of their tokens masked, others in each epoch, for a masked language model.

    The vocabulary has one token more, `<mask>`.

    >>> data = MaskedText(text=BundledText(n_context=64)).load()
    >>> data.tokenizer.mask == len(data.tokenizer) - 1
    True
    """

    text: BundledText | TextFile = BundledText()
    mask_probability: float = 0.15

    def __post_init__(self) -> None:
        super().__post_init__()
        check_probability(mask_probability=self.mask_probability)

    def load(self, seed: int = 0) -> Dataset:
        parts = make_windows(self.text.read(), self.text.tokenizer, self.text.n_context, seed)
        tokenizer = parts.tokenizer.with_mask()
        assert tokenizer.mask is not None
        train, valid, test = (
            MaskedExamples(
                windows, tokenizer.mask, len(parts.tokenizer), self.mask_probability, varies, seed if varies else 0
            )
            for windows, varies in ((parts.train, True), (parts.valid, False), (parts.test, False))
        )
        return Dataset(train, valid, test, MaskedTokens(), tokenizer)


class Windows(NamedTuple):
    """The three parts of a text, and the tokenizer learned from the first."""

    train: WindowExamples
    valid: WindowExamples
    test: WindowExamples
    tokenizer: Tokenizer


def make_windows(text: str, choice: Characters | BytePairs, n_context: int, seed: int) -> Windows:
    check_seed(seed)
    n_held_out = int(len(text) * HELD_OUT)
    n_train = len(text) - 2 * n_held_out
    parts = {"train": text[:n_train], "valid": text[n_train:][:n_held_out], "test": text[n_train:][n_held_out:]}
    tokenizer = make_tokenizer(choice, [parts["train"]])
    ids = {name: torch.tensor(tokenizer.encode(part), dtype=torch.long) for name, part in parts.items()}
    for name, part in ids.items():
        if len(part) <= n_context:
            raise ValueError(
                f"n_context must be less than the tokens of each part, got n_context={n_context} and "
                f"{len(part)} tokens in the {name} part of a text of {len(text)} characters"
            )
    train = WindowExamples(ids["train"], n_context, anywhere=True, seed=seed)
    valid, test = (WindowExamples(ids[name], n_context) for name in ("valid", "test"))
    return Windows(train, valid, test, tokenizer)


def bundled_text() -> str:
    """The topics of the manual in the order of their names.

    >>> len(bundled_text()) > 400_000
    True
    """
    try:
        from pydoc_data.topics import topics
    except ImportError:
        raise ValueError(
            "this Python has no pydoc_data, the manual that comes with CPython: give a text of your own as TextFile"
        ) from None
    return "\n".join(topics[name] for name in sorted(topics))
