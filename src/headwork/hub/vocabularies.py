"""What folders have that are older than `tokenizer.json`: a vocabulary, and rules that every reader has to know.

Each class of Hugging Face's is one function here, and what it makes is a tokenizer of the same library as a
`tokenizer.json` holds.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwork.extras import need
from headwork.hub.weights import read_json
from headwork.storage import DamagedError

if TYPE_CHECKING:
    import tokenizers

SPACE = "▁"
"""What SentencePiece writes for a space."""
SPECIAL = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
QWEN2_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
MOST_GAPS = 10_000
UNKNOWN, CONTROL, USER_DEFINED = 2, 3, 4
UNIGRAM, BPE = 1, 2
"""As SentencePiece numbers the kinds of its pieces, and of its models."""


class Files:
    """The files of a tokenizer in a folder, and what their settings say."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.settings = self._json("tokenizer_config.json")
        if "added_tokens_decoder" not in self.settings:
            self.settings |= self._json("special_tokens_map.json")

    def _json(self, name: str) -> dict[str, Any]:
        return read_json(self.folder / name) if (self.folder / name).is_file() else {}

    def path(self, name: str) -> Path:
        if not (self.folder / name).is_file():
            raise ValueError(f"folder must hold a tokenizer.json or a {name} to read and write text, got {self.folder}")
        return self.folder / name

    def flag(self, name: str, default: bool | None) -> Any:
        """True or false, or null where that is the default."""
        value = self.settings.get(name, default)
        if value is not default and not isinstance(value, bool):
            raise ValueError(f"{name} in {self.folder / 'tokenizer_config.json'} must be true or false, got {value!r}")
        return value

    def token(self, name: str, default: str) -> str:
        """The text of a special token."""
        return self.added(self.settings.get(name) or default).content

    def added(self, value: object, *, special: bool = True, **options: bool) -> "tokenizers.AddedToken":
        """A token that is found in a text before the rest of it is read."""
        import tokenizers

        if isinstance(value, dict):
            flags = {key: value[key] for key in ("lstrip", "rstrip", "single_word", "normalized") if key in value}
            options, special, value = options | flags, special or value.get("special") is True, value.get("content")
        if not isinstance(value, str) or not all(isinstance(flag, bool) for flag in options.values()):
            raise ValueError(f"the tokens of {self.folder} must be texts, got {value!r}")
        return tokenizers.AddedToken(value, special=special, **options)

    def later(self) -> dict[int, object]:
        """The tokens that were added to the vocabulary, by their ids."""
        stated = self.settings.get("added_tokens_decoder") or {}
        named = {number: token for token, number in self._json("added_tokens.json").items()}
        try:
            return dict(sorted({**{int(i): token for i, token in named.items()}, **_by_id(stated)}.items()))
        except (TypeError, ValueError, AttributeError):
            raise DamagedError(f"the added tokens of {self.folder} are damaged: each must have an id") from None


def _by_id(stated: Any) -> dict[int, object]:
    return {int(i): token for i, token in stated.items()}


