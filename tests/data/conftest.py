"""The data sets, each read once for all tests."""

from functools import lru_cache

import pytest

from headwork.data import (
    BundledText,
    BytePairs,
    DataConfig,
    Dataset,
    Dates,
    Digits,
    MaskedText,
    Mnist5k,
    Reviews,
)

CONFIGS: dict[str, DataConfig] = {
    "digits": Digits(),
    "mnist": Mnist5k(),
    "dates": Dates(n_train=700, n_valid=50, n_test=50),
    "text": BundledText(n_context=31),
    "byte pairs": BundledText(tokenizer=BytePairs(n_tokens=300), n_context=31),
    "masked": MaskedText(text=BundledText(n_context=31)),
    "reviews": Reviews(source="rotten_tomatoes", max_tokens=17, n_valid=200, n_test=200),
}
VARIED = ("digits", "mnist", "text", "byte pairs", "masked")


@lru_cache
def load(name: str, seed: int = 0) -> Dataset:
    return CONFIGS[name].load(seed)


@pytest.fixture(params=CONFIGS)
def any_set(request: pytest.FixtureRequest) -> Dataset:
    return load(request.param)


@pytest.fixture(params=VARIED)
def varied_set(request: pytest.FixtureRequest) -> str:
    return request.param
