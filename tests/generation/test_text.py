"""Texts in, texts out."""

from collections.abc import Sequence

import pytest
import torch

from headwork.generation import Greedy, Sample, decode_stream, generate, generate_text, stream_text
from headwork.generation.text import until_stop

from ..models.small_models import LLAMA, decoder
from .lively import lively

pytestmark = pytest.mark.usefixtures("as_users_run_it")
VOCAB = 37


class Letters:
    """A letter for each token; token 1 is a half of a character that token 2 completes."""

    def encode(self, text: str) -> list[int]:
        return [3 + ord(letter) - ord("a") for letter in text]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(chr(i - 3 + ord("a")) for i in ids)


def texts(prompts: list[str], **options: object) -> list[str]:
    return generate_text(lively(decoder(**LLAMA)), Letters(), prompts, **{"max_new_tokens": 12, **options})


def test_prompts_of_different_lengths_go_on_as_alone() -> None:
    prompts = ["abc", "x", "hello"]
    assert texts(prompts) == [texts([prompt])[0] for prompt in prompts]
    assert len(set(texts(prompts))) == 3


def test_the_text_comes_in_pieces() -> None:
    model = lively(decoder(**LLAMA))
    pieces = list(stream_text(model, Letters(), "abc", max_new_tokens=12))
    assert len(pieces) == 12
    assert "".join(pieces) == texts(["abc"])[0]


@pytest.mark.parametrize("length", [1, 2, 3])
def test_it_stops_where_a_string_begins(length: int) -> None:
    """Each row stops for itself, and nothing is computed after the last one has."""
    prompts = ["abc", "x", "hello"]
    whole = texts(prompts)
    stop = [whole[0][4 : 4 + length], whole[1][7 : 7 + length]]
    expected = [text[: min([text.index(word) for word in stop if word in text], default=12)] for text in whole]
    assert texts(prompts, stop=stop) == expected
    model = lively(decoder(**LLAMA))
    for prompt, text in zip(prompts, expected, strict=True):
        assert "".join(stream_text(model, Letters(), prompt, max_new_tokens=12, stop=stop)) == text


def test_it_ends_at_one_of_several_ids() -> None:
    whole = texts(["abc", "x"])
    ends = [Letters().encode(whole[0][5])[0], Letters().encode(whole[1][2])[0]]
    letters = {whole[0][5], whole[1][2]}
    expected = [text[: min([text.index(one) for one in letters if one in text], default=12)] for text in whole]
    assert texts(["abc", "x"], end=ends) == expected


def test_a_seed_is_repeated() -> None:
    def said(seed: int) -> list[str]:
        generator = torch.Generator().manual_seed(seed)
        return texts(["abc", "x"], sampling=Sample(temperature=1.5), generator=generator)

    assert said(3) == said(3) != said(4)


def test_a_row_that_ended_repeats_its_own_end() -> None:
    model = lively(decoder(**LLAMA))
    free = generate(model, [[3, 1, 4], [5]], max_new_tokens=9)
    ends = [free[0, 2].item(), free[1, 5].item()]
    found = generate(model, [[3, 1, 4], [5]], max_new_tokens=9, end=ends)
    for row in range(2):
        first = next(t for t in range(9) if free[row, t].item() in ends)
        n = found.shape[1]
        assert found[row, : first + 1].equal(free[row, : first + 1])
        assert (found[row, first:] == free[row, first]).all()
        assert n == 1 + max(next(t for t in range(9) if free[r, t].item() in ends) for r in range(2))


class Bytes:
    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, ids: Sequence[int]) -> str:
        return bytes(ids).decode(errors="replace")


class Words:
    """As SentencePiece: a word begins with its space, which is not shown at the start of a text."""

    WORDS = ("▁one", "▁two", "ful", "▁three")

    def encode(self, text: str) -> list[int]:
        raise NotImplementedError

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(self.WORDS[i] for i in ids).replace("▁", " ").removeprefix(" ")


def test_half_a_character_waits() -> None:
    text = "a😀é漢 z" * 9
    assert list(decode_stream(Bytes(), list("é😀".encode()))) == ["é", "😀"]
    assert "".join(decode_stream(Bytes(), list(text.encode()))) == text
    assert list(decode_stream(Bytes(), [0xF0, 0x9F])) == ["\N{REPLACEMENT CHARACTER}"]


def test_the_first_word_after_a_prompt_keeps_its_space() -> None:
    assert "".join(decode_stream(Words(), [1, 2, 3], before=[0])) == " twoful three"
    assert "".join(decode_stream(Words(), [1, 2, 3])) == "twoful three"


def test_what_may_become_a_stop_is_held_back() -> None:
    assert list(until_stop(["a<", "e", "n", "d", "b"], ["<end>"])) == ["a", "<endb"]
    assert list(until_stop(["a<", "en", "d>b"], ["<end>"])) == ["a"]
    assert list(until_stop(["ab", "c"], [])) == ["ab", "c"]
    assert list(until_stop(["aab"], ["ab", "a"])) == []
    assert list(until_stop(["x<e"], ["<end>"])) == ["x", "<e"]


# --- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"prompts": []}, r"ids must be lists of at least one token each, got the lengths \[\]"),
        ({"prompts": [""]}, r"prompt must have at least one token, got none"),
        ({"prompts": ["a" * 40]}, r"prompt must have at most 31 tokens, the positions of the model, got 40"),
        ({"prompts": ["a" * 25]}, r"must fit into the 31 positions of the model, got 25 \+ max_new_tokens=12"),
        ({"prompts": [[5, 99]]}, r"token ids must lie in 0 .. 36, got 5 .. 99"),
        ({"prompts": [[-1]]}, r"token ids must lie in 0 .. 36, got -1 .. -1"),
        ({"prompts": ["a"], "end": 99}, r"end must lie in 0 .. 36, got 99"),
        ({"prompts": ["a"], "end": [3, -1]}, r"end must lie in 0 .. 36, got -1"),
        ({"prompts": ["a"], "stop": [""]}, r"stop must be a list of texts that are not empty, got \[''\]"),
        ({"prompts": ["a"], "stop": "abc"}, r"stop must be a list of texts that are not empty, got 'abc'"),
        ({"prompts": ["a"], "max_new_tokens": 0}, r"max_new_tokens must be"),
    ],
)
def test_wrong_arguments(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        generate_text(lively(decoder()), Letters(), **{"max_new_tokens": 12, **arguments})


def test_a_single_text_is_no_list() -> None:
    with pytest.raises(TypeError, match=r"prompts must be a list of texts, got a single one: write \['abc'\]"):
        texts("abc")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"min_p": 1.5}, r"min_p must lie in \[0, 1\], got 1.5"),
        ({"repetition_penalty": 0.0}, "repetition_penalty"),
        ({"repetition_penalty": -1.0}, "repetition_penalty"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Sample(**settings)


def test_padding_is_no_repetition() -> None:
    """A row is penalised for its own tokens, not for those that fill it up."""
    model, penalty = lively(decoder(**LLAMA)), Greedy(repetition_penalty=3.0)
    both = generate(model, [[5, 6, 7, 8], [9]], max_new_tokens=6, sampling=penalty)
    assert both[1:].equal(generate(model, [[9]], max_new_tokens=6, sampling=penalty))
