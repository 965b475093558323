"""Absolute position codes: a vector for each position, added to the token there."""

from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headwork.checks import check_one_of, check_positive
from headwork.functional.processor import check_products


def sinusoidal_positions(
    n_positions: int,
    d_model: int,
    *,
    base: float = 10_000.0,
    layout: Literal["interleaved", "halves"] = "interleaved",
    device: torch.device | str | None = None,
) -> Float[Tensor, "token d_model"]:
    r"""$P_{p, 2i} = \sin(p / base^{2i/d})$ and $P_{p, 2i+1} = \cos(p / base^{2i/d})$, for any width, odd ones too.

    The `halves` layout has the same numbers, all sines first and then all cosines (Marian).
    Vaswani et al., "Attention is all you need", 2017.

    >>> sinusoidal_positions(2, 3)
    tensor([[0.0000, 1.0000, 0.0000],
            [0.8415, 0.5403, 0.0022]])
    """
    check_positive(n_positions=n_positions)
    return sinusoids(torch.arange(n_positions, device=device), d_model, base=base, layout=layout)


def sinusoids(
    positions: Int[Tensor, "*batch"],
    d_model: int,
    *,
    base: float = 10_000.0,
    layout: Literal["interleaved", "halves"] = "interleaved",
) -> Float[Tensor, "*batch d_model"]:
    """`sinusoidal_positions` for any positions, in any order, negative ones too (a shift to the left).

    >>> sinusoids(torch.tensor([-1, 1]), 2)
    tensor([[-0.8415,  0.5403],
            [ 0.8415,  0.5403]])
    """
    check_positive(d_model=d_model)
    check_one_of(("interleaved", "halves"), layout=layout)
    has_float64 = positions.device.type != "mps"
    precise = positions if has_float64 else positions.cpu()
    channel = torch.arange(d_model, device=precise.device)
    angle = precise.unsqueeze(-1) * base ** (-2.0 * (channel // 2).double() / d_model)
    table = torch.where(channel % 2 == 0, angle.sin(), angle.cos()).to(positions.device, torch.get_default_dtype())
    return table if layout == "interleaved" else torch.cat([table[..., 0::2], table[..., 1::2]], dim=-1)


def sinusoidal_positions_2d(
    n_rows: int,
    n_columns: int,
    d_model: int,
    *,
    base: float = 10_000.0,
    device: torch.device | str | None = None,
) -> Float[Tensor, "row column d_model"]:
    r"""The first half of the width tells the row, the second half the column.

    >>> sinusoidal_positions_2d(4, 6, 16).shape
    torch.Size([4, 6, 16])
    """
    if d_model < 2:
        raise ValueError(f"d_model must be 2 or more (one part for the row, one for the column), got {d_model}")
    row = sinusoidal_positions(n_rows, d_model - d_model // 2, base=base, device=device)
    column = sinusoidal_positions(n_columns, d_model // 2, base=base, device=device)
    return torch.cat([row[:, None, :].expand(-1, n_columns, -1), column[None, :, :].expand(n_rows, -1, -1)], dim=-1)


class AbsoluteScores(NamedTuple):
    """The four terms of equation (5) of the ETH sheet; their sum is the score."""

    content_content: Float[Tensor, "*batch query key"]
    content_position: Float[Tensor, "*batch query key"]
    position_content: Float[Tensor, "*batch query key"]
    position_position: Float[Tensor, "query key"]

    def total(self) -> Float[Tensor, "*batch query key"]:
        return self.content_content + self.content_position + self.position_content + self.position_position


def absolute_scores(
    z: Float[Tensor, "*batch token d_model"],
    p: Float[Tensor, "token d_model"],
    w_q: Float[Tensor, "d_model d_head"],
    w_k: Float[Tensor, "d_model d_head"],
) -> AbsoluteScores:
    r"""What happens when positions $P$ are added to the tokens $Z$: the score falls into four terms.

    $$(Z_q + P_q) W_q W_k^\top (Z_k + P_k)^\top = Z_q W_q W_k^\top Z_k^\top + Z_q W_q W_k^\top P_k^\top
    + P_q W_q W_k^\top Z_k^\top + P_q W_q W_k^\top P_k^\top$$

    >>> z, p, w = torch.ones(4, 2), torch.ones(4, 2), torch.eye(2)
    >>> absolute_scores(z, p, w, w).total()[0, 0]
    tensor(8.)
    """
    check_products(z)
    content_q, content_k, position_q, position_k = z @ w_q, z @ w_k, p @ w_q, p @ w_k
    return AbsoluteScores(
        content_content=content_q @ content_k.mT,
        content_position=content_q @ position_k.mT,
        position_content=position_q @ content_k.mT,
        position_position=position_q @ position_k.mT,
    )