def read_vocabulary(folder: Path, model_type: object) -> "tokenizers.Tokenizer":
    """The tokenizer that the class named in tokenizer_config.json makes of these files, or else that of the family."""
    need("tokenizers")
    files = Files(folder)
    name = str(files.settings.get("tokenizer_class") or "").removesuffix("Fast")
    name = OF_FAMILY.get(str(model_type), name) if name in ("", "PreTrainedTokenizer", "TokenizersBackend") else name
    if name == "MarianTokenizer":
        raise ValueError(f"{folder} has a tokenizer for each side: hw.hub.MarianTokenizer.load reads it")
    if name not in READERS:
        got = f"{name!r} for the model_type {model_type!r} in {folder}"
        raise ValueError(
            f"folder must hold a tokenizer.json, or have a tokenizer_class of {', '.join(READERS)}, got {got}"
        )
    try:
        return READERS[name](files).tokenizer()
    except (DamagedError, ValueError, OSError):
        raise
    except Exception as error:  # the library raises nothing narrower
        raise DamagedError(f"the vocabulary in {folder} is damaged: {error}") from None


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """The parts of a tokenizer: how text is split, its special tokens, and which of those stand around a text."""

    files: Files
    model: Any
    decoder: Any
    normalizer: Any = None
    pre_tokenizer: Any = None
    special: Mapping[str, str]
    """The texts of the special tokens, unless the folder says otherwise."""
    before: str | None = None
    after: str | None = None
    strips_before_mask: bool = False
    more: Sequence["tokenizers.AddedToken"] = ()

    def tokenizer(self) -> "tokenizers.Tokenizer":
        import tokenizers
        from tokenizers.processors import TemplateProcessing

        made = tokenizers.Tokenizer(self.model)
        made.decoder = self.decoder
        if self.normalizer is not None:
            made.normalizer = self.normalizer
        if self.pre_tokenizer is not None:
            made.pre_tokenizer = self.pre_tokenizer
        self.add_tokens(made)
        around = [self.files.token(name, self.special.get(name, "")) for name in (self.before, self.after) if name]
        template = [*around[:1], "$A"] if self.before else ["$A"]
        template += around[-1:] if self.after else []
        made.post_processor = TemplateProcessing(
            single=template, special_tokens=[(token, made.token_to_id(token)) for token in dict.fromkeys(around)]
        )
        return made

    def add_tokens(self, made: "tokenizers.Tokenizer") -> None:
        """Those that the folder added, then the special ones; a token that the vocabulary has keeps its id."""
        later = self.files.later()
        for number, token in later.items():
            added = self.files.added(token, special=False)
            made.add_tokens([added])
            if made.token_to_id(added.content) != number:
                got = f"got {made.token_to_id(added.content)}"
                raise ValueError(
                    f"the added token {added.content!r} of {self.files.folder} must have id {number}, {got}"
                )
        known = {self.files.added(token).content for token in later.values()}
        named = {name: self.files.settings.get(name) or self.special.get(name) for name in SPECIAL}
        for name, token in named.items():
            if token is not None and self.files.added(token).content not in known:
                lstrip = {"lstrip": True} if name == "mask_token" and self.strips_before_mask else {}
                made.add_special_tokens([self.files.added(token, **lstrip)])
        more = self.files.settings.get("additional_special_tokens") or []
        made.add_tokens([*self.more, *(self.files.added(token) for token in more)])


# --- WordPiece: BERT, DistilBERT -------------------------------------------------------------------------------------


def read_bert(files: Files) -> Vocabulary:
    from tokenizers import decoders, models, normalizers, pre_tokenizers

    words = models.WordPiece.read_file(str(files.path("vocab.txt")))
    return Vocabulary(
        files=files,
        model=models.WordPiece(words, unk_token=files.token("unk_token", "[UNK]")),
        normalizer=normalizers.BertNormalizer(
            clean_text=True,
            handle_chinese_chars=files.flag("tokenize_chinese_chars", True),
            strip_accents=files.flag("strip_accents", None),
            lowercase=files.flag("do_lower_case", True),
        ),
        pre_tokenizer=pre_tokenizers.BertPreTokenizer(),
        decoder=decoders.WordPiece(prefix="##"),
        special={f"{name}_token": f"[{name.upper()}]" for name in ("unk", "sep", "pad", "cls", "mask")},
        before="cls_token",
        after="sep_token",
    )


# --- byte pairs: GPT-2, RoBERTa, Qwen2 -------------------------------------------------------------------------------


def read_gpt2(files: Files) -> Vocabulary:
    return _byte_pairs(
        files,
        special=dict.fromkeys(("unk_token", "bos_token", "eos_token"), "<|endoftext|>"),
        before="bos_token" if files.flag("add_bos_token", False) else None,
    )


def read_roberta(files: Files) -> Vocabulary:
    return _byte_pairs(files, special=OF_ROBERTA, before="cls_token", after="sep_token")


