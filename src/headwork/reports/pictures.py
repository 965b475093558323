"""A picture as a part of a page: as SVG if that is small, else as pixels."""

from html import escape

from headwork.figures import Picture, figure_to_svg, figure_to_webp

LARGEST_SVG = 300_000
"""Characters; a larger drawing goes into the page as pixels if these take less."""


def embed_picture(picture: Picture, name: str) -> str:
    """The picture as markup without any outside reference; `name` keeps its ids apart from those of others."""
    width = f"{picture.figure.get_figwidth():.3g}in"
    alt = escape(picture.alt or picture.caption)
    drawing = figure_to_svg(picture.figure, name)
    if len(drawing) > LARGEST_SVG and len(pixels := figure_to_webp(picture.figure)) < len(drawing):
        drawn = f'<img src="data:image/webp;base64,{pixels}" alt="{alt}">'
    else:
        drawn = drawing.replace("<svg ", f'<svg role="img" aria-label="{alt}" ', 1)
    return f'<figure style="--width: {width}">\n{drawn}\n<figcaption>{escape(picture.caption)}</figcaption>\n</figure>'
