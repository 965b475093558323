"""ETH Zürich, Assignment 6, question 2: position codes and their pictures, two GELUs, layer norm, the BERT network."""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headwork import layers
from headwork.figures import Axes, Figure, draw_absolute_codes, plot_style
from headwork.figures.heads import draw_position_head
from headwork.functional import gelu as gelu
from headwork.functional import gelu_tanh as gelu_tanh
from headwork.layers import AbsolutePositionalEmbedding as AbsolutePositionalEmbedding
from headwork.layers import FeedForward
from headwork.layers import LayerNorm as LayerNorm
from headwork.public import PublicNames

N_ACROSS = 5
"""Heads drawn side by side."""
WHAT_IS_DRAWN = "x: the query; solid: 50 %, dashed: 90 % of the attention weight"
BERT_EPS = 1e-12
"""Of the layer norms of BERT."""


class RelativePositionalEmbedding(layers.RelativePositionalEmbedding):
    r"""2(a): the code of equation (7), scores $-\alpha\,(|\delta|^2 - 2\,\Delta\cdot\delta)$ with $\delta = q - k$.

    `delta` is the sheet's Delta, (row, column) for one head or [head 2]; `alpha` is one number, or one for each head.
    By the sheet's sign a head looks at the key k = q - Delta; `centre` in `hw.layers` is its opposite, k - q.

    >>> above = RelativePositionalEmbedding((5, 5), (1, 0), 50.0)
    >>> above().shape
    torch.Size([1, 5, 5, 5, 5])
    >>> divmod(above()[0, 2, 2].argmax().item(), 5)
    (1, 2)
    """

    def __init__(
        self,
        grid: tuple[int, int],
        delta: Tensor | Sequence[float] | Sequence[Sequence[float]],
        alpha: Tensor | Sequence[float] | float,
    ) -> None:
        shifts, sharpness = torch.as_tensor(delta), torch.as_tensor(alpha)
        if shifts.ndim not in (1, 2) or shifts.shape[-1] != 2 or not shifts.numel():
            wanted = "(row, column), or have the axes (head, 2)"
            raise ValueError(f"delta must be {wanted}, got shape {tuple(shifts.shape)}")
        if not shifts.isfinite().all():
            raise ValueError(f"delta must be finite, got {shifts.tolist()}")
        n_heads = {1, *shifts.shape[:-1], *sharpness.shape}
        if sharpness.ndim > 1 or len(n_heads) > 2:
            wanted = f"a number, or one for each of the heads of delta, whose shape is {tuple(shifts.shape)}"
            raise ValueError(f"alpha must be {wanted}, got shape {tuple(sharpness.shape)}")
        if not ((sharpness > 0) & sharpness.isfinite()).all():
            raise ValueError(f"alpha must be positive and finite, got {sharpness.tolist()}")
        kind = torch.result_type(shifts, sharpness)
        kind = kind if kind.is_floating_point else torch.get_default_dtype()
        shifts = shifts.to(kind).expand(max(n_heads), 2)
        super().__init__(grid, -shifts, sharpness.to(kind).expand(max(n_heads)))
        del self.centre  # it has the other sign: what is learned here is the sheet's Delta
        self.delta = nn.Parameter(shifts.clone())

    def forward(self) -> Float[Tensor, "head row column key_row key_column"]:
        """The scores v . r of every pair of pixels, whose softmax over the keys are the attention weights."""
        return self.scores_at(-self.delta)


def visualize_abs_positional_embedding(embedding: AbsolutePositionalEmbedding) -> Figure:
    """2(a): how alike the code of some pixels is to that of every other one.

    >>> figure = visualize_abs_positional_embedding(AbsolutePositionalEmbedding((4, 5), d_model=8))
    """
    return draw_absolute_codes(embedding.table)


def visualize_rel_positional_embedding(embedding: layers.RelativePositionalEmbedding) -> Figure:
    """2(a): the attention weights that the code gives each head, seen from the pixel in the middle (x).

    >>> embedding = RelativePositionalEmbedding((4, 5), torch.zeros(3, 2), torch.ones(3))
    >>> figure = visualize_rel_positional_embedding(embedding)
    """
    n_across = min(len(embedding.alpha), N_ACROSS)
    n_down = math.ceil(len(embedding.alpha) / n_across)
    with plot_style():
        figure = Figure(figsize=(1.9 * n_across, 2.3 * n_down + 0.3), layout="constrained")
        axes = list(figure.subplots(n_down, n_across, squeeze=False).flat)
        _draw_heads(axes, embedding)
        for ax in axes[len(embedding.alpha) :]:
            ax.set_axis_off()
        figure.supxlabel(WHAT_IS_DRAWN, fontsize=8)
    return figure


