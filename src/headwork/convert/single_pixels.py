"""Gaussian heads as the theorem has them: each at its nearest pixel, which it sees alone."""

from copy import deepcopy
from typing import TypeVar

import torch
from torch import nn

from headwork.layers.gaussian import GaussianAttention

AnyModule = TypeVar("AnyModule", bound=nn.Module)
SINGLE = 100.0
"""The alpha of a head that sees a single pixel: its neighbours get e^-100 of the weight."""


@torch.no_grad()
def to_single_pixels(model: AnyModule) -> AnyModule:
    """A copy of the model in which every Gaussian head looks at its nearest pixel and at no other.

    If the heads of a trained network are a convolution with one head for each pixel, nothing changes. What does change
    is what the network owes to softer heads, or to heads between pixels.

    >>> heads = hw.layers.GaussianAttention(d_model=4, n_heads=2)
    >>> heads.set_centres(torch.tensor([[0.4, -1.2], [1.6, 0.0]]), torch.tensor([1.0, 2.0]))
    >>> to_single_pixels(heads).centre.tolist()
    [[0.0, -1.0], [2.0, 0.0]]
    """
    model = deepcopy(model)
    all_heads = [module for module in model.modules() if isinstance(module, GaussianAttention)]
    if not all_heads:
        raise ValueError(f"model must have Gaussian heads, got {type(model).__name__} without any")
    for heads in all_heads:
        alpha = torch.full_like(heads.alpha, SINGLE)
        if heads.precision == "full":
            alpha *= torch.eye(2, dtype=alpha.dtype, device=alpha.device)
        heads.set_centres(heads.centre.round() + 0.0, alpha)  # adding 0 makes 0 of -0
    return model
