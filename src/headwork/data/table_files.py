"""Tables in files, row by row: CSV, TSV, JSON lines, a JSON array and Parquet.

CSV is read with its quotes; TSV is split on tabs, and a quote in it is a character like any other. Whatever is text may
be packed by gzip.
"""

import csv
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from headwork.checks import check_file
from headwork.data.found import Skipped
from headwork.data.packed import ending_of, open_bytes
from headwork.extras import need

TABLE_ENDINGS = (".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".parquet")
LONGEST_FIELD, LONGEST_LINE = 2**24, 2**26
"""Characters of a cell and bytes of a line in a CSV or TSV file."""
DELIMITED = (".csv", ".tsv", ".txt")
LONGEST_NAME, N_NAMES = 40, 20
"""Of columns, in a message."""
LARGEST_ARRAY = 2**30
"""Bytes of a JSON array, which is read at once."""
LARGEST_UNPACKED, MOST_UNPACKED = 2**30, 1000
"""Bytes in the rows of a Parquet file: so many, or so many times those of the file."""
ROWS_AT_ONCE, LARGE_COLUMN = 64, 2**24
"""Of a Parquet file; one row, where a column is larger than so many bytes and was packed as if it repeated itself."""


class Row(NamedTuple):
    """A row of a table, and where it stands: "reviews.csv, line 7"."""

    place: str
    values: dict[str, object]


def is_table(path: Path) -> bool:
    """Whether the name of a file ends as that of a table.

    >>> is_table(Path("reviews.JSON")), is_table(Path("reviews.txt"))
    (True, False)
    """
    return ending_of(path) in TABLE_ENDINGS


def read_rows(path: Path, columns: Sequence[str] | None = None, empty_lines: Skipped | None = None) -> Iterator[Row]:
    """The rows of a table; raise for one that is not like the others, and count the lines that are empty.

    A CSV or TSV file names its columns in the first line, unless they are given; one that ends in .txt is a TSV file.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "two.csv"
    >>> _ = path.write_text('text,label\\n"good, very good",1\\nbad,0\\n')
    >>> [row.values for row in read_rows(path)]
    [{'text': 'good, very good', 'label': '1'}, {'text': 'bad', 'label': '0'}]
    """
    empty_lines = Skipped() if empty_lines is None else empty_lines
    match ending_of(path):
        case ".csv" | ".tsv" | ".txt":
            return _delimited(path, columns, empty_lines)
        case ".json" if _is_array(path):
            return _json_array(path)
        case ".jsonl" | ".ndjson" | ".json":
            return _json_lines(path, empty_lines)
        case ".parquet":
            return _parquet(path)
        case ending:
            raise ValueError(f"a table must end in one of {', '.join(TABLE_ENDINGS)}, got {ending or 'none'} in {path}")


def read_lines(path: Path, longest: int = -1) -> Iterator[str]:
    """The lines of a UTF-8 file without their ends, one at a time; raise with the line of a byte that is not UTF-8.

    A line of `longest` bytes without an end is an error before it is read to its end; -1 is no limit.

    A line ends with a line feed and nothing else: texts have other separators inside them.
    """
    check_file(path, "data", math.inf)
    with open_bytes(path) as file:
        for number, line in enumerate(iter(lambda: file.readline(longest), b""), start=1):
            if len(line) == longest and not line.endswith(b"\n"):
                raise ValueError(f"lines must have at most {longest:,} bytes, got more in line {number} of {path}")
            try:
                text = line.decode("utf-8")
            except UnicodeDecodeError as error:
                wrong = f"the byte 0x{line[error.start]:02x} in line {number}"
                raise ValueError(f"text must be UTF-8, got {wrong} of {path}") from None
            if number == 1:
                text = text.removeprefix("\N{BYTE ORDER MARK}")
            yield text.removesuffix("\n").removesuffix("\r")


def has_tabs(path: Path) -> bool:
    """Whether the first line of a file that is not empty has a tab: one that ends in .txt is then a table."""
    return "\t" in next((line for line in read_lines(path) if line.strip()), "")


def find_column(columns: Sequence[str], said: str | None, names: Sequence[str], what: str, path: Path) -> str:
    """The column that was said or, if none was, the first of the usual names that the table has.

    >>> find_column(["id", "Review", "stars"], None, ("text", "review"), "text", Path("reviews.csv"))
    'Review'
    """
    there = f"there are {say_columns(columns)} in {path}"
    if said is not None:
        if said not in columns:
            raise ValueError(f"{what} must name a column, got {said!r}; {there}")
        return said
    found = usual_column(columns, names)
    if found is None:
        first = ": a first line such as label,text must name them" if ending_of(path) in DELIMITED else ""
        how = "--column NAME" if what == "column" else f"{what}=NAME, or --set data.{what}=NAME on the command line"
        raise ValueError(
            f"{what} must be given ({how}), since no column is called {' or '.join(names[:4])}; {there}{first}"
        )
    return found


def say_columns(names: Sequence[str]) -> str:
    """The names of columns, in short: without a first line that has them, they are whole texts.

    >>> say_columns(["id", "A film that one sees once, and forgets before the lights are on again"])
    "'id', 'A film that one sees once, and forgets b...'"
    """
    short = [name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}..." for name in names[:N_NAMES]]
    more = f" and {len(names) - N_NAMES} more" if len(names) > N_NAMES else ""
    return ", ".join(map(repr, short)) + more


def usual_column(columns: Sequence[str], names: Sequence[str]) -> str | None:
    """The first of the usual names that the table has."""
    by_name = {column.strip().lower(): column for column in reversed(columns)}
    return next((by_name[name] for name in names if name in by_name), None)


def is_missing(value: object) -> bool:
    """What stands for nothing: None, NaN, and a text that is empty or says so.

    >>> [is_missing(value) for value in (None, math.nan, " ", "NaN", "N/A", 0, "none of it")]
    [True, True, True, True, True, False, False]
    """
    if isinstance(value, float):
        return math.isnan(value)
    return value is None or (isinstance(value, str) and value.strip().lower() in ("", "nan", "n/a", "null"))


def class_names(path: Path, column: str) -> tuple[str, ...] | None:
    """The names of the classes that a Parquet file of Hugging Face's has for the numbers in a column."""
    if path.suffix.lower() != ".parquet":
        return None
    import pyarrow.parquet as pq

    about = (pq.read_schema(path).metadata or {}).get(b"huggingface")
    features = json.loads(about).get("info", {}).get("features", {}) if about else {}
    names = features.get(column, {}).get("names")
    return tuple(map(str, names)) if isinstance(names, list) else None


def first_cells(path: Path) -> list[str]:
    """The cells of the first line of a CSV or TSV file that is not empty."""
    return next(_cells(path, Skipped()), (1, []))[1]


def _cells(path: Path, empty_lines: Skipped) -> Iterator[tuple[int, list[str]]]:
    """The number and the cells of each line that is not empty."""
    for number, cells in _all_cells(path):
        if cells:
            yield number, cells
        else:
            empty_lines.add(f"{path}, line {number}")


def _all_cells(path: Path) -> Iterator[tuple[int, list[str]]]:
    lines = read_lines(path, LONGEST_LINE)
    if ending_of(path) in (".tsv", ".txt"):
        yield from ((number, line.split("\t") if line else []) for number, line in enumerate(lines, start=1))
        return
    csv.field_size_limit(LONGEST_FIELD)
    reader = csv.reader((line + "\n" for line in lines), strict=True)
    try:
        yield from ((reader.line_num, cells) for cells in reader)
    except csv.Error as error:
        wrong = f"one that cannot be read ({error}, near line {reader.line_num})"
        raise ValueError(f"{path} must be a CSV file, got {wrong}") from None


def _delimited(path: Path, columns: Sequence[str] | None, empty_lines: Skipped) -> Iterator[Row]:
    for number, values in _cells(path, empty_lines):
        if columns is None:
            columns = values
            check_delimiter(path, columns)
            if len(set(columns)) < len(columns):
                raise ValueError(f"the columns of {path} must have different names, got {', '.join(columns)}")
            continue
        if len(values) != len(columns):
            raise ValueError(
                f"every row must have {len(columns)} columns, as the first line of {path} has, "
                f"got {len(values)} in line {number}"
            )
        yield Row(f"{path}, line {number}", dict(zip(columns, values, strict=True)))
    if columns is None:
        raise ValueError(f"a table must have a first line with the names of its columns, got the empty {path}")


def check_delimiter(path: Path, columns: Sequence[str]) -> None:
    """Raise if the first line is one cell that something else than the delimiter takes apart."""
    names = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "bars"}
    delimiter = "\t" if ending_of(path) in (".tsv", ".txt") else ","
    others = [each for each in names if each != delimiter and each in columns[0]]
    if len(columns) == 1 and others:
        raise ValueError(
            f"the columns of {path} must be separated by {names[delimiter]}, got {names[others[0]]} in its first line"
            f"{'; call it .tsv' if others[0] == chr(9) else ''}"
        )


