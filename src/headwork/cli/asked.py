"""What a command is to answer: the lines of a text file, the rows of a table, or the files of a folder."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from headwork.cli.arguments import complain

T = TypeVar("T")
COLUMN_HELP = "The column with the texts, of a .csv, .tsv, .json, .jsonl or .parquet."


class Asked(NamedTuple):
    """A text to answer, where it stands, and the row that it is in, if that is one of a table."""

    place: str
    text: str
    row: Mapping[str, object] = MappingProxyType({})

    def shown(self, name: str) -> dict[str, object]:
        """What stands beside the answer: where the row is, which has the text; or the text itself, under this name."""
        return {"place": self.place} if self.row else {name: self.text}


def is_text(word: str) -> bool:
    """Whether a word of the command line is a text itself: no file or folder, and not written like one.

    >>> [is_text(word) for word in ("a brilliant film", "Brilliant.", "reviews.csv", "my films/new.txt", "runs/a", "-")]
    [True, True, False, False, False, False]
    """
    from headwork.data.bundled_text import TEXT_ENDINGS
    from headwork.data.packed import ending_of
    from headwork.data.table_files import TABLE_ENDINGS

    if not word.strip():
        return True
    path = Path(word)
    try:
        if word == "-" or path.exists():
            return False
    except OSError:  # longer than any name of a file
        return True
    has_spaces = any(character.isspace() for character in word)
    if not has_spaces and ("/" in word or "\\" in word):
        return False
    ending = ending_of(path)
    return ending not in (*TABLE_ENDINGS, *TEXT_ENDINGS) if has_spaces else not ending[1:2].isalpha()


class Columns(NamedTuple):
    """In which column of a table the texts are: the one that was said, or the first of the usual names."""

    said: str | None
    names: Sequence[str]
    of_pairs: Sequence[str] | None = None
    """If the tables are of translations: how the other column is called. Without names, the sources come first."""


def find_asked(path: Path, *kinds: Sequence[str]) -> list[Path]:
    """The file itself; of a folder all files of the first kind of endings that it has. What is left out is said."""
    from headwork.data.folders import files_below
    from headwork.data.found import say_skipped

    if not path.is_dir():
        return [path]
    below = next((below for below in (files_below(path, endings) for endings in kinds) if below.found), None)
    if below is None:
        every = ", ".join(ending for endings in kinds for ending in endings)
        raise ValueError(f"a folder must have files such as {every}, got {path}")
    if note := say_skipped(len(below.others), f"other files of {path}", str(next(iter(below.others), ""))):
        complain(note)
    return below.found


def read_asked(path: Path, columns: Columns) -> Iterator[Asked]:
    """The texts of a table, or the lines of any other file; an empty one is empty here too."""
    from headwork.data.found import Skipped
    from headwork.data.pair_files import flat
    from headwork.data.table_files import is_missing, is_table, read_lines, read_rows

    if not is_table(path):
        if columns.said is not None:
            raise ValueError(f"column is for tables, got {columns.said!r} for {path}, which is read line by line")
        for number, line in enumerate(read_lines(path), start=1):
            yield Asked(f"{path}, line {number}", line)
        return
    name: str | None = None
    empty_lines = Skipped()
    for row in read_rows(path, without_names(path, columns), empty_lines):
        place, values = row if columns.of_pairs is None else flat(row)
        name = name or column_of(list(values), columns, path)
        value = values.get(name)
        yield Asked(place, "" if is_missing(value) else str(value), values)
    if note := empty_lines.say("empty lines"):
        complain(note)


def without_names(path: Path, columns: Columns) -> list[str] | None:
    """Numbers as names for the columns of a CSV or TSV of translations whose first line has none, as in training."""
    from headwork.data.languages import language_columns
    from headwork.data.packed import ending_of
    from headwork.data.table_files import first_cells

    if columns.of_pairs is None or columns.said is not None or ending_of(path) not in (".csv", ".tsv"):
        return None
    first = first_cells(path)
    if not first:  # said when it is read
        return None
    if {cell.strip().lower() for cell in first} & {*columns.names, *columns.of_pairs} or len(
        language_columns(first)
    ) > 1:
        return None
    numbers = [str(number) for number in range(1, len(first) + 1)]
    if len(first) > 2 and not {*columns.names} & {*numbers}:
        raise ValueError(
            f"a table of more than two columns must name them in its first line, such as {columns.names[0]}, "
            f"got {len(first)} columns in {path}"
        )
    which = column_of(numbers, columns, path)
    complain(f"{path} does not name its columns: the texts are those of column {which}, from the first line on")
    return numbers


def column_of(found: Sequence[str], columns: Columns, path: Path) -> str:
    from headwork.data.languages import language_columns
    from headwork.data.table_files import find_column

    is_usual = {name.strip().lower() for name in found} & {*columns.names}
    if columns.said is None and columns.of_pairs is not None and not is_usual:
        sources = [name for name in found if name.strip().lower() not in columns.of_pairs]
        if len(sources) == 1 or len(found) == 2 == len(sources):
            return sources[0]
        if len(languages := language_columns(list(found))) == 2:
            return languages[0]
    return find_column(found, columns.said, columns.names, "column", path)


def in_chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """So many at a time, and what is left.

    >>> list(in_chunks("abcde", 2))
    [['a', 'b'], ['c', 'd'], ['e']]
    """
    rest = iter(items)
    while chunk := list(islice(rest, size)):
        yield chunk
