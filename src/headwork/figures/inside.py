"""One figure of what happens inside a model: the input, the trace, the attention of each head, and the cost."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor, nn

from headwork.figures.attention import (
    N_HEADS_DRAWN,
    N_TOKENS_DRAWN,
    Layers,
    choose_layers,
    draw_table,
    grid_of,
    head_panels,
    is_causal,
    map_heads,
    over_image,
    what_is_left_out,
)
from headwork.figures.heads import draw_position_head
from headwork.figures.style import UPWARDS, make_visible, plot_style, show_image
from headwork.inspection.costs import Cost, cost
from headwork.inspection.heads import attention_layers, attention_weights_of
from headwork.inspection.tracing import Trace, trace
from headwork.layers import PositionAttention
from headwork.models import describe

WORD_SIZE = 5
"""Points."""
N_POSITION_HEADS_DRAWN = 9
"""A 3 x 3 window of heads."""


@dataclass(frozen=True)
class _View:
    """The weights of the heads of some layers, and how those of one head are drawn."""

    layers: Layers
    draw: Callable[[Axes, Tensor], None]
    caption: str
    most_heads: int = N_HEADS_DRAWN
    words: dict[str, tuple[list[str], list[str]]] = field(default_factory=dict)
    """Of each layer the queries and the keys, if their words are known."""

    @property
    def n_heads(self) -> int:
        return min(max(map(len, self.layers.values())), self.most_heads)


def draw_inside(
    model: nn.Module, *inputs: Tensor, title: str = "", strings: Sequence[Sequence[str]] | None = None
) -> Figure:
    """The input and the trace, the attention weights head by head, and the cost by operation.

    `strings` are the words of each input of token ids, which are then beside the weights. A model without description,
    or without attention, is drawn without heads.
    """
    _check_strings(inputs, strings)
    view = _view(model, inputs, strings)
    middle = () if view is None else ((1.25 if strings is None else 2.0) * view.n_heads,)
    widths = (3.3, *middle, 3.0)
    with plot_style():
        figure = Figure(figsize=(sum(widths), 6.0), layout="constrained")
        figure.suptitle(title, fontweight="bold", fontsize=10, x=0.01, ha="left")
        left, *centre, right = figure.subfigures(1, len(widths), squeeze=False, width_ratios=widths)[0]
        heights = (1, 1.6) if inputs[0].is_floating_point() else (0.4, 2.2)
        picture, table = left.subplots(2, 1, height_ratios=heights)
        _draw_input(picture, model, inputs, strings)
        _draw_trace(table, trace(model, *inputs))
        if view is not None:
            panels = head_panels(centre[0], view.layers, range(view.n_heads), view.draw)
            _write_words(panels, list(view.words.values()))
            centre[0].supxlabel(view.caption, fontsize=8)
        _draw_cost(right.subplots(), cost(model, *inputs))
    return figure


def _check_strings(inputs: tuple[Tensor, ...], strings: Sequence[Sequence[str]] | None) -> None:
    lengths = [ids.shape[1] for ids in inputs if not ids.is_floating_point()]
    if strings is not None and [len(words) for words in strings] != lengths:
        got = [len(words) for words in strings]
        raise ValueError(f"strings must have a word for each token, {lengths} for the inputs, got {got}")


def _view(model: nn.Module, inputs: tuple[Tensor, ...], strings: Sequence[Sequence[str]] | None) -> _View | None:
    every = attention_layers(model) + attention_layers(model, cross=True)
    if not every:
        return None
    if _has_grid(model):
        view = _over_image(model, inputs[0][0], every)
    else:
        view = _between_tokens(model, inputs, every, strings)
    return replace(view, caption=f"{view.caption}\n{what_is_left_out(view.layers, every)}".strip())


def _over_image(model: nn.Module, image: Tensor, every: list[str]) -> _View:
    found = map_heads(model, image, choose_layers(every))
    query = found.query
    whose = f"attention weights of {found.who}"
    if query is None or not isinstance(model.get_submodule(every[0]), PositionAttention):
        return _View(found.maps, over_image(image, query), f"{whose}; the number is the largest weight of the map")
    caption = f"{whose}; solid: 50 %, dashed: 90 % of the weight"
    return _View(found.maps, lambda ax, of: draw_position_head(ax, of, query), caption, N_POSITION_HEADS_DRAWN)


def _between_tokens(
    model: nn.Module, inputs: tuple[Tensor, ...], every: list[str], strings: Sequence[Sequence[str]] | None
) -> _View:
    layers = attention_weights_of(model, choose_layers(every), *inputs)
    causal = is_causal(layers) and len(inputs) == 1
    caption = "attention weights of each query (row) on each key (column); colour: square root of the weight"
    words = {} if strings is None else _words_of(model, layers, strings)
    if words:
        layers = {name: heads[:, :N_TOKENS_DRAWN, :N_TOKENS_DRAWN] for name, heads in layers.items()}
        if (longest := max(map(len, strings or ()))) > N_TOKENS_DRAWN:
            caption += f"; of {longest} tokens the first {N_TOKENS_DRAWN}"
    return _View(layers, lambda ax, weights: draw_table(ax, weights, causal), caption, words=words)


def _words_of(
    model: nn.Module, layers: Layers, strings: Sequence[Sequence[str]]
) -> dict[str, tuple[list[str], list[str]]]:
    """The queries and keys of each layer: of a pair, the first stack reads the source, and cross-attention both."""
    source, target = ([make_visible(word) for word in strings[i][:N_TOKENS_DRAWN]] for i in (0, -1))
    first = next(iter(layers)).partition(".")[0]
    cross = set(attention_layers(model, cross=True))
    return {
        name: (target, source) if name in cross else (source,) * 2 if name.partition(".")[0] == first else (target,) * 2
        for name in layers
    }


def _write_words(panels: list[list[Axes]], words: list[tuple[list[str], list[str]]]) -> None:
    """Queries to the left of each row; keys below each panel, or once for all rows that have the same."""
    for number, (queries, keys) in enumerate(words):
        panels[number][0].set_yticks(range(len(queries)), queries, fontsize=WORD_SIZE, parse_math=False)
        if number + 1 < len(words) and words[number + 1][1] is keys:
            continue
        for ax in panels[number]:
            rotated = UPWARDS if max(map(len, keys)) > 1 else {}
            ax.set_xticks(range(len(keys)), keys, fontsize=WORD_SIZE, parse_math=False, **rotated)


def _has_grid(model: nn.Module) -> bool:
    about = describe(model)
    return about is not None and about.grid is not None


def _draw_input(
    ax: Axes, model: nn.Module, inputs: tuple[Tensor, ...], strings: Sequence[Sequence[str]] | None
) -> None:
    first = inputs[0][0]
    if first.is_floating_point() and first.ndim == 3:
        _draw_image(ax, model, first)
        return
    if strings is None:
        values = [f"{value:.4g}" for value in first.flatten()[:20].tolist()]
        what = f"{list(first.shape)} numbers:" if first.is_floating_point() else f"{len(first)} token ids:"
    else:
        values = [make_visible(word) for word in strings[0][:20]]
        what = f"{len(first)} tokens:"
    lines = [" ".join(values[i : i + 5]) for i in range(0, len(values), 5)]
    ax.set_axis_off()
    ax.text(0, 1, "\n".join([what, *lines]), va="top", parse_math=False)


def _draw_image(ax: Axes, model: nn.Module, image: Tensor) -> None:
    show_image(ax, image)
    ax.set_title("the image", loc="left")
    if not _has_grid(model):
        return
    rows, columns = grid_of(model, image)
    for line in np.linspace(0, image.shape[1], rows + 1):
        ax.axhline(line - 0.5, color="tab:orange", linewidth=0.8)
    for line in np.linspace(0, image.shape[2], columns + 1):
        ax.axvline(line - 0.5, color="tab:orange", linewidth=0.8)
    ax.set_title(f"the image in {rows} x {columns} patches", loc="left")


def _draw_trace(ax: Axes, table: Trace) -> None:
    ax.set_axis_off()
    ax.set_title("the trace", loc="left")
    text = table.text(axes=False)
    ax.text(0, 1, text, va="top", family="monospace", fontsize=5.2 if len(text.splitlines()) < 40 else 4.4)


def _draw_cost(ax: Axes, price: Cost) -> None:
    by_operation = price.by_operation()
    percent = [100 * flops / price.flops for flops in by_operation.values()]
    bars = ax.barh(list(by_operation), percent, color="tab:blue")
    ax.bar_label(bars, [f"{s:.1f} %" for s in percent], padding=2)
    ax.invert_yaxis()
    ax.set_xlim(0, max(percent, default=1) * 1.3)
    ax.set_xlabel("forward FLOPs (%)")
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_title(f"{price.n_parameters:,} parameters\n{price.flops / 1e6:,.2f} MFLOPs forward", loc="left")