def read_qwen2(files: Files) -> Vocabulary:
    import tokenizers
    from tokenizers import normalizers, pre_tokenizers

    words = pre_tokenizers.Split(tokenizers.Regex(QWEN2_WORDS), behavior="isolated")
    in_bytes = pre_tokenizers.ByteLevel(add_prefix_space=files.flag("add_prefix_space", False), use_regex=False)
    return _byte_pairs(
        files,
        normalizer=normalizers.NFC(),
        pre_tokenizer=pre_tokenizers.Sequence([words, in_bytes]),
        special=dict.fromkeys(("unk_token", "eos_token", "pad_token"), "<|endoftext|>"),
    )


def _byte_pairs(files: Files, **parts: Any) -> Vocabulary:
    from tokenizers import decoders, models, pre_tokenizers

    vocabulary, merges = models.BPE.read_file(str(files.path("vocab.json")), str(files.path("merges.txt")))
    in_bytes = pre_tokenizers.ByteLevel(add_prefix_space=files.flag("add_prefix_space", False))
    parts = {"pre_tokenizer": in_bytes, "decoder": decoders.ByteLevel(), **parts}
    return Vocabulary(files=files, model=models.BPE(vocabulary, merges), **parts)


# --- SentencePiece: T5, XLM-R, CamemBERT, Llama ----------------------------------------------------------------------


def read_t5(files: Files) -> Vocabulary:
    """The ids after those of the file stand for gaps in a text; the first gap has the last id."""
    n_gaps = files.settings.get("extra_ids", 100)
    if not isinstance(n_gaps, int) or not 0 <= n_gaps <= MOST_GAPS:
        raise ValueError(f"extra_ids in {files.folder} must lie in 0 .. {MOST_GAPS}, got {n_gaps!r}")
    gaps = [f"<extra_id_{i}>" for i in reversed(range(n_gaps))]
    pieces = Pieces(files.path("spiece.model"), UNIGRAM)
    return _unigram(
        files,
        pieces,
        [*pieces.scores, *((gap, 0.0) for gap in gaps)],
        special={"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"},
        after="eos_token",
        more=[*pieces.added, *(files.added(gap) for gap in gaps)],
    )


def read_xlm_roberta(files: Files) -> Vocabulary:
    pieces = Pieces(files.path("sentencepiece.bpe.model"), UNIGRAM)
    first = [
        (files.token(name, OF_ROBERTA[name]), 0.0) for name in ("bos_token", "pad_token", "eos_token", "unk_token")
    ]
    scores = [*first, *pieces.scores[3:], (files.token("mask_token", "<mask>"), 0.0)]
    return _unigram(files, pieces, scores, special=OF_ROBERTA, before="bos_token", after="eos_token")


def read_camembert(files: Files) -> Vocabulary:
    pieces = Pieces(files.path("sentencepiece.bpe.model"), UNIGRAM)
    pad, unknown, mask = (files.token(name, OF_ROBERTA[name]) for name in ("pad_token", "unk_token", "mask_token"))
    first = [("<s>NOTUSED", 0.0), (pad, 0.0), ("</s>NOTUSED", 0.0), (unknown, 0.0), ("<unk>NOTUSED", -100.0)]
    return _unigram(
        files,
        pieces,
        [*first, *pieces.scores[1:], (mask, 0.0)],
        special=OF_ROBERTA,
        before="bos_token",
        after="eos_token",
        strips_before_mask=True,
    )


def read_llama(files: Files) -> Vocabulary:
    """Byte pairs of characters, and bytes where a character is unknown; joined in the order of their ids."""
    from tokenizers import decoders, models, pre_tokenizers

    pieces = Pieces(files.path("tokenizer.model"), BPE)
    ids = {piece: i for i, (piece, _) in enumerate(pieces.scores)}
    halves = ((piece[:i], piece[i:]) for piece in ids for i in range(1, len(piece)))
    merges = [(left, right) for left, right in halves if left in ids and right in ids]
    has_prefix = files.flag("add_prefix_space", None) in (None, True)
    scheme = "never" if not has_prefix else "always" if files.flag("legacy", False) else "first"
    steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    return Vocabulary(
        files=files,
        model=models.BPE(ids, merges, fuse_unk=True, byte_fallback=True),
        pre_tokenizer=pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme=scheme, split=False),
        decoder=decoders.Sequence([*steps, *([decoders.Strip(content=" ", left=1)] if has_prefix else [])]),
        special={"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"},
        before="bos_token" if files.flag("add_bos_token", True) else None,
        after="eos_token" if files.flag("add_eos_token", False) else None,
        more=pieces.added,
    )


