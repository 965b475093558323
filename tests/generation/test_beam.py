"""Beams: against a search in plain lists without a cache, against all translations there are, and against greed."""

import itertools
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from headwork import choices
from headwork.generation import Hypothesis, beam, beam_search, translate
from headwork.generation.reading import TargetReader
from headwork.models import EncoderDecoder

from ..models.small_models import POSITIONS, T5, VOCAB, encoder_decoder, ready, real_tokens, some_ids
from .lively import enliven, lively

pytestmark = pytest.mark.usefixtures("as_users_run_it")  # many calls; test_shapes runs with the checks

N_NEW_TOKENS = 5


def log_p(model: EncoderDecoder, source: Tensor, targets: list[list[int]]) -> list[list[float]]:
    """Of each next word after each of the targets, which are of one length; everything is read anew."""
    sources = source.expand(len(targets), -1)
    return model(sources, torch.tensor(targets))[:, -1].log_softmax(-1).tolist()


def search_in_lists(
    model: EncoderDecoder, source: Tensor, *, n_beams: int, max_new_tokens: int, end: int, length_penalty: float
) -> tuple[list[int], float]:
    """One source, no cache, no early end: every step is taken."""
    live, finished = [([0], 0.0)], []
    for n in range(1, max_new_tokens + 1):
        if not live:
            break
        scores = log_p(model, source, [ids for ids, _ in live])
        longer = [
            ([*ids, word], total + of_word)
            for (ids, total), of_beam in zip(live, scores, strict=True)
            for word, of_word in enumerate(of_beam)
        ]
        longer.sort(key=lambda beam: -beam[1])
        ends = [ids[-1] == end or n == max_new_tokens for ids, _ in longer]
        finished += [beam for beam, is_end in zip(longer[:n_beams], ends, strict=False) if is_end]
        n_looked_at = n_beams if n_beams == 1 else 2 * n_beams
        live = [beam for beam, is_end in zip(longer[:n_looked_at], ends, strict=False) if not is_end][:n_beams]
    scored = [(ids[1:], total / (len(ids) - 1) ** length_penalty) for ids, total in finished]
    return max(scored, key=lambda beam: beam[1])


def assert_found(found: Hypothesis, ids: list[int], score: float) -> None:
    assert found.ids.tolist() == ids
    assert found.score == pytest.approx(score, rel=1e-10)


MODELS: dict[str, dict[str, Any]] = {
    "original": {},
    "t5": T5,
    "learned": {"position": POSITIONS["learned"], "norm_order": "pre", "target_vocab": 11},
    "relative": {"position": POSITIONS["relative"]},
}


@pytest.mark.parametrize("changes", MODELS.values(), ids=MODELS.keys())
@settings(max_examples=10, deadline=None)
@given(
    n_beams=st.integers(1, 6),
    end=st.integers(0, 10),
    likely_end=st.sampled_from([0.0, 1.0, 2.0]),
    length_penalty=st.sampled_from([1.0, 0.0, 0.5, 2.0, -1.0]),
    lengths=st.lists(st.integers(1, 7), min_size=1, max_size=3),
    seed=st.integers(0, 99),
)
def test_beams_are_those_in_lists_without_a_cache(
    changes: dict[str, Any],
    n_beams: int,
    end: int,
    likely_end: float,
    length_penalty: float,
    lengths: list[int],
    seed: int,
) -> None:
    """Each source of a batch as if it were alone, and the early end loses nothing."""
    torch.manual_seed(seed)
    model = encoder_decoder(**{"vocab": 11, **changes, "lm_head": choices.TiedLMHead(bias=True)})
    model = enliven(ready(model, seed), factor=1.0)
    with torch.no_grad():
        model.lm_head.bias[end] = likely_end
    source, real = some_ids(len(lengths), 7, 11), real_tokens(tuple(lengths), 7)
    options = {"n_beams": n_beams, "max_new_tokens": N_NEW_TOKENS, "end": end, "length_penalty": length_penalty}
    found = beam_search(model, source, begin=0, source_visible=real, **options)
    for row, length in enumerate(lengths):
        assert_found(found[row], *search_in_lists(model, source[row : row + 1, :length], **options))


