"""Drawings of what happens inside: the input, the ledger, where each head looks, and what each operation costs."""

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor, nn

from headwork.inspection.costs import Cost, cost
from headwork.inspection.recording import record
from headwork.inspection.shapes import Ledger, evaluating, ledger
from headwork.inspection.style import house_style
from headwork.layers.attention import MultiHeadAttention
from headwork.models.vision_transformer import VisionTransformer

N_LAYERS_DRAWN = 4
N_HEADS_DRAWN = 6


def draw_inside(model: nn.Module, *inputs: Tensor, title: str = "") -> Figure:
    """The input and the ledger, the attention of the first layers head by head, and the cost by operation."""
    every = [name for name, module in model.named_modules() if isinstance(module, MultiHeadAttention)]
    names = every[:N_LAYERS_DRAWN]
    weights = list(look_at_heads(model, names, *inputs).items()) if names else []
    if len(every) > len(names):
        title += f" (the first {len(names)} of {len(every)} attention layers)"
    with house_style():
        return _compose(model, inputs, weights, title)


def look_at_heads(
    model: nn.Module, names: list[str], *inputs: Tensor, **masks: Tensor
) -> dict[str, Float[Tensor, "head query key"]]:
    """The attention weights of the first example in the named layers, in evaluation mode and without gradients.

    >>> model = hw.models.build(hw.models.size("digits-vit"))
    >>> weights = look_at_heads(model, ["layers.0.attention"], torch.rand(1, 1, 8, 8))
    >>> weights["layers.0.attention"].shape
    torch.Size([4, 17, 17])
    """
    with evaluating(model), torch.no_grad(), record(model, *(f"{name}.weights" for name in names)) as seen:
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


def _compose(model: nn.Module, inputs: tuple[Tensor, ...], weights: list[tuple[str, Tensor]], title: str) -> Figure:
    n_heads = min(max((len(heads) for _, heads in weights), default=0), N_HEADS_DRAWN)
    widths = (3.3, 1.25 * n_heads, 3.0) if weights else (3.3, 3.0)
    figure = Figure(figsize=(sum(widths), 6.0), layout="constrained")
    figure.suptitle(title, fontweight="bold", fontsize=10, x=0.01, ha="left")
    left, *middle, right = figure.subfigures(1, len(widths), squeeze=False, width_ratios=widths)[0]
    heights = (1, 1.6) if inputs[0].is_floating_point() else (0.4, 2.2)
    picture, table = left.subplots(2, 1, height_ratios=heights)
    _draw_input(picture, model, inputs)
    _draw_ledger(table, ledger(model, *inputs))
    if weights:
        axes = middle[0].subplots(len(weights), n_heads, squeeze=False)
        for row, (name, heads) in zip(axes, weights, strict=True):
            for head, ax in enumerate(row):
                ax.set_axis_off()
                if head < len(heads):
                    _draw_head(ax, model, inputs, heads[head])
                    ax.set_title(f"head {head}", loc="left", pad=2)
            more = f", {n_heads} of {len(heads)} heads" if len(heads) > n_heads else ""
            row[0].set_title(f"{name}{more}\nhead 0", loc="left", pad=2)
        middle[0].supxlabel(_what_is_drawn(model, inputs, weights[0][1]), fontsize=8)
    _draw_cost(right.subplots(), cost(model, *inputs))
    return figure


def _draw_input(ax: Axes, model: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    first = inputs[0][0]
    if not first.is_floating_point():
        words = [str(token) for token in first.tolist()[:20]]
        lines = [" ".join(words[i : i + 5]) for i in range(0, len(words), 5)]
        ax.set_axis_off()
        ax.text(0, 1, "\n".join([f"{len(first)} random token ids:", *lines]), va="top")
        return
    show_image(ax, first)
    if not isinstance(model, VisionTransformer):
        ax.set_title("the image", loc="left")
        return
    rows, columns = model.patches.grid(inputs[0])
    for line in np.linspace(0, first.shape[1], rows + 1):
        ax.axhline(line - 0.5, color="tab:orange", linewidth=0.8)
    for line in np.linspace(0, first.shape[2], columns + 1):
        ax.axvline(line - 0.5, color="tab:orange", linewidth=0.8)
    ax.set_title(f"the image in {rows} x {columns} patches", loc="left")


def _draw_ledger(ax: Axes, table: Ledger) -> None:
    ax.set_axis_off()
    ax.set_title("the ledger", loc="left")
    text = table.text(axes=False)
    ax.text(0, 1, text, va="top", family="monospace", fontsize=5.2 if len(text.splitlines()) < 40 else 4.4)


def _draw_head(ax: Axes, model: nn.Module, inputs: tuple[Tensor, ...], weights: Tensor) -> None:
    """The map of what the class token (or else the mean query) sees of an image; the query x key table of a text."""
    if isinstance(model, VisionTransformer):
        ax.imshow(map_patches(weights, model.patches.grid(inputs[0])).numpy(), cmap="viridis", vmin=0)
    else:
        ax.imshow(weights.numpy(), cmap="viridis", vmin=0, interpolation="nearest", aspect="auto")
    ax.set_axis_on()
    ax.set_xticks([])
    ax.set_yticks([])


def _what_is_drawn(model: nn.Module, inputs: tuple[Tensor, ...], heads: Tensor) -> str:
    scale = "dark: 0, bright: the largest weight of the map"
    if not isinstance(model, VisionTransformer):
        return f"weights of each query (down) on each key (across); {scale}"
    rows, columns = model.patches.grid(inputs[0])
    who = "the class token" if heads.shape[-1] > rows * columns else "the mean query"
    return f"where {who} looks; {scale}"


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