def _unigram(files: Files, pieces: "Pieces", scores: list[tuple[str, float]], **parts: Any) -> Vocabulary:
    from tokenizers import decoders, models, normalizers, pre_tokenizers

    unknown = files.token("unk_token", "<unk>")
    at = next((i for i, (piece, _) in enumerate(scores) if piece == unknown), None)
    if at is None:
        raise DamagedError(f"{pieces.path} is damaged: it has no {unknown}")
    scheme = "always" if files.flag("add_prefix_space", True) else "never"
    space = pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme=scheme)
    return Vocabulary(
        files=files,
        model=models.Unigram(scores, unk_id=at, byte_fallback=False),
        normalizer=normalizers.Precompiled(pieces.characters) if pieces.characters else None,
        pre_tokenizer=pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), space]),
        decoder=decoders.Metaspace(replacement=SPACE, prepend_scheme=scheme),
        **{"more": pieces.added, **parts},
    )


class Pieces:
    """What a file of SentencePiece holds: its pieces with their scores, and how characters are replaced first."""

    def __init__(self, path: Path, kind: int) -> None:
        need("sentencepiece")
        import tokenizers
        from sentencepiece import sentencepiece_model_pb2

        self.path, model = path, sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined]  # made when imported
        try:
            model.ParseFromString(path.read_bytes())
        except Exception as error:  # of a library below it, which need not be here
            raise DamagedError(f"{path} is damaged: {error}") from None
        if not model.pieces:
            raise DamagedError(f"{path} is damaged: it holds no pieces")
        if model.trainer_spec.model_type != kind:
            kinds = {UNIGRAM: "unigram", BPE: "bpe"}
            got = kinds.get(model.trainer_spec.model_type, "another kind")
            raise ValueError(f"{path} must be a {kinds[kind]} model of SentencePiece, got {got}")
        self.scores = [(piece.piece, piece.score) for piece in model.pieces]
        self.characters: bytes = model.normalizer_spec.precompiled_charsmap
        self.added = [
            tokenizers.AddedToken(piece.piece, normalized=False, special=piece.type == CONTROL)
            for piece in model.pieces
            if piece.type in (CONTROL, USER_DEFINED)
        ]


OF_ROBERTA = {
    **dict.fromkeys(("bos_token", "cls_token"), "<s>"),
    **dict.fromkeys(("eos_token", "sep_token"), "</s>"),
    **{"unk_token": "<unk>", "pad_token": "<pad>", "mask_token": "<mask>"},
}
READERS: dict[str, Callable[[Files], Vocabulary]] = {
    "BertTokenizer": read_bert,
    "DistilBertTokenizer": read_bert,
    "GPT2Tokenizer": read_gpt2,
    "RobertaTokenizer": read_roberta,
    "Qwen2Tokenizer": read_qwen2,
    "T5Tokenizer": read_t5,
    "XLMRobertaTokenizer": read_xlm_roberta,
    "CamembertTokenizer": read_camembert,
    "LlamaTokenizer": read_llama,
}
"""By the names of Hugging Face's classes, which a folder may name."""
OF_FAMILY = {
    "bert": "BertTokenizer",
    "distilbert": "DistilBertTokenizer",
    "gpt2": "GPT2Tokenizer",
    "roberta": "RobertaTokenizer",
    "qwen2": "Qwen2Tokenizer",
    "t5": "T5Tokenizer",
    "xlm-roberta": "XLMRobertaTokenizer",
    "camembert": "CamembertTokenizer",
    "llama": "LlamaTokenizer",
    "mistral": "LlamaTokenizer",
    "marian": "MarianTokenizer",
}
"""By the `model_type` of a config.json, for a folder that names no class."""
