"""What all figures share: type, colours, labels, and how they become part of a page."""

import base64
import io
import re
import warnings
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from torch import Tensor

PIXELS_PER_INCH = 200

INK = LinearSegmentedColormap.from_list("ink", ["#1f6fb400", "#1f6fb4ff"]).with_extremes(bad="#80808033")
"""From transparent to blue, so that 0 is the page, be it light or dark; grey is what has no number."""

GLOW = LinearSegmentedColormap.from_list("glow", ["#b8400000", "#b84000d0"])
"""From transparent to an orange that lets through what lies under it."""

UPWARDS: dict[str, Any] = {"rotation": 90, "rotation_mode": "anchor", "ha": "right", "va": "center"}
"""Labels below an axis that end at it, whatever font the reader has."""

MARKS = {" ": "␣", "\n": "⏎", "\t": "⇥"}
"""What cannot be seen, and what is drawn for it; the font that comes with matplotlib has all three."""


@dataclass(frozen=True)
class Picture:
    """A figure, its caption, and a description for those who cannot see it (the caption unless given)."""

    figure: Figure
    caption: str
    alt: str = ""


def plot_style() -> AbstractContextManager[None]:
    """Small plain type, sharp enough for a page; the same figure is the same SVG."""
    return mpl.rc_context({"font.size": 8, "axes.titlesize": 8, "figure.dpi": 150, "svg.hashsalt": "headwork"})


def show_image(ax: Axes, image: Float[Tensor, "channel row column"]) -> None:
    """An image with values from 0 to 1 and nothing around it: three channels in colour, else their mean, 1 black."""
    seen = image.detach().float().cpu().clamp(0, 1)
    pixels = seen.permute(1, 2, 0) if len(seen) == 3 else seen.mean(0)
    ax.imshow(pixels.numpy(), cmap="gray_r", vmin=0, vmax=1, interpolation="nearest")
    ax.set(xticks=[], yticks=[])


def make_visible(token: str, n_letters: int = 12) -> str:
    """A token as a label: white space becomes visible, what cannot be printed is written out, a long one is cut.

    >>> [make_visible(token) for token in (" the", "\\n", "\\x00", "", "incomprehensibilities")]
    ['␣the', '⏎', '\\\\x00', '∅', 'incomprehen…']
    """
    letters = "".join(MARKS.get(letter) or _printable(letter) for letter in token)
    return shorten(letters, n_letters) or "∅"


def shorten(text: str, n_letters: int) -> str:
    """The text on one line, cut to at most `n_letters`.

    >>> shorten("a very long label", 7)
    'a very…'
    """
    text = "".join(" " if letter.isspace() else _printable(letter) for letter in text)
    return text if len(text) <= n_letters else text[: n_letters - 1] + "…"


def _printable(letter: str) -> str:
    return letter if letter.isprintable() else letter.encode("unicode_escape").decode()


def figure_to_svg(figure: Figure, name: str) -> str:
    """The figure as SVG with the text colour and font of the page around it; `name` makes its ids unique."""
    same_every_time = mpl.rc_context(
        {"svg.hashsalt": "headwork", "svg.fonttype": "none", "font.sans-serif": ["DejaVu Sans"]}
    )
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    svg = io.StringIO()
    with same_every_time, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")
        freeze_layout(figure)
        figure.savefig(svg, format="svg", transparent=True, metadata=nothing)
    drawing = svg.getvalue()
    drawing = drawing[drawing.index("<svg") :]
    drawing = re.sub(r"<style.*?</style>", "", drawing, flags=re.DOTALL)
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', drawing))
    return re.sub(r"<[^<>]+>", lambda tag: _adapt(tag[0], name, used), drawing)


def figure_to_webp(figure: Figure) -> str:
    """The figure as WebP on white, in base64: photographs in it take a tenth of what they would as PNG."""
    image = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")
        freeze_layout(figure)
        figure.savefig(image, format="webp", dpi=PIXELS_PER_INCH, pil_kwargs={"quality": 90})
    return base64.b64encode(image.getvalue()).decode()


def freeze_layout(figure: Figure) -> None:
    """Lay the figure out once and for all: matplotlib moves its parts a little at every drawing.

    Of panels with a fixed aspect the first layout is too large for the figure, the second is right.
    """
    engine = figure.get_layout_engine()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # the reader's browser has more letters than matplotlib
        if engine is not None:
            engine.execute(figure)
            engine.execute(figure)
    figure.set_layout_engine("none")


def _adapt(tag: str, name: str, used: set[str]) -> str:
    """Ids are unique in the page, or gone if nothing refers to them; black is the colour of the text around."""
    tag = re.sub(r' id="([^"]*)"', lambda found: f' id="{name}-{found[1]}"' if found[1] in used else "", tag)
    tag = re.sub(r'(href="#|url\(#)', rf"\g<1>{name}-", tag)
    return tag.replace("#000000", "currentColor")
