"""Drawings of what happens inside: the input, the trace, where each head looks, and what each operation costs."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from torch import Tensor, nn

from headwork.inspection.costs import Cost, cost
from headwork.inspection.head_figures import draw_seen
from headwork.inspection.recording import record
from headwork.inspection.style import plot_style
from headwork.inspection.tracing import Trace, trace
from headwork.layers.attention import MultiHeadAttention
from headwork.layers.evaluation_mode import evaluation_mode
from headwork.layers.gaussian import PositionAttention
from headwork.layers.grid_attention import QueryShiftAttention
from headwork.models.gaussian_image_encoder import GaussianImageEncoder
from headwork.models.vision_transformer import VisionTransformer

N_LAYERS_DRAWN = 4
N_HEADS_DRAWN = 6
SCALE = "dark: 0, bright: the largest weight of the map"

Layers = dict[str, nn.Module]
"""The attention layers that are drawn, by name."""


@dataclass(frozen=True)
class _View:
    """What is shown of the heads of each layer: maps of the image, or the query x key tables of a text."""

    maps: dict[str, Float[Tensor, "head down across"]]
    caption: str
    query: tuple[int, int] | None = None
    """From where on the map the heads look, if they look from one place."""
    aspect: Literal["equal", "auto"] = "equal"
    most_heads: int = N_HEADS_DRAWN
    inches: float = 1.25


def draw_inside(model: nn.Module, *inputs: Tensor, title: str = "") -> Figure:
    """The input and the trace, the attention of the first layers head by head, and the cost by operation."""
    kinds = (PositionAttention, QueryShiftAttention) if isinstance(model, GaussianImageEncoder) else MultiHeadAttention
    every = {name: module for name, module in model.named_modules() if isinstance(module, kinds)}
    drawn = dict(list(every.items())[:N_LAYERS_DRAWN])
    if len(every) > len(drawn):
        title += f" (the first {len(drawn)} of {len(every)} attention layers)"
    match model:
        case GaussianImageEncoder():
            view = _from_the_middle(model, inputs[0], drawn)
        case VisionTransformer():
            view = _from_the_class_token(model, inputs[0], drawn)
        case _:
            caption = f"weights of each query (down) on each key (across); {SCALE}"
            view = _View(look_at_heads(model, list(drawn), *inputs), caption, aspect="auto")
    with plot_style():
        return _compose(model, inputs, view, title)


def _from_the_middle(model: GaussianImageEncoder, image: Tensor, drawn: Layers) -> _View:
    """What the patch in the middle sees; of heads that look by position alone no other weight is computed."""
    grid = model.patches.grid(image)
    row, column = grid[0] // 2, grid[1] // 2
    by_position = {name: layer for name, layer in drawn.items() if isinstance(layer, PositionAttention)}
    maps = {name: layer.seen_from(grid, (row, column)).detach() for name, layer in by_position.items()}
    by_query = {name: layer for name, layer in drawn.items() if name not in by_position}
    for name, weights in look_at_heads(model, list(by_query), image).items():
        maps[name] = weights[:, row * grid[1] + column].reshape(-1, *grid)
    caption = f"where the patch at x looks (solid: 50 %, dashed: 90 % of the weight); {SCALE}"
    return _View(maps, caption, query=(row, column), most_heads=9, inches=1.0)  # 9: a 3 x 3 window of heads


def _from_the_class_token(model: VisionTransformer, image: Tensor, drawn: Layers) -> _View:
    """What the class token sees of the image, or else the mean query."""
    grid = model.patches.grid(image)
    weights = look_at_heads(model, list(drawn), image)
    has_token = any(heads.shape[-1] > grid[0] * grid[1] for heads in weights.values())
    maps = {name: torch.stack([map_patches(head, grid) for head in heads]) for name, heads in weights.items()}
    return _View(maps, f"where {'the class token' if has_token else 'the mean query'} looks; {SCALE}")


def look_at_heads(
    model: nn.Module, names: list[str], *inputs: Tensor, **masks: Tensor
) -> dict[str, Float[Tensor, "head query key"]]:
    """The attention weights of the first example in the named layers, in evaluation mode and without gradients.

    >>> model = hw.models.published("digits-vit").build()
    >>> weights = look_at_heads(model, ["layers.0.attention"], torch.rand(1, 1, 8, 8))
    >>> weights["layers.0.attention"].shape
    torch.Size([4, 17, 17])
    """
    if not names:
        return {}
    with evaluation_mode(model), torch.no_grad(), record(model, *(f"{name}.weights" for name in names)) as seen:
        model(*inputs, **masks)
    return {name: seen[f"{name}.weights"][0].float().cpu() for name in names}


def map_patches(weights: Float[Tensor, "query key"], grid: tuple[int, int]) -> Float[Tensor, "row column"]:
    """What the class token, which comes first, sees of each patch; without one, what the mean query sees."""
    n_patches = grid[0] * grid[1]
    seen = weights[0] if weights.shape[-1] > n_patches else weights.mean(0)
    return seen[-n_patches:].reshape(grid)


def show_image(ax: Axes, image: Float[Tensor, "channel row column"]) -> None:
    """An image with values from 0 to 1 and nothing around it: three channels in colour, else their mean, 1 black."""
    seen = image.detach().float().cpu().clamp(0, 1)
    pixels = seen.permute(1, 2, 0) if len(seen) == 3 else seen.mean(0)
    ax.imshow(pixels.numpy(), cmap="gray_r", vmin=0, vmax=1, interpolation="nearest")
    ax.set(xticks=[], yticks=[])


def _compose(model: nn.Module, inputs: tuple[Tensor, ...], view: _View, title: str) -> Figure:
    n_heads = min(max(map(len, view.maps.values()), default=0), view.most_heads)
    widths = (3.3, view.inches * n_heads, 3.0) if n_heads else (3.3, 3.0)
    figure = Figure(figsize=(sum(widths), 6.0), layout="constrained")
    figure.suptitle(title, fontweight="bold", fontsize=10, x=0.01, ha="left")
    left, *middle, right = figure.subfigures(1, len(widths), squeeze=False, width_ratios=widths)[0]
    heights = (1, 1.6) if inputs[0].is_floating_point() else (0.4, 2.2)
    picture, table = left.subplots(2, 1, height_ratios=heights)
    _draw_input(picture, model, inputs)
    _draw_trace(table, trace(model, *inputs))
    if middle:
        _draw_heads(middle[0], view, n_heads)
    _draw_cost(right.subplots(), cost(model, *inputs))
    return figure


def _draw_heads(figure: SubFigure, view: _View, n_heads: int) -> None:
    axes = figure.subplots(len(view.maps), n_heads, squeeze=False)
    for row, (name, heads) in zip(axes, view.maps.items(), strict=True):
        for head, ax in enumerate(row):
            if head >= len(heads):
                ax.set_axis_off()
            elif view.query is not None:
                draw_seen(ax, heads[head], view.query)
            else:
                ax.imshow(heads[head].numpy(), cmap="viridis", vmin=0, interpolation="nearest", aspect=view.aspect)
            ax.set(xticks=[], yticks=[])
            ax.set_title(f"head {head}", loc="left", pad=2)
        more = f", {n_heads} of {len(heads)} heads" if len(heads) > n_heads else ""
        row[0].set_title(f"{name}{more}\nhead 0", loc="left", pad=2)
    figure.supxlabel(view.caption, fontsize=8)


def _draw_input(ax: Axes, model: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    first = inputs[0][0]
    if not first.is_floating_point():
        words = [str(token) for token in first.tolist()[:20]]
        lines = [" ".join(words[i : i + 5]) for i in range(0, len(words), 5)]
        ax.set_axis_off()
        ax.text(0, 1, "\n".join([f"{len(first)} random token ids:", *lines]), va="top")
        return
    show_image(ax, first)
    if not isinstance(model, VisionTransformer | GaussianImageEncoder):
        ax.set_title("the image", loc="left")
        return
    rows, columns = model.patches.grid(inputs[0])
    for line in np.linspace(0, first.shape[1], rows + 1):
        ax.axhline(line - 0.5, color="tab:orange", linewidth=0.8)
    for line in np.linspace(0, first.shape[2], columns + 1):
        ax.axvline(line - 0.5, color="tab:orange", linewidth=0.8)
    ax.set_title(f"the image in {rows} x {columns} patches", loc="left")


def _draw_trace(ax: Axes, table: Trace) -> None:
    ax.set_axis_off()
    ax.set_title("the trace", loc="left")
    text = table.text(axes=False)
    ax.text(0, 1, text, va="top", family="monospace", fontsize=5.2 if len(text.splitlines()) < 40 else 4.4)


def _draw_cost(ax: Axes, price: Cost) -> None:
    by_operation = price.by_operation()
    share = [100 * flops / price.flops for flops in by_operation.values()]
    bars = ax.barh(list(by_operation), share, color="tab:blue")
    ax.bar_label(bars, [f"{s:.1f} %" for s in share], padding=2)
    ax.invert_yaxis()
    ax.set_xlim(0, max(share, default=1) * 1.3)
    ax.set_xlabel("share of the forward FLOPs (%)")
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_title(f"{price.n_parameters:,} parameters\n{price.flops / 1e6:,.2f} MFLOPs forward", loc="left")
