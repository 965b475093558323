"""What a claim draws with, from one module: the only one of the lab that knows where it comes from."""

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from headwork.figures import MARKERS as MARKERS
from headwork.figures import MEASURED as MEASURED
from headwork.figures import PREDICTED as PREDICTED
from headwork.figures import PRINTED as PRINTED
from headwork.figures import Axes as Axes
from headwork.figures import Figure as Figure
from headwork.figures import outline as outline
from headwork.figures import panels as panels
from headwork.figures import plot_style as plot_style
from headwork.lab.verdict import ROUNDING as ROUNDING

FLOOR = 1e-17
"""Where a logarithmic axis shows a difference of exactly 0: below the rounding of double precision."""


def on_log_axis(values: Tensor | Sequence[float], floor: float = FLOOR) -> np.ndarray:
    """Values for a logarithmic axis: those below the floor, such as 0, are drawn there.

    >>> on_log_axis([0.0, 1e-3])
    array([1.e-17, 1.e-03])
    """
    return np.maximum(np.asarray(values), floor)


def draw_rounding(ax: Axes, label: str = "predicted: below") -> None:
    """A horizontal line at what rounding may leave of a difference that is 0 in theory."""
    ax.axhline(ROUNDING, **PREDICTED | {"label": label})
