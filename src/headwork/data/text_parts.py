"""Where the parts of a long text begin and end: in files that name their part, or one after the other in one text."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from headwork.data.splitting import check_part_to_train_on
from headwork.data.table_files import is_missing, read_rows, usual_column
from headwork.data.text_table import TEXT_COLUMNS

HELD_OUT = 0.05
"""The share of the text that is kept for validation, and again for the test, unless a file is."""
Pieces = Callable[[], Iterable[str]]
"""A text from its beginning, a piece at a time, as often as it is asked for."""


@dataclass(frozen=True)
class Passage:
    """The characters from start to end of a text.

    >>> list(Passage(lambda: ["abc", "def", "ghi"], 2, 7))
    ['c', 'def', 'g']
    """

    pieces: Pieces
    start: int
    end: int

    def __iter__(self) -> Iterator[str]:
        place = 0
        for piece in self.pieces():
            if part := piece[max(self.start - place, 0) : max(self.end - place, 0)]:
                yield part
            place += len(piece)
            if place >= self.end:
                return


def cut(texts: Mapping[str, Pieces]) -> dict[str, Passage]:
    """The passage of each part: its own text or, for a part that has none, the end of that to train on.

    >>> {part: "".join(passage) for part, passage in cut({"train": lambda: ["abcdefghij" * 2]}).items()}
    {'train': 'abcdefghijabcdefgh', 'valid': 'i', 'test': 'j'}
    """
    check_part_to_train_on(texts)
    whole = {part: Passage(pieces, 0, sum(map(len, pieces()))) for part, pieces in texts.items()}
    train = whole["train"]
    n_held_out, end = int(train.end * HELD_OUT), train.end
    for part in ("test", "valid"):
        if part not in texts:
            whole[part] = Passage(train.pieces, end - n_held_out, end)
            end -= n_held_out
    return {"train": Passage(train.pieces, 0, end), "valid": whole["valid"], "test": whole["test"]}


def say_cut(texts: Mapping[str, Pieces]) -> str:
    """How the parts were found.

    >>> say_cut({"train": list, "test": list})
    'test as the files say, valid from the end of train'
    """
    given, cut_off = ([part for part in ("valid", "test") if (part in texts) == said] for said in (True, False))
    if not given:
        return "one after the other"
    if not cut_off:
        return "as the files say"
    return f"{given[0]} as the files say, {cut_off[0]} from the end of train"


def read_column(path: Path) -> Iterator[str]:
    """The texts of a Parquet file, each on lines of its own."""
    column: str | None = None
    for _, values in read_rows(path):
        if column is None:
            column = usual_column(list(values), TEXT_COLUMNS)
            if column is None:
                raise ValueError(
                    f"a table of texts must have a column called {' or '.join(TEXT_COLUMNS[:4])}; "
                    f"there are {', '.join(map(repr, values))} in {path}"
                )
        text = values.get(column)
        yield "\n" if is_missing(text) else f"{str(text).removesuffix(chr(10))}\n"
