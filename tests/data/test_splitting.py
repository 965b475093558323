"""Which part an example belongs to: as the files say, or at random with duplicates on one side; and what is said."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwork.data.examples import Split, split_by_label
from headwork.data.found import say_split
from headwork.data.splitting import HeldOut, by_part, share_out

TENTHS = HeldOut(0.1, 0.1)


def counts(split: Split, labels: list[int]) -> list[dict[int, int]]:
    return [dict(sorted(Counter(labels[i] for i in part).items())) for part in split]


@settings(max_examples=50, deadline=None)
@given(
    labels=st.lists(st.integers(0, 2), min_size=30, max_size=90),
    seed=st.integers(0, 99),
    shares=st.sampled_from([TENTHS, HeldOut(0.05, 0.3)]),
)
def test_without_duplicates_it_is_the_split_by_label(labels: list[int], seed: int, shares: HeldOut) -> None:
    labels = [0, 1, 2] * 3 + labels
    n = len(labels)
    split = share_out(labels, range(n), [None] * n, shares, seed)
    sizes = [max(3, round(share * n)) for share in shares]
    wanted = split_by_label(labels, *sizes, seed)
    if set(labels) == {labels[i] for i in wanted.train}:
        assert split == wanted


@pytest.mark.parametrize("seed", range(20))
def test_copies_do_not_change_the_shares(seed: int) -> None:
    labels = [0] * 30 + [1] * 30
    keys = [0] * 7 + list(range(1, 24)) + [100] * 7 + list(range(101, 124))
    split = share_out(labels, keys, [None] * 60, HeldOut(0.2, 0.2), seed)
    assert counts(split, labels) == [{0: 18, 1: 18}, {0: 6, 1: 6}, {0: 6, 1: 6}]


@pytest.mark.parametrize("seed", [0, 14])
def test_many_copies_of_one_example_stay_in_the_training_part(seed: int) -> None:
    labels = [1] * 300 + [i % 2 for i in range(700)]
    keys = [0] * 300 + list(range(1, 701))
    split = share_out(labels, keys, [None] * 1000, TENTHS, seed)
    assert set(range(300)) <= set(split.train)
    assert counts(split, labels) == [{0: 280, 1: 520}, {0: 35, 1: 65}, {0: 35, 1: 65}]


def test_every_class_of_three_different_examples_is_in_every_part() -> None:
    labels = [0] * 40 + [1] * 30
    keys = [*range(40), *(100 + i // 10 for i in range(30))]  # of the second class ten copies of each of three
    split = share_out(labels, keys, [None] * 70, TENTHS, seed=3)
    assert [found.get(1) for found in counts(split, labels)] == [10, 10, 10]


@pytest.mark.parametrize("seed", range(5))
def test_a_class_is_always_among_those_that_are_learned(seed: int) -> None:
    labels = [0] * 30 + [*range(1, 9)]
    split = share_out(labels, range(38), [None] * 38, HeldOut(0.2, 0.2), seed)
    assert set(labels) == {labels[i] for i in split.train}
    assert sorted(i for part in split for i in part) == list(range(38))


def test_too_few_examples() -> None:
    with pytest.raises(ValueError, match="3 or more different examples of each of the 2 classes, one for each part"):
        share_out([0, 1] * 40, [0, 1] * 40, [None] * 80, TENTHS, 0)
    with pytest.raises(ValueError, match=r"there must be 3 or more different examples, one for each part, got 2 diff"):
        share_out([0, 0], "ab", [None] * 2, TENTHS, 0)
    with pytest.raises(ValueError, match=r"must leave 2 or more of 20 examples to train on, got 0.5 and 0.5"):
        share_out([0, 1] * 10, range(20), [None] * 20, HeldOut(0.5, 0.5), 0)


def said(labels: list[int], split: Split, given: list[str | None] | None = None) -> str:
    return say_split(split, given=given or [None] * len(labels), seed=7, labels=labels, names=["cat", "dog", "emu"])


def test_the_real_shares_are_said() -> None:
    labels = [0] * 10 + [1] * 10
    even = Split([*range(6), *range(10, 16)], [6, 7, 16, 17], [8, 9, 18, 19])
    assert said(labels, even) == "split: 12 train, 4 valid, 4 test (at random, seed 7, each class in the same share)"
    odd = Split([*range(9), *range(10, 16)], [9, 16], [17, 18, 19])
    assert said(labels, odd) == (
        "split: 15 train, 2 valid, 3 test (at random, seed 7); no example of cat in test; "
        "cat is 60 % of train, 50 % of valid, 0 % of test"
    )
    rare = Split([*range(8), 10], [8], [9])
    assert said([0] * 10 + [2], rare) == (
        "split: 9 train, 1 valid, 1 test (at random, seed 7); no example of emu in valid and test"
    )


def test_what_is_given_is_not_called_random() -> None:
    labels, split = [0, 1] * 5, Split([0, 1, 2, 3, 4, 5], [6, 7], [8, 9])
    given = [None] * 8 + ["test"] * 2
    assert said(labels, split, given) == (
        "split: 6 train, 2 valid, 2 test (test as the files say, valid at random, seed 7, each class in the same share)"
    )
    assert said(labels, split, ["train"] * 6 + ["valid"] * 2 + ["test"] * 2).endswith("2 test (as the files say)")


@pytest.mark.parametrize(
    ("files", "wanted"),
    [
        (["train/a.csv", "test/b.csv"], {"train": ["train/a.csv"], "test": ["test/b.csv"]}),
        (["x/train/0.csv", "x/test/0.csv"], {"train": ["x/train/0.csv"], "test": ["x/test/0.csv"]}),
        (["train/train-0.csv", "dev/0.csv"], {"train": ["train/train-0.csv"], "valid": ["dev/0.csv"]}),
        (["my_train.csv", "my-test.csv"], {"train": ["my_train.csv"], "test": ["my-test.csv"]}),
        (["ptb.train.txt", "ptb.valid.txt"], {"train": ["ptb.train.txt"], "valid": ["ptb.valid.txt"]}),
        (["Trains/a.csv", "b.csv"], {}),
    ],
)
def test_the_folders_and_the_names_of_files_say_the_part(files: list[str], wanted: dict[str, list[str]]) -> None:
    root = Path("/data/train")  # what the folder of all is called says nothing
    found = by_part([root / file for file in files], root)
    assert {part: [path.relative_to(root).as_posix() for path in paths] for part, paths in found.items()} == wanted


def test_names_that_contradict_each_other() -> None:
    root = Path("/data")
    with pytest.raises(ValueError, match=r"a file must name one part, got train/test.csv, which names train and test"):
        by_part([root / "train/test.csv", root / "train/a.csv"], root)
    with pytest.raises(ValueError, match=r"all files of /data must name a part .* got train/a.csv beside more/b.csv"):
        by_part([root / "train/a.csv", root / "more/b.csv"], root)


def test_shares_and_seeds_that_cannot_be() -> None:
    about = [0, 1] * 10, list(range(20)), [None] * 20
    with pytest.raises(ValueError, match="valid_share must be more than 0, since the data has no part valid, got 0"):
        share_out(*about, HeldOut(0.0, 0.2), seed=0)
    with pytest.raises(ValueError, match="split_seed must be 0 or more, got -1"):
        share_out(*about, HeldOut(0.2, 0.2), seed=-1)
    given = ["valid"] * 4 + [None] * 16
    assert len(share_out([0, 1] * 10, list(range(20)), given, HeldOut(0.0, 0.2), seed=0).valid) == 4


def test_a_class_that_is_absent_has_not_the_same_share() -> None:
    labels = [0] * 20 + [1] * 20 + [2]
    split = share_out(labels, list(range(41)), [None] * 41, HeldOut(0.2, 0.2), seed=0)
    said = say_split(split, given=[None] * 41, seed=0, labels=labels, names=("a", "b", "rare"))
    assert "same share" not in said
    assert "no example of rare in valid and test" in said
