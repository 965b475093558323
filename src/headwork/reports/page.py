"""One HTML file that needs nothing else: headings with paragraphs, pictures and tables, for a screen and for paper."""

import re
from dataclasses import dataclass
from html import escape
from pathlib import Path

from headwork.figures import Picture, figure_to_svg, figure_to_webp
from headwork.storage.folders import make_folder, replace_file
from headwork.tables import Cell, Table, show

STYLE = Path(__file__).with_name("page.css")

LONGEST_FACT = 40
"""Characters beside the other facts."""

LARGEST_SVG = 300_000
"""Characters; a larger drawing goes into the page as pixels if these take less."""

HEAD = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<main>
"""


@dataclass(frozen=True)
class Facts:
    """Short names and what belongs to them, side by side."""

    facts: tuple[tuple[str, Cell], ...]

    def html(self) -> str:
        pairs = "\n".join(_fact(name, show(value)) for name, value in self.facts)
        return f'<dl class="facts">\n{pairs}\n</dl>'


def _fact(name: str, value: str) -> str:
    """A long value has a row of its own; a class name may break where its words meet, a flag of a command nowhere."""
    long = ' class="long"' if len(value) > LONGEST_FACT else ""
    breakable = re.sub("(?<=[a-z])(?=[A-Z])", "<wbr>", escape(value))
    breakable = re.sub(r"(?<!\S)--\S+", r"<span>\g<0></span>", breakable)
    return f"<div{long}><dt>{escape(name)}</dt><dd>{breakable}</dd></div>"


@dataclass(frozen=True)
class Passage:
    """A text as it was written, line by line; what it begins with stands out."""

    beginning: str
    text: str

    def html(self) -> str:
        return f'<pre class="passage"><b>{escape(self.beginning)}</b>{escape(self.text)}</pre>'


Part = str | Picture | Table | Facts | Passage


class Page:
    """Add sections, then write. All text is escaped; pictures and style are inside the file; no script, no network.

    >>> page = Page("Digits", "98.3 % of the test digits are right.")
    >>> page.add("How", "By looking at patches.", Table(("epoch", "loss"), ((1, 0.5),)))
    >>> "<h2 id=" in page.html()
    True
    """

    def __init__(self, title: str, headline: str = "", footer: str = "") -> None:
        self.title, self.headline, self.footer = title, headline, footer
        self._sections: list[tuple[str, tuple[Part, ...]]] = []

    def add(self, heading: str, *parts: Part) -> None:
        """A section; without a heading it goes on with the one before."""
        self._sections.append((heading, parts))

    def html(self) -> str:
        head = HEAD.format(title=escape(self.title), style=STYLE.read_text(encoding="utf-8"))
        headline = f'<p class="headline">{escape(self.headline)}</p>\n' if self.headline else ""
        body = "\n".join(
            self._section(number, heading, parts) for number, (heading, parts) in enumerate(self._sections, start=1)
        )
        top = f"<header>\n<h1>{escape(self.title)}</h1>\n{headline}</header>\n{self._contents()}"
        footer = f"<footer>{escape(self.footer)}</footer>\n" if self.footer else ""
        return f"{head}{top}{body}\n{footer}</main>\n</body>\n</html>\n"

    def write(self, path: Path) -> None:
        """Write the page whole or not at all: whoever opens the file meanwhile sees the one before."""
        make_folder(path.parent)
        replace_file(path, self.html().encode("utf-8", errors="replace").decode())

    def _contents(self) -> str:
        links = [
            f'<a href="#part-{number}">{escape(heading)}</a>'
            for number, (heading, _) in enumerate(self._sections, start=1)
            if heading
        ]
        if len(links) < 3:
            return ""
        return "\n".join(['<nav aria-label="Contents">', *links, "</nav>", ""])

    def _section(self, number: int, heading: str, parts: tuple[Part, ...]) -> str:
        inside = "\n".join(_markup(part, f"part-{number}-{i}") for i, part in enumerate(parts, start=1))
        title = f'<h2 id="part-{number}">{escape(heading)}</h2>\n' if heading else ""
        return f"<section>\n{title}{inside}\n</section>"


def _markup(part: Part, name: str) -> str:
    match part:
        case str():
            return f"<p>{escape(part)}</p>"
        case Picture():
            return embed_picture(part, name)
        case Table() | Facts() | Passage():
            return part.html()


def embed_picture(picture: Picture, name: str) -> str:
    """The picture as markup without any outside reference, as SVG if that is small, else as pixels.

    `name` keeps its ids apart from those of other pictures.
    """
    width = f"{picture.figure.get_figwidth():.3g}in"
    alt = escape(picture.alt or picture.caption)
    drawing = figure_to_svg(picture.figure, name)
    if len(drawing) > LARGEST_SVG and len(pixels := figure_to_webp(picture.figure)) < len(drawing):
        drawn = f'<img src="data:image/webp;base64,{pixels}" alt="{alt}">'
    else:
        drawn = drawing.replace("<svg ", f'<svg role="img" aria-label="{alt}" ', 1)
    return f'<figure style="--width: {width}">\n{drawn}\n<figcaption>{escape(picture.caption)}</figcaption>\n</figure>'