def _draw_heads(axes: Sequence[Axes], embedding: layers.RelativePositionalEmbedding) -> None:
    """The weights of each head, from the pixel in the middle, under its Delta and alpha."""
    weights = weights_of(embedding)
    middle = weights.shape[1] // 2, weights.shape[2] // 2
    shifts = embedding.delta if isinstance(embedding, RelativePositionalEmbedding) else -embedding.centre
    for head, (row, column) in enumerate(shifts.tolist()):
        draw_position_head(axes[head], weights[head][middle], middle)
        title = f"Delta = ({row + 0.0:.3g}, {column + 0.0:.3g})\nalpha = {embedding.alpha[head].item():.3g}"
        axes[head].set(title=title, xticks=[], yticks=[])


def verify_limit(
    delta: tuple[int, int] = (1, -2), grid: tuple[int, int] = (9, 9), n_alphas: int = 40
) -> tuple[Figure, Float[Tensor, "alpha key_row key_column"]]:
    """2(a): equation (13) drawn from the class itself: pictures for some alphas, and the weights of one query by alpha.

    `delta` is the sheet's Delta = q - k, as in `RelativePositionalEmbedding`: the key is the query minus it.

    >>> figure, weights = verify_limit((0, 1))
    >>> round(weights[-1].max().item(), 3)
    1.0
    """
    middle = grid[0] // 2, grid[1] // 2
    target = middle[0] - delta[0], middle[1] - delta[1]
    if not (0 <= target[0] < grid[0] and 0 <= target[1] < grid[1]):
        raise ValueError(f"delta must lead from the middle of the grid {grid} to a pixel of it, got {delta}")
    alphas = torch.logspace(-2, 1.2, n_alphas, dtype=torch.float64)
    embedding = RelativePositionalEmbedding(grid, delta, alphas).double()
    weights = weights_of(embedding)[:, middle[0], middle[1]]
    with plot_style():
        figure = Figure(figsize=(7.6, 5.8), layout="constrained")
        some = alphas[:: math.ceil(n_alphas / N_ACROSS)]
        places = figure.add_gridspec(2, len(some))
        pictures = [figure.add_subplot(places[0, column]) for column in range(len(some))]
        _draw_heads(pictures, RelativePositionalEmbedding(grid, delta, some).double())
        ax = figure.add_subplot(places[1, :])
        others = weights.clone()
        others[:, target[0], target[1]] = 0
        ax.semilogx(alphas.numpy(), weights[:, target[0], target[1]].numpy(), color="black", label="delta = Delta")
        ax.semilogx(
            alphas.numpy(), others.amax((1, 2)).numpy(), color="#D55E00", linestyle="--", label="the largest other one"
        )
        ax.axhline(1 / weights[0].numel(), color="0.6", linewidth=0.8, label="the mean (alpha = 0)")
        ax.set(xlabel="alpha", ylabel="attention weight", ylim=(-0.02, 1.02))
        ax.set_title(f"Delta = {delta}: as alpha grows, all weight goes to one key")
        ax.legend(frameon=False, loc="center left")
    return figure, weights


def weights_of(embedding: layers.RelativePositionalEmbedding) -> Float[Tensor, "head row column key_row key_column"]:
    """The softmax of the scores over the keys."""
    with torch.no_grad():
        scores: Tensor = embedding()
    return scores.flatten(3).softmax(-1).reshape(scores.shape)


def visualize_gelus(reach: float = 5.0) -> Figure:
    """2(b): both GELUs, and their difference."""
    x = torch.linspace(-reach, reach, 1_001, dtype=torch.float64)
    with plot_style():
        figure = Figure(figsize=(6.6, 2.9), layout="constrained")
        left, right = figure.subplots(1, 2)
        left.plot(x.numpy(), gelu(x).numpy(), color="black", label="exact")
        left.plot(x.numpy(), gelu_tanh(x).numpy(), color="#D55E00", linestyle="--", label="with tanh")
        left.set(xlabel="x", ylabel="GELU")
        left.legend(frameon=False)
        right.plot(x.numpy(), 1e4 * (gelu(x) - gelu_tanh(x)).numpy(), color="black")
        right.set(xlabel="x", ylabel="exact - with tanh (1e-4)")
    return figure


class BertFFN(nn.Module):
    """2(d): the second half of a BERT layer, norm(x + dropout(W2 gelu(W1 x + b1) + b2)).

    >>> BertFFN(d_model=8, d_ff=32)(torch.randn(2, 5, 8)).shape
    torch.Size([2, 5, 8])
    """

    axes = "batch token d_model"

    def __init__(self, d_model: int, d_ff: int, *, dropout: float = 0.0, eps: float = BERT_EPS) -> None:
        super().__init__()
        self.feed_forward = FeedForward(d_model, d_ff, activation="gelu")
        self.dropout = nn.Dropout(dropout)
        self.norm = LayerNorm(d_model, eps=eps)

    def forward(self, x: Float[Tensor, "batch token d_model"]) -> Float[Tensor, "batch token d_model"]:
        return self.norm(x + self.dropout(self.feed_forward(x)))


__dir__ = PublicNames(__name__)