def _is_array(path: Path) -> bool:
    first = next((line for line in read_lines(path) if line.strip()), "")
    return first.lstrip().startswith("[")


def _json_array(path: Path) -> Iterator[Row]:
    check_file(path, "data", LARGEST_ARRAY)
    try:
        rows = json.loads("\n".join(read_lines(path)))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"data must be JSON, got {path} ({error})") from None
    for number, values in enumerate(rows, start=1):
        if not isinstance(values, dict):
            raise ValueError(f"every row must be a JSON object, got {str(values)[:40]!r} in row {number} of {path}")
        yield Row(f"{path}, row {number}", values)


def _json_lines(path: Path, empty_lines: Skipped) -> Iterator[Row]:
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            empty_lines.add(f"{path}, line {number}")
            continue
        try:
            values = json.loads(line)
        except (ValueError, RecursionError) as error:
            is_json = ending_of(path) == ".json"
            rule = (
                "data must be a JSON array of objects, or one object a line" if is_json else "every line must be JSON"
            )
            raise ValueError(f"{rule}, got line {number} of {path} ({error})") from None
        if not isinstance(values, dict):
            raise ValueError(f"every line must be a JSON object, got {line[:40]!r} in line {number} of {path}")
        yield Row(f"{path}, line {number}", values)


