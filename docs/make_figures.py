"""Draw the figures of the guide: `make docs`. Two of them show trained models, which takes a minute or two."""

import re
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

import headwork as hw
from headwork import functional as fn
from headwork import masks
from headwork.figures import (
    Figure,
    animate_centres,
    draw_centres,
    draw_comparison,
    draw_gaussian_limit,
    draw_inside,
    draw_position_heads,
    plot_style,
)
from headwork.metric import MetricRow
from headwork.recipes import find_recipe
from headwork.tasks.classification import ACCURACY
from headwork.training.display import Lines
from headwork.training.recorder import HEADS, WatchCentres, read_centres

HERE = Path(__file__).parent


def draw_masks() -> Figure:
    """Each mask on eight keys; a filled square may be looked at."""
    n = 8
    examples = {
        "causal(8)": masks.causal(n),
        "causal(3, 8)\nthe newest queries": masks.causal(3, n),
        "window(8, radius=1)": masks.window(n, radius=1),
        "chunked(8, chunk=3)": masks.chunked(n, chunk=3),
        "causal & padding(6 of 8)": (masks.causal(n) & masks.padding(torch.tensor([6]), n))[0, 0],
        "cross(3 of 4, 6 of 8)": masks.cross(torch.tensor([3]), 4, torch.tensor([6]), n)[0, 0],
    }
    figure = Figure(figsize=(10, 2.4), layout="constrained")
    for ax, (name, visible) in zip(figure.subplots(1, len(examples)), examples.items(), strict=True):
        rows, columns = visible.shape
        ax.pcolormesh(visible.int().numpy(), cmap="Greys", vmin=0, vmax=1.4, edgecolors="0.7", linewidth=0.5)
        ax.set(title=name, aspect="equal", xticks=[], yticks=[], ylim=(rows, 0), xlim=(0, columns), xlabel="key")
    figure.axes[0].set_ylabel("query")
    return figure


def draw_cifar10() -> Figure:
    """The epochs of four networks on CIFAR-10, from the logs that they left."""
    names = ("pyramid", "cifar10-vit", "cifar10-resnet", "cifar10-gaussian")
    return draw_comparison({name: read_log(HERE / "logs" / f"{name}.txt") for name in names}, ACCURACY)


def read_log(file: Path) -> list[MetricRow]:
    """What a run printed: loss and accuracy of each epoch in training and on validation data, and of the test."""
    rows, epoch = list[MetricRow](), 0.0
    for line in file.read_text(encoding="utf-8").splitlines():
        if found := re.match(r"epoch (\d+)", line):
            epoch = float(found[1])
        for split, loss, accuracy in re.findall(r"(train|valid|test)(?:: loss ([\d.]+),)? accuracy ([\d.]+) %", line):
            values = {"accuracy": float(accuracy) / 100} | ({"loss": float(loss)} if loss else {})
            rows.append(MetricRow(0, epoch, split, values, 0.0))
    return rows


def draw_positions() -> Figure:
    """What each position code gives a model to tell positions apart."""
    panels: list[tuple[str, Tensor, str, str]] = [
        ("sinusoidal_positions(64, 32)", fn.sinusoidal_positions(64, 32).T, "token", "d_model"),
        (
            "the product of two sinusoids\nshows their distance",
            product(fn.sinusoidal_positions(64, 32)),
            "key",
            "query",
        ),
        ("the same in two dimensions,\nfrom the centre of 9 x 9", from_the_centre(), "column", "row"),
        ("rotary: the product of two equal\nvectors, rotated", rotary_product(), "key", "query"),
        ("alibi_bias, head 0 of 4", fn.alibi_bias(4, 64, 64)[0], "key", "query"),
        ("t5_buckets, both ways", fn.t5_buckets(64, 64).float(), "key", "query"),
    ]
    figure = Figure(figsize=(13, 2.9), layout="constrained")
    for ax, (name, table, across, down) in zip(figure.subplots(1, len(panels)), panels, strict=True):
        image = ax.imshow(table.numpy(), aspect="auto", cmap="viridis", interpolation="nearest")
        ax.set(title=name, xlabel=across, ylabel=down)
        figure.colorbar(image, ax=ax, location="bottom", shrink=0.9)
    return figure


def product(codes: Tensor) -> Tensor:
    return codes @ codes.T


def from_the_centre() -> Tensor:
    grid = fn.sinusoidal_positions_2d(9, 9, 64)
    return (grid @ grid[4, 4]) / 32


def rotary_product() -> Tensor:
    rotated = fn.rotate(torch.ones(64, 32), fn.rotary_angles(torch.arange(64), 32))
    return rotated @ rotated.T / 32


def draw_temperature() -> Figure:
    """The same scores at five temperatures."""
    scores = torch.tensor([[0.4, 1.6, 0.9, 1.6, -0.5]])
    betas = (0.0, 1.0, 3.0, 10.0, float("inf"))
    figure = Figure(figsize=(10, 2.0), layout="constrained")
    for ax, beta in zip(figure.subplots(1, len(betas), sharey=True), betas, strict=True):
        ax.bar(range(5), fn.softargmax(scores, beta)[0].numpy(), color="0.35")
        ax.set(title=f"beta = {beta:g}", xlabel="key", ylim=(0, 0.6), xticks=range(5))
        ax.spines[["top", "right"]].set_visible(False)
    figure.axes[0].set_ylabel("weight")
    return figure


def main() -> None:
    with plot_style():
        draw_masks().savefig(HERE / "masks.png")
        draw_positions().savefig(HERE / "positions.png")
        draw_temperature().savefig(HERE / "temperature.png")
    draw_cifar10().savefig(HERE / "cifar10.png", dpi=150)
    torch.manual_seed(0)
    layer = hw.layers.GaussianAttention(d_model=8, n_heads=10, precision="diagonal")
    layer.set_centres(2 * torch.randn(10, 2), 0.05 + torch.rand(10, 2))
    draw_position_heads(layer, (13, 15)).savefig(HERE / "heads.png")
    draw_gaussian_limit().savefig(HERE / "limit.png")
    with TemporaryDirectory() as folder:
        trained = train_recipe("digits-vit", Path(folder))
        draw_inside(hw.load(trained), hw.data.sample_digit(0), title="digits-vit").savefig(HERE / "inside.png")
        history = read_centres(train_recipe("digits-gaussian", Path(folder)))
    draw_centres(history[-1], earlier=history[:-1], title="digits-gaussian").savefig(HERE / "centres.png")
    animate_centres(history, HERE / "centres.gif", frames_per_second=8)


def train_recipe(name: str, folder: Path) -> Path:
    """A run of the recipe in a folder, its centres watched."""
    config = find_recipe(name)
    data = config.data.load(config.training.seed)
    run = hw.training.new_run(config, folder / name, data)
    watchers = [WatchCentres(run.folder / HEADS)]
    hw.training.train_run(run, Lines(), watchers=watchers, data=data)
    return run.folder


if __name__ == "__main__":
    main()
