"""Attention weights on one example: over the patches of an image, or between tokens.

Both choose what they draw by one rule: all layers if they are few, else the first and the last, and the first heads.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure, FigureBase
from torch import Tensor, nn

from headwork.figures.heads import draw_position_heads_of
from headwork.figures.style import GLOW, INK, UPWARDS, Picture, make_visible, plot_style, show_image
from headwork.inspection.heads import attention_layers, attention_weights_of
from headwork.layers import AttentionPooling, PositionAttention, QueryShiftAttention
from headwork.models import describe

N_LAYERS_DRAWN = 4
N_HEADS_DRAWN = 6
N_TOKENS_DRAWN = 24
"""Longer texts are drawn from their start."""

PALE = 0.35
"""How much of the image's contrast is left under the maps."""

Layers = dict[str, Float[Tensor, "_ _ _"]]
"""For each layer: head x query x key, or head x row x column of the image."""


@dataclass(frozen=True)
class ImageMaps:
    """How much weight each head puts on each patch, and whose weights these are."""

    maps: Layers
    who: str
    query: tuple[int, int] | None = None
    """The (row, column) of the patch that attends, if it is one patch."""


def draw_attention(
    model: nn.Module,
    batch: Sequence[Tensor],
    strings: Callable[[Tensor], Sequence[str]] | None = None,
    n_examples: int = 2,
) -> Iterator[Picture]:
    """Pictures of the attention of any model on the first examples of a batch; none if it has no attention.

    The batch is on the model's device. `strings` gives the text of each token id. Heads that attend by position alone
    are drawn once, whatever the batch.

    >>> model = hw.models.published("digits-vit").build()
    >>> [picture.alt for picture in draw_attention(model, (torch.rand(3, 1, 8, 8),), n_examples=1)]
    ['Attention weights over the patches of an image, 4 layers by 4 heads']
    """
    about, names = describe(model), attention_layers(model)
    if about is None or not names:
        return
    in_words = strings or (lambda ids: [str(token) for token in ids.tolist()])
    if any(isinstance(model.get_submodule(name), PositionAttention) for name in names):
        yield from draw_position_heads_of(model, names, about.grid)
    elif about.input == "image":
        for image in getattr(batch, "image", batch[0])[:n_examples]:
            yield draw_attention_over_image(model, image)
    elif about.input == "text":
        ids, masks = getattr(batch, "ids", batch[0]), getattr(batch, "visible", None)
        for i in range(min(n_examples, len(ids))):
            mask = None if masks is None else masks[i]
            yield draw_attention_between_tokens(model, ids[i], strings=[in_words(ids[i])], visible=mask)
    elif attention_layers(model, cross=True) and hasattr(batch, "source_visible"):
        fields: Any = batch
        for i in range(min(n_examples, len(fields.source))):
            source = fields.source[i][fields.source_visible[i]]
            target = fields.target[i][fields.next[i] >= 0]  # behind its end the target is padded and next is -100
            words = [in_words(source), in_words(target)]
            yield draw_attention_between_tokens(model, source, target, strings=words)


def draw_attention_over_image(
    model: nn.Module,
    image: Float[Tensor, "channel row column"],
    *,
    shown: Float[Tensor, "channel row column"] | None = None,
) -> Picture:
    """The attention weights on each patch, over the image, for each layer (down) and head (across).

    `shown` is the image before normalisation, with values from 0 to 1, if `image` is not.
    """
    every = attention_layers(model)
    if any(isinstance(model.get_submodule(name), PositionAttention) for name in every):
        raise ValueError("model must have heads that depend on the image: draw_position_heads draws those that do not")
    found = map_heads(model, image, choose_layers(every))
    image = image if shown is None else shown
    n_heads = min(max(map(len, found.maps.values())), N_HEADS_DRAWN)
    height = 1.25 * min(max(image.shape[1] / image.shape[2], 0.4), 2.5)
    with plot_style():
        figure = Figure(figsize=(1.3 * (n_heads + 1) + 0.5, (height + 0.25) * len(found.maps)), layout="constrained")
        axes = head_panels(figure, found.maps, range(n_heads), over_image(image, found.query), n_before=1)
        axes[0][0].set_axis_on()
        show_image(axes[0][0], image)
        axes[0][0].set_title("the image", loc="left", pad=3)
    caption = (
        f"Attention weights of {found.who} on each patch. The number above each map is its largest weight, which has "
        f"the full colour. {what_is_left_out(found.maps, every)}"
    )
    count = _count(len(found.maps), n_heads)
    return Picture(figure, caption.strip(), f"Attention weights over the patches of an image, {count}")


