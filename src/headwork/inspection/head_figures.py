"""Where heads look on an image: codes, centres and widths, the limit that makes a convolution, and their way there."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from matplotlib.animation import FuncAnimation, PillowWriter
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle
from torch import Tensor, nn

from headwork.functional.gaussian import gaussian_weights
from headwork.inspection.style import house_style
from headwork.layers.gaussian import GaussianAttention, PositionAttention

CONTOURS = {0.5: "-", 0.9: "--"}
"""The shares of a head's weight that are outlined, and how."""


def draw_absolute_codes(table: Tensor, n_shown: int = 5) -> Figure:
    """What some positions look like to all others: the cosine between their codes."""
    table = table.detach()
    n_rows, n_columns, _ = table.shape
    unit = table / table.norm(dim=-1, keepdim=True).clamp(min=1e-12)
    lowest = min((unit[:1, :1] * unit).sum(-1).min().item(), 0.9)
    places = torch.linspace(0, n_rows * n_columns - 1, n_shown).round().int().tolist()
    with house_style():
        figure = Figure(figsize=(1.9 * n_shown, 2.3), layout="constrained")
        for ax, place in zip(figure.subplots(1, n_shown, squeeze=False)[0], places, strict=True):
            row, column = divmod(place, n_columns)
            image = ax.imshow((unit @ unit[row, column]).numpy(), cmap="viridis", vmin=lowest, vmax=1)
            ax.plot(column, row, "wx")
            ax.set(title=f"seen from ({row}, {column})", xlabel="column", ylabel="row")
        figure.colorbar(image, ax=figure.axes, shrink=0.8, label="cosine of the codes")
    return figure


def draw_heads(layer: PositionAttention, grid: tuple[int, int]) -> Figure:
    """Where each head attends from the centre pixel; contours hold 50 % (solid) and 90 % (dashed) of its weight."""
    weights = layer.table(grid).detach()
    middle = grid[0] // 2, grid[1] // 2
    n_across = min(len(weights), 5)
    n_down = math.ceil(len(weights) / n_across)
    with house_style():
        figure = Figure(figsize=(1.9 * n_across, 2.0 * n_down + 0.3), layout="constrained")
        for head, ax in enumerate(figure.subplots(n_down, n_across, squeeze=False).flat):
            if head >= len(weights):
                ax.set_axis_off()
                continue
            seen = weights[head, middle[0], middle[1]]
            ax.imshow(seen.numpy(), cmap="viridis", vmin=0)
            _outline(ax, seen)
            ax.plot(middle[1], middle[0], "wx")
            ax.set(title=f"head {head}", xticks=[], yticks=[])
        figure.supxlabel("x: the query; solid: 50 %, dashed: 90 % of the weight")
    return figure


def draw_centres(model: nn.Module, limit: float | None = None, title: str = "") -> Figure:
    """The centres of all Gaussian heads, a panel for each layer; a circle holds half of the head's weight."""
    layers = gaussian_layers(model)
    with house_style():
        figure = Figure(figsize=(2.1 * len(layers), 2.5), layout="constrained")
        figure.suptitle(title)
        axes = figure.subplots(1, len(layers), squeeze=False)[0]
        reach = limit or max(2.0, *(_reach(layer) for layer in layers.values()))
        for ax, (name, layer) in zip(axes, layers.items(), strict=True):
            _draw_centres(ax, layer.centre.detach(), layer.alpha.detach(), reach, name)
    return figure