def _parquet(path: Path) -> Iterator[Row]:
    need("pyarrow")
    import pyarrow as pa
    import pyarrow.parquet as pq

    check_file(path, "data", math.inf)
    n_packed = path.stat().st_size
    most = max(LARGEST_UNPACKED, MOST_UNPACKED * n_packed)
    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"data must be a Parquet file that can be read, got {path} ({error})") from None
    with file:
        number = n_bytes = 0
        batches = file.iter_batches(_rows_at_once(file.metadata))
        while True:
            try:
                part = next(batches, None)
            except (pa.ArrowException, OSError) as error:
                raise ValueError(f"data must be a Parquet file that can be read, got {path} ({error})") from None
            if part is None:
                return
            for values in part.to_pylist():
                number += 1
                n_bytes += _n_bytes(values)
                if n_bytes > most:
                    found = f"{n_bytes:,} in the first {number:,} rows of {path}, which has {n_packed:,}"
                    raise ValueError(f"data must have at most {most:,} bytes when it is unpacked, got {found}")
                yield Row(f"{path}, row {number}", values)


def _rows_at_once(metadata: Any) -> int:
    groups = (metadata.row_group(i) for i in range(metadata.num_row_groups))
    columns = (group.column(i) for group in groups for i in range(group.num_columns))
    sizes = ((column.total_uncompressed_size, column.total_compressed_size) for column in columns)
    is_dense = any(whole > LARGE_COLUMN and whole > MOST_UNPACKED * packed for whole, packed in sizes)
    return 1 if is_dense else ROWS_AT_ONCE


def _n_bytes(value: object) -> int:
    """About how much memory a value takes, without what Python adds."""
    match value:
        case str() | bytes():
            return len(value)
        case dict():
            return sum(map(_n_bytes, value.values()))
        case list():
            return sum(map(_n_bytes, value))
        case _:
            return 8
