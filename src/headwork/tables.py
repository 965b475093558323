"""Tables of words and numbers, as HTML, as Markdown and as text for a terminal."""

import math
import re
from dataclasses import dataclass
from html import escape

Cell = str | int | float | None
# Of a terminal, of the direction of writing, and halves of surrogate pairs, which no encoding has.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """The text with control characters but line ends and tabs written out: a terminal must not obey those of a file.

    >>> print(printable(chr(27) + "[31mred"))
    \\x1b[31mred
    """
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def one_line(text: str) -> str:
    """The text with its line ends written out as well: a label or the name of a file must not draw a line of its own.

    >>> print(one_line("cat" + chr(10) + "dog"))
    cat\\ndog
    """
    return printable(text).replace("\n", "\\n")


def show(value: Cell) -> str:
    """A cell as people read it: four digits, thousands apart, and a dash for what is not a number.

    >>> show(0.98333), show(1437), show(12345.6), show(math.nan), show("digits")
    ('0.9833', '1,437', '12,346', '–', 'digits')
    """
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "–"
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


@dataclass(frozen=True)
class Table:
    """Named columns and rows of cells; `folded` hides them behind the caption until somebody asks.

    >>> print(Table(("run", "accuracy"), (("short", 0.91), ("long", 0.96667))).text())
    run    accuracy
    short      0.91
    long     0.9667
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    caption: str = ""
    folded: bool = False

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"a row must have a cell for each column, {self.columns}, got {row}")

    def html(self) -> str:
        """The table as markup; on a narrow screen one that ends with a text is read row by row, each cell by name."""
        columns = self._columns()
        head = "".join(f"<th{_side(right)}>{escape(name)}</th>" for name, right in columns)
        body = "\n".join(
            "<tr>"
            + "".join(
                f'<td{_side(right)} data-name="{escape(name)}">{escape(show(cell))}</td>'
                for cell, (name, right) in zip(row, columns, strict=True)
            )
            + "</tr>"
            for row in self.rows
        )
        kind = "numbers" if columns[-1][1] else "prose"
        table = f'<table class="{kind}">\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>'
        table = f'<div class="scroll">{table}</div>'
        if self.folded:
            return f"<details><summary>{escape(self.caption)}</summary>\n{table}</details>"
        caption = f'<p class="caption">{escape(self.caption)}</p>' if self.caption else ""
        return f'<div class="table">{table}{caption}</div>'

    def text(self) -> str:
        """The table in columns of a fixed width, for a terminal."""
        lines = [[one_line(show(cell)) for cell in row] for row in (self.columns, *self.rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        sides = [">" if right else "<" for _, right in self._columns()]
        return "\n".join(
            "  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(line, sides, widths, strict=True)).rstrip()
            for line in lines
        )

    def markdown(self) -> str:
        """The table as Markdown.

        >>> print(Table(("run", "|w|"), (("a|b", 0.5),)).markdown())
        | run | \\|w\\| |
        | --- | --- |
        | a\\|b | 0.5 |
        """
        lines = [tuple(show(cell).replace("|", r"\|") for cell in line) for line in (self.columns, *self.rows)]
        return "\n".join(f"| {' | '.join(line)} |" for line in (lines[0], ["---"] * len(self.columns), *lines[1:]))

    def _columns(self) -> list[tuple[str, bool]]:
        """The name of each column, and whether it is of numbers, which stand on the right."""
        return [(name, not any(isinstance(row[i], str) for row in self.rows)) for i, name in enumerate(self.columns)]


def _side(right: bool) -> str:
    return ' class="number"' if right else ""