def draw_attention_between_tokens(
    model: nn.Module,
    *ids: Int[Tensor, "_"],
    strings: Sequence[Sequence[str]],
    visible: Bool[Tensor, "_"] | None = None,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
) -> Picture:
    """The weight of each query token (row) on each key token (column), for each layer (down) and head (across).

    `ids` and `strings` are those of the text or, for cross-attention, of the source and of the target. Padding (not
    visible) is left out; what a causal mask hides is grey. `layers` and `heads` are the numbers of those to draw, from
    0. Unless they are given, at most four layers are drawn, the first two and the last two, and the first six heads;
    of a text the first 24 tokens are drawn. The caption says what is left out.

    >>> config = hw.models.DecoderConfig(vocab=9, d_model=8, n_layers=6, heads=choices.Heads(n_heads=4))
    >>> ids = torch.tensor([3, 1, 4])
    >>> draw_attention_between_tokens(config.build(), ids, strings=["abc"], layers=range(6), heads=[0, 2]).alt
    'Tables of attention weights, 6 layers by 2 heads'
    """
    is_pair = len(ids) > 1
    every = attention_layers(model, cross=is_pair)
    masks = {} if visible is None else {"visible": visible[None]}
    chosen = choose_layers(every) if layers is None else [every[i] for i in _numbers("layers", layers, len(every))]
    weights = attention_weights_of(model, chosen, *(of[None] for of in ids), **masks)
    n_heads = min(map(len, weights.values()))
    drawn_heads = range(max(map(len, weights.values()))) if heads is None else _numbers("heads", heads, n_heads)
    if heads is not None:
        weights = {name: layer[list(drawn_heads)] for name, layer in weights.items()}
    else:
        drawn_heads = drawn_heads[:N_HEADS_DRAWN]
    for text, of in zip(strings, ids, strict=True):
        if len(text) != len(of):
            raise ValueError(f"strings must be one for each of {len(of)} tokens, got {len(text)}")
    keys, queries = strings[0], strings[-1]
    if visible is not None:
        real = visible.cpu().nonzero().squeeze(1)
        weights = {name: layer[:, real][:, :, real] for name, layer in weights.items()}
        keys = queries = [keys[i] for i in real.tolist()]
    causal = not is_pair and is_causal(weights)
    figure = draw_tables(weights, queries, keys, drawn_heads, causal=causal)
    rows = "a target token (query), each column a source token (key)" if is_pair else "a query, each column a key"
    hidden = "; later tokens, which the causal mask hides, are grey" if causal else ""
    scale = "The colour scales with the square root of the weight, from 0 (none) to 1 (full)."
    left_out = ("" if layers else layers_left_out(every), "" if heads else heads_left_out(weights))
    caption = " ".join(filter(None, (f"Attention weights: each row is {rows}{hidden}. {scale}", *left_out)))
    if max(len(queries), len(keys)) > N_TOKENS_DRAWN:
        caption += f" Of {max(len(queries), len(keys))} tokens the first {N_TOKENS_DRAWN} are drawn."
    return Picture(figure, caption, f"Tables of attention weights, {_count(len(weights), len(drawn_heads))}")


def _numbers(name: str, chosen: Sequence[int], n: int) -> Sequence[int]:
    if not chosen or not all(0 <= number < n for number in chosen):
        raise ValueError(f"{name} must be numbers of 0 .. {n - 1}, got {list(chosen)}")
    return chosen


def choose_layers(names: Sequence[str]) -> list[str]:
    """All layers if they are few, else the first and the last ones.

    >>> choose_layers(["0", "1", "2", "3", "4", "5"])
    ['0', '1', '4', '5']
    """
    half = N_LAYERS_DRAWN // 2
    return list(names) if len(names) <= N_LAYERS_DRAWN else [*names[:half], *names[-half:]]


