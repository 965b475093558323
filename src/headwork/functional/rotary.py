"""Rotary positions: rotate pairs of features by an angle that grows with the position."""

from typing import Literal

import torch
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor

from headwork.checks import check_one_of


def rotary_angles(
    positions: Int[Tensor, "*batch token"], d_head: int, *, base: float = 10_000.0
) -> Float[Tensor, "*batch token pair"]:
    r"""$\theta_{p,i} = p / base^{2i/d}$, one angle for each pair of features.

    >>> rotary_angles(torch.arange(2), 4)
    tensor([[0.0000, 0.0000],
            [1.0000, 0.0100]], dtype=torch.float64)
    """
    if d_head % 2 or d_head < 2:
        raise ValueError(f"d_head must be even (rotary positions rotate pairs of features), got {d_head}")
    precise = torch.float32 if positions.device.type == "mps" else torch.float64
    pair = torch.arange(0, d_head, 2, device=positions.device, dtype=precise)
    return positions.unsqueeze(-1) * base ** (-pair / d_head)


def rotate(
    x: Float[Tensor, "*batch token d_head"],
    angles: Float[Tensor, "*#batch token pair"],
    layout: Literal["interleaved", "halves"] = "interleaved",
) -> Float[Tensor, "*batch token d_head"]:
    r"""Rotate each pair $(a, b)$ to $(a\cos\theta - b\sin\theta,\; a\sin\theta + b\cos\theta)$.

    Queries and keys rotated this way have a product that depends on their distance only. A pair is two neighbours in
    the `interleaved` layout (the paper, GPT-J) and feature $i$ with $i + d/2$ in the `halves` layout (Llama).
    Su et al., "RoFormer", 2021.

    >>> rotate(torch.tensor([[1.0, 0.0]]), torch.tensor([[torch.pi / 2]])).round(decimals=3)
    tensor([[-0., 1.]])
    """
    check_one_of(("interleaved", "halves"), layout=layout)
    if x.shape[-1] != 2 * angles.shape[-1]:
        raise ValueError(
            f"x must have twice as many features as there are angles, got {x.shape[-1]} and {angles.shape[-1]}"
        )
    split, join = {
        "interleaved": ("... (pair two) -> two ... pair", "two ... pair -> ... (pair two)"),
        "halves": ("... (two pair) -> two ... pair", "two ... pair -> ... (two pair)"),
    }[layout]
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    a, b = rearrange(x, split, two=2)
    return rearrange(torch.stack([a * cos - b * sin, a * sin + b * cos]), join)
