"""Position codes: how alike those of two positions are, and the limit in which a Gaussian head is a shift."""

import torch
from matplotlib.figure import Figure
from torch import Tensor

from headwork.figures.style import plot_style
from headwork.functional.gaussian import gaussian_weights


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
