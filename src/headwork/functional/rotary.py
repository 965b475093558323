"""Rotary positions: rotate pairs of features by an angle that grows with the position."""

import math
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


def rotary_frequencies(
    d_head: int, *, base: float = 10_000.0, device: torch.device | str | None = None
) -> Float[Tensor, "pair"]:
    r"""$\theta_i = base^{-2i/d}$: by how much each pair of features turns from one position to the next.

    >>> rotary_frequencies(4)
    tensor([1.0000, 0.0100], dtype=torch.float64)
    """
    return rotary_angles(torch.ones(1, dtype=torch.long, device=device), d_head, base=base)[0]


def ntk_base(base: float, factor: float, d_head: int) -> float:
    r"""$base \cdot factor^{d/(d-2)}$: the slowest pair turns `factor` times slower, the fastest as before.

    >>> frequencies = rotary_frequencies(8, base=ntk_base(10_000.0, 4.0, 8))
    >>> rotary_frequencies(8) / frequencies
    tensor([1.0000, 1.5874, 2.5198, 4.0000], dtype=torch.float64)
    """
    if d_head < 4:
        raise ValueError(f"d_head must be 4 or more to slow down some pairs and others not, got {d_head}")
    return base * factor ** (d_head / (d_head - 2))


def llama3_frequencies(
    frequencies: Float[Tensor, "pair"], *, factor: float, n_tokens: int, low: float, high: float
) -> Float[Tensor, "pair"]:
    r"""$(1 - s)\,\theta / factor + s\,\theta$, where $s$ grows from 0 to 1 between `low` and `high` turns.

    A pair turns $n\theta / 2\pi$ times over the $n$ tokens that the model was trained on first. "The Llama 3 herd of
    models", 2024.

    >>> llama3_frequencies(torch.tensor([1.0, 0.001]), factor=8.0, n_tokens=1000, low=1.0, high=4.0)
    tensor([1.0000e+00, 1.2500e-04])
    """
    turns = n_tokens * frequencies / (2 * math.pi)
    share = ((turns - low) / (high - low)).clamp(0, 1)
    return (1 - share) * frequencies / factor + share * frequencies


def yarn_frequencies(
    frequencies: Float[Tensor, "pair"],
    *,
    base: float,
    factor: float,
    n_tokens: int,
    fast: float,
    slow: float,
    whole_pairs: bool = True,
) -> Float[Tensor, "pair"]:
    r"""$s_i\,\theta_i / factor + (1 - s_i)\,\theta_i$, where $s_i$ grows from 0 to 1 over the number $i$ of the pair.

    It begins at the pair with `fast` turns over the $n$ tokens of training and ends at that with `slow` ones; the pair
    with $t$ turns is $i = d \ln(n / 2\pi t) / (2 \ln base)$. Peng et al., "YaRN", 2023.

    >>> yarn_frequencies(rotary_frequencies(8), base=10_000.0, factor=4.0, n_tokens=1000, fast=32.0, slow=1.0)
    tensor([1.0000e+00, 7.5000e-02, 5.0000e-03, 2.5000e-04], dtype=torch.float64)
    """
    d_head = 2 * len(frequencies)
    first, last = (d_head * math.log(n_tokens / (2 * math.pi * turns)) / (2 * math.log(base)) for turns in (fast, slow))
    if whole_pairs:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, d_head - 1)
    pair = torch.arange(len(frequencies), device=frequencies.device, dtype=frequencies.dtype)
    share = ((pair - first) / (last - first if last != first else 0.001)).clamp(0, 1)
    return share * frequencies / factor + (1 - share) * frequencies


def yarn_attention_factor(factor: float) -> float:
    r"""$0.1 \ln factor + 1$: how much larger queries and keys become, since more keys flatten the softargmax.

    >>> yarn_attention_factor(1.0)
    1.0
    """
    return 0.1 * math.log(max(factor, 1.0)) + 1


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


def rotary_table(
    angles: Float[Tensor, "*batch token pair"], layout: Literal["interleaved", "halves"] = "interleaved"
) -> tuple[Float[Tensor, "*batch token d_head"], Float[Tensor, "*batch token d_head"]]:
    r"""$\cos\theta$ for each feature, and $-\sin\theta$ for the first, $\sin\theta$ for the second of each pair.

    >>> rotary_table(torch.tensor([[torch.pi / 2]]))[1]
    tensor([[-1.,  1.]])
    """
    check_one_of(("interleaved", "halves"), layout=layout)
    join = {"interleaved": "two ... pair -> ... (pair two)", "halves": "two ... pair -> ... (two pair)"}[layout]
    cos, sin = angles.cos(), angles.sin()
    return rearrange([cos, cos], join), rearrange([-sin, sin], join)
