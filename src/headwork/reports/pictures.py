"""A figure with its caption, ready for a page: as lines if they are few, else as pixels."""

import base64
import io
import re
import warnings
from dataclasses import dataclass
from html import escape
from typing import Any

import matplotlib as mpl
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

LARGEST_SVG = 300_000
"""Characters; a larger drawing goes into the page as pixels if these take less."""

PIXELS_PER_INCH = 200

INK = LinearSegmentedColormap.from_list("ink", ["#1f6fb400", "#1f6fb4ff"]).with_extremes(bad="#80808033")
"""From nothing to blue, so that a 0 is the paper, be it light or dark; grey is what has no number."""

GLOW = LinearSegmentedColormap.from_list("glow", ["#b8400000", "#b84000d0"])
"""From nothing to an orange that lets through what lies under it."""

UPWARDS: dict[str, Any] = {"rotation": 90, "rotation_mode": "anchor", "ha": "right", "va": "center"}
"""Labels below an axis that end at it, whatever type the reader has."""


@dataclass(frozen=True)
class Picture:
    """A figure, its caption, and what it shows in words for those who cannot see it (the caption unless given)."""

    figure: Figure
    caption: str
    alt: str = ""

    def html(self, name: str) -> str:
        """The picture as markup without any outside reference; `name` keeps its parts apart from those of others."""
        width = f"{self.figure.get_figwidth():.3g}in"
        drawing = draw_lines(self.figure, name)
        if len(drawing) > LARGEST_SVG and len(pixels := draw_pixels(self.figure)) < len(drawing):
            drawn = f'<img src="data:image/webp;base64,{pixels}" alt="{self._alt()}">'
        else:
            drawn = drawing.replace("<svg ", f'<svg role="img" aria-label="{self._alt()}" ', 1)
        return (
            f'<figure style="--width: {width}">\n<div class="scroll">{drawn}</div>\n'
            f"<figcaption>{escape(self.caption)}</figcaption>\n</figure>"
        )

    def _alt(self) -> str:
        return escape(self.alt or self.caption)


def draw_lines(figure: Figure, name: str) -> str:
    """The figure as SVG that takes the ink and the type of the page around it: black follows the page's colour."""
    same_every_time = mpl.rc_context(
        {"svg.hashsalt": "headwork", "svg.fonttype": "none", "font.sans-serif": ["DejaVu Sans"]}
    )
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    svg = io.StringIO()
    with same_every_time, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # the reader's browser has more letters than matplotlib
        _settle(figure)
        figure.savefig(svg, format="svg", transparent=True, metadata=nothing)
    drawing = svg.getvalue()
    drawing = drawing[drawing.index("<svg") :]
    drawing = re.sub(r"<style.*?</style>", "", drawing, flags=re.DOTALL)
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', drawing))
    return re.sub(r"<[^<>]+>", lambda tag: _adapt(tag[0], name, used), drawing)


def draw_pixels(figure: Figure) -> str:
    """The figure as WebP on white, in base64: photographs in it take a tenth of what they would as PNG."""
    image = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")
        _settle(figure)
        figure.savefig(image, format="webp", dpi=PIXELS_PER_INCH, pil_kwargs={"quality": 90})
    return base64.b64encode(image.getvalue()).decode()


def _settle(figure: Figure) -> None:
    """Lay the figure out once and for all: matplotlib would move its parts a little at every drawing."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")


def _adapt(tag: str, name: str, used: set[str]) -> str:
    """Ids are unique in the page, or gone if nothing refers to them; black is the colour of the text around."""
    tag = re.sub(r' id="([^"]*)"', lambda found: f' id="{name}-{found[1]}"' if found[1] in used else "", tag)
    tag = re.sub(r'(href="#|url\(#)', rf"\g<1>{name}-", tag)
    return tag.replace("#000000", "currentColor")
