"""Prompt lookup says what greedy search says, in fewer calls."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import headwork as hw
from headwork.generation import Greedy, Sample, generate, stream_long
from headwork.generation.lookup import Lookup

from ..models.small_models import LLAMA, POSITIONS, decoder, some_ids
from .lively import lively

pytestmark = pytest.mark.usefixtures("as_users_run_it")
MODELS: dict[str, dict[str, Any]] = {"gpt2": {}, "llama": LLAMA, "alibi": {"position": POSITIONS["alibi"]}}


class Repeating(hw.models.Decoder):
    """Says what stands four tokens before; counts its calls."""

    n_calls = 0

    def forward(self, ids: Tensor, *, cache: Any = None, **options: Any) -> Tensor:
        Repeating.n_calls += 1
        self.past = torch.cat([self.past[:, : cache.n_tokens], ids], dim=1)
        logits = super().forward(ids, cache=cache, **options)
        before = self.past.roll(3, 1)[:, -ids.shape[1] :]
        return logits + 1e3 * torch.nn.functional.one_hot(before, logits.shape[-1])


@pytest.mark.parametrize("changes", MODELS.values(), ids=MODELS.keys())
@pytest.mark.parametrize("n_guessed", [1, 3, 9])
def test_the_same_text(changes: dict[str, Any], n_guessed: int) -> None:
    model = lively(decoder(**changes))
    for seed in range(3):
        torch.manual_seed(seed)
        ids = some_ids(1, 3).repeat(1, 4)
        expected = generate(model, ids, max_new_tokens=19)
        assert generate(model, ids, max_new_tokens=19, prompt_lookup=n_guessed).equal(expected)
        end = expected[0, 7].item()
        until = generate(model, ids, max_new_tokens=19, end=end)
        assert generate(model, ids, max_new_tokens=19, end=end, prompt_lookup=n_guessed).equal(until)


def test_fewer_calls_where_a_text_repeats_itself() -> None:
    model = lively(Repeating(decoder(**LLAMA).config))
    ids = torch.tensor([[3, 1, 4, 5] * 3])

    def said(**options: Any) -> tuple[Tensor, int]:
        model.past, Repeating.n_calls = torch.zeros(1, 0, dtype=torch.long), 0
        return generate(model, ids, max_new_tokens=40, **options), Repeating.n_calls

    (expected, n_calls), (found, n_fewer) = said(), said(prompt_lookup=8)
    assert found.equal(expected)
    assert n_calls == 40
    assert n_fewer <= 8


def test_a_text_longer_than_the_context() -> None:
    model, ids = lively(decoder()), some_ids(1, 5)
    texts = [
        [int(token) for token in stream_long(model, ids, max_new_tokens=70, **o)] for o in ({}, {"prompt_lookup": 4})
    ]
    assert texts[0] == texts[1]


@given(st.lists(st.integers(0, 3), max_size=40), st.integers(0, 6))
def test_a_guess_follows_the_last_occurrence(tokens: list[int], n_tokens: int) -> None:
    guess = Lookup(tokens).guess(n_tokens)
    assert len(guess) <= n_tokens
    for n in (4, 3, 2):
        starts = [i for i in range(len(tokens) - n) if tokens[i : i + n] == tokens[-n:] and len(tokens) >= n]
        if starts:
            again = [*tokens]
            for i in range(n_tokens):
                again.append(again[starts[-1] + n + i])
            assert guess == again[len(tokens) :]
            return
    assert guess == []


@pytest.mark.parametrize(
    ("ids", "options", "message"),
    [
        ([[1, 2], [3, 4]], {}, r"prompt_lookup is for a single row without padding, got 2 rows"),
        ([[1, 2]], {"prompt_lookup": 0}, r"prompt_lookup must be"),
        ([[1, 2]], {"sampling": Sample()}, r"prompt_lookup needs sampling=Greedy\(\), got Sample"),
        (
            [[1, 2]],
            {"sampling": Greedy(repetition_penalty=2.0)},
            r"prompt_lookup needs sampling=Greedy\(\), got Greedy",
        ),
    ],
)
def test_what_it_is_not_for(ids: list[list[int]], options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        generate(lively(decoder()), ids, **{"max_new_tokens": 3, "prompt_lookup": 2, **options})


def test_a_cache_forgets_no_more_than_it_knows() -> None:
    model = lively(decoder())
    cache = model.new_cache()
    model(some_ids(1, 5), cache=cache)
    for n in (-1, 5, 6):
        with pytest.raises(ValueError, match=f"n_tokens must be fewer than the 5 that were read, got {n}"):
            cache.forget(n)
