"""How the house's figures look."""

from contextlib import AbstractContextManager

import matplotlib as mpl


def plot_style() -> AbstractContextManager[None]:
    """Small plain type, sharp enough for a page."""
    return mpl.rc_context({"font.size": 8, "axes.titlesize": 8, "figure.dpi": 150})
