"""A long English text without a download: the reference manual inside every CPython, or a file of the user's own.

The manual is that of the Python at hand, so its text differs a little from one Python to the next.
"""

from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path

import torch

from headwork import serialise
from headwork.checks import check_file, check_positive, check_probability
from headwork.data.examples import Dataset, check_seed
from headwork.data.text_examples import MaskedExamples, WindowExamples
from headwork.data.tokenizer import BytePairs, Characters, make_tokenizer
from headwork.tasks import MaskedTokens, NextToken

LARGEST_TEXT = 2**30
"""Bytes; the tokens of a text take several times its memory."""
HELD_OUT = 0.05
"""The share of the text that is kept for validation, and again for the test."""


@dataclass(frozen=True, kw_only=True)
class _Text(serialise.Checked):
    """Some text in windows of `n_context` tokens."""

    tokenizer: Characters | BytePairs = Characters()
    n_context: int = 128

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(n_context=self.n_context)

    @abstractmethod
    def read(self) -> str: ...

    def load(self, seed: int = 0) -> Dataset:
        """The first 90 % of the text to train on, then 5 % and 5 %; `seed` says where the training windows start.

        The tokens are those of the training part.

        >>> text = BundledText(n_context=64).load()
        >>> text.train.batch([0, 1, 2]).ids.shape
        torch.Size([3, 64])
        """
        check_seed(seed)
        text = self.read()
        n_held_out = int(len(text) * HELD_OUT)
        n_train = len(text) - 2 * n_held_out
        parts = {"train": text[:n_train], "valid": text[n_train:][:n_held_out], "test": text[n_train:][n_held_out:]}
        tokenizer = make_tokenizer(self.tokenizer, [parts["train"]])
        ids = {name: torch.tensor(tokenizer.encode(part), dtype=torch.long) for name, part in parts.items()}
        for name, part in ids.items():
            if len(part) <= self.n_context:
                raise ValueError(
                    f"n_context must be less than the tokens of each part, got n_context={self.n_context} and "
                    f"{len(part)} tokens in the {name} part of a text of {len(text)} characters"
                )
        train = WindowExamples(ids["train"], self.n_context, anywhere=True, seed=seed)
        valid, test = (WindowExamples(ids[name], self.n_context) for name in ("valid", "test"))
        return Dataset(train, valid, test, NextToken(), tokenizer)


@dataclass(frozen=True, kw_only=True)
class BundledText(_Text):
    """Python's reference manual (`pydoc_data.topics`) in windows of `n_context` tokens."""

    def read(self) -> str:
        return bundled_text()


@dataclass(frozen=True, kw_only=True)
class TextFile(_Text):
    """A UTF-8 file in windows of `n_context` tokens."""

    path: str

    def read(self) -> str:
        return read_text(Path(self.path))


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
        whole = self.text.load(seed)
        assert whole.tokenizer is not None
        tokenizer = whole.tokenizer.with_mask()
        assert tokenizer.mask is not None
        of_both = tokenizer.mask, len(whole.tokenizer), self.mask_probability
        return Dataset(
            MaskedExamples(whole.train, *of_both, varies=True, seed=seed),
            MaskedExamples(whole.valid, *of_both),
            MaskedExamples(whole.test, *of_both),
            MaskedTokens(),
            tokenizer,
        )


def read_text(path: Path) -> str:
    """The text of a UTF-8 file, with line ends as Python has them."""
    check_file(path, "text", LARGEST_TEXT)
    data = path.read_bytes()
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"text must be UTF-8, got {path} with the byte 0x{data[error.start]:02x} at offset {error.start}"
        ) from None
    text = text.removeprefix("\N{BYTE ORDER MARK}").replace("\r\n", "\n")
    if not text.strip():
        raise ValueError(f"text must not be empty, got {path}")
    return text


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
