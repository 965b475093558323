"""The tokenizer in a folder of Hugging Face's: `tokenizer.json`, read by the library that wrote it, or older files."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from headwork.extras import need
from headwork.hub.chat import render_chat
from headwork.hub.download import find_folder
from headwork.hub.gguf_file import GgufFile, is_gguf
from headwork.hub.pretrained import read_settings
from headwork.hub.vocabularies import read_vocabulary
from headwork.storage import DamagedError
from headwork.storage.sealed_json import read_json, read_text

if TYPE_CHECKING:
    import tokenizers

FILE = "tokenizer.json"
OF_RUN = "pretrained_tokenizer"
"""In `config.json` of a run: its tokens are those of a Hugging Face model."""
MASKS, UNKNOWN = ("[MASK]", "<mask>"), ("[UNK]", "<unk>")
"""As the families call them."""


class PretrainedTokenizer:
    """Ids of a text and back, with the special tokens that the folder's own tokenizer adds.

    `end` are the ids after which the model has nothing more to say; `chat_template` is how it was taught to chat, as a
    text of Jinja, which `headwork.hub.chat` runs, and which may ask for the `special_tokens` by names as `bos_token`.
    """

    def __init__(
        self,
        tokenizer: "tokenizers.Tokenizer",
        *,
        end: Sequence[int] = (),
        chat_template: str | None = None,
        special_tokens: Mapping[str, str] | None = None,
    ) -> None:
        self.tokenizer, self.end, self.chat_template = tokenizer, tuple(end), chat_template
        self.special_tokens = dict(special_tokens or {})
        self.n_tokens: int = tokenizer.get_vocab_size(with_added_tokens=True)

    @classmethod
    def load(cls, folder: Path | str) -> "PretrainedTokenizer":
        need("tokenizers")
        import tokenizers

        folder = find_folder(folder)
        if is_gguf(folder):
            file = GgufFile(folder)
            return cls(
                file.tokenizer(), end=file.end, chat_template=file.chat_template, special_tokens=file.special_tokens
            )
        if _has_own_tokens(Path(folder)):
            raise ValueError(
                f"folder must be one of Hugging Face, got the run {folder}, whose tokens are Headwork's own: "
                "hw.data.load_tokenizer(folder) reads them"
            )
        path = Path(folder) / FILE
        if path.is_file():
            text = read_text(path)
            with _explain(f"{path} is damaged"):
                tokenizer = tokenizers.Tokenizer.from_str(text)
        else:
            tokenizer = read_vocabulary(Path(folder), _model_type(Path(folder)))
        tokenizer.no_padding()
        tokenizer.no_truncation()
        return cls(
            tokenizer,
            end=_end_ids(Path(folder)),
            chat_template=_chat_template(Path(folder)),
            special_tokens=_special_tokens(Path(folder)),
        )

    @classmethod
    def from_json(cls, text: str) -> "PretrainedTokenizer":
        """What `to_json` wrote: the folder of a run keeps it."""
        need("tokenizers")
        import tokenizers

        try:
            return cls(tokenizers.Tokenizer.from_str(text))
        except Exception as error:  # the library raises nothing narrower
            raise ValueError(f"tokens must be JSON of the library tokenizers, got {text[:40]!r} ({error})") from None

    def to_json(self) -> str:
        return self.tokenizer.to_str()

    def __len__(self) -> int:
        return self.n_tokens

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """The ids of a text, with the `special` tokens around it or without."""
        return self.encode_all([text], special=special)[0]

    def encode_all(self, texts: Sequence[str], *, special: bool = True) -> list[list[int]]:
        """The same for many texts, on all cores."""
        for text in texts:
            if any("\ud800" <= character <= "\udfff" for character in text):  # as a broken command line can have
                raise ValueError(f"text must be a string of whole characters, got {text[:40]!r}")
        shown = texts[0][:40] if texts else ""
        with _explain(f"the tokenizer is damaged, it cannot read {shown!r}"):
            return [encoding.ids for encoding in self.tokenizer.encode_batch(texts, add_special_tokens=special)]

    def encode_starts(self, texts: Sequence[str], max_tokens: int) -> list[list[int]]:
        """As many tokens of each text as fit, with the special ones that a classifier of this family reads."""
        self.tokenizer.enable_truncation(max_tokens)
        try:
            return self.encode_all(texts)
        finally:
            self.tokenizer.no_truncation()

    @property
    def mask(self) -> int | None:
        """The id of the token that stands for a masked one, if there is one."""
        found = (self.tokenizer.token_to_id(token) for token in MASKS)
        return next((i for i in found if i is not None), None)

    @property
    def unknown(self) -> int:
        """The id of what the vocabulary lacks; -1 if it can spell everything."""
        found = (self.tokenizer.token_to_id(token) for token in UNKNOWN)
        return next((i for i in found if i is not None), -1)

    def with_mask(self) -> "PretrainedTokenizer":
        if self.mask is None:
            raise ValueError(f"the tokenizer must have one of the tokens {', '.join(MASKS)}, got one that has none")
        return self

    def strings(self, ids: Sequence[int]) -> list[str]:
        """Each token by itself, as a figure can show it."""
        return [self.tokenizer.id_to_token(i) or "" for i in ids]

    def apply_chat_template(
        self, messages: Sequence[Mapping[str, object]], *, add_generation_prompt: bool = True, **variables: object
    ) -> str:
        """The text of a chat, see `headwork.hub.chat.render_chat`."""
        if self.chat_template is None:
            raise ValueError("the tokenizer must have a chat template for messages, got one without")
        said = {**self.special_tokens, **variables}
        return render_chat(self.chat_template, messages, add_generation_prompt=add_generation_prompt, **said)

    def encode_chat(self, messages: Sequence[Mapping[str, object]], *, add_generation_prompt: bool = True) -> list[int]:
        """The ids of a chat; the template has written the special tokens."""
        return self.encode(
            self.apply_chat_template(messages, add_generation_prompt=add_generation_prompt), special=False
        )

    def decode(self, ids: Sequence[int]) -> str:
        """The text of the ids; special tokens say nothing."""
        with _explain("the tokenizer is damaged, it cannot spell its tokens"):
            return self.tokenizer.decode(list(ids), skip_special_tokens=True)


@contextmanager
def _explain(what: str) -> Iterator[None]:
    """The library raises nothing narrower than Exception, and where it did not expect a file, something wider."""
    try:
        yield
    except BaseException as error:
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise DamagedError(f"{what}: {error}") from None
        raise


def _model_type(folder: Path) -> object:
    """None where neither the settings nor the names of the tensors say it: a tokenizer can stand alone."""
    try:
        return read_settings(folder)["model_type"]
    except (ValueError, DamagedError):
        return None


def _has_own_tokens(folder: Path) -> bool:
    """Whether it is a run whose vocabulary was made for it: a classifier reads a first token that no rule here adds."""
    about = _settings(folder / "config.json")
    return "run" in about and not about.get(OF_RUN)


def _end_ids(folder: Path) -> list[int]:
    """One id or several, as the settings of the generation or of the model say."""
    for name in ("generation_config.json", "config.json"):
        found = _settings(folder / name).get("eos_token_id")
        stated = found if isinstance(found, list) else [found]
        ids = [i for i in stated if isinstance(i, int) and not isinstance(i, bool)]
        if ids and len(ids) == len(stated):
            return ids
    return []


def _chat_template(folder: Path) -> str | None:
    try:
        return read_text(folder / "chat_template.jinja")
    except DamagedError:
        pass
    for name in ("chat_template.json", "tokenizer_config.json"):
        found = _settings(folder / name).get("chat_template")
        if isinstance(found, list):  # several, by their names
            named = {one.get("name"): one.get("template") for one in found if isinstance(one, dict)}
            found = named.get("default")
        if isinstance(found, str):
            return found
    return None


def _special_tokens(folder: Path) -> dict[str, str]:
    """Texts by names that end in _token, as a template asks for them."""
    stated = _settings(folder / "special_tokens_map.json") | _settings(folder / "tokenizer_config.json")
    found = {name: value.get("content") if isinstance(value, dict) else value for name, value in stated.items()}
    return {name: text for name, text in found.items() if name.endswith("_token") and isinstance(text, str)}


def _settings(path: Path) -> dict[str, object]:
    """What a file says, if it is there and whole: a tokenizer can do without."""
    try:
        return read_json(path)
    except DamagedError:
        return {}
