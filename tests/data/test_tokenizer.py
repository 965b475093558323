"""Text becomes numbers and comes back."""

import json
import pickle

import pytest
import tokenizers
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import models
from tokenizers.implementations import ByteLevelBPETokenizer

from headwork.data import BytePairs, Characters, Tokenizer, Words
from headwork.data.bundled_text import bundled_text
from headwork.data.tokenizer import SPECIAL, make_tokenizer

SAMPLE = bundled_text()[:20_000]
CHARACTERS = Tokenizer.characters([SAMPLE])
PAIRS = Tokenizer.byte_pairs([SAMPLE], n_tokens=400)
WORDS = Tokenizer.words([SAMPLE], n_tokens=200)
EVERY = pytest.mark.parametrize("tokens", [CHARACTERS, PAIRS, WORDS], ids=["characters", "byte pairs", "words"])


@given(text=st.text(sorted(set(SAMPLE))))
@example(text="")
@example(text='\n\n  "quoted" ')
def test_characters_come_back(text):
    ids = CHARACTERS.encode(text)
    assert len(ids) == len(text)
    assert CHARACTERS.decode(ids) == text


@given(text=st.text() | st.text(st.sampled_from("a <>pad\n\r\t'é🙂")))
@example(text="")
@example(text="  two  spaces \r\n\n'quotes' \"here\" 🙂👩‍👩‍👧 日本 \x00 \ufffd e\u0301")
@example(text="<pad><begin><end>")
def test_any_text_comes_back_from_byte_pairs(text):
    ids = PAIRS.encode(text)
    assert PAIRS.decode(ids) == text
    assert min(ids, default=4) >= len(SPECIAL)
    assert len(PAIRS.strings(ids)) == len(ids)


@settings(max_examples=30)
@given(texts=st.lists(st.text(), max_size=4))
@example(texts=["a\ufffdb"])
def test_an_alphabet_of_anything(texts):
    tokens = Tokenizer.characters(texts)
    assert len(tokens) == len({*"".join(texts)} - {*SPECIAL}) + 4
    for text in texts:
        assert tokens.decode(tokens.encode(text)) == text


def test_unknown_characters_are_written_as_a_sign():
    tokens = Tokenizer.characters(["abc"])
    assert tokens.encode("aéb🙂🙂") == [4, 3, 5, 3, 3]
    assert tokens.decode(tokens.encode("aéb🙂🙂")) == "a�b��"


def test_characters_are_numbered_in_order():
    tokens = Tokenizer.characters(["cab", "d\n"])
    assert tokens.strings(range(len(tokens))) == ["<pad>", "<begin>", "<end>", "�", "↵", "a", "b", "c", "d"]
    assert (tokens.pad, tokens.begin, tokens.end, tokens.unknown) == (0, 1, 2, 3)


@EVERY
@given(text=st.lists(st.sampled_from(["<pad>", "<begin>", "<end>", "a", " ", "<", "pad", ">"])).map("".join))
def test_no_text_spells_a_special_token(tokens, text):
    assert not {tokens.pad, tokens.begin, tokens.end} & {*tokens.encode(text)}


@EVERY
def test_special_tokens_say_nothing(tokens):
    ids = tokens.encode("the statement")
    assert tokens.decode([tokens.begin, *ids, tokens.end, tokens.pad, tokens.pad]) == tokens.decode(ids)
    assert tokens.strings([tokens.begin, tokens.end, tokens.pad]) == ["<begin>", "<end>", "<pad>"]
    assert tokens.decode([tokens.unknown]) == "�"


def test_byte_pairs_are_those_of_the_library():
    """Our ids are those of `tokenizers`' own class, behind the four special tokens."""
    theirs = ByteLevelBPETokenizer()
    theirs.train_from_iterator([SAMPLE], vocab_size=396, min_frequency=0, show_progress=False)
    text = SAMPLE[5000:9000] + "naïve 🙂"
    assert PAIRS.encode(text) == [i + 4 for i in theirs.encode(text).ids]
    assert len(PAIRS) == 400


