"""What a claim draws with: a prediction is a dashed line, a measurement a marker, in colours that all can see."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool
from torch import Tensor

from headwork.figures import Axes as Axes
from headwork.figures import Figure as Figure
from headwork.lab.verdict import ROUNDING as ROUNDING

PREDICTED: dict[str, Any] = {"color": "black", "linestyle": "--", "linewidth": 1.2, "label": "predicted"}
MEASURED: dict[str, Any] = {
    "color": "black",
    "linestyle": "none",
    "marker": "o",
    "markersize": 4.5,
    "markerfacecolor": "white",
    "label": "measured",
}
PRINTED: dict[str, Any] = {"color": "0.55", "linestyle": ":", "linewidth": 1.8, "label": "as printed in the sheet"}
"""What a document says where it is wrong."""

MARKERS = ("o", "s", "^", "D", "v", "P")
"""For several series in one panel: colours alone do not survive a copier."""
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
"""One for each marker, told apart by colour-blind readers too (Okabe and Ito 2008)."""

COLOUR_OF = {"o": "black", **dict(zip(MARKERS[1:], COLOURS[1:], strict=True))}

FLOOR = 1e-17
"""Where a logarithmic axis shows a difference of exactly 0: below the rounding of double precision."""


def panels(n: int = 1, *, width: float = 6.6, height: float = 2.9, title: str = "") -> tuple[Figure, tuple[Axes, ...]]:
    """A figure with n panels side by side, open at the top and right; the title says what was found.

    >>> figure, (left, right) = panels(2, title="Two things agree")
    """
    figure = Figure(figsize=(width, height), layout="constrained")
    figure.suptitle(title, fontsize=10, fontweight="bold")
    axes = tuple(figure.subplots(1, n, squeeze=False)[0])
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
    return figure, axes


def series(marker: str) -> dict[str, Any]:
    """The marker of one of several series, in its own colour; the first marker stays black.

    >>> series("s")
    {'marker': 's', 'color': '#D55E00'}
    """
    return {"marker": marker, "color": COLOUR_OF.get(marker, "black")}


def whole_ticks(ax: Axes, axis: Literal["x", "y", "both"] = "x") -> None:
    """Ticks at whole numbers alone: an index or a count has no half.

    >>> figure, (ax,) = panels()
    >>> whole_ticks(ax)
    """
    ax.locator_params(axis=axis, integer=True)


def legend_outside(ax: Axes, **options: Any) -> None:
    """The legend right of the panel, where it hides no curve."""
    ax.legend(**{"frameon": False, "loc": "center left", "bbox_to_anchor": (1.0, 0.5), "fontsize": 7} | options)


def outline(ax: Axes, allowed: Bool[Tensor, "query key"]) -> None:
    """Draw, over a table shown by `imshow`, the border of where a prediction allows something to be."""
    table = allowed.numpy()
    row, column = np.nonzero(np.diff(table, axis=1))
    ax.vlines(column + 0.5, row - 0.5, row + 0.5, color="black", linewidth=1.5)
    row, column = np.nonzero(np.diff(table, axis=0))
    ax.hlines(row + 0.5, column - 0.5, column + 0.5, color="black", linewidth=1.5)


def on_log_axis(values: Tensor | Sequence[float], floor: float = FLOOR) -> np.ndarray:
    """Values for a logarithmic axis: those below the floor, such as 0, are drawn there.

    >>> on_log_axis([0.0, 1e-3])
    array([1.e-17, 1.e-03])
    """
    return np.maximum(np.asarray(values), floor)


def draw_rounding(ax: Axes, label: str = "predicted: below") -> None:
    """A horizontal line at what rounding may leave of a difference that is 0 in theory."""
    ax.axhline(ROUNDING, **PREDICTED | {"label": label})
