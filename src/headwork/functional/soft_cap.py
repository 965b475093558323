"""Scores that cannot grow beyond a cap."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from headwork.checks import check_above_zero
from headwork.functional.attention import (
    attention_scores,
    check_attention,
    check_beta_of_sum,
    default_beta,
    hide_blind,
    hide_future,
    hide_unseen,
    softargmax,
)


def soft_cap(x: Float[Tensor, "*any"], cap: float) -> Float[Tensor, "*any"]:
    r"""$c \tanh(x / c)$: x itself near 0, and never beyond $\pm c$. Gemma team, "Gemma 2", 2024.

    >>> soft_cap(torch.tensor([0.1, 1000.0]), 50.0)
    tensor([ 0.1000, 50.0000])
    """
    check_above_zero(cap=cap)
    return torch.tanh(x / cap) * cap


def capped_attention_weights(
    q: Float[Tensor, "*batch query d_head"],
    k: Float[Tensor, "*batch key d_head"],
    cap: float,
    *,
    visible: Bool[Tensor, "*#batch #query #key"] | None = None,
    causal: bool = False,
    bias: Float[Tensor, "*#batch #query #key"] | None = None,
    beta: float | None = None,
) -> Float[Tensor, "*batch query key"]:
    r"""`attention_weights` with capped scores: $\operatorname{softargmax}(c \tanh(\beta\, Q K^\top / c) + B)$.

    >>> capped_attention_weights(torch.zeros(2, 3, 8), torch.zeros(2, 5, 8), 50.0).shape
    torch.Size([2, 3, 5])
    """
    check_attention(q, k, None, visible=visible)
    visible = hide_future(visible, q, k) if causal else visible
    beta = default_beta(q) if beta is None else beta
    check_beta_of_sum(beta)
    q, (k,) = hide_blind(visible, q), hide_unseen(visible, k)
    scores = soft_cap(beta * attention_scores(q, k), cap)
    return softargmax(scores if bias is None else scores + bias, 1.0, visible).to(q.dtype)


def capped_attention(
    q: Float[Tensor, "*batch query d_head"],
    k: Float[Tensor, "*batch key d_head"],
    v: Float[Tensor, "*batch key d_value"],
    cap: float,
    *,
    visible: Bool[Tensor, "*#batch #query #key"] | None = None,
    causal: bool = False,
    bias: Float[Tensor, "*#batch #query #key"] | None = None,
    beta: float | None = None,
) -> Float[Tensor, "*batch query d_value"]:
    """The mean of the values under these weights; no fused kernel has them.

    >>> capped_attention(torch.zeros(1, 1, 4), torch.zeros(1, 2, 4), torch.tensor([[[1.0], [3.0]]]), 50.0)
    tensor([[[2.]]])
    """
    visible = hide_future(visible, q, k) if causal else visible
    weights = capped_attention_weights(q, k, cap, visible=visible, bias=bias, beta=beta)
    (v,) = hide_unseen(visible, v)
    return weights @ v
