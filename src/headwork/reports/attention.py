"""Where every head of a model looks on one example: at patches, at source words, back, or around."""

import re
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from torch import Tensor

from headwork.inspection.centre_figures import draw_centres
from headwork.inspection.figures import N_HEADS_DRAWN, N_LAYERS_DRAWN, look_at_heads, map_patches, show_image
from headwork.inspection.head_figures import draw_heads
from headwork.inspection.style import plot_style
from headwork.layers import AttentionPooling, ClassTokenPooling, GaussianAttention, PositionAttention
from headwork.models import Decoder, Encoder, EncoderDecoder, GaussianImageEncoder, VisionTransformer
from headwork.reports.labels import visible as make_visible
from headwork.reports.pictures import GLOW, INK, UPWARDS, Picture

N_TOKENS_DRAWN = 24
"""Longer texts are drawn from their start."""

PALE = 0.35
"""How much of the image's contrast is left under the maps."""

Heads = dict[str, Float[Tensor, "head query key"]]


def draw_class_token(
    model: VisionTransformer | GaussianImageEncoder,
    image: Float[Tensor, "channel row column"],
    *,
    shown: Float[Tensor, "channel row column"] | None = None,
) -> Picture:
    """What the class token of each layer and head sees of each patch, over the image.

    A model without a class token has the mean over all queries in its place and, if it pools by attention, a last row
    for the query that pools. `shown` is the image before normalisation, with values from 0 to 1, if `image` is not.
    """
    if any(isinstance(module, PositionAttention) for module in model.modules()):
        raise ValueError("model must have heads that look at the image: draw_gaussian_heads draws those that do not")
    every = [f"layers.{layer}.attention" for layer in range(len(model.layers))]
    names = choose_layers(every)
    if isinstance(model.pooling, AttentionPooling):
        names = [*names, "pooling.attention"]
    heads = look_at_heads(model, names, image[None])
    grid = model.patches.grid(image[None])
    maps = {name: torch.stack([map_patches(head, grid) for head in layer]) for name, layer in heads.items()}
    with plot_style():
        figure = _draw_maps(maps, image if shown is None else shown)
    who = {
        ClassTokenPooling: "the class token",
        AttentionPooling: "the mean query (in the last row: the query that pools)",
    }.get(type(model.pooling), "the mean query")
    caption = (
        f"Where {who} looks: the stronger the colour, the larger the weight. The full colour is the largest weight of "
        f"the map, written above it. {_what_is_left_out(heads, every)}"
    )
    return Picture(figure, caption.strip(), f"Attention over the patches of an image, {_count(heads)}")


def draw_gaussian_heads(model: GaussianImageEncoder) -> list[Picture]:
    """The centres of all Gaussian heads, and the contours of the heads of the first and the last layer.

    Learned shifts have contours too, but no centre.
    """
    grid = model.config.grid
    layers = {
        f"layers.{i}.attention": layer.attention
        for i, layer in enumerate(model.layers)
        if isinstance(layer.attention, PositionAttention)
    }
    if not layers:
        raise ValueError("model must have heads that look by position alone: draw_class_token draws all others")
    pictures = []
    if all(isinstance(layer, GaussianAttention) for layer in layers.values()):
        caption = "Where each head looks, as rows and columns away from the query (x); a circle holds half its weight."
        pictures.append(Picture(draw_centres(model), caption))
    for name in dict.fromkeys([next(iter(layers)), list(layers)[-1]]):
        caption = (
            f"{name}, of {len(layers)} such layers: the weights of each head, seen from the middle of the "
            f"{grid[0]} x {grid[1]} patches."
        )
        pictures.append(Picture(draw_heads(layers[name], grid), caption))
    return pictures


def draw_source_target(
    model: EncoderDecoder,
    source: Int[Tensor, "source_token"],
    target: Int[Tensor, "token"],
    source_strings: Sequence[str],
    target_strings: Sequence[str],
) -> Picture:
    """Cross-attention: where each head looks in the source after each target token, before it writes the next one."""
    every = [f"decoder_layers.{layer}.cross_attention" for layer in range(len(model.decoder_layers))]
    heads = look_at_heads(model, choose_layers(every), source[None], target[None])
    figure = draw_tables(heads, target_strings, source_strings)
    what = "Each row is the decoder after it has read this target token, each column a source token."
    return _picture(figure, what, heads, every, target_strings, source_strings)


