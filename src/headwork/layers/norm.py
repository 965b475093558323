"""Norms with their parameters."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headwork import choices
from headwork.functional.fused import fused_layer_norm, fused_rms_norm
from headwork.functional.norm import unbiased_layer_norm
from headwork.layers.linear import OneToken


class LayerNorm(nn.Module):
    """Mean 0 and variance 1 over the features of each token, then a learned scale and shift.

    >>> LayerNorm(8)(torch.randn(2, 5, 8)).shape
    torch.Size([2, 5, 8])
    """

    axes = "batch token d_model"

    def __init__(self, d_model: int, *, eps: float = 1e-5, bias: bool = True) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model)) if bias else None

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        check_width(x, self.weight)
        return fused_layer_norm(x, self.weight, self.bias, self.eps)

    def one_token(self) -> OneToken:
        weight, bias, shape, eps = self.weight, self.bias, self.weight.shape, self.eps
        return lambda x: torch.layer_norm(x, shape, weight, bias, eps)

    def extra_repr(self) -> str:
        return f"d_model={len(self.weight)}, eps={self.eps}, bias={self.bias is not None}"


class RMSNorm(nn.Module):
    """Root mean square 1 over the features of each token, then a learned scale.

    >>> RMSNorm(8)(torch.randn(2, 5, 8)).shape
    torch.Size([2, 5, 8])
    """

    axes = "batch token d_model"

    def __init__(self, d_model: int, *, eps: float = 1e-6) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d_model))

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        check_width(x, self.weight)
        return fused_rms_norm(x, self.weight, self.eps)

    def one_token(self) -> OneToken:
        weight, shape, eps = self.weight, self.weight.shape, self.eps
        return lambda x: torch.rms_norm(x, shape, weight, eps)

    def extra_repr(self) -> str:
        return f"d_model={len(self.weight)}, eps={self.eps}"


class BatchNorm2d(nn.BatchNorm2d):
    """PyTorch's batch norm, whose running averages start from the first batch instead of from 0 and 1.

    The n-th batch gets the weight 1 / n, and a tenth from the tenth batch on. PyTorch gives a tenth to each, so that
    after 16 steps 0.9^16 = 19 % of the start is left: a variance of 0.01 is averaged to 0.2.

    >>> norm = BatchNorm2d(3)
    >>> _ = norm(5 + torch.randn(64, 3, 8, 8))
    >>> norm.running_mean.round()
    tensor([5., 5., 5.])
    """

    momentum: float
    num_batches_tracked: Tensor
    running_mean: Tensor
    running_var: Tensor

    def forward(self, x: Float[Tensor, "batch channel row column"]) -> Float[Tensor, "batch channel row column"]:
        if not self.training:
            return super().forward(x)
        mean, variance = torch.zeros_like(self.running_mean), torch.zeros_like(self.running_var)
        # With a momentum of 1 the kernel writes down the statistics of this batch alone.
        y = nn.functional.batch_norm(x, mean, variance, self.weight, self.bias, True, 1.0, self.eps)
        with torch.no_grad():
            n_batches = self.num_batches_tracked.add_(1)
            share = (1 / n_batches).clamp(min=self.momentum).to(mean.dtype)  # a tensor: no device is waited for
            self.running_mean.lerp_(mean, share)
            self.running_var.lerp_(variance, share)
        return y


class UnbiasedLayerNorm(nn.Module):
    """Mean 0 and unbiased deviation 1 over the features of each token, then a learned scale and shift.

    >>> UnbiasedLayerNorm(8)(torch.randn(2, 5, 8)).shape
    torch.Size([2, 5, 8])
    """

    axes = "batch token d_model"

    def __init__(self, d_model: int, *, eps: float = 1e-6) -> None:
        super().__init__()
        if d_model < 2:
            raise ValueError(f"d_model must be 2 or more for the unbiased deviation, got {d_model}")
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model))

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        check_width(x, self.weight)
        return unbiased_layer_norm(x, self.weight, self.bias, self.eps)

    def one_token(self) -> OneToken:
        weight, bias, eps = self.weight, self.bias, self.eps
        return lambda x: unbiased_layer_norm(x, weight, bias, eps)

    def extra_repr(self) -> str:
        return f"d_model={len(self.weight)}, eps={self.eps}"


AnyNorm = LayerNorm | RMSNorm | UnbiasedLayerNorm


def check_width(x: Tensor, weight: Tensor) -> None:
    if x.shape[-1:] != weight.shape:
        raise ValueError(f"x must have the width d_model={len(weight)}, got shape {tuple(x.shape)}")


def make_norm(choice: choices.AnyNorm, d_model: int) -> AnyNorm:
    match choice:
        case choices.LayerNorm():
            return LayerNorm(d_model, eps=choice.eps, bias=choice.bias)
        case choices.RMSNorm():
            return RMSNorm(d_model, eps=choice.eps)
        case choices.UnbiasedLayerNorm():
            return UnbiasedLayerNorm(d_model, eps=choice.eps)
