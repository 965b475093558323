"""The position-wise feed-forward network: the same small network for every token."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headwork import choices
from headwork.checks import check_positive, check_probability
from headwork.functional.activations import relu2
from headwork.functional.fused import fused_gelu, fused_gelu_tanh
from headwork.functional.processor import check_products
from headwork.layers.hook_point import HookPoint
from headwork.layers.linear import OneToken, affine, linear

ACTIVATIONS: dict[choices.Activation, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "relu2": relu2,
    "gelu": fused_gelu,
    "gelu_tanh": fused_gelu_tanh,
    "silu": nn.functional.silu,
}


class FeedForward(nn.Module):
    """W2 activation(W1 x), each token for itself.

    >>> FeedForward(8, 32, activation="relu")(torch.randn(2, 5, 8)).shape
    torch.Size([2, 5, 8])
    """

    axes = "batch token d_model"
    operation = "feed-forward"

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        *,
        activation: choices.Activation = "gelu",
        bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_positive(d_model=d_model, d_ff=d_ff)
        check_probability(dropout=dropout)
        self.activation = find_activation(activation)
        self.up = linear(d_model, d_ff, bias=bias)
        self.hidden = HookPoint("batch token d_ff")
        self.dropout = nn.Dropout(dropout)
        self.down = linear(d_ff, d_model, bias=bias)

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        return self.down(self.dropout(self.hidden(self.features(x))))

    def one_token(self) -> OneToken:
        up, activation, down = affine(self.up), self.activation, affine(self.down)
        return lambda x: down(activation(up(x)))

    def features(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_ff"]:
        """The wide layer: activation(W1 x)."""
        self._check(x)
        return self.activation(self.up(x))

    def _check(self, x: Tensor) -> None:
        if x.shape[-1] != self.up.in_features:
            raise ValueError(f"x must have the width d_model={self.up.in_features}, got shape {tuple(x.shape)}")
        check_products(x)


class GatedFeedForward(FeedForward):
    """W2 (activation(W_gate x) * W1 x): the gate decides how much of each feature passes. Shazeer, 2020.

    >>> GatedFeedForward(8, 32, activation="silu")(torch.randn(2, 5, 8)).shape
    torch.Size([2, 5, 8])
    """

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        *,
        activation: choices.Activation = "silu",
        bias: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(d_model, d_ff, activation=activation, bias=bias, dropout=dropout)
        self.gate = linear(d_model, d_ff, bias=bias)

    def features(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_ff"]:
        self._check(x)
        return self.activation(self.gate(x)) * self.up(x)

    def one_token(self) -> OneToken:
        gate, activation, up, down = affine(self.gate), self.activation, affine(self.up), affine(self.down)
        return lambda x: down(activation(gate(x)) * up(x))


def find_activation(name: choices.Activation) -> Callable[[Tensor], Tensor]:
    if name not in ACTIVATIONS:
        raise ValueError(f"activation must be one of {', '.join(ACTIVATIONS)}, got {name!r}")
    return ACTIVATIONS[name]