def draw_lower_triangle(model: Decoder, ids: Int[Tensor, "token"], strings: Sequence[str]) -> Picture:
    """Where each head of a decoder looks back from each token; the future is grey."""
    every = [f"layers.{layer}.attention" for layer in range(len(model.layers))]
    heads = look_at_heads(model, choose_layers(every), ids[None])
    figure = draw_tables(heads, strings, strings, causal=True)
    what = "Each row is a token, each column a token it looks back at; what lies ahead is grey."
    return _picture(figure, what, heads, every, strings, strings)


def draw_between_tokens(
    model: Encoder, ids: Int[Tensor, "token"], visible: Bool[Tensor, "token"] | None, strings: Sequence[str]
) -> Picture:
    """Where each head of a text encoder looks from each token; padding (not visible) is left out."""
    every = [f"layers.{layer}.attention" for layer in range(len(model.layers))]
    masks = {} if visible is None else {"visible": visible[None]}
    heads = look_at_heads(model, choose_layers(every), ids[None], **masks)
    if visible is not None:
        _check_strings(strings, len(visible))
        real = visible.cpu().nonzero().squeeze(1)
        heads = {name: layer[:, real][:, :, real] for name, layer in heads.items()}
        strings = [strings[i] for i in real.tolist()]
    figure = draw_tables(heads, strings, strings)
    what = "Each row is a token, each column a token it looks at."
    return _picture(figure, what, heads, every, strings, strings)


def choose_layers(names: Sequence[str]) -> list[str]:
    """All layers if they are few, else the first and the last ones.

    >>> choose_layers(["0", "1", "2", "3", "4", "5"])
    ['0', '1', '4', '5']
    """
    half = N_LAYERS_DRAWN // 2
    return list(names) if len(names) <= N_LAYERS_DRAWN else [*names[:half], *names[-half:]]


def draw_tables(
    heads: Heads, query_strings: Sequence[str], key_strings: Sequence[str], *, causal: bool = False
) -> Figure:
    """A table of query x key weights for each layer (down) and head (across), with the tokens beside and below."""
    n_query, n_key = next(iter(heads.values())).shape[1:]
    _check_strings(query_strings, n_query)
    _check_strings(key_strings, n_key)
    queries = [make_visible(string) for string in query_strings[:N_TOKENS_DRAWN]]
    keys = [make_visible(string) for string in key_strings[:N_TOKENS_DRAWN]]
    n_heads = min(max(map(len, heads.values())), N_HEADS_DRAWN)
    turned = UPWARDS if max(map(len, keys)) > 1 else {}
    size, letters = _size_tables(len(heads), n_heads, queries, keys)
    with plot_style():
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots(len(heads), n_heads, squeeze=False, subplot_kw={"xticks": [], "yticks": []})
        for row, (name, layer) in zip(axes, heads.items(), strict=True):
            row[0].set_ylabel(_short(name))
            for head, ax in enumerate(row):
                if head >= len(layer):
                    ax.set_axis_off()
                    continue
                _draw_table(ax, layer[head, : len(queries), : len(keys)], causal)
                ax.set_title(f"head {head}", loc="left", pad=3)
        for ax in axes[:, 0]:
            ax.set_yticks(range(len(queries)), queries, fontsize=letters, parse_math=False)
        for ax in axes[-1]:
            ax.set_xticks(range(len(keys)), keys, fontsize=letters, parse_math=False, **turned)
    return figure


def _draw_table(ax: Axes, weights: Tensor, causal: bool) -> None:
    seen = weights.numpy()
    if causal:
        seen = np.ma.masked_array(seen, mask=np.triu(np.ones_like(seen, dtype=bool), k=1))
    ax.imshow(seen, cmap=INK, norm=PowerNorm(0.5, vmin=0, vmax=1), interpolation="none")
    ax.tick_params(length=0)
    ax.spines[:].set(color="0.6", linewidth=0.5)


