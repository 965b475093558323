"""A long English text without a download: the reference manual inside every CPython, or a file of the user's own.

The manual is that of the Python at hand, so its text differs a little from one Python to the next.
"""

import codecs
import math
import os
import re
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path

import torch
from jaxtyping import Int
from torch import Tensor

from headwork import serialise
from headwork.checks import check_file, check_positive, check_probability
from headwork.data.examples import Dataset, check_seed
from headwork.data.folders import files_below
from headwork.data.found import say_skipped
from headwork.data.hub_data import find_data, find_files
from headwork.data.mapped_tokens import mapped_tokens
from headwork.data.packed import ending_of, open_bytes
from headwork.data.splitting import by_part, digest_of, part_of_file
from headwork.data.text_examples import MaskedExamples, WindowExamples
from headwork.data.text_parts import Pieces, cut, read_column, say_cut
from headwork.data.tokenizer import AnyTokenizer, BytePairs, Characters, Pretrained, Tokenizer, make_tokenizer
from headwork.tasks import MaskedTokens, NextToken

IN_MEMORY = 2**26
"""Bytes of text whose tokens are kept in memory; those of more are in a file that is mapped."""
TEXT_ENDINGS = (".txt", ".md")
ROW_ENDINGS = (".csv", ".tsv", ".jsonl", ".ndjson")
"""Of tables that could be read as text, and hardly are meant so."""
HUB_ENDINGS = ((".parquet",), (".txt",))
"""On the Hub, where .md files are about the data; the first of which there are files."""
LARGEST_TEXT = 2**30
"""Bytes; the tokens of a text take several times its memory."""


@dataclass(frozen=True, kw_only=True)
class TextOfTokens(serialise.Checked):
    """Some text in windows of `n_context` tokens."""

    tokenizer: Characters | BytePairs | Pretrained = Characters()
    n_context: int = 128

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(n_context=self.n_context)

    @abstractmethod
    def pieces(self) -> Iterator[str]:
        """The text from its beginning to its end, a piece at a time; none is cut where that would change its tokens."""

    @property
    def files(self) -> tuple[Path, ...]:
        """The user's own files, if it is from such."""
        return ()

    @property
    def left_out(self) -> tuple[Path, ...]:
        """Other files in the user's folder."""
        return ()

    def texts(self) -> Mapping[str, Pieces]:
        """The text of each part that the user's files name; all of it to train on, if they name none."""
        return {"train": self.pieces}

    def load(self, seed: int = 0) -> Dataset:
        """The first 90 % of the text to train on, then 5 % and 5 %; `seed` says where the training windows start.

        Parts that files name are those; one that is missing beside them is the last 5 % of the training part.
        The tokens are those of the training part. Those of a text of more than `IN_MEMORY` bytes stay in a file.

        >>> text = BundledText(n_context=64).load()
        >>> text.train.batch([0, 1, 2]).ids.shape
        torch.Size([3, 64])
        """
        check_seed(seed)
        files, texts = self.files, self.texts()
        is_small = fit_in_memory(files)
        if is_small:
            texts = {part: partial(iter, list(pieces())) for part, pieces in texts.items()}
        if not any(piece.strip() for pieces in texts.values() for piece in pieces()):
            raise ValueError(f"text must not be empty, got {', '.join(map(str, files))}")
        parts = cut(texts)
        n_characters = sum(part.end - part.start for part in parts.values())
        tokenizer = make_tokenizer(self.tokenizer, parts["train"])
        digest = digest_of_texts(files) if files else None
        named = "" if len(texts) == 1 else f" of {' '.join(texts)}"
        ids = {}
        for name, part in parts.items():
            ids[name] = tokens_of(part, tokenizer, None if is_small else f"{digest} {name}{named}")
            if len(ids[name]) <= self.n_context:
                raise ValueError(
                    f"n_context must be less than the tokens of each part, got n_context={self.n_context} and "
                    f"{len(ids[name])} tokens in the {name} part of a text of {n_characters} characters"
                )
        train = WindowExamples(ids["train"], self.n_context, anywhere=True, seed=seed)
        valid, test = (WindowExamples(ids[name], self.n_context) for name in ("valid", "test"))
        others = self.left_out
        endings = " or ".join(TEXT_ENDINGS) if not files or files[0].suffix != ".parquet" else ".parquet"
        skipped = say_skipped(len(others), f"files that do not end in {endings}", str(next(iter(others), "")))
        found = (
            f"{n_characters:,} characters in {len(files):,} file{'s' if len(files) > 1 else ''}, "
            f"{len(tokenizer):,} different tokens",
            *([skipped] if skipped else []),
            f"split: {', '.join(f'{len(each):,} {name}' for name, each in ids.items())} tokens, {say_cut(texts)}",
        )
        return Dataset(train, valid, test, NextToken(), tokenizer, found=found if files else (), digest=digest)


def joined(files: Iterable[Path]) -> Iterator[str]:
    """The texts of files one after the other, each on lines of its own."""
    for number, file in enumerate(files):
        if number:
            yield "\n"
        yield from read_column(file) if file.suffix.lower() == ".parquet" else read_pieces(file)


