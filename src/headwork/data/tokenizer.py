"""Text as numbers and back: characters, byte pairs or words.

Four tokens stand for no text: `pad`, `begin`, `end` and `unknown`. They are entries of the vocabulary that no text can
spell, so the text "<pad>" is five characters and never a padding token.

>>> tokenizer = Tokenizer.characters(["abba"])
>>> tokenizer.encode("baa"), tokenizer.decode([1, 5, 4, 4, 2])
([5, 4, 4], 'baa')
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, overload

from headwork.extras import missing

try:
    import tokenizers
    from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers
except ModuleNotFoundError as error:
    raise missing(error) from None

from headwork import serialise
from headwork.hub import PretrainedTokenizer, find_folder, is_pretrained
from headwork.hub.tokenizer import OF_RUN
from headwork.storage.sealed_json import read_json, read_text

MASK = "<mask>"
SPECIAL = ("<pad>", "<begin>", "<end>", "\N{REPLACEMENT CHARACTER}")
_SEEN = str.maketrans({" ": "␣", "\n": "↵", "\t": "⇥"})


@dataclass(frozen=True, kw_only=True)
class Characters(serialise.Checked):
    """One token for each character of the training text."""


@dataclass(frozen=True, kw_only=True)
class BytePairs(serialise.Checked):
    """Bytes, and then the pairs of tokens that stand together most often, until there are `n_tokens`."""

    n_tokens: int = 1024

    def __post_init__(self) -> None:
        super().__post_init__()
        check_byte_pairs(self.n_tokens)


@dataclass(frozen=True, kw_only=True)
class Words(serialise.Checked):
    """The most frequent words in lower case, and marks such as "!": `n_tokens` with the four special ones."""

    n_tokens: int = 20_000

    def __post_init__(self) -> None:
        super().__post_init__()
        check_word_count(self.n_tokens)


@dataclass(frozen=True, kw_only=True)
class Pretrained(serialise.Checked):
    """The tokens of a model that is trained on: a folder of Hugging Face's, a GGUF file, or the folder of a run."""

    folder: str