def test_words_are_counted():
    tokens = Tokenizer.words(["The film, the FILM: the end!"] * 2, n_tokens=6)
    assert tokens.strings(range(6)) == [*SPECIAL, "the", "film"]
    assert tokens.encode("The end of the film") == [4, 3, 3, 4, 5]
    assert tokens.decode([4, 3, 5]) == "the � film"


@EVERY
def test_json_and_pickle_and_back(tokens):
    text = SAMPLE[:500]
    for again in (Tokenizer.from_json(tokens.to_json()), pickle.loads(pickle.dumps(tokens))):
        assert again.to_json() == tokens.to_json()
        assert again.encode(text) == tokens.encode(text)
        assert again.decode(again.encode(text)) == tokens.decode(tokens.encode(text))
        assert len(again) == len(tokens)


@EVERY
def test_many_texts_are_encoded_as_one_by_one(tokens):
    texts = ["", *SAMPLE[:1000].splitlines()]
    assert tokens.encode_all(texts) == [tokens.encode(text) for text in texts]
    assert tokens.encode_all([]) == []


@settings(max_examples=60, deadline=None)
@given(text=st.text() | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps))
@example(text="{}")
@example(text='{"version": "1.0", "model": {}}')
def test_bad_json(text):
    with pytest.raises(ValueError, match=r"tokens must be JSON as Tokenizer\.to_json writes it"):
        Tokenizer.from_json(text)


@settings(max_examples=60, deadline=None)
@given(cut=st.integers(0, len(CHARACTERS.to_json()) - 2))
def test_json_cut_short(cut):
    with pytest.raises(ValueError, match="tokens must be JSON"):
        Tokenizer.from_json(CHARACTERS.to_json()[:cut])


@pytest.mark.parametrize(
    "vocab",
    [{}, {"a": 0}, {"<pad>": 0, "<begin>": 1, "<end>": 2, "x": 3}, {s: i for i, s in enumerate(SPECIAL)} | {"a": 5}],
)
def test_the_tokens_of_somebody_else(vocab):
    other = tokenizers.Tokenizer(models.WordLevel(vocab, unk_token="x"))
    with pytest.raises(ValueError, match="tokens must be numbered without a gap and start with"):
        Tokenizer.from_json(other.to_str())


@EVERY
@pytest.mark.parametrize("bad", [-1, -100])
def test_ids_that_are_no_tokens(tokens, bad):
    for method in (tokens.decode, tokens.strings):
        with pytest.raises(ValueError, match=rf"ids must be 0 or more, got {bad}"):
            method([4, bad])


@EVERY
def test_ids_that_the_tokenizer_lacks(tokens):
    """A model may have a larger vocabulary than the text that it was taught."""
    for beyond in (len(tokens), 10**6):
        assert tokens.decode([4, beyond, 4]) == tokens.decode([4, tokens.unknown, 4])
        assert tokens.strings([beyond]) == ["\N{REPLACEMENT CHARACTER}"]


def test_half_a_character():
    with pytest.raises(ValueError, match=r"text must be a string of whole characters, got 'a\\ud800'"):
        CHARACTERS.encode("a\ud800")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Tokenizer.byte_pairs(["a"], 259), "n_tokens must be 260 or more, .*, got 259"),
        (lambda: BytePairs(n_tokens=100), "n_tokens must be 260 or more, .*, got 100"),
        (lambda: Tokenizer.words(["a"], 4), "n_tokens must be 5 or more, .*, got 4"),
        (lambda: Words(n_tokens=0), "n_tokens must be 5 or more, .*, got 0"),
    ],
)
def test_too_few_tokens(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_the_smallest_vocabularies():
    assert len(Tokenizer.byte_pairs([], 260)) == len(Tokenizer.byte_pairs(["aa"], 260)) == 260
    assert len(Tokenizer.characters([])) == len(Tokenizer.words([], 5)) == 4


@pytest.mark.parametrize(
    ("choice", "tokens"), [(Characters(), CHARACTERS), (BytePairs(n_tokens=400), PAIRS), (Words(n_tokens=200), WORDS)]
)
def test_a_choice_makes_its_tokens(choice, tokens):
    assert make_tokenizer(choice, [SAMPLE]).to_json() == tokens.to_json()
