"""A config in a file is a data set."""

import json

import pytest

from headwork.data import (
    DATA_CONFIGS,
    Augmentation,
    BundledText,
    BytePairs,
    Cifar10,
    Cifar100,
    DataConfig,
    Dates,
    Digits,
    FashionMnist,
    ImageFolder,
    Mnist,
    Multi30k,
    PreprocessedImages,
    Reviews,
    Sst2,
    TextFile,
    TextPairs,
    TextTable,
    TinyShakespeare,
    Words,
)
from headwork.serialise import config_from_dict, config_to_dict
from tests.data.conftest import CONFIGS, load


@pytest.mark.parametrize(
    "config",
    [
        *CONFIGS.values(),
        TextFile(path="own.txt", tokenizer=BytePairs(n_tokens=999)),
        Reviews(tokenizer=Words(n_tokens=50)),
        Dates(languages=("sv", "da")),
        TextTable(path="own.csv", label="verdict"),
        TextPairs(path="own.en", target_path="own.de"),
        *(kind(directory="here") for kind in (Cifar10, Cifar100, Mnist, FashionMnist, Sst2, Multi30k, TinyShakespeare)),
        ImageFolder(path="photos", size=(32, 48), augment=Augmentation(crop=4, mixup=0.2)),
    ],
)
def test_every_config_survives_json(config):
    text = json.dumps(config_to_dict(config), allow_nan=False)
    assert config_from_dict(json.loads(text), DATA_CONFIGS) == config
    assert isinstance(config, DataConfig)


def test_every_kind_is_tested():
    own = {TextFile, ImageFolder, TextTable, TextPairs}  # of files that a test has to write first
    own |= {Cifar10, Cifar100, Mnist, FashionMnist, Sst2, Multi30k, TinyShakespeare, PreprocessedImages}
    assert {type(config) for config in CONFIGS.values()} | own == set(DATA_CONFIGS)


@pytest.mark.parametrize("name", CONFIGS)
def test_what_kind_of_set_it_is(name):
    data = load(name)
    tasks = {"dates": "Translation", "text": "NextToken", "byte pairs": "NextToken", "masked": "MaskedTokens"}
    assert type(data.task).__name__ == tasks.get(name, "Classification")
    assert (data.tokenizer is None) == (name in ("digits", "mnist"))


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Digits(augment=1), "Digits.augment must be bool, got 1"),
        (lambda: Digits(n_test=2.5), "Digits.n_test must be int, got 2.5"),
        (
            lambda: BundledText(tokenizer=BytePairs),
            r"must be Characters or BytePairs or Pretrained \(an instance, with parentheses\)",
        ),
        (lambda: BundledText(tokenizer=Words()), "tokenizer must be Characters or BytePairs or Pretrained, got Words"),
        (lambda: TextFile(path=3), "TextFile.path must be str, got 3"),
        (lambda: Dates(languages="en"), "languages must be .*, got 'en'"),
        (lambda: Digits().load(seed=-1), "seed must be 0 or more, got -1"),
    ],
)
def test_wrong_configs(make, message):
    with pytest.raises(ValueError, match=message):
        make()
