"""Mixture of experts: which few of many networks see a token, and how much each of them counts."""

import torch
from jaxtyping import Float, Int
from torch import Tensor


def choose_experts(
    scores: Float[Tensor, "*batch expert"], n_active: int, *, normalised: bool = True
) -> tuple[Float[Tensor, "*batch active"], Int[Tensor, "*batch active"]]:
    r"""The `n_active` experts with the largest $p = \operatorname{softmax}(s)$ and their weights, the largest first.

    The weights are $p$ itself or, if `normalised`, $p$ divided by the sum of those chosen. Half precision is computed
    in float32. Shazeer et al., "Outrageously large neural networks", 2017; Jiang et al., "Mixtral of experts", 2024.

    >>> choose_experts(torch.tensor([0.0, 3.0, 3.0, 0.0]), 2)
    (tensor([0.5000, 0.5000]), tensor([1, 2]))
    """
    if not 1 <= n_active <= scores.shape[-1]:
        raise ValueError(f"n_active must lie in 1 .. {scores.shape[-1]}, the number of experts, got {n_active}")
    precise = scores.float() if scores.dtype in (torch.float16, torch.bfloat16) else scores
    weights, chosen = precise.softmax(-1).topk(n_active, dim=-1)
    weights = weights / weights.sum(-1, keepdim=True) if normalised else weights
    return weights.to(scores.dtype), chosen
