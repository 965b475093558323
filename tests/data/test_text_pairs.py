"""Translations of a user's own: two files, a table, a folder; and where two files part."""

import json
import re
from pathlib import Path

import pytest

from headwork.data import Characters, TextPairs

PAIRS = [(f"a dog {i}", f"ein Hund {i}") for i in range(40)]


def decoded(data, part, side):
    examples = getattr(data, part)
    rows = getattr(examples.batch(range(len(examples))), side)
    return [data.tokenizer.decode(row.tolist()) for row in rows]


def everything(data):
    return sorted(
        pair
        for part in ("train", "valid", "test")
        for pair in zip(*(decoded(data, part, s) for s in ("source", "target")), strict=True)
    )


def two_files(folder: Path, name: str = "all", pairs=PAIRS) -> tuple[Path, Path]:
    paths = folder / f"{name}.en", folder / f"{name}.de"
    for side, path in enumerate(paths):
        path.write_text("".join(pair[side] + "\n" for pair in pairs), encoding="utf-8")
    return paths


def test_two_files_tables_and_a_folder_are_the_same_pairs(tmp_path: Path) -> None:
    english, german = two_files(tmp_path)
    tsv, csv, jsonl = (tmp_path / f"own.{ending}" for ending in ("tsv", "csv", "jsonl"))
    tsv.write_text("".join(f"{one}\t{other}\n" for one, other in PAIRS))
    csv.write_text("id,tgt,src\n" + "".join(f"7,{other},{one}\n" for one, other in PAIRS))
    jsonl.write_text("".join(json.dumps({"translation": {"en": one, "de": other}}) + "\n" for one, other in PAIRS))
    folder = tmp_path / "folder"
    folder.mkdir()
    two_files(folder)
    for config in (
        TextPairs(path=str(english), target_path=str(german), tokenizer=Characters()),
        TextPairs(path=str(tsv), tokenizer=Characters()),
        TextPairs(path=str(csv), tokenizer=Characters()),
        TextPairs(path=str(jsonl), source="en", target="de", tokenizer=Characters()),
        TextPairs(path=str(folder), source="en", target="de", tokenizer=Characters()),
    ):
        data = config.load()
        assert everything(data) == sorted(PAIRS), config
        assert [len(part) for part in (data.train, data.valid, data.test)] == [36, 2, 2]
        assert any("40 pairs" in line for line in data.found)
        assert data.found[-1] == "split: 36 train, 2 valid, 2 test (at random, seed 0)"


def test_parts_by_name(tmp_path: Path) -> None:
    for name, start, end in (("train", 0, 30), ("val", 30, 33), ("test_2016_flickr", 33, 40)):
        two_files(tmp_path, name, PAIRS[start:end])
    data = TextPairs(path=str(tmp_path), source="de", target="en", tokenizer=Characters()).load()
    assert decoded(data, "test", "source") == [german for _, german in PAIRS[33:]]
    assert "split: 30 train, 3 valid, 7 test (as the files say)" in data.found


@pytest.mark.parametrize(
    ("name", "lines", "wanted", "said"),
    [
        ("own.csv", ["en,de", *(f"{a},{b}" for a, b in PAIRS)], 0, "source in 'en', target in 'de'"),
        ("own.tsv", ["German\tEnglish", *map("\t".join, PAIRS)], 0, "source in 'German', target in 'English'"),
        ("own.tsv", ["id\ten\tde", *(f"7\t{a}\t{b}" for a, b in PAIRS)], 0, "source in 'en', target in 'de'"),
        ("own.tsv", list(map("\t".join, PAIRS)), 0, "source in column 1, target in column 2; line 1 is a pair"),
        ("own.jsonl", [json.dumps({"n": 1, "en": a, "de": b}) for a, b in PAIRS], 0, "source in 'en', target in 'de'"),
        (
            "own.tsv",
            ["it\tes ist", *map("\t".join, PAIRS)],
            1,
            "source in column 1, target in column 2; line 1 is a pair",
        ),
    ],
)
def test_the_first_line_names_languages_or_is_a_pair(
    tmp_path: Path, name: str, lines: list[str], wanted: int, said: str
) -> None:
    (tmp_path / name).write_text("\n".join(lines) + "\n")
    pairs, _, _, notes = TextPairs(path=str(tmp_path / name)).read(tmp_path / name)
    assert [pair[:2] for pair in pairs[wanted:]] == PAIRS
    assert notes == [said]


def test_three_columns_without_names(tmp_path: Path) -> None:
    path = tmp_path / "own.tsv"
    path.write_text("".join(f"{i}\t{a}\t{b}\n" for i, (a, b) in enumerate(PAIRS)))
    message = r"source and target must say which columns .* got '0', 'a dog 0', 'ein Hund 0' in .*own.tsv"
    with pytest.raises(ValueError, match=message):
        TextPairs(path=str(path)).load()
    pairs, _, _, notes = TextPairs(path=str(path), source=2, target=3).read(path)
    assert [pair[:2] for pair in pairs] == PAIRS
    assert notes == ["source in column 2, target in column 3; line 1 is a pair"]
    with pytest.raises(ValueError, match=r"source must name a column, got 'en'; there are '0', 'a dog 0'"):
        TextPairs(path=str(path), source="en", target="de").load()