def map_heads(model: nn.Module, image: Float[Tensor, "channel row column"], names: Sequence[str]) -> ImageMaps:
    """The weights on the patches: of the class token, else of the mean query; of heads on a grid, of the middle patch.

    If the model pools by attention, its pooling query comes last.
    """
    grid = grid_of(model, image)
    modules = {name: model.get_submodule(name) for name in names}
    if any(isinstance(module, PositionAttention | QueryShiftAttention) for module in modules.values()):
        return _from_the_middle(model, image, modules, grid)
    names, who = list(names), "the mean query"
    if isinstance(getattr(model, "pooling", None), AttentionPooling):
        names, who = [*names, "pooling.attention"], "the mean query (in the last row: of the pooling query)"
    weights, n_patches = attention_weights_of(model, names, image[None]), prod(grid)
    if any(heads.shape[-1] > n_patches for heads in weights.values()):
        who = "the class token"
    maps = {
        name: (heads[:, 0] if heads.shape[-1] > n_patches else heads.mean(1))[:, -n_patches:].reshape(-1, *grid)
        for name, heads in weights.items()
    }
    return ImageMaps(maps, who)


def _from_the_middle(
    model: nn.Module, image: Tensor, modules: dict[str, nn.Module], grid: tuple[int, int]
) -> ImageMaps:
    """Of heads that attend by position alone, no other weights than those of the middle patch are computed."""
    row, column = grid[0] // 2, grid[1] // 2
    by_query = [name for name, module in modules.items() if not isinstance(module, PositionAttention)]
    weights = attention_weights_of(model, by_query, image[None])
    maps = {
        name: module.seen_from(grid, (row, column)).detach().float().cpu()
        if isinstance(module, PositionAttention)
        else weights[name][:, row * grid[1] + column].reshape(-1, *grid)
        for name, module in modules.items()
    }
    return ImageMaps(maps, "the patch at x", (row, column))


def grid_of(model: nn.Module, image: Float[Tensor, "*batch channel row column"]) -> tuple[int, int]:
    """The (rows, columns) of patches: those of the description, scaled if the image has another size."""
    about = describe(model)
    if about is None or about.grid is None or about.image is None:
        raise ValueError(f"model must cut images into a grid of patches, got {type(model).__name__}")
    (rows, columns), (height, width) = about.grid, about.image
    return rows * image.shape[-2] // height, columns * image.shape[-1] // width


def is_causal(weights: Layers) -> bool:
    """Whether no query has any weight on a later key.

    >>> is_causal({"layer": torch.ones(1, 3, 3).tril()}), is_causal({"layer": torch.ones(1, 3, 3)})
    (True, False)
    """
    return all(not layer.triu(1).any() for layer in weights.values())


def head_panels(
    figure: FigureBase,
    layers: Layers,
    head_numbers: Sequence[int],
    draw: Callable[[Axes, Tensor], None],
    n_before: int = 0,
) -> list[list[Axes]]:
    """A panel for each layer (down) and head (across), drawn by `draw`; the first `n_before` of each row stay empty."""
    shape = len(layers), n_before + len(head_numbers)
    axes: Any = figure.subplots(*shape, squeeze=False, subplot_kw={"xticks": [], "yticks": []})
    for row, label, heads in zip(axes, label_layers(list(layers)), layers.values(), strict=True):
        row[n_before].set_ylabel(label)
        for ax in (*row[:n_before], *row[n_before + len(heads) :]):
            ax.set_axis_off()
        for head, ax, weights in zip(head_numbers, row[n_before:], heads, strict=False):
            draw(ax, weights)
            ax.set_title(f"head {head}", loc="left", pad=3)
    return [list(row) for row in axes]


def over_image(
    image: Float[Tensor, "channel row column"], query: tuple[int, int] | None
) -> Callable[[Axes, Tensor], None]:
    """How a map of weights is drawn over the image, which lies pale under it; x is the query."""
    rows, columns = image.shape[1:]
    pale = 1 - PALE * (1 - image) if len(image) == 3 else PALE * image

    def draw(ax: Axes, weights: Tensor) -> None:
        show_image(ax, pale)
        extent = (-0.5, columns - 0.5, rows - 0.5, -0.5)
        ax.imshow(weights.numpy(), cmap=GLOW, vmin=0, extent=extent, interpolation="none")
        ax.set_title(f"{weights.max():.2f}", loc="right", pad=3, color="0.5")
        ax.spines[:].set(color="0.6", linewidth=0.5)
        if query is not None:
            down, across = rows / weights.shape[0], columns / weights.shape[1]  # pixels of a patch
            ax.plot((query[1] + 0.5) * across - 0.5, (query[0] + 0.5) * down - 0.5, "kx", markersize=4)

    return draw


