"""Tokenizers of folders without a tokenizer.json: the same ids as transformers on a page of hard text."""

import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import tokenizers

from headwork.hub import MarianTokenizer, PretrainedTokenizer
from headwork.storage import DamagedError

from .checkpoints import transformers

LESSON = [
    "the cat sat on the mat, and the cat sat",
    "Un café naïf: 12345 67",
    "注意 力 🤖 and words",
    "e\u0301 ﬁ ½",
] * 20
HARD_TEXT = (
    "The cat sat.",
    "",
    " ",
    " a leading space",
    "a trailing space \n",
    "  two  spaces   in a  row ",
    "注意力机制 needs 力, 注 意",
    "🤖👩\u200d🔬🇩🇪 emoji",
    "cafe\u0301 naïve Ångström e\u0301\u0323\u0327",
    "ﬁ ½ ① Ⅷ ㎏ ｆｕｌｌ",
    "\x00\x07\x1b control \x7f \x85 \ufeff",
    "tab\tnew\nline\r\nreturn\u2028\u2029 \u00a0\u2003\u3000wide",
    "don't we'll I'D x'S it''s",
    "عربى हिन्दी ไทย Ελληνικά",
    "1234567 3.14 1,000,000 x_y-z/w",
    "<s> </s><unk> <pad>x [CLS][SEP] [MASK] <|endoftext|> <extra_id_0>",
    "the <mask> sat",
    ">>fra<< the cat",
    "<0x41> ▁the ##cat Ġthe",
    "\U0010ffff \ue000 \u0378",
)


def train_words(folder: Path) -> None:
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = tokenizers.trainers.WordPieceTrainer(vocab_size=90, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator([text for line in LESSON for text in (line, line.lower(), "Cafe cafe")], trainer)
    tokenizer.model.save(str(folder))


def train_byte_pairs(folder: Path, special: list[str]) -> None:
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=330, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(LESSON, trainer)
    tokenizer.model.save(str(folder))


def train_pieces(path: Path, **options: Any) -> None:
    text = path.with_suffix(".txt")
    text.write_text("\n".join(LESSON), encoding="utf-8")
    sentencepiece.SentencePieceTrainer.train(
        input=str(text), model_prefix=str(path.with_suffix("")), minloglevel=3, hard_vocab_limit=False, **options
    )
    path.with_suffix(".model").rename(path)
    text.unlink()
    path.with_suffix(".vocab").unlink()


UNIGRAM = {"model_type": "unigram", "vocab_size": 90}
T5 = UNIGRAM | {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1, "user_defined_symbols": ["<own>"]}
LLAMA = {
    "model_type": "bpe",
    "vocab_size": 330,
    "byte_fallback": True,
    "character_coverage": 0.98,
    "normalization_rule_name": "identity",
    "remove_extra_whitespaces": False,
}
OF_ROBERTA = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]