class Tokenizer:
    """A vocabulary, over `tokenizers.Tokenizer`; ids 0 to 3 are `pad`, `begin`, `end`, `unknown`."""

    pad: ClassVar[int] = 0
    begin: ClassVar[int] = 1
    end: ClassVar[int] = 2
    unknown: ClassVar[int] = 3

    def __init__(self, tokenizer: tokenizers.Tokenizer) -> None:
        ids = tokenizer.get_vocab()
        special = tuple(tokenizer.id_to_token(i) for i in range(len(SPECIAL)))
        if special != SPECIAL or sorted(ids.values()) != list(range(len(ids))):
            raise ValueError(f"tokens must be numbered without a gap and start with {SPECIAL}, got {special}")
        for part in (tokenizer.normalizer, tokenizer.pre_tokenizer, tokenizer.decoder, tokenizer.post_processor):
            # One that takes for ever on some text ends the process.
            if part is not None and b'"Regex":' in part.__getstate__():
                raise ValueError(f"a tokenizer must have no regular expressions of its own, got {part}")
        self.tokenizer = tokenizer

    @classmethod
    def characters(cls, texts: Iterable[str]) -> "Tokenizer":
        """One token for each character in the texts, in the order of Unicode.

        Any other character becomes `unknown`, which is written � again.

        >>> tokenizer = Tokenizer.characters(["hello"])
        >>> tokenizer.decode(tokenizer.encode("hexe"))
        'he�e'
        """
        characters = set[str]()
        for text in texts:
            characters.update(text)
        alphabet = sorted(characters - set(SPECIAL))
        tokenizer = tokenizers.Tokenizer(
            models.BPE(_numbered(alphabet), [], unk_token=SPECIAL[cls.unknown], fuse_unk=False)
        )
        tokenizer.decoder = decoders.Fuse()
        return cls(tokenizer)

    @classmethod
    def byte_pairs(cls, texts: Iterable[str], n_tokens: int) -> "Tokenizer":
        """Byte pairs as GPT-2 has them, learned from the texts; no text is unknown, and every one comes back whole.

        There are fewer than `n_tokens` if the texts have no more pairs to join.

        >>> tokenizer = Tokenizer.byte_pairs(["low lower lowest"] * 9, n_tokens=264)
        >>> tokenizer.strings(tokenizer.encode("slow lowest"))
        ['s', 'low', '␣lowe', 's', 't']
        """
        check_byte_pairs(n_tokens)
        learned = tokenizers.Tokenizer(models.BPE())
        learned.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        learned.train_from_iterator(
            texts,
            trainers.BpeTrainer(
                vocab_size=n_tokens - len(SPECIAL), initial_alphabet=alphabet, show_progress=False, special_tokens=[]
            ),
        )
        merges = [tuple(pair) for pair in json.loads(learned.to_str())["model"]["merges"]]
        tokenizer = tokenizers.Tokenizer(models.BPE(_numbered(_in_order(learned)), merges))
        tokenizer.pre_tokenizer = learned.pre_tokenizer
        tokenizer.decoder = decoders.ByteLevel()
        return cls(tokenizer)

    @classmethod
    def words(cls, texts: Iterable[str], n_tokens: int) -> "Tokenizer":
        """The most frequent words of the texts in lower case, and their marks; all other words become `unknown`.

        Decoding puts a space between any two, so the text comes back in its words only.

        >>> tokenizer = Tokenizer.words(["A film. A good film!"], n_tokens=6)
        >>> tokenizer.decode(tokenizer.encode("A bad film!"))
        'a � film �'
        """
        check_word_count(n_tokens)
        learned = tokenizers.Tokenizer(models.WordLevel())
        learned.normalizer = normalizers.Lowercase()
        learned.pre_tokenizer = pre_tokenizers.Whitespace()
        learned.train_from_iterator(
            texts, trainers.WordLevelTrainer(vocab_size=n_tokens, show_progress=False, special_tokens=[])
        )
        frequent = [word for word in _in_order(learned) if word not in SPECIAL][: n_tokens - len(SPECIAL)]
        tokenizer = tokenizers.Tokenizer(models.WordLevel(_numbered(frequent), unk_token=SPECIAL[cls.unknown]))
        tokenizer.normalizer = learned.normalizer
        tokenizer.pre_tokenizer = learned.pre_tokenizer
        return cls(tokenizer)

    def with_mask(self) -> "Tokenizer":
        """The same with one token more, `mask`, which no text can spell either.

        >>> tokenizer = Tokenizer.characters(["abba"]).with_mask()
        >>> tokenizer.mask, tokenizer.strings([4, 6, 5])
        (6, ['a', '<mask>', 'b'])
        """
        data = json.loads(self.to_json())
        if MASK in data["model"]["vocab"]:
            raise ValueError(f"the tokenizer must have no token {MASK!r} yet, got one that has")
        data["model"]["vocab"][MASK] = len(self)
        return Tokenizer.from_json(json.dumps(data))

    @property
    def mask(self) -> int | None:
        return self.tokenizer.token_to_id(MASK)

    @classmethod
    def from_json(cls, text: str) -> "Tokenizer":
        """What `to_json` wrote."""
        try:
            tokenizer = tokenizers.Tokenizer.from_str(text)
        except Exception as error:  # the library raises nothing narrower
            raise ValueError(
                f"tokens must be JSON as Tokenizer.to_json writes it, got {text[:40]!r} ({error})"
            ) from None
        return cls(tokenizer)

    def to_json(self) -> str:
        return self.tokenizer.to_str()

    def __len__(self) -> int:
        return self.tokenizer.get_vocab_size()

    def encode(self, text: str) -> list[int]:
        """The ids of the text, without `begin` and `end`."""
        return self.encode_all([text])[0]

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """The same for many texts, on all cores."""
        try:
            return [encoding.ids for encoding in self.tokenizer.encode_batch_fast(texts)]
        except TypeError:  # half of a surrogate pair, as a broken command line can have
            broken = next(text for text in texts if any("\ud800" <= character <= "\udfff" for character in text))
            raise ValueError(f"text must be a string of whole characters, got {broken[:40]!r}") from None

    def encode_starts(self, texts: Sequence[str], max_tokens: int) -> list[list[int]]:
        """`begin` and the first tokens of each text: what a classifier reads."""
        return [[self.begin, *ids[: max_tokens - 1]] for ids in self.encode_all(texts)]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of the ids; `pad`, `begin` and `end` say nothing.

        An id that the tokenizer lacks is written �, as `unknown` is: a model may score more tokens than it was taught.
        """
        if min(ids, default=0) < 0:
            raise ValueError(f"ids must be 0 or more, got {min(ids)}")
        known = [i if i < len(self) else self.unknown for i in ids]
        spoken = [i for i in known if i not in (self.pad, self.begin, self.end)]
        return self.tokenizer.decode(spoken, skip_special_tokens=False)

    def strings(self, ids: Sequence[int]) -> list[str]:
        """Each token by itself, as a figure can show it: spaces and line ends have a sign.

        >>> Tokenizer.characters(["a b"]).strings([1, 5, 4])
        ['<begin>', 'a', '␣']
        """
        return [SPECIAL[i] if 0 <= i < len(SPECIAL) else self.decode([i]).translate(_SEEN) for i in ids]


AnyTokenizer = Tokenizer | PretrainedTokenizer


@overload
def make_tokenizer(choice: Characters | BytePairs | Words, texts: Iterable[str]) -> Tokenizer: ...


@overload
def make_tokenizer(choice: Characters | BytePairs | Words | Pretrained, texts: Iterable[str]) -> AnyTokenizer: ...


def make_tokenizer(choice: Characters | BytePairs | Words | Pretrained, texts: Iterable[str]) -> AnyTokenizer:
    """The vocabulary that a config asks for.

    >>> len(make_tokenizer(Characters(), ["abba"]))
    6
    """
    match choice:
        case Characters():
            return Tokenizer.characters(texts)
        case BytePairs():
            return Tokenizer.byte_pairs(texts, choice.n_tokens)
        case Words():
            return Tokenizer.words(texts, choice.n_tokens)
        case Pretrained():
            return load_tokenizer(choice.folder)


def load_tokenizer(folder: Path | str) -> AnyTokenizer:
    """The tokenizer beside a model: in the folder of a run, in a Hugging Face folder, or in a GGUF file.

    `encode_starts(texts, max_tokens)` gives the ids that a classifier reads, with the special tokens around them.
    """
    found = find_folder(folder)
    if is_pretrained(found):
        return PretrainedTokenizer.load(found)
    path = found / "tokenizer.json"
    if not path.is_file():
        raise ValueError(f"folder must have a tokenizer.json to read texts with, got {found}")
    if (found / "config.json").is_file() and read_json(found / "config.json").get(OF_RUN):
        return PretrainedTokenizer.from_json(read_text(path))
    return Tokenizer.from_json(read_text(path))


def check_byte_pairs(n_tokens: int) -> None:
    if n_tokens < 256 + len(SPECIAL):
        raise ValueError(f"n_tokens must be 260 or more, for 256 bytes and 4 special tokens, got {n_tokens}")


def check_word_count(n_tokens: int) -> None:
    if n_tokens <= len(SPECIAL):
        raise ValueError(f"n_tokens must be 5 or more, for a word and 4 special tokens, got {n_tokens}")


def _numbered(strings: Sequence[str]) -> dict[str, int]:
    return {string: i for i, string in enumerate((*SPECIAL, *strings))}


def _in_order(tokenizer: tokenizers.Tokenizer) -> list[str]:
    ids: Mapping[str, int] = tokenizer.get_vocab()
    return sorted(ids, key=ids.__getitem__)
