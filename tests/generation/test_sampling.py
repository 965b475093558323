"""One word out of many: the filters, the chances and the seeds."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from headwork.generation import Greedy, Sample, keep_top_k, keep_top_p, pick, probabilities
from headwork.generation.sampling import draw
from headwork.serialise import config_from_dict, config_to_dict

BATCH, VOCAB = 5, 7
LOGITS = torch.tensor([1.5, -0.3, 0.7, 2.1, -1.0, 0.2, 0.9], dtype=torch.float64)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def kept(logits: Tensor) -> set[int]:
    return set(logits.isfinite().nonzero().flatten().tolist())


# --- filters ---------------------------------------------------------------------------------------------------------

some_logits = st.lists(st.integers(-40, 40), min_size=1, max_size=9, unique=True).map(
    lambda tenths: torch.tensor(tenths, dtype=torch.float64) / 10
)


@given(logits=some_logits, k=st.integers(1, 12))
def test_top_k_keeps_the_k_best(logits: Tensor, k: int) -> None:
    best = sorted(range(len(logits)), key=lambda word: -logits[word])[:k]
    filtered = keep_top_k(logits, k)
    assert kept(filtered) == set(best)
    assert filtered[best].equal(logits[best])


def test_top_k_keeps_what_is_equal_to_the_last() -> None:
    assert kept(keep_top_k(torch.tensor([1.0, 2.0, 1.0, 0.0]), 2)) == {0, 1, 2}


@given(logits=some_logits, p=st.floats(0.01, 0.99))
def test_top_p_keeps_the_fewest_words_that_reach_p(logits: Tensor, p: float) -> None:
    probability = logits.softmax(-1).tolist()
    best_first = sorted(range(len(logits)), key=lambda word: -probability[word])
    fewest = next(n for n in range(1, 10) if n == len(logits) or sum(probability[w] for w in best_first[:n]) >= p)
    filtered = keep_top_p(logits, p)
    assert kept(filtered) == set(best_first[:fewest])
    assert filtered[best_first[:fewest]].equal(logits[best_first[:fewest]])


def test_top_p_of_1_keeps_words_that_rounding_would_lose() -> None:
    assert kept(keep_top_p(torch.tensor([0.0, -60.0, -90.0]), 1.0)) == {0, 1, 2}


def test_top_p_keeps_at_least_one_word() -> None:
    assert kept(keep_top_p(torch.tensor([0.1, 0.3, 0.2]), 1e-12)) == {1}


def test_filters_treat_each_row_by_itself() -> None:
    rows = torch.randn(2, BATCH, VOCAB)
    for keep, limit in ((keep_top_k, 3), (keep_top_p, 0.6)):
        one_by_one = torch.stack([torch.stack([keep(row, limit) for row in block]) for block in rows])
        assert keep(rows, limit).equal(one_by_one)


# --- chances ---------------------------------------------------------------------------------------------------------


def by_hand(sampling: Sample) -> list[float]:
    """The temperature, then top_k, then top_p, with the words in a dictionary."""
    odds = {word: math.exp(score / sampling.temperature) for word, score in enumerate(LOGITS.tolist())}
    order = sorted(odds, key=lambda word: -odds[word])[: sampling.top_k]
    total, reached, left = sum(odds[word] for word in order), 0.0, []
    for word in order:
        if sampling.top_p is None or reached < sampling.top_p:
            left.append(word)
            reached += odds[word] / total
    total = sum(odds[word] for word in left)
    return [odds[word] / total if word in left else 0.0 for word in range(VOCAB)]


every_way = pytest.mark.parametrize(
    "sampling",
    [
        Sample(),
        Sample(temperature=0.5),
        Sample(temperature=3.0),
        Sample(top_k=3),
        Sample(top_p=0.8),
        Sample(temperature=2.0, top_k=5, top_p=0.7),
    ],
    ids=str,
)


@every_way
def test_probabilities_are_those_written_by_hand(sampling: Sample) -> None:
    expected = torch.tensor(by_hand(sampling), dtype=torch.float64)
    torch.testing.assert_close(probabilities(LOGITS[None], sampling)[0], expected, rtol=1e-12, atol=1e-12)


@every_way
def test_words_come_as_often_as_they_should(sampling: Sample) -> None:
    """Pearson's chi-square stays below its 99.9 % quantile: by chance it would not once in a thousand seeds."""
    n, quantile = 20_000, {1: 10.83, 2: 13.82, 3: 16.27, 4: 18.47, 5: 20.52, 6: 22.46}
    counts = pick(LOGITS.expand(n, -1), sampling, seeded()).bincount(minlength=VOCAB)
    expected = n * torch.tensor(by_hand(sampling), dtype=torch.float64)
    possible = expected > 0
    assert counts[~possible].sum() == 0
    chi_square = ((counts - expected)[possible].square() / expected[possible]).sum()
    assert chi_square < quantile[int(possible.sum()) - 1]


