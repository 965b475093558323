"""Dates as people write them in several languages, to be translated into ISO 8601: a small task for two sequences.

Babel writes them. Only forms that spell the month are used: "03/04/2026" means one thing in London and another in New
York, and nobody can learn which.
"""

import datetime
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from headwork import serialise
from headwork.checks import check_positive
from headwork.data.examples import Dataset
from headwork.data.text_examples import PairExamples
from headwork.data.tokenizer import Tokenizer
from headwork.extras import need
from headwork.tasks import Translation


@dataclass(frozen=True, kw_only=True)
class Dates(serialise.Checked):
    """Each date is written once, in one of the languages; no date of one part is in another."""

    languages: tuple[str, ...] = ("de", "en", "es", "fr", "it", "nl", "pt")
    first_year: int = 1900
    last_year: int = 2099
    n_train: int = 20_000
    n_valid: int = 1_000
    n_test: int = 1_000
    split_seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(n_train=self.n_train, n_valid=self.n_valid, n_test=self.n_test)
        if not self.languages or len(set(self.languages)) < len(self.languages):
            raise ValueError(f"languages must be one or more, each once, got {self.languages}")
        if not 1000 <= self.first_year <= self.last_year <= 9999:
            raise ValueError(
                "first_year and last_year must have four digits and be in order, "
                f"got first_year={self.first_year} and last_year={self.last_year}"
            )
        n_examples, n_dates = self.n_train + self.n_valid + self.n_test, len(self.days)
        if n_examples > n_dates:
            raise ValueError(
                f"n_train + n_valid + n_test must be at most the {n_dates} dates of {self.first_year} .. "
                f"{self.last_year}, got {n_examples}"
            )
        ways = [way for language in self.languages for way in ways_of_writing(language)]
        check_one_meaning((way, datetime.date(2000, month, 11)) for way in ways for month in range(1, 13))

    @property
    def days(self) -> range:
        """All dates, as Python numbers them."""
        return range(
            datetime.date(self.first_year, 1, 1).toordinal(), datetime.date(self.last_year, 12, 31).toordinal() + 1
        )

    def load(self, seed: int = 0) -> Dataset:
        """Written dates and their ISO form, in characters; nothing varies from epoch to epoch.

        >>> dates = Dates(n_train=50, n_valid=10, n_test=10).load()
        >>> dates.tokenizer.decode(dates.test.batch([0]).source[0].tolist())
        'zondag 3 februari 2069'
        """
        pairs = write_pairs(self)
        train, rest = pairs[: self.n_train], pairs[self.n_train :]
        tokenizer = Tokenizer.characters(text for pair in train for text in pair)
        return Dataset(
            train=PairExamples.of(train, tokenizer),
            valid=PairExamples.of(rest[: self.n_valid], tokenizer),
            test=PairExamples.of(rest[self.n_valid :], tokenizer),
            task=Translation(begin=tokenizer.begin, end=tokenizer.end),
            tokenizer=tokenizer,
        )


class Way(NamedTuple):
    """A way of writing a date: Babel's `full`, `long` or `medium`; if `plain`, in lower case without , and ."""

    language: str
    length: str
    plain: bool

    def write(self, date: datetime.date) -> str:
        """The date in words.

        >>> Way("fr", "full", plain=False).write(datetime.date(2026, 11, 15))
        'dimanche 15 novembre 2026'
        >>> Way("en", "medium", plain=True).write(datetime.date(2026, 11, 15))
        'nov 15 2026'
        """
        from babel.dates import format_date

        text = format_date(date, self.length, locale=self.language)
        return text.lower().replace(",", "").replace(".", "") if self.plain else text


def ways_of_writing(language: str) -> list[Way]:
    """The forms of a language that spell the month and have the whole year.

    >>> sorted({way.length for way in ways_of_writing("de")})  # the medium form is 15.11.2026
    ['full', 'long']
    """
    need("babel")
    from babel import Locale, UnknownLocaleError

    try:
        forms = Locale.parse(language).date_formats
    except (ValueError, UnknownLocaleError):
        raise ValueError(f"languages must be known to Babel, such as 'de' or 'en_GB', got {language!r}") from None
    lengths = [length for length in ("full", "long", "medium") if _is_clear(forms[length].pattern)]
    if not lengths:
        raise ValueError(f"languages must spell the month in dates, got {language!r} which writes it as a number")
    return [Way(language, length, plain) for length in lengths for plain in (False, True)]


def _is_clear(pattern: str) -> bool:
    spells_month = "MMM" in pattern or "LLL" in pattern
    whole_year = "yy" not in pattern or "yyyy" in pattern
    return spells_month and whole_year


def check_one_meaning(written: Iterable[tuple[Way, datetime.date]]) -> None:
    """Raise if two dates are written alike.

    >>> croatian, polish = Way("hr", "long", plain=True), Way("pl", "long", plain=True)
    >>> check_one_meaning([(croatian, datetime.date(2026, 10, 15)), (polish, datetime.date(2026, 11, 15))])
    Traceback (most recent call last):
    ValueError: '15 listopada 2026' must mean one date, got 2026-10-15 in 'hr' and 2026-11-15 in 'pl'
    """
    seen: dict[str, tuple[Way, datetime.date]] = {}
    for way, date in written:
        text = way.write(date)
        first_way, first_date = seen.setdefault(text, (way, date))
        if first_date != date:
            meanings = f"{first_date} in {first_way.language!r} and {date} in {way.language!r}"
            raise ValueError(f"{text!r} must mean one date, got {meanings}")


def write_pairs(config: Dates) -> list[tuple[str, str]]:
    """As many different dates as the config asks for, each written in one language and one way, and in ISO form.

    >>> write_pairs(Dates(n_train=1, n_valid=1, n_test=1))[0]
    ('23 mai 2027', '2027-05-23')
    """
    generator = np.random.default_rng(config.split_seed)
    n = config.n_train + config.n_valid + config.n_test
    days = generator.choice(config.days, size=n, replace=False)
    ways = [ways_of_writing(language) for language in config.languages]
    languages = generator.integers(len(ways), size=n)
    picks = generator.random(n)
    pairs = []
    for day, language, pick in zip(days.tolist(), languages.tolist(), picks.tolist(), strict=True):
        date, forms = datetime.date.fromordinal(day), ways[language]
        pairs.append((forms[int(pick * len(forms))].write(date), date.isoformat()))
    return pairs