def fit_in_memory(files: Iterable[Path]) -> bool:
    return sum(file.stat().st_size for file in files) <= IN_MEMORY


def digest_of_texts(files: Sequence[Path]) -> str:
    return digest_of(files, files[0].parent if len(files) == 1 else Path(os.path.commonpath(files)))


def tokens_of(pieces: Iterable[str], tokenizer: AnyTokenizer, about: str | None) -> Int[Tensor, "token"]:
    """The tokens of one text in memory; or, for what it is about, in a file of the cache that is mapped."""
    # Nothing begins or ends with a piece.
    encode = tokenizer.encode if isinstance(tokenizer, Tokenizer) else partial(tokenizer.encode, special=False)
    tokens = (torch.tensor(encode(piece), dtype=torch.int32) for piece in pieces)
    if about is None:
        return torch.cat([torch.empty(0, dtype=torch.int32), *tokens]).long()
    return mapped_tokens(f"{about} {tokenizer.to_json()}", tokens)


@dataclass(frozen=True, kw_only=True)
class BundledText(TextOfTokens):
    """Python's reference manual (`pydoc_data.topics`) in windows of `n_context` tokens."""

    def pieces(self) -> Iterator[str]:
        yield bundled_text()


@dataclass(frozen=True, kw_only=True)
class TextFile(TextOfTokens):
    """A UTF-8 file, or all files in a folder that end in .txt or .md, in windows of `n_context` tokens.

    Files called train, valid and test are those parts. The texts of a Parquet file, a folder of these, or a data set on
    the Hub (`owner/name`, or `owner/name/configuration`) are read from its column `text`.
    """

    path: str

    @property
    def files(self) -> tuple[Path, ...]:
        path = find_data(self.path, HUB_ENDINGS, "text")
        if not path.is_dir():
            if ending_of(path) in ROW_ENDINGS:
                raise ValueError(f"text must be plain text, got the table {path} (called .txt, it is read as it is)")
            return (path,)
        for endings in (TEXT_ENDINGS, (".parquet",)) if path == Path(self.path) else HUB_ENDINGS:
            if found := find_files(path, endings):
                return tuple(found)
        raise ValueError(f"text must be a file or a folder with files such as {', '.join(TEXT_ENDINGS)}, got {path}")

    @property
    def left_out(self) -> tuple[Path, ...]:
        endings = {ending_of(file) for file in self.files} | {*TEXT_ENDINGS}
        return tuple(files_below(Path(self.path), tuple(endings)).others) if Path(self.path).is_dir() else ()

    def pieces(self) -> Iterator[str]:
        return joined(self.files)

    def texts(self) -> Mapping[str, Pieces]:
        files = self.files
        folder = find_data(self.path, HUB_ENDINGS, "text")
        said = {part_of_file(file, folder) for file in files} if folder.is_dir() else {None}
        # Among other texts, one called "training" or "dev" is not a part.
        if len(said - {None}) > 1 and ("train" in said or None not in said):
            return {part: partial(joined, of_part) for part, of_part in by_part(files, folder).items()}
        return {"train": partial(joined, files)}


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
        return replace(
            whole,
            train=MaskedExamples(whole.train, *of_both, varies=True, seed=seed),
            valid=MaskedExamples(whole.valid, *of_both),
            test=MaskedExamples(whole.test, *of_both),
            task=MaskedTokens(),
            tokenizer=tokenizer,
        )


def read_text(path: Path) -> str:
    """The text of a UTF-8 file, with line ends as Python has them."""
    check_file(path, "text", LARGEST_TEXT)
    text = "".join(read_pieces(path))
    if not text.strip():
        raise ValueError(f"text must not be empty, got {path}")
    return text


def read_pieces(path: Path, size: int = 2**15) -> Iterator[str]:
    """The text of a UTF-8 file of any size, in pieces that end where a line ends, with words on both sides of it.

    There a tokenizer would cut the text too, so that the tokens of the pieces are those of the whole.
    """
    check_file(path, "text", math.inf)
    decoder = codecs.getincrementaldecoder("utf-8")()
    held, start, n_lines, is_first = "", "", 0, True
    with open_bytes(path) as file:
        for block in chain(iter(lambda: file.read(size), b""), [b""]):
            try:
                text = decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                line = 1 + n_lines + error.object.count(b"\n", 0, error.start)
                wrong = f"the byte 0x{error.object[error.start]:02x} in line {line}"
                raise ValueError(f"text must be UTF-8, got {path} with {wrong}") from None
            n_lines += text.count("\n")
            if is_first and text:
                text, is_first = text.removeprefix("\N{BYTE ORDER MARK}"), False
            text = start + text
            start = "\r" if block and text.endswith("\r") else ""  # its "\n" may be the first of the next block
            held += text.removesuffix(start).replace("\r\n", "\n")
            cuts = [match.start() + 2 for match in re.finditer(r"\S\n(?=\S)", held[-size:])]
            if not block:
                cut = len(held)
            elif cuts:
                cut = max(len(held) - size, 0) + cuts[-1]
            else:
                cut = len(held) if len(held) > 16 * size else 0
            if cut:
                yield held[:cut]
                held = held[cut:]


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
