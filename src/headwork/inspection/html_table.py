"""A table for notebooks."""

from collections.abc import Iterable, Sequence
from html import escape


def html_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """The rows as HTML, every cell escaped.

    >>> html_table(["name"], [["a < b"]])
    '<table><tr><th>name</th></tr><tr><td>a &lt; b</td></tr></table>'
    """
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    body = "".join("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"
