"""The centres of Gaussian heads: now, over the steps of a run, and in TensorBoard."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch
from matplotlib.animation import FuncAnimation, PillowWriter
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse
from matplotlib.ticker import MaxNLocator
from torch import Tensor, nn

from headwork.figures.style import freeze_layout, plot_style
from headwork.functional.gaussian import full_precision
from headwork.inspection.heads import HeadCentres, Snapshot, gaussian_layers, half_radius, snapshot_centres

MOST_ACROSS = 6
"""The number of layers side by side; the others follow in more rows."""

WIDEST_OUTLINE = 4.0
"""Pixels: an outline that reaches further from its centre may be cut, so that the others stay large."""


@runtime_checkable
class Writer(Protocol):
    """What `torch.utils.tensorboard.SummaryWriter` can do, as far as it is used here."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None: ...

    def add_figure(self, tag: str, figure: Figure, global_step: int) -> None: ...


def draw_centres(
    where: nn.Module | Snapshot, *, earlier: Sequence[Snapshot] = (), reach: float | None = None, title: str = ""
) -> Figure:
    """The numbered centres of all Gaussian heads of a model, or of a snapshot of one; a panel for each layer.

    An outline holds half of the weight of its head. A line leads there through the `earlier` snapshots. The cross is
    the query, and the panels show `reach` pixels around it.
    """
    now = snapshot_centres(where) if isinstance(where, nn.Module) else where
    if not now:
        raise ValueError(f"there must be Gaussian heads to draw, got {type(where).__name__} without any")
    with plot_style():
        figure, axes = _panels(now)
        _draw_all(figure, axes, [*earlier, now], reach or _reach([*earlier, now]), title)
        freeze_layout(figure)
    return figure


def animate_centres(history: Sequence[Snapshot], path: Path, frames_per_second: int = 5) -> None:
    """A GIF of the centres over a run; `history` has what `snapshot_centres` gave before it and after each epoch."""
    if not history or not history[0]:
        raise ValueError("history must hold at least one epoch with one Gaussian layer, got none")
    reach = _reach(history)
    with plot_style():
        figure, axes = _panels(history[0])

        def draw(epoch: int) -> list[Axes]:
            _draw_all(figure, axes, history[: epoch + 1], reach, f"epoch {epoch}")
            return axes

        draw(0)
        freeze_layout(figure)  # so that the panels stand still
        path.parent.mkdir(parents=True, exist_ok=True)
        FuncAnimation(figure, draw, frames=len(history)).save(path, writer=PillowWriter(fps=frames_per_second))


def log_heads(writer: Writer, model: nn.Module, step: int) -> None:
    """Write the centre and the width of every Gaussian head, and a figure of all centres.

    The scalars are called `heads/layers.0/head 3/row`, `.../column` (of the centre, away from the query) and
    `.../width`: the `half_radius` in pixels, which for diagonal and full precisions is that of the circle with the area
    of the ellipse drawn in the figure `heads/centres`. Of a model without Gaussian heads there is nothing to write.
    """
    layers = gaussian_layers(model)
    if not layers:
        return
    for name, layer in layers.items():
        widths = half_radius(layer.alpha.detach()).tolist()
        for head, ((row, column), width) in enumerate(zip(layer.centre.tolist(), widths, strict=True)):
            for what, value in (("row", row), ("column", column), ("width", width)):
                writer.add_scalar(f"heads/{name}/head {head}/{what}", value, step)
    writer.add_figure("heads/centres", draw_centres(model, title=f"step {step}"), step)


def _panels(layers: Snapshot) -> tuple[Figure, list[Axes]]:
    n_across = min(len(layers), MOST_ACROSS)
    n_down = math.ceil(len(layers) / n_across)
    figure = Figure(figsize=(2.1 * n_across + 0.2, 2.2 * n_down + 0.2), layout="constrained")
    axes = list(figure.subplots(n_down, n_across, squeeze=False).flat)
    for ax in axes[len(layers) :]:
        ax.set_axis_off()
    return figure, axes[: len(layers)]


def _draw_all(figure: Figure, axes: list[Axes], history: Sequence[Snapshot], reach: float, title: str) -> None:
    figure.suptitle(title)
    for panel, (ax, name) in enumerate(zip(axes, history[-1], strict=True)):
        ax.clear()
        _draw_layer(ax, [snapshot[name] for snapshot in history])
        ax.set(xlim=(-reach, reach), ylim=(reach, -reach), aspect="equal", title=name, xlabel="columns away")
        ax.tick_params(labelsize=7)  # said here, since ticks are made when the figure is saved
        ax.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        ax.yaxis.set_major_locator(MaxNLocator(5, integer=True))
        if panel % MOST_ACROSS == 0:
            ax.set_ylabel("rows away")


def _draw_layer(ax: Axes, history: Sequence[HeadCentres]) -> None:
    ax.axhline(0, color="0.85", linewidth=0.8)
    ax.axvline(0, color="0.85", linewidth=0.8)
    ax.plot(0, 0, "kx", markersize=5)
    way = torch.stack([torch.tensor(centres["centre"]) for centres in history])
    precision = full_precision(torch.tensor(history[-1]["alpha"]))
    for head in range(way.shape[1]):
        color = f"C{head % 10}"
        row, column = way[-1, head].tolist()
        ax.plot(way[:, head, 1].numpy(), way[:, head, 0].numpy(), color=color, linewidth=0.6)
        ax.plot(column, row, ".", color=color, markersize=3)
        ax.add_patch(_outline(row, column, precision[head], color))
        ax.annotate(str(head), (column, row), (2, 1), textcoords="offset points", color=color, fontsize=6)


def _outline(row: float, column: float, precision: Tensor, color: str) -> Ellipse:
    """Half of a Gaussian lies where its exponent is at most ln 2: inside the ellipse d' A d = ln 2."""
    sharpness, (down, across) = torch.linalg.eigh(precision)
    width, height = (2 * torch.sqrt(math.log(2) / sharpness)).tolist()
    angle = math.degrees(math.atan2(down[0], across[0]))
    return Ellipse((column, row), width, height, angle=angle, fill=False, color=color, linewidth=1.0)


def _reach(history: Sequence[Snapshot]) -> float:
    """How many pixels around the query hold all centres and the outlines around them, unless these are very wide."""
    reach = 2.0
    for snapshot in history:
        for centres in snapshot.values():
            # the ellipse d' A d = ln 2 reaches sqrt(ln 2 * (A^-1)_ii) along axis i
            spread = torch.linalg.inv(full_precision(torch.tensor(centres["alpha"]))).diagonal(dim1=-2, dim2=-1)
            outline = (math.log(2) * spread).sqrt().clamp(max=WIDEST_OUTLINE)
            reach = max(reach, (torch.tensor(centres["centre"]).abs() + outline).max().item() + 0.2)
    return reach