@pytest.mark.parametrize("temperature", [1e-3, 1e-30, 1e-300, 5e-324])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_towards_temperature_0_the_best_word_is_taken(temperature: float, dtype: torch.dtype) -> None:
    logits = (10 * torch.randn(BATCH, VOCAB)).to(dtype)
    sampling = Sample(temperature=temperature)
    assert pick(logits, sampling, seeded()).equal(pick(logits, Greedy()))
    assert probabilities(logits, sampling).isfinite().all()


def test_at_a_high_temperature_all_words_are_equal() -> None:
    torch.testing.assert_close(probabilities(LOGITS[None], Sample(temperature=1e9)), torch.full((1, 7), 1 / 7).double())


def test_the_best_word_of_each_row() -> None:
    logits = torch.randn(BATCH, VOCAB)
    assert pick(logits).tolist() == [max(range(VOCAB), key=row.__getitem__) for row in logits.tolist()]


def test_top_k_of_1_is_greedy() -> None:
    logits = torch.randn(BATCH, VOCAB)
    assert pick(logits, Sample(top_k=1)).equal(pick(logits))


def test_the_same_seed_gives_the_same_words() -> None:
    logits = torch.zeros(50, VOCAB)
    assert pick(logits, Sample(), seeded(3)).equal(pick(logits, Sample(), seeded(3)))
    assert not pick(logits, Sample(), seeded(3)).equal(pick(logits, Sample(), seeded(4)))


def test_a_word_with_the_score_minus_infinity_never_comes() -> None:
    logits = torch.tensor([[0.0, -math.inf, 0.0]]).expand(500, -1)
    assert pick(logits, Sample(), seeded()).unique().tolist() == [0, 2]


def test_tokens_are_drawn_as_multinomial_draws_them() -> None:
    p = torch.randn(200, VOCAB).softmax(-1).masked_fill(torch.rand(200, VOCAB) < 0.3, 0.0)
    assert draw(p, seeded(3)).equal(torch.multinomial(p, 1, generator=seeded(3)).squeeze(-1))


# --- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": 0.0}, "temperature must be more than 0 and finite, got 0.0"),
        ({"temperature": -1.0}, "temperature must be more than 0 and finite, got -1.0"),
        ({"temperature": math.nan}, "temperature must be more than 0 and finite, got nan"),
        ({"temperature": math.inf}, "temperature must be more than 0 and finite, got inf"),
        ({"temperature": "warm"}, "Sample.temperature must be float, got 'warm'"),
        ({"top_k": 0}, "top_k must be 1 or more, got 0"),
        ({"top_k": 2.5}, "Sample.top_k must be int or None, got 2.5"),
        ({"top_p": 0.0}, r"top_p must lie in \(0, 1\], got 0.0"),
        ({"top_p": 1.5}, r"top_p must lie in \(0, 1\], got 1.5"),
        ({"top_p": math.nan}, r"top_p must lie in \(0, 1\], got nan"),
    ],
)
@pytest.mark.usefixtures("as_users_run_it")
def test_a_way_to_pick_that_cannot_be(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Sample(**settings)


@pytest.mark.usefixtures("as_users_run_it")
def test_filters_with_limits_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="k must be 1 or more, got 0"):
        keep_top_k(LOGITS, 0)
    with pytest.raises(ValueError, match=r"top_p must lie in \(0, 1\], got 0"):
        keep_top_p(LOGITS, 0)


@pytest.mark.parametrize("sampling", [Greedy(), Sample()], ids=str)
@pytest.mark.parametrize("bad", [[1.0, math.nan], [math.inf, 0.0], [-math.inf, -math.inf]], ids=str)
def test_scores_that_are_no_numbers(sampling: Greedy | Sample, bad: list[float]) -> None:
    with pytest.raises(ValueError, match=r"the best score of each row must be finite, got .*(nan|inf) in row 1"):
        pick(torch.tensor([[0.0, 1.0], bad]), sampling)


@pytest.mark.usefixtures("as_users_run_it")
def test_a_class_where_an_instance_belongs() -> None:
    with pytest.raises(TypeError, match=r"sampling must be Greedy\(\) or Sample\(...\), got <class .*Greedy"):
        pick(LOGITS[None], Greedy)


@pytest.mark.parametrize("sampling", [Greedy(), Sample(temperature=0.7, top_k=5, top_p=0.9)], ids=str)
def test_a_way_to_pick_goes_into_a_file_and_back(sampling: Greedy | Sample) -> None:
    assert config_from_dict(config_to_dict(sampling), [Greedy, Sample]) == sampling