@settings(max_examples=12, deadline=None)
@given(
    vocab=st.integers(1, 3),
    max_new_tokens=st.integers(1, 3),
    length_penalty=st.sampled_from([1.0, 0.0, 0.5, 2.0, -1.0]),
    seed=st.integers(0, 999),
)
def test_with_enough_beams_the_best_of_all_translations_is_found(
    vocab: int, max_new_tokens: int, length_penalty: float, seed: int
) -> None:
    torch.manual_seed(seed)
    model = lively(encoder_decoder(vocab=vocab, n_encoder_layers=1, n_decoder_layers=1), seed)
    source, end = some_ids(2, 3, vocab), vocab - 1
    found = beam_search(
        model,
        source,
        n_beams=vocab**max_new_tokens,
        max_new_tokens=max_new_tokens,
        begin=0,
        end=end,
        length_penalty=length_penalty,
    )
    for row, hypothesis in enumerate(found):
        best = (-math.inf, ())
        for n in range(1, max_new_tokens + 1):
            for ids in itertools.product(range(vocab), repeat=n):
                if end not in ids[:-1] and (ids[-1] == end or n == max_new_tokens):
                    best = max(best, (score_of(model, source[row], ids, length_penalty), ids))
        assert_found(hypothesis, list(best[1]), best[0])


def score_of(model: EncoderDecoder, source: Tensor, ids: Any, length_penalty: float) -> float:
    """The score as it is defined: the sum of the log-probabilities by the length to the power of the penalty."""
    target = torch.tensor([[0, *ids]])
    scores = model(source[None], target[:, :-1]).log_softmax(-1)
    return scores.gather(-1, target[:, 1:, None]).sum().item() / len(ids) ** length_penalty


@pytest.mark.parametrize("length_penalty", [0.0, 1.0, 2.0])
def test_a_score_is_what_it_is_defined_to_be(length_penalty: float) -> None:
    model, source = lively(encoder_decoder()), some_ids(3, 7)
    found = beam_search(
        model, source, n_beams=4, max_new_tokens=N_NEW_TOKENS, begin=0, end=1, length_penalty=length_penalty
    )
    for row, hypothesis in enumerate(found):
        assert hypothesis.score == pytest.approx(
            score_of(model, source[row], hypothesis.ids.tolist(), length_penalty), rel=1e-10
        )


# --- greed -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length_penalty", [1.0, 0.0, 2.0])
def test_one_beam_is_greedy(length_penalty: float) -> None:
    model, source = lively(encoder_decoder()), some_ids(5, 7)
    end = translate(model, source, max_new_tokens=N_NEW_TOKENS, begin=0, end=None)[0, 2].item()
    greedy = translate(model, source, max_new_tokens=N_NEW_TOKENS, begin=0, end=end).tolist()
    found = beam_search(
        model, source, n_beams=1, max_new_tokens=N_NEW_TOKENS, begin=0, end=end, length_penalty=length_penalty
    )
    lengths = set()
    for row, hypothesis in enumerate(found):
        n = greedy[row].index(end) + 1 if end in greedy[row] else N_NEW_TOKENS
        lengths.add(n)
        assert_found(hypothesis, greedy[row][:n], score_of(model, source[row], greedy[row][:n], length_penalty))
    assert len(lengths) > 1


def gains(seed: int, n_beams: int, max_new_tokens: int) -> list[float]:
    """How much better than the greedy translation the one of the beams is, for each of 8 sources."""
    torch.manual_seed(seed)
    model, source = lively(encoder_decoder(n_encoder_layers=1, n_decoder_layers=1), seed), some_ids(8, 7)
    options = {"max_new_tokens": max_new_tokens, "begin": 0, "end": 1, "length_penalty": 0.0}
    greedy, wide = (beam_search(model, source, n_beams=n, **options) for n in (1, n_beams))
    return [b.score - a.score for a, b in zip(greedy, wide, strict=True)]


def test_more_beams_find_better_translations() -> None:
    found = [gain for seed in range(4) for gain in gains(seed, n_beams=8, max_new_tokens=N_NEW_TOKENS)]
    assert min(found) > -1e-9
    assert sum(gain > 1e-9 for gain in found) > len(found) / 3


def test_but_not_always() -> None:
    """Two beams lose the greedy translation here: its beginning is no longer among the best two after a while."""
    assert min(gains(seed=1, n_beams=2, max_new_tokens=9)) < -1


# --- edges -----------------------------------------------------------------------------------------------------------


def test_a_search_ends_when_nothing_can_become_better() -> None:
    model, calls = lively(encoder_decoder(lm_head=choices.TiedLMHead(bias=True))), []
    with torch.no_grad():
        model.lm_head.bias[3] = 50.0
    model.decoder_layers[0].register_forward_hook(lambda *_: calls.append(1))
    found = beam_search(model, some_ids(2, 7), n_beams=4, max_new_tokens=30, begin=0, end=3, length_penalty=0.0)
    assert [hypothesis.ids.tolist() for hypothesis in found] == [[3], [3]]
    assert len(calls) == 1