Make = Callable[[Path], None]
VOCABULARIES: dict[str, tuple[str, Make, list[dict[str, Any]]]] = {
    "bert": (
        "BertTokenizer",
        train_words,
        [
            {},
            {"do_lower_case": False},
            {"do_lower_case": False, "strip_accents": True, "tokenize_chinese_chars": False},
            {"do_lower_case": True, "strip_accents": False, "cls_token": "[MASK]"},
        ],
    ),
    "distilbert": ("DistilBertTokenizer", train_words, [{}]),
    "gpt2": (
        "GPT2Tokenizer",
        lambda folder: train_byte_pairs(folder, ["<|endoftext|>"]),
        [{}, {"add_prefix_space": True}, {"add_bos_token": True, "pad_token": "<pad>"}],
    ),
    "roberta": (
        "RobertaTokenizer",
        lambda folder: train_byte_pairs(folder, OF_ROBERTA),
        [{}, {"add_prefix_space": True, "mask_token": {"content": "<mask>", "lstrip": True, "__type": "AddedToken"}}],
    ),
    "qwen2": (
        "Qwen2Tokenizer",
        lambda folder: train_byte_pairs(folder, []),
        [{}, {"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]}],
    ),
    "t5": (
        "T5Tokenizer",
        lambda folder: train_pieces(folder / "spiece.model", **T5),
        [{}, {"extra_ids": 3}],
    ),
    "xlm-roberta": (
        "XLMRobertaTokenizer",
        lambda folder: train_pieces(folder / "sentencepiece.bpe.model", **UNIGRAM),
        [{}],
    ),
    "camembert": (
        "CamembertTokenizer",
        lambda folder: train_pieces(folder / "sentencepiece.bpe.model", **UNIGRAM),
        [{}],
    ),
    "llama": (
        "LlamaTokenizer",
        lambda folder: train_pieces(folder / "tokenizer.model", **LLAMA),
        [
            {"add_bos_token": True},
            {"add_bos_token": False, "add_eos_token": True, "legacy": True},
            {"add_bos_token": True, "add_prefix_space": False},
        ],
    ),
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for each family, made once."""
    base = tmp_path_factory.mktemp("vocabularies")
    for family, (_, make, _) in VOCABULARIES.items():
        (base / family).mkdir()
        make(base / family)
        (base / family / "config.json").write_text(json.dumps({"model_type": family}))
    return base


@pytest.mark.parametrize(
    ("family", "settings"),
    [(family, settings) for family, (_, _, all_settings) in VOCABULARIES.items() for settings in all_settings],
    ids=str,
)
def test_the_same_ids_as_transformers(family: str, settings: dict[str, Any], trained: Path, tmp_path: Path) -> None:
    folder, name = tmp_path / "folder", VOCABULARIES[family][0]
    shutil.copytree(trained / family, folder)
    if settings:
        (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"tokenizer_class": name}))
    ours, theirs = PretrainedTokenizer.load(folder), getattr(transformers, name).from_pretrained(folder)
    assert ours.n_tokens == len(theirs)
    for text in HARD_TEXT:
        ids = theirs(text)["input_ids"]
        assert ours.encode(text) == ids, text
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)


def test_llama_begins_a_text_unless_the_folder_says_otherwise(trained: Path) -> None:
    """As SentencePiece does; transformers leaves the beginning out where a folder has no tokenizer_config.json."""
    ours = PretrainedTokenizer.load(trained / "llama")
    theirs = sentencepiece.SentencePieceProcessor(model_file=str(trained / "llama" / "tokenizer.model"))
    for text in ("The cat sat.", "注意力 🤖", "cafe\u0301  x ", "\x00\x07 tab\t"):
        assert ours.encode(text) == theirs.encode(text, add_bos=True)
        assert ours.decode(ours.encode(text)) == text


def test_tokens_that_were_added(trained: Path, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    shutil.copytree(trained / "gpt2", folder)
    n_tokens = PretrainedTokenizer.load(folder).n_tokens
    (folder / "added_tokens.json").write_text(json.dumps({"<two>": n_tokens + 1, "<one>": n_tokens}))
    (folder / "special_tokens_map.json").write_text(json.dumps({"pad_token": "<two>", "bos_token": "<|endoftext|>"}))
    ours, theirs = PretrainedTokenizer.load(folder), transformers.GPT2Tokenizer.from_pretrained(folder)
    text = "the<two> <one>cat"
    assert ours.encode(text) == theirs(text)["input_ids"]
    assert {n_tokens, n_tokens + 1} < set(ours.encode(text))
    (folder / "added_tokens.json").write_text(json.dumps({"<one>": n_tokens + 7}))
    with pytest.raises(ValueError, match=f"added token '<one>' .* must have id {n_tokens + 7}, got {n_tokens}"):
        PretrainedTokenizer.load(folder)


# --- Marian ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two languages that share one list of pieces, with the code of a target language in it."""
    folder = tmp_path_factory.mktemp("marian")
    train_pieces(folder / "source.spm", **UNIGRAM)
    train_pieces(folder / "target.spm", **UNIGRAM | {"vocab_size": 60, "character_coverage": 0.98})
    both = [
        sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{side}.spm")) for side in ("source", "target")
    ]
    pieces = {spm.id_to_piece(i) for spm in both for i in range(3, spm.get_piece_size())}
    ids = {piece: i for i, piece in enumerate(["</s>", "<unk>", ">>fra<<", *sorted(pieces)[:-3], "<pad>"])}
    (folder / "vocab.json").write_text(json.dumps(ids))
    (folder / "config.json").write_text(json.dumps({"model_type": "marian", "decoder_start_token_id": len(ids) - 1}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"source_lang": "en", "target_lang": "fr"}))
    return folder


@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
def test_both_sides_of_a_translator(translator: Path) -> None:
    ours, theirs = MarianTokenizer.load(translator), transformers.MarianTokenizer.from_pretrained(translator)
    assert (ours.n_tokens, ours.end, ours.padding) == (len(theirs), theirs.eos_token_id, theirs.pad_token_id)
    assert ours.begin == ours.padding
    for text in HARD_TEXT:
        assert ours.encode(text) == theirs(text)["input_ids"], text
        assert ours.encode_target(text) == theirs(text_target=text)["input_ids"], text
        ids = ours.encode_target(text)
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True, use_source_tokenizer=False), text


# --- bad input -------------------------------------------------------------------------------------------------------


def test_folders_without_a_tokenizer(translator: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"must hold a tokenizer\.json, or have a tokenizer_class of BertTokenizer, "):
        PretrainedTokenizer.load(tmp_path)
    with pytest.raises(ValueError, match=r"a tokenizer for each side: hw\.hub\.MarianTokenizer"):
        PretrainedTokenizer.load(translator)
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(ValueError, match=r"must hold a tokenizer\.json or a vocab\.txt"):
        PretrainedTokenizer.load(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "BertJapaneseTokenizer"}')
    with pytest.raises(ValueError, match="got 'BertJapaneseTokenizer' for the model_type 'bert'"):
        PretrainedTokenizer.load(tmp_path)


@pytest.mark.parametrize("family", VOCABULARIES)
def test_damaged_vocabularies(family: str, trained: Path, tmp_path: Path) -> None:
    """Cut, emptied, or replaced by bytes that mean nothing: an error in words, or a tokenizer; nothing else."""
    files = [path for path in (trained / family).iterdir() if path.name != "config.json"]
    for path in files:
        whole = path.read_bytes()
        for i, damage in enumerate((b"", whole[: len(whole) // 2], b"\xff\xfe\x00" * 50, b"{", b"[[1]]")):
            folder = tmp_path / f"{path.name}-{i}"
            shutil.copytree(trained / family, folder)
            (folder / path.name).write_bytes(damage)
            with suppress(ValueError, DamagedError):
                PretrainedTokenizer.load(folder).encode("the cat")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"do_lower_case": "yes"}, "do_lower_case .* must be true or false, got 'yes'"),
        ({"unk_token": 3}, "tokens of .* must be texts, got 3"),
        ({"added_tokens_decoder": {"x": "y"}}, "added tokens of .* are damaged"),
    ],
)
def test_settings_that_make_no_sense(settings: dict[str, Any], words: str, trained: Path, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    shutil.copytree(trained / "bert", folder)
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    with pytest.raises((ValueError, DamagedError), match=words):
        PretrainedTokenizer.load(folder)


def test_another_kind_of_pieces(trained: Path, tmp_path: Path) -> None:
    shutil.copy(trained / "llama" / "tokenizer.model", tmp_path / "spiece.model")
    (tmp_path / "config.json").write_text('{"model_type": "t5"}')
    with pytest.raises(ValueError, match="must be a unigram model of SentencePiece, got bpe"):
        PretrainedTokenizer.load(tmp_path)
