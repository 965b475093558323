"""Dates in words: as people write them, each with one meaning, and none in two parts."""

import datetime
import re

import pytest

from headwork.data import Dates
from headwork.data.dates import Way, ways_of_writing, write_pairs
from tests.data.conftest import load

LANGUAGES = Dates().languages
SUNDAY, MONDAY, TUESDAY = datetime.date(2026, 11, 15), datetime.date(1999, 3, 1), datetime.date(2044, 8, 9)


@pytest.mark.parametrize(
    ("language", "length", "date", "written"),
    [
        ("fr", "full", SUNDAY, "dimanche 15 novembre 2026"),
        ("fr", "long", TUESDAY, "9 août 2044"),
        ("fr", "medium", SUNDAY, "15 nov. 2026"),
        ("en", "full", SUNDAY, "Sunday, November 15, 2026"),
        ("en", "long", MONDAY, "March 1, 1999"),
        ("en", "medium", TUESDAY, "Aug 9, 2044"),
        ("de", "full", MONDAY, "Montag, 1. März 1999"),
        ("de", "long", SUNDAY, "15. November 2026"),
        ("es", "full", TUESDAY, "martes, 9 de agosto de 2044"),
        ("es", "long", SUNDAY, "15 de noviembre de 2026"),
        ("es", "medium", MONDAY, "1 mar 1999"),
        ("it", "full", MONDAY, "lunedì 1 marzo 1999"),
        ("it", "long", TUESDAY, "9 agosto 2044"),
        ("it", "medium", SUNDAY, "15 nov 2026"),
        ("nl", "full", TUESDAY, "dinsdag 9 augustus 2044"),
        ("nl", "long", MONDAY, "1 maart 1999"),
        ("nl", "medium", MONDAY, "1 mrt 1999"),
        ("pt", "full", MONDAY, "segunda-feira, 1 de março de 1999"),
        ("pt", "long", SUNDAY, "15 de novembro de 2026"),
        ("pt", "medium", TUESDAY, "9 de ago. de 2044"),
    ],
)
def test_written_as_people_do(language, length, date, written):
    assert Way(language, length, plain=False) in ways_of_writing(language)
    assert Way(language, length, plain=False).write(date) == written
    plain = Way(language, length, plain=True)
    assert plain in ways_of_writing(language)
    assert plain.write(date) == re.sub("[.,]", "", written).lower()


def test_numbers_alone_are_left_out():
    assert {way.length for way in ways_of_writing("de")} == {"full", "long"}
    for source, _ in write_pairs(Dates(n_train=2000)):
        assert re.search(r"[^\W\d]{3}", source), source
        assert len(re.findall(r"\d+", source)) == 2, source


def test_one_meaning_over_a_whole_year():
    """Every day, in every way of every language; days and years are written out, so one leap year is enough."""
    meaning = {}
    for day in range(366):
        date = datetime.date(2024, 1, 1) + datetime.timedelta(day)
        for way in (way for language in LANGUAGES for way in ways_of_writing(language)):
            assert meaning.setdefault(way.write(date), date) == date


def test_one_meaning_in_the_whole_set():
    pairs = write_pairs(Dates())
    assert len(pairs) == 22_000
    assert len(dict(pairs)) == len({*pairs}) == len(pairs)


def test_targets_are_dates_and_none_comes_twice():
    config = Dates(n_train=3000, first_year=1990, last_year=2009)
    pairs = write_pairs(config)
    dates = [datetime.date.fromisoformat(target) for _, target in pairs]
    assert len({*dates}) == len(dates) == 5000
    assert {date.year for date in dates} == set(range(1990, 2010))
    for (source, _), date in zip(pairs, dates, strict=True):
        assert {date.year, date.day} == {int(number) for number in re.findall(r"\d+", source)}


def test_every_language_and_way_is_there():
    pairs = write_pairs(Dates())
    count = dict.fromkeys((way for language in LANGUAGES for way in ways_of_writing(language)), 0)
    for source, target in pairs[:500]:
        for way in count:
            count[way] += way.write(datetime.date.fromisoformat(target)) == source
    assert min(count.values()) > 2


def read(part, tokens):
    batch = part.batch(range(len(part)))
    return [
        (tokens.decode(source.tolist()), tokens.decode(target.tolist()))
        for source, target in zip(batch.source, batch.target, strict=True)
    ]


def test_the_parts_are_the_pairs_in_order():
    data, config = load("dates"), Dates(n_train=700, n_valid=50, n_test=50)
    parts = [read(part, data.tokenizer) for part in (data.train, data.valid, data.test)]
    assert [len(part) for part in parts] == [700, 50, 50]
    assert [*parts[0], *parts[1], *parts[2]] == write_pairs(config)


def test_the_tokens_are_those_of_the_training_part():
    data = load("dates")
    letters = {*"".join(source + target for source, target in read(data.train, data.tokenizer))}
    assert len(data.tokenizer) == len(letters) + 4
    assert data.tokenizer.encode("ř") == [data.tokenizer.unknown]
    tiny = Dates(n_train=1, n_valid=100, n_test=1).load()
    assert any("�" in source for source, _ in read(tiny.valid, tiny.tokenizer))


def test_the_split_seed_says_which():
    assert write_pairs(Dates(n_train=50)) == write_pairs(Dates(n_train=50))
    assert write_pairs(Dates(n_train=50)) != write_pairs(Dates(n_train=50, split_seed=1))


def test_a_single_language_and_a_full_calendar():
    config = Dates(languages=("en_GB",), first_year=2024, last_year=2024, n_train=364, n_valid=1, n_test=1)
    data = config.load()
    pairs = read(data.train, data.tokenizer)
    assert pairs == write_pairs(config)[:364]
    assert any(re.fullmatch(r"\d+ [A-Z][a-z]+ 2024", source) for source, _ in pairs)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"languages": ()}, r"languages must be one or more, each once, got \(\)"),
        ({"languages": ("en", "en")}, "languages must be one or more, each once"),
        ({"languages": ("xx",)}, "languages must be known to Babel, .*, got 'xx'"),
        ({"languages": ("en-GB",)}, "such as 'de' or 'en_GB', got 'en-GB'"),
        ({"languages": ("",)}, "got ''"),
        ({"languages": ("ja",)}, "languages must spell the month in dates, got 'ja'"),
        ({"languages": ("pl", "hr")}, "'11 listopada 2000' must mean one date, got 2000-11-11 in 'pl' and .* in 'hr'"),
        ({"first_year": 2100}, "first_year and last_year must have four digits and be in order"),
        ({"first_year": 12}, "four digits"),
        ({"last_year": 10_000}, "four digits"),
        ({"n_train": 0}, "n_train must be 1 or more, got 0"),
        ({"n_test": -1}, "n_test must be 1 or more, got -1"),
        ({"first_year": 2099}, r"must be at most the 365 dates of 2099 .. 2099, got 22000"),
    ],
)
def test_dates_that_cannot_be(change, message):
    with pytest.raises(ValueError, match=message):
        Dates(**change)