def draw_limit(centre: tuple[int, int] = (0, 1), grid: tuple[int, int] = (7, 7)) -> Figure:
    """`verify_limit`: equation (13) of the ETH sheet. The target's weight goes to 1 as alpha grows, all others to 0."""
    alphas = torch.logspace(-2, 1.5, 60)
    weights = torch.stack(
        [
            gaussian_weights(grid, torch.tensor([centre]).float(), alpha[None])[0, grid[0] // 2, grid[1] // 2]
            for alpha in alphas
        ]
    )
    target = grid[0] // 2 + centre[0], grid[1] // 2 + centre[1]
    with house_style():
        figure = Figure(figsize=(5.5, 3.2), layout="constrained")
        ax = figure.subplots()
        for row in range(grid[0]):
            for column in range(grid[1]):
                hit = (row, column) == target
                ax.plot(
                    alphas.numpy(),
                    weights[:, row, column].numpy(),
                    color="black" if hit else "0.7",
                    linewidth=2 if hit else 0.7,
                    label="the target shift" if hit else "all other shifts" if row == column == 0 else None,
                )
        ax.axhline(1 / (grid[0] * grid[1]), color="black", linestyle=":", linewidth=0.8, label="the mean (alpha = 0)")
        ax.set(xscale="log", xlabel="alpha", ylabel="weight", title=f"a head that looks {centre} away")
        ax.legend(frameon=False)
    return figure


def animate_centres(
    history: Sequence[Iterable[tuple[str, Tensor, Tensor]]], path: Path, frames_per_second: int = 5
) -> None:
    """A GIF of the centres over a run; `history` has what `snapshot_centres` gave at each epoch."""
    epochs = [list(epoch) for epoch in history]
    if not epochs or not epochs[0]:
        raise ValueError("history must hold at least one epoch with one Gaussian layer, got none")
    reach = max(centre.abs().max().item() + 1 for epoch in epochs for _, centre, _ in epoch)
    with house_style():
        figure = Figure(figsize=(2.1 * len(epochs[0]), 2.6), layout="constrained")
        axes = figure.subplots(1, len(epochs[0]), squeeze=False)[0]

        def draw(epoch: int) -> list[Axes]:
            figure.suptitle(f"epoch {epoch}")
            for ax, (name, centre, alpha) in zip(axes, epochs[epoch], strict=True):
                ax.clear()
                _draw_centres(ax, centre, alpha, reach, name)
            return list(axes)

        path.parent.mkdir(parents=True, exist_ok=True)
        FuncAnimation(figure, draw, frames=len(epochs)).save(path, writer=PillowWriter(fps=frames_per_second))


def gaussian_layers(model: nn.Module) -> dict[str, GaussianAttention]:
    """The Gaussian layers of a model by name."""
    layers = {
        name or "layer": module for name, module in model.named_modules() if isinstance(module, GaussianAttention)
    }
    if not layers:
        raise ValueError(f"model must have Gaussian heads, got {type(model).__name__} without any")
    return layers


def snapshot_centres(model: nn.Module) -> list[tuple[str, Tensor, Tensor]]:
    """The centres and precisions of every Gaussian layer as they are now: an entry of the history for an animation."""
    return [
        (name, layer.centre.detach().clone(), layer.alpha.detach().clone())
        for name, layer in gaussian_layers(model).items()
    ]


def _draw_centres(ax: Axes, centre: Tensor, alpha: Tensor, reach: float, title: str) -> None:
    ax.axhline(0, color="0.85", linewidth=0.8)
    ax.axvline(0, color="0.85", linewidth=0.8)
    for head, ((row, column), radius) in enumerate(zip(centre.tolist(), _half_radius(alpha).tolist(), strict=True)):
        ax.add_patch(Circle((column, row), radius, fill=False, color=f"C{head % 10}", linewidth=1.2))
        ax.plot(column, row, ".", color=f"C{head % 10}")
    ax.plot(0, 0, "kx")
    ax.set(
        xlim=(-reach, reach),
        ylim=(reach, -reach),
        aspect="equal",
        title=title,
        xlabel="columns away",
        ylabel="rows away",
    )


def _half_radius(alpha: Tensor) -> Tensor:
    """The radius that holds half of a round Gaussian; for other shapes that of the round one of the same area."""
    area = alpha if alpha.ndim == 1 else alpha.prod(1).sqrt() if alpha.ndim == 2 else torch.linalg.det(alpha).sqrt()
    return torch.sqrt(math.log(2) / area)


def _reach(layer: GaussianAttention) -> float:
    return layer.centre.detach().abs().max().item() + 1


def _outline(ax: Axes, seen: Tensor) -> None:
    order = seen.flatten().sort(descending=True).values
    for share, line in CONTOURS.items():
        level = order[min(int((order.cumsum(0) < share).sum()), len(order) - 1)]
        if seen.min() < level:
            ax.contour((seen >= level).numpy(), levels=[0.5], colors="white", linestyles=line, linewidths=1)
