"""How numbers and claims are put into words."""

import inspect
from collections.abc import Sequence

Value = float | str
"""Numbers are compared within a tolerance; words (such as a shape) have to be the same."""


def says(text: str | None) -> str:
    """The claim of a file: the first paragraph of its docstring, on one line.

    >>> says("Attention\\nmixes.\\n\\nBecause.")
    'Attention mixes.'
    """
    return " ".join(inspect.cleandoc(text or "").partition("\n\n")[0].split())


def explanation(text: str | None) -> str:
    """The rest of the docstring, as it stands.

    >>> explanation("Attention\\nmixes.\\n\\nBecause.")
    'Because.'
    """
    return inspect.cleandoc(text or "").partition("\n\n")[2]


def show(value: Value) -> str:
    """Four digits are enough to compare.

    >>> show(12345.678), show(12), show(0.123456), show(1e-13), show("6 x 6")
    ('12,346', '12', '0.1235', '1e-13', '6 x 6')
    """
    if isinstance(value, str):
        return value
    is_whole = abs(value) < 1e9 and (abs(value) >= 1000 or value == round(value))
    return f"{value:,.0f}" if is_whole else f"{value:.4g}"


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells as aligned text.

    >>> print(columns([["claim", "verdict"], ["temperature", "holds"]]))
    claim        verdict
    temperature  holds
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)