@pytest.mark.parametrize("seed", range(4))
def test_long_pairs_are_left_out_whatever_part_they_fall_into(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "own.tsv"
    path.write_text("".join(f"dog {i}{' long' * (30 if i % 3 == 0 else 1)}\tHund {i}\n" for i in range(90)))
    config = TextPairs(path=str(path), tokenizer=Characters(), max_tokens=64, split_seed=seed)
    data = config.load()
    sizes = [len(part) for part in (data.train, data.valid, data.test)]
    assert sizes in ([54, 3, 3], [52, 4, 4])  # without them, or as before if none of them is held out
    assert f"skipped: pairs of more than 64 tokens (30), the first at {path}, line 1" in data.found


def test_no_pair_is_short_enough(tmp_path: Path) -> None:
    english, german = two_files(tmp_path)
    config = TextPairs(path=str(english), target_path=str(german), tokenizer=Characters(), max_tokens=3)
    with pytest.raises(ValueError, match="max_tokens must leave pairs to train on, got 3, less than any pair has"):
        config.load()


def test_empty_and_long_pairs_are_said(tmp_path: Path) -> None:
    pairs = [*PAIRS, ("", ""), ("x" * 300, "y")]
    english, german = two_files(tmp_path, pairs=pairs)
    config = TextPairs(path=str(english), target_path=str(german), tokenizer=Characters(), max_tokens=60, split_seed=1)
    found = config.load().found
    assert f"skipped: pairs that are empty on both sides (1), the first at {english} and {german}, line 41" in found
    assert f"skipped: pairs of more than 60 tokens (1), the first at {english} and {german}, line 42" in found


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda e, g: g.write_text("one\ntwo\n"),
            r"as many lines as each other, got 2 in .*all.de, and more in .*all.en",
        ),
        (lambda e, g: e.write_text("one\n"), r"got 1 in .*all.en, and more in .*all.de: its line 2 is 'ein Hund 1'"),
        (lambda e, g: e.write_text("\n" + e.read_text()[8:]), r"got an empty source in .*all.en and .*all.de, line 1"),
        (
            lambda e, g: g.write_bytes(b"gr\xfc\xdf\n" * 40),
            r"text must be UTF-8, got the byte 0xfc in line 1 of .*all.de",
        ),
        (lambda e, g: g.unlink(), r"target_path must be a file or folder that exists, got .*all.de"),
        (lambda e, g: (e.write_text(""), g.write_text("")), r"data must have pairs of texts, got none in .*all.en"),
    ],
)
def test_wrong_files(tmp_path: Path, change, message: str) -> None:
    english, german = two_files(tmp_path)
    change(english, german)
    with pytest.raises(ValueError, match=message):
        TextPairs(path=str(english), target_path=str(german), tokenizer=Characters()).load()


def test_wrong_folders(tmp_path: Path) -> None:
    english, german = two_files(tmp_path)
    with pytest.raises(ValueError, match=r"source and target must say the endings of the files .* there are .de, .en"):
        TextPairs(path=str(tmp_path)).load()
    with pytest.raises(ValueError, match=r"must have files that end in .fr; there are .de, .en"):
        TextPairs(path=str(tmp_path), source="en", target="fr").load()
    german.rename(tmp_path / "other.de")
    with pytest.raises(ValueError, match=r"all.en must have its translation beside it, got no all.de"):
        TextPairs(path=str(tmp_path), source="en", target="de").load()
    with pytest.raises(ValueError, match=r"data must be a table .* for a translator, got .*all.en"):
        TextPairs(path=str(english)).load()
    (tmp_path / "one.tsv").write_text("only\n")
    with pytest.raises(ValueError, match="a table of translations must have two columns, got one"):
        TextPairs(path=str(tmp_path / "one.tsv")).load()


def test_the_longest_of_valid_and_test_must_fit(tmp_path: Path) -> None:
    for name, pairs in (("train", PAIRS), ("dev", PAIRS[:3]), ("test", [("x" * 300, "y")])):
        two_files(tmp_path, name, pairs)
    with pytest.raises(ValueError, match=r"got 60 and 300 in .*test.en and .*test.de, line 1"):
        TextPairs(path=str(tmp_path), source="en", target="de", tokenizer=Characters(), max_tokens=60).load()


def test_two_files_are_named_for_what_is_wrong_in_either(tmp_path: Path) -> None:
    source, target = tmp_path / "a.en", tmp_path / "a.de"
    source.write_text("".join(f"word {i}\n" for i in range(60)))
    target.write_text("".join("\n" if i == 50 else f"Wort {i}\n" for i in range(60)))
    with pytest.raises(ValueError, match=re.escape(f"empty target in {source} and {target}, line 51")):
        TextPairs(path=str(source), target_path=str(target)).load()
    with pytest.raises(ValueError, match=r"path and target_path must be two files, got .*a.en twice"):
        TextPairs(path=str(source), target_path=str(source)).load()
    with pytest.raises(ValueError, match=r"--set data.source=en --set data.target=de"):
        TextPairs(path=str(tmp_path)).load()