def _draw_maps(maps: dict[str, Float[Tensor, "head row column"]], image: Tensor) -> Figure:
    n_heads = min(max(map(len, maps.values())), N_HEADS_DRAWN)
    rows, columns = image.shape[1:]
    height = 1.25 * min(max(rows / columns, 0.4), 2.5)
    figure = Figure(figsize=(1.3 * (n_heads + 1) + 0.5, (height + 0.25) * len(maps)), layout="constrained")
    axes = figure.subplots(len(maps), n_heads + 1, squeeze=False)
    pale = 1 - PALE * (1 - image) if len(image) == 3 else PALE * image
    for row, (name, layer) in zip(axes, maps.items(), strict=True):
        row[0].set_axis_off()
        for head, ax in enumerate(row[1:]):
            if head >= len(layer):
                ax.set_axis_off()
                continue
            show_image(ax, pale)
            extent = (-0.5, columns - 0.5, rows - 0.5, -0.5)
            ax.imshow(layer[head].numpy(), cmap=GLOW, vmin=0, extent=extent, interpolation="none")
            ax.set_title(f"head {head}", loc="left", pad=3)
            ax.set_title(f"{layer[head].max():.2f}", loc="right", pad=3, color="0.5")
            ax.spines[:].set(color="0.6", linewidth=0.5)
        row[1].set_ylabel(_short(name))
    axes[0, 0].set_axis_on()
    show_image(axes[0, 0], image)
    axes[0, 0].set_title("the image", loc="left", pad=3)
    return figure


def _size_tables(n_layers: int, n_heads: int, queries: list[str], keys: list[str]) -> tuple[tuple[float, float], float]:
    """The inches of the figure and the points of its letters: cells are square and as large as the page allows."""
    cell = min(0.17, 8.8 / n_heads / len(keys))
    letters = min(7.5, 60 * cell)
    beside, below = (letters / 100 * max(map(len, words)) for words in (queries, keys))
    width = max(cell * len(keys), 0.5) * n_heads + 0.08 * n_heads + beside + 0.35
    height = (max(cell * len(queries), 0.5) + 0.24) * n_layers + below + 0.1
    return (width, height), letters


def _short(name: str) -> str:
    """Which layer this is: `layer 3` or, for a name without a number, its first word."""
    number = re.search(r"layers\.(\d+)", name)
    return f"layer {number[1]}" if number else name.partition(".")[0]


def _picture(
    figure: Figure, what: str, heads: Heads, every: Sequence[str], queries: Sequence[str], keys: Sequence[str]
) -> Picture:
    scale = "The colour grows with the square root of the weight, from none at 0 to full at 1."
    caption = f"{what} {scale} {_what_is_left_out(heads, every)}".strip()
    if max(len(queries), len(keys)) > N_TOKENS_DRAWN:
        caption += f" Of {max(len(queries), len(keys))} tokens the first {N_TOKENS_DRAWN} are drawn."
    return Picture(figure, caption, f"Tables of attention weights, {_count(heads)}")


def _count(heads: Heads) -> str:
    n_heads = max(map(len, heads.values()))
    return f"{len(heads)} layers by {min(n_heads, N_HEADS_DRAWN)} heads"


def _what_is_left_out(heads: Heads, every: Sequence[str]) -> str:
    n_heads = max(map(len, heads.values()))
    words = []
    if len(every) > N_LAYERS_DRAWN:
        words.append(f"Of {len(every)} layers the first and the last {N_LAYERS_DRAWN // 2} are drawn.")
    if n_heads > N_HEADS_DRAWN:
        words.append(f"Of {n_heads} heads the first {N_HEADS_DRAWN} are drawn.")
    return " ".join(words)


def _check_strings(strings: Sequence[str], n_tokens: int) -> None:
    if len(strings) != n_tokens:
        raise ValueError(f"strings must be one for each of {n_tokens} tokens, got {len(strings)}")
