"""The two position codes of the ETH sheet as modules: absolute for each pixel, relative for each shift."""

import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor, nn

from headwork.checks import check_one_of
from headwork.functional.grid_codes import gaussian_vectors, grid_shifts, quadratic_codes
from headwork.functional.positions import sinusoidal_positions_2d
from headwork.functional.processor import check_products


class AbsolutePositionalEmbedding(nn.Module):
    """A vector P for each (row, column), added to the token of that pixel; sinusoidal or learned.

    >>> AbsolutePositionalEmbedding((4, 5), d_model=8)(torch.zeros(2, 4, 5, 8)).shape
    torch.Size([2, 4, 5, 8])
    """

    axes = "batch row column d_model"

    def __init__(self, grid: tuple[int, int], d_model: int, kind: str = "sinusoidal") -> None:
        super().__init__()
        check_one_of(("sinusoidal", "learned"), kind=kind)
        fixed = sinusoidal_positions_2d(*grid, d_model)
        self.table = nn.Parameter(
            fixed if kind == "sinusoidal" else 0.02 * torch.randn_like(fixed), requires_grad=kind == "learned"
        )

    def forward(self, x: Float[Tensor, "batch row column d_model"]) -> Float[Tensor, "batch row column d_model"]:
        if x.shape[1:] != self.table.shape:
            raise ValueError(f"x must have the axes (batch, {tuple(self.table.shape)}), got shape {tuple(x.shape)}")
        return x + self.table


class RelativePositionalEmbedding(nn.Module):
    """The Gaussian relative code of equation (7): r for each shift, v for each head, and their product as scores.

    >>> code = RelativePositionalEmbedding((4, 5), torch.zeros(3, 2), torch.ones(3))
    >>> code().shape
    torch.Size([3, 4, 5, 4, 5])
    """

    axes = "head row column key_row key_column"
    operation = "scores"

    def __init__(self, grid: tuple[int, int], centre: Float[Tensor, "head 2"], alpha: Float[Tensor, "head"]) -> None:
        super().__init__()
        self.centre = nn.Parameter(centre.clone())
        self.alpha = nn.Parameter(alpha.clone())
        self.register_buffer("codes", quadratic_codes(grid_shifts(*grid)), persistent=False)

    def forward(self) -> Float[Tensor, "head row column key_row key_column"]:
        """The scores v . r of every pair of pixels, whose softmax over the keys are the attention weights."""
        v = gaussian_vectors(self.centre, self.alpha)
        check_products(v)
        return einsum(v, self.get_buffer("codes"), "head code, row column i j code -> head row column i j")
