"""Pairs of texts in files, one at a time: line by line of two files, or row by row of a table."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from headwork.data.found import Skipped
from headwork.data.languages import language_columns
from headwork.data.packed import ending_of
from headwork.data.table_files import (
    Row,
    check_delimiter,
    find_column,
    first_cells,
    is_missing,
    read_lines,
    read_rows,
    say_columns,
    usual_column,
)

SOURCE_COLUMNS, TARGET_COLUMNS = ("source", "src", "input"), ("target", "tgt", "output", "translation")


class Pair(NamedTuple):
    """A source, its translation, and where they stand."""

    source: str
    target: str
    place: str


@dataclass(frozen=True)
class PairTable:
    """A table of pairs, and which columns the user says."""

    file: Path
    source: str | int | None
    target: str | int | None

    def read(self, notes: dict[str, None], empty_lines: Skipped) -> Iterator[Pair]:
        """The pairs; which columns they are from is noted, once for all tables that are alike."""
        first = first_cells(self.file) if ending_of(self.file) in (".csv", ".tsv", ".txt") else None
        is_pair = first is not None and not self.is_header(first)
        numbers = [str(number + 1) for number in range(len(first))] if first is not None and is_pair else None
        columns: tuple[str, str] | None = None
        for place, values in map(flat, read_rows(self.file, numbers, empty_lines)):
            if columns is None:
                columns = self.find_columns(list(values), first if is_pair else None)
                about = "source in column {}, target in column {}; line 1 is a pair"
                notes[(about if is_pair else "source in {!r}, target in {!r}").format(*columns)] = None
            source, target = ("" if is_missing(values.get(name)) else str(values[name]) for name in columns)
            yield Pair(source, target, place)

    @property
    def said(self) -> list[str | None]:
        return [None if name is None else str(name) for name in (self.source, self.target)]

    def is_header(self, first: list[str]) -> bool:
        """Whether the first line of a table has the names of its columns, and is not a pair."""
        if said := [name for name in self.said if name is not None]:
            return any(name in first or not name.isdecimal() for name in said)
        return len(language_columns(first)) > 1 or usual_column(first, (*SOURCE_COLUMNS, *TARGET_COLUMNS)) is not None

    def find_columns(self, names: list[str], first: list[str] | None) -> tuple[str, str]:
        """The columns that are said, or have the usual names or those of two languages, or are the only two.

        `first` is the first line, if it is a pair.
        """
        if len(names) < 2:
            check_delimiter(self.file, first or names)
            raise ValueError(f"a table of translations must have two columns, got one in {self.file}")
        if self.said == [None, None] and usual_column(names, (*SOURCE_COLUMNS, *TARGET_COLUMNS)) is None:
            found = names if len(names) == 2 else language_columns(names)
            if len(found) == 2:
                return found[0], found[1]
            if first is not None:
                how = "source=1 and target=2, or --set data.source=1 --set data.target=2 on the command line"
                raise ValueError(
                    f"source and target must say which columns they are ({how}), since line 1 does not name them, "
                    f"got {say_columns(first)} in {self.file}"
                )
        source, target = self.said
        return (
            find_column(names, source, SOURCE_COLUMNS, "source", self.file),
            find_column(names, target, TARGET_COLUMNS, "target", self.file),
        )


def flat(row: Row) -> Row:
    """Hugging Face's column `translation` of {"en": ..., "de": ...} as two columns.

    >>> flat(Row("row 1", {"translation": {"en": "a dog", "de": "ein Hund"}})).values
    {'en': 'a dog', 'de': 'ein Hund'}
    """
    texts = row.values.get("translation")
    return Row(row.place, {**texts}) if isinstance(texts, dict) else row


def aligned(source: Path, target: Path) -> Iterator[Pair]:
    """Line by line; raise if one file ends before the other."""
    number = 0
    for number, (one, other) in enumerate(zip_longest(read_lines(source), read_lines(target)), start=1):
        if one is None or other is None:
            short, long = (source, target) if one is None else (target, source)
            raise ValueError(
                f"the files must have as many lines as each other, got {number - 1:,} in {short}, and more in {long}: "
                f"its line {number:,} is {(other if one is None else one)[:40]!r}"
            )
        yield Pair(one, other, f"{source} and {target}, line {number}")