def draw_table(ax: Axes, weights: Shaped[Tensor, "query key"], causal: bool = False) -> None:
    seen = weights.numpy()
    if causal:
        seen = np.ma.masked_array(seen, mask=np.triu(np.ones_like(seen, dtype=bool), k=1))
    ax.imshow(seen, cmap=INK, norm=PowerNorm(0.5, vmin=0, vmax=1), interpolation="none")
    ax.tick_params(length=0)
    ax.spines[:].set(color="0.6", linewidth=0.5)


def draw_tables(
    layers: Layers,
    query_strings: Sequence[str],
    key_strings: Sequence[str],
    head_numbers: Sequence[int],
    *,
    causal: bool = False,
) -> Figure:
    """A table of query x key weights for each layer (down) and head (across), with the tokens beside and below."""
    queries = [make_visible(string) for string in query_strings[:N_TOKENS_DRAWN]]
    keys = [make_visible(string) for string in key_strings[:N_TOKENS_DRAWN]]
    size, letters = _size_tables(len(layers), len(head_numbers), queries, keys)
    shown = {name: heads[:, : len(queries), : len(keys)] for name, heads in layers.items()}
    with plot_style():
        figure = Figure(figsize=size, layout="constrained")
        axes = head_panels(figure, shown, head_numbers, lambda ax, weights: draw_table(ax, weights, causal))
        for row in axes:
            row[0].set_yticks(range(len(queries)), queries, fontsize=letters, parse_math=False)
        for ax in axes[-1]:
            rotated = UPWARDS if max(map(len, keys)) > 1 else {}
            ax.set_xticks(range(len(keys)), keys, fontsize=letters, parse_math=False, **rotated)
    return figure


def _size_tables(n_layers: int, n_heads: int, queries: list[str], keys: list[str]) -> tuple[tuple[float, float], float]:
    """The inches of the figure and the points of its letters: cells are square and as large as the page allows."""
    cell = min(0.17, 8.8 / n_heads / len(keys))
    letters = min(7.5, 60 * cell)
    beside, below = (letters / 100 * max(map(len, words)) for words in (queries, keys))
    width = max(cell * len(keys), 0.5) * n_heads + 0.08 * n_heads + beside + 0.35
    height = (max(cell * len(queries), 0.5) + 0.24) * n_layers + below + 0.1
    return (width, height), letters


def label_layers(names: Sequence[str]) -> list[str]:
    """Which layer each is; with its stack if there are several, and without a number its first word.

    >>> label_layers(["layers.3.attention", "pooling.attention"])
    ['layer 3', 'pooling']
    >>> label_layers(["encoder_layers.0.attention", "decoder_layers.0.cross_attention"])
    ['encoder 0', 'decoder 0\\ncross']
    """
    found = [re.search(r"(\w*?)_?layers\.(\d+)", name) for name in names]
    if len({number[1] for number in found if number}) < 2:
        return [
            f"layer {number[2]}" if number else name.partition(".")[0]
            for number, name in zip(found, names, strict=True)
        ]
    return [
        (f"{number[1]} {number[2]}" if number else name) + "\ncross" * name.endswith("cross_attention")
        for number, name in zip(found, names, strict=True)
    ]


def what_is_left_out(layers: Layers, every: Sequence[str]) -> str:
    return " ".join(filter(None, (layers_left_out(every), heads_left_out(layers))))


def layers_left_out(every: Sequence[str]) -> str:
    if len(every) <= N_LAYERS_DRAWN:
        return ""
    return f"Of {len(every)} attention layers the first and the last {N_LAYERS_DRAWN // 2} are drawn."


def heads_left_out(layers: Layers) -> str:
    n_heads = max(map(len, layers.values()))
    return f"Of {n_heads} heads the first {N_HEADS_DRAWN} are drawn." if n_heads > N_HEADS_DRAWN else ""


def _count(n_layers: int, n_heads: int) -> str:
    return f"{n_layers} layer{'s' * (n_layers > 1)} by {n_heads} head{'s' * (n_heads > 1)}"
