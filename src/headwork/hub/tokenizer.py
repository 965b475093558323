"""The tokenizer in a folder of Hugging Face's: `tokenizer.json`, read by the library that wrote it."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headwork.extras import need
from headwork.storage import DamagedError

if TYPE_CHECKING:
    import tokenizers

FILE = "tokenizer.json"


class PretrainedTokenizer:
    """Ids of a text and back, with the special tokens that the folder's own tokenizer adds.

    `end` are the ids after which the model has nothing more to say.
    """

    def __init__(self, tokenizer: "tokenizers.Tokenizer", *, end: Sequence[int] = ()) -> None:
        self.tokenizer, self.end = tokenizer, tuple(end)
        self.n_tokens: int = tokenizer.get_vocab_size(with_added_tokens=True)

    @classmethod
    def load(cls, folder: Path | str) -> "PretrainedTokenizer":
        need("tokenizers")
        import tokenizers

        path = Path(folder) / FILE
        if not path.is_file():
            raise ValueError(f"folder must hold a {FILE} to read and write text, got {folder}")
        try:
            tokenizer = tokenizers.Tokenizer.from_str(path.read_text(encoding="utf-8"))
        except Exception as error:  # the library raises nothing narrower
            raise DamagedError(f"{path} is damaged: {error}") from None
        tokenizer.no_padding()
        tokenizer.no_truncation()
        return cls(tokenizer, end=_end_ids(Path(folder)))

    def encode(self, text: str) -> list[int]:
        try:
            return self.tokenizer.encode(text).ids
        except TypeError:  # half of a surrogate pair, as a broken command line can have
            raise ValueError(f"text must be a string of whole characters, got {text[:40]!r}") from None

    def decode(self, ids: Sequence[int]) -> str:
        """The text of the ids; special tokens say nothing."""
        return self.tokenizer.decode(list(ids), skip_special_tokens=True)


def _end_ids(folder: Path) -> list[int]:
    """One id or several, as the settings of the generation or of the model say."""
    for name in ("generation_config.json", "config.json"):
        try:
            found = json.loads((folder / name).read_text(encoding="utf-8")).get("eos_token_id")
        except (OSError, ValueError, AttributeError, RecursionError):
            continue
        ids = found if isinstance(found, list) else [found]
        if found is not None and all(isinstance(i, int) and not isinstance(i, bool) for i in ids):
            return ids
    return []
