"""A long English text without a download: the reference manual inside every CPython, or a file of the user's own.

The manual is that of the Python at hand, so its text differs a little from one Python to the next.
"""

from dataclasses import dataclass
from pathlib import Path

import torch

from headwork import serialise
from headwork.checks import check_positive
from headwork.data.examples import Dataset
from headwork.data.inputs import read_text
from headwork.data.text_examples import WindowExamples
from headwork.data.tokenizer import BytePairs, Characters, make_tokenizer

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


@dataclass(frozen=True, kw_only=True)
class TextFile(serialise.Checked):
    """A UTF-8 file in windows of `n_context` tokens."""

    path: str
    tokenizer: Characters | BytePairs = Characters()
    n_context: int = 128

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(n_context=self.n_context)


def load_text(config: BundledText | TextFile, seed: int = 0) -> Dataset:
    """The first 90 % of the text to train on, then 5 % and 5 %; `seed` says where the training windows start.

    The tokens are those of the training part.

    >>> text = load_text(BundledText(n_context=64))
    >>> text.train.batch([0, 1, 2]).ids.shape
    torch.Size([3, 64])
    """
    text = bundled_text() if isinstance(config, BundledText) else read_text(Path(config.path))
    n_held_out = int(len(text) * HELD_OUT)
    n_train = len(text) - 2 * n_held_out
    parts = {"train": text[:n_train], "valid": text[n_train:][:n_held_out], "test": text[n_train:][n_held_out:]}
    tokenizer = make_tokenizer(config.tokenizer, [parts["train"]])
    ids = {name: torch.tensor(tokenizer.encode(part), dtype=torch.long) for name, part in parts.items()}
    for name, part in ids.items():
        if len(part) <= config.n_context:
            raise ValueError(
                f"n_context must be less than the tokens of each part, got n_context={config.n_context} and "
                f"{len(part)} tokens in the {name} part of a text of {len(text)} characters"
            )
    return Dataset(
        train=WindowExamples(ids["train"], config.n_context, anywhere=True, seed=seed),
        valid=WindowExamples(ids["valid"], config.n_context),
        test=WindowExamples(ids["test"], config.n_context),
        tokenizer=tokenizer,
    )


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
