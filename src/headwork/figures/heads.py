"""Heads that attend by position alone, and position codes.

The weights of a head from one query, the limit in which it is a shift, and how alike the codes of positions are.
"""

import math
from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor, nn

from headwork.figures.centres import draw_centres
from headwork.figures.style import Picture, plot_style
from headwork.functional.gaussian import gaussian_weights
from headwork.layers.gaussian import GaussianAttention, PositionAttention

CONTOURS = {0.5: "-", 0.9: "--"}
"""The fractions of a head's weight that are outlined, and the style of the line."""


def draw_position_heads_of(model: nn.Module, names: Sequence[str], grid: tuple[int, int] | None) -> Iterator[Picture]:
    """The centres of all Gaussian heads, and the weights of the heads of the first and the last layer.

    Learned shifts have weights too, but no centre.
    """
    layers = {name: layer for name in names if isinstance(layer := model.get_submodule(name), PositionAttention)}
    if not layers or grid is None:
        raise ValueError("model must have heads that attend by position alone: draw_attention_over_image draws others")
    if all(isinstance(layer, GaussianAttention) for layer in layers.values()):
        caption = (
            "The centres of the heads, in rows and columns away from the query (x). An outline holds half of the "
            "attention weight of its head."
        )
        yield Picture(draw_centres(model), caption)
    for name in dict.fromkeys([next(iter(layers)), list(layers)[-1]]):
        caption = (
            f"{name}, of {len(layers)} such layers: the attention weights of the patch in the middle of the "
            f"{grid[0]} x {grid[1]} patches, for each head."
        )
        yield Picture(draw_position_heads(layers[name], grid), caption)


def draw_position_heads(layer: PositionAttention, grid: tuple[int, int]) -> Figure:
    """The weights of each head from the centre pixel; contours hold 50 % (solid) and 90 % (dashed) of the weight."""
    middle = grid[0] // 2, grid[1] // 2
    seen = layer.seen_from(grid, middle).detach()
    n_across = min(len(seen), 5)
    n_down = math.ceil(len(seen) / n_across)
    with plot_style():
        figure = Figure(figsize=(1.9 * n_across, 2.0 * n_down + 0.3), layout="constrained")
        for head, ax in enumerate(figure.subplots(n_down, n_across, squeeze=False).flat):
            if head >= len(seen):
                ax.set_axis_off()
                continue
            draw_position_head(ax, seen[head], middle)
            ax.set(title=f"head {head}", xticks=[], yticks=[])
        figure.supxlabel("x: the query; solid: 50 %, dashed: 90 % of the attention weight", fontsize=8)
    return figure


def draw_position_head(ax: Axes, seen: Float[Tensor, "row column"], query: tuple[int, int]) -> None:
    """The weights of one head from the query (x), with outlines around the pixels that hold 50 % and 90 % of them."""
    ax.imshow(seen.numpy(), cmap="viridis", vmin=0)
    order = seen.flatten().sort(descending=True).values
    for fraction, line in CONTOURS.items():
        level = order[min(int((order.cumsum(0) < fraction).sum()), len(order) - 1)]
        _outline(ax, seen >= level, line)
    ax.plot(query[1], query[0], "wx", markersize=4)
    ax.set(xlim=(-0.5, seen.shape[1] - 0.5), ylim=(seen.shape[0] - 0.5, -0.5))


def _outline(ax: Axes, inside: Bool[Tensor, "row column"], line: str, finer: int = 10) -> None:
    """Along the edges of the pixels: each is many points, since a contour cuts corners by one."""
    padded = nn.functional.pad(inside.float(), (1, 1, 1, 1))
    points = padded.repeat_interleave(finer, 0).repeat_interleave(finer, 1)
    rows, columns = ((torch.arange(n) + 0.5) / finer - 1.5 for n in points.shape)
    ax.contour(
        columns.numpy(), rows.numpy(), points.numpy(), levels=[0.5], colors="white", linestyles=line, linewidths=1
    )


def draw_absolute_codes(table: Tensor, n_shown: int = 5) -> Figure:
    """The cosine between the codes of some positions and those of all others."""
    table = table.detach()
    n_rows, n_columns, _ = table.shape
    unit = table / table.norm(dim=-1, keepdim=True).clamp(min=1e-12)
    lowest = min((unit[:1, :1] * unit).sum(-1).min().item(), 0.9)
    positions = torch.linspace(0, n_rows * n_columns - 1, n_shown).round().int().tolist()
    with plot_style():
        figure = Figure(figsize=(1.9 * n_shown, 2.0), layout="constrained")
        for ax, position in zip(figure.subplots(1, n_shown, squeeze=False)[0], positions, strict=True):
            row, column = divmod(position, n_columns)
            image = ax.imshow((unit @ unit[row, column]).numpy(), cmap="viridis", vmin=lowest, vmax=1)
            ax.plot(column, row, "wx")
            ax.set(title=f"position ({row}, {column})", xlabel="column", ylabel="row")
        figure.colorbar(image, ax=figure.axes, shrink=0.8, label="cosine of the codes")
    return figure


def draw_gaussian_limit(centre: tuple[int, int] = (0, 1), grid: tuple[int, int] = (7, 7)) -> Figure:
    """Equation (13) of the ETH sheet, drawn: the target's weight goes to 1 as alpha grows, all others to 0."""
    alphas = torch.logspace(-2, 1.5, 60)
    weights = torch.stack(
        [
            gaussian_weights(grid, torch.tensor([centre]).float(), alpha[None])[0, grid[0] // 2, grid[1] // 2]
            for alpha in alphas
        ]
    )
    target = grid[0] // 2 + centre[0], grid[1] // 2 + centre[1]
    with plot_style():
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
        ax.set(
            xscale="log",
            xlabel="alpha",
            ylabel="weight",
            title=f"the weights of a Gaussian head with its centre at {centre}",
        )
        ax.legend(frameon=False)
    return figure
