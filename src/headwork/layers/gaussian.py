"""Attention over an image by position alone: the heads that can become a convolution."""

from functools import partial
from typing import Literal

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from headwork.checks import check_one_of, check_positive
from headwork.functional.gaussian import (
    Places,
    check_gaussian,
    gaussian_attention,
    gaussian_axis_weights,
    gaussian_weights,
    mix_heads_along_axes,
)
from headwork.layers.linear import linear
from headwork.layers.point import DeferredPoint, Point


class GaussianAttention(nn.Module):
    """Each head looks at its own place (row, column) away from the query, more or less sharply, whatever is there.

    `centre` is where it looks and `alpha` how sharply; both are learned. With `d_value=None` every head passes on the
    whole token, as in the paper, and `out` maps all heads to the output: that is equation (11) of the ETH sheet, with
    W^(h) the block of `out` for head h. With a `d_value`, a value projection comes first. The weights see no dropout.

    >>> layer = GaussianAttention(d_model=8, n_heads=9)
    >>> layer(torch.randn(2, 4, 5, 8)).shape
    torch.Size([2, 4, 5, 8])
    """

    axes = "batch row column d_model"

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        *,
        d_value: int | None = None,
        d_out: int | None = None,
        precision: Literal["isotropic", "diagonal", "full"] = "isotropic",
        bias: bool = True,
    ) -> None:
        super().__init__()
        check_positive(d_model=d_model, n_heads=n_heads, d_value=d_value, d_out=d_out)
        check_one_of(("isotropic", "diagonal", "full"), precision=precision)
        self.d_model, self.n_heads, self.precision = d_model, n_heads, precision
        self.centre = nn.Parameter(2 * torch.randn(n_heads, 2))
        """Where each head looks from, (row, column) away from the query."""
        self.sharpness = nn.Parameter(_sharpness_one(n_heads, precision))
        self.value = None if d_value is None else linear(d_model, n_heads * d_value, bias=bias)
        self.out = linear(n_heads * (d_value or d_model), d_out or d_model, bias=bias)
        self.weights = DeferredPoint("head row column key_row key_column")
        self.heads = Point("batch row column head d_value")

    @property
    def alpha(self) -> Tensor:
        """The precision of each head, positive whatever the parameter `sharpness` is."""
        if self.precision == "full":
            return self.sharpness @ self.sharpness.mT + 1e-6 * torch.eye(2).to(self.sharpness)
        return self.sharpness.exp()

    @torch.no_grad()
    def place_heads(self, centre: Float[Tensor, "head 2"], alpha: Tensor) -> None:
        """Put the heads where they should look, as sharply as they should."""
        check_gaussian(centre, alpha)
        if alpha.shape != self.alpha.shape:
            raise ValueError(f"alpha must have the shape {tuple(self.alpha.shape)}, got {tuple(alpha.shape)}")
        self.centre.copy_(centre)
        self.sharpness.copy_(alpha.log() if self.precision != "full" else torch.linalg.cholesky(alpha))

    def forward(
        self, x: Float[Tensor, "batch row column d_model"], queries: Places | None = None
    ) -> Float[Tensor, "batch query_row query_column d_out"]:
        """Attend from every pixel, or from the rows and columns that `queries` names."""
        if x.ndim != 4 or x.shape[3] != self.d_model or 0 in x.shape[1:]:
            raise ValueError(f"x must have the axes (batch, row, column, {self.d_model}), got shape {tuple(x.shape)}")
        alpha = self.alpha.to(x.dtype)
        centre = self.centre.to(x.dtype)
        grid = (x.shape[1], x.shape[2])
        table = partial(gaussian_weights, grid, centre, alpha, queries)
        new_weights = self.weights.offer(table)
        if self.value is None and new_weights is None:
            heads = gaussian_attention(x, centre, alpha, queries)
        elif self.value is None:
            heads = torch.einsum("hrcij,bijd->bhrcd", new_weights, x)
        else:
            v = rearrange(self.value(x), "batch row column (head d) -> batch head row column d", head=self.n_heads)
            if new_weights is None and self.precision != "full":
                heads = mix_heads_along_axes(v, *gaussian_axis_weights(grid, centre, alpha, queries))
            else:
                heads = torch.einsum("hrcij,bhijd->bhrcd", table() if new_weights is None else new_weights, v)
        heads = self.heads(rearrange(heads, "batch head row column d -> batch row column head d"))
        return self.out(rearrange(heads, "batch row column head d -> batch row column (head d)"))

    def extra_repr(self) -> str:
        path = "the table of all pairs" if self.precision == "full" else "rows, then columns"
        return f"d_model={self.d_model}, n_heads={self.n_heads}, precision={self.precision} (computed by {path})"


def _sharpness_one(n_heads: int, precision: str) -> Tensor:
    """What makes every alpha 1 at the start."""
    match precision:
        case "full":
            return torch.eye(2).repeat(n_heads, 1, 1)
        case "diagonal":
            return torch.zeros(n_heads, 2)
        case _:
            return torch.zeros(n_heads)