def test_a_negative_penalty_does_not_end_the_search_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end is worth log 0.17 = -1.77 at once and 2 (log 0.55 + log 0.95) = -1.30 after a word."""
    at_first, then = [0.0, 0.17, 0.55, 0.07, 0.07, 0.07, 0.07], [0.0, 0.95, 0.01, 0.01, 0.01, 0.01, 0.01]

    class Script:
        def __init__(self) -> None:
            self.steps = [at_first, then, then, then]

        def __call__(self, ids: Tensor) -> Tensor:
            return torch.tensor([self.steps.pop(0)]).log().expand(len(ids), -1)

        def reorder(self, rows: Tensor) -> None:
            pass

    monkeypatch.setattr(beam, "read_target", lambda *_, **__: Script())
    (found,) = beam_search(None, some_ids(1, 7), n_beams=4, max_new_tokens=4, begin=0, end=1, length_penalty=-1.0)
    assert found.ids.tolist() == [2, 1]
    assert found.score == pytest.approx(2 * math.log(0.55 * 0.95), rel=1e-6)


def test_fewer_words_than_beams() -> None:
    model = lively(encoder_decoder(vocab=2))
    (found,) = beam_search(model, some_ids(1, 7, 2), n_beams=9, max_new_tokens=3, begin=0, end=1)
    assert 1 <= len(found.ids) <= 3


def test_a_language_of_one_word_which_is_the_end() -> None:
    model = lively(encoder_decoder(vocab=1))
    (found,) = beam_search(model, some_ids(1, 7, 1), n_beams=3, max_new_tokens=4, begin=0, end=0)
    assert_found(found, [0], 0.0)


def test_no_source_at_all() -> None:
    assert beam_search(lively(encoder_decoder()), some_ids(0, 7), n_beams=3, max_new_tokens=4, begin=0, end=1) == []


def test_a_model_in_training_does_not_notice() -> None:
    model, source = lively(encoder_decoder(dropout=0.5)), some_ids(2, 7)
    options = {"n_beams": 3, "max_new_tokens": N_NEW_TOKENS, "begin": 0, "end": 1}
    expected = [hypothesis.ids.tolist() for hypothesis in beam_search(model, source, **options)]
    model.train()
    assert [hypothesis.ids.tolist() for hypothesis in beam_search(model, source, **options)] == expected
    assert all(module.training for module in model.modules())
    assert torch.is_grad_enabled()


@pytest.mark.computes_in(torch.bfloat16)
def test_sums_of_a_model_in_half_precision_are_not() -> None:
    model, source = encoder_decoder().bfloat16(), some_ids(2, 7)
    logits = TargetReader(model, source)(torch.zeros(2, 1, dtype=torch.long))
    found = beam_search(model, source, n_beams=3, max_new_tokens=1, begin=0, end=1)
    expected = logits.float().log_softmax(-1).amax(-1).tolist()
    assert [hypothesis.score for hypothesis in found] == pytest.approx(expected, rel=1e-6)


# --- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_beams": 0}, "n_beams must be 1 or more, got 0"),
        ({"max_new_tokens": 0}, "max_new_tokens must be 1 or more, got 0"),
        ({"begin": VOCAB}, rf"begin must lie in 0 \.\. {VOCAB - 1}, got {VOCAB}"),
        ({"end": -1}, rf"end must lie in 0 \.\. {VOCAB - 1}, got -1"),
        ({"length_penalty": math.nan}, r"length_penalty must keep max_new_tokens \*\* length_penalty finite, got nan"),
        ({"length_penalty": math.inf}, r"length_penalty must keep max_new_tokens \*\* length_penalty finite, got inf"),
        (
            {"length_penalty": 1e9},
            r"length_penalty must keep max_new_tokens \*\* length_penalty finite, got 1000000000.0",
        ),
    ],
)
def test_searches_that_cannot_be(changes: dict[str, Any], message: str) -> None:
    options = {"n_beams": 3, "max_new_tokens": N_NEW_TOKENS, "begin": 0, "end": 1, **changes}
    with pytest.raises(ValueError, match=message):
        beam_search(encoder_decoder(), some_ids(2, 7), **options)


def test_weights_that_are_no_numbers() -> None:
    model = lively(encoder_decoder())
    with torch.no_grad():
        model.decoder_layers[0].feed_forward.down.bias[0] = torch.nan
    with pytest.raises(ValueError, match="the best score of each row must be finite, got nan in row 0 after 1 tokens"):
        beam_search(model, some_ids(2, 7), n_beams=3, max_new_tokens=N_NEW_TOKENS, begin=0, end=1)
