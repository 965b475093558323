"""Marian's tokenizer: SentencePiece cuts a text into pieces, for each language its own, and one list numbers them."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headwork.extras import need
from headwork.hub.vocabularies import SPACE, Files
from headwork.hub.weights import read_json
from headwork.storage import DamagedError


class MarianTokenizer:
    """Ids of a source text and of a target text, each with the end after it; `end` is its id, `begin` starts a target.

    A source may start with the code of the language to translate into, as in ">>fra<< Good morning".
    """

    def __init__(
        self, source: Any, target: Any, ids: dict[str, int], *, unknown: str, end: str, padding: str, begin: int | None
    ) -> None:
        self.source, self.target, self.ids = source, target, ids
        self.unknown, self.end, self.padding = (ids[token] for token in (unknown, end, padding))
        self.begin = self.padding if begin is None else begin
        self.n_tokens = max(ids.values()) + 1
        self._pieces = {i: piece for piece, i in ids.items()}
        self._special = re.compile("(" + "|".join(map(re.escape, (unknown, end, padding))) + ")")

    @classmethod
    def load(cls, folder: Path | str) -> "MarianTokenizer":
        """Read source.spm, target.spm and vocab.json."""
        need("sentencepiece")
        files = Files(Path(folder))
        if files.flag("separate_vocabs", False):
            raise ValueError(f"separate_vocabs must be False, one vocabulary for both sides, got True in {folder}")
        ids = read_json(files.path("vocab.json"))
        special = {name: files.token(f"{name}_token", default) for name, default in OF_MARIAN.items()}
        if not all(isinstance(i, int) and i >= 0 for i in ids.values()) or not ids.keys() >= set(special.values()):
            raise DamagedError(f"{files.path('vocab.json')} is damaged: it must number all tokens, {special} too")
        config = files.folder / "config.json"
        begin = read_json(config).get("decoder_start_token_id") if config.is_file() else None
        return cls(
            _processor(files.path("source.spm")),
            _processor(files.path("target.spm")),
            ids,  # type: ignore[arg-type]  # all are whole numbers, as was checked
            unknown=special["unk"],
            end=special["eos"],
            padding=special["pad"],
            begin=begin if isinstance(begin, int) else None,
        )

    def encode(self, text: str) -> list[int]:
        return self._encode(self.source, text)

    def encode_target(self, text: str) -> list[int]:
        return self._encode(self.target, text)

    def _encode(self, processor: Any, text: str) -> list[int]:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueError(f"text must be a string of whole characters, got {text[:40]!r}") from None
        pieces: list[str] = []
        for part in self._special.split(text):
            code = re.match(r">>.*?<<", part, re.DOTALL)
            special = bool(self._special.fullmatch(part))
            rest = part[code.end() :] if code else part
            pieces += [part] if special else [*([code[0]] if code else []), *processor.encode(rest, out_type=str)]
        return [*(self.ids.get(piece, self.unknown) for piece in pieces), self.end]

    def strings(self, ids: Sequence[int]) -> list[str]:
        """Each token by itself, as a figure can show it."""
        return [self._pieces.get(i, "") for i in ids]

    def decode(self, ids: Sequence[int]) -> str:
        """The target text of the ids; special tokens say nothing."""
        said = [i for i in ids if i not in (self.unknown, self.end, self.padding)]
        return self.target.decode_pieces([self._pieces.get(i, "") for i in said]).replace(SPACE, " ").strip()


OF_MARIAN = {"unk": "<unk>", "eos": "</s>", "pad": "<pad>"}


def _processor(path: Path) -> Any:
    import sentencepiece

    try:
        return sentencepiece.SentencePieceProcessor(model_proto=path.read_bytes())
    except Exception as error:  # the library raises nothing narrower
        raise DamagedError(f"{path} is damaged: {error}") from None
