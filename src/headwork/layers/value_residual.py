"""Value residuals: the values of the first layer take part in all later ones."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headwork.layers.attention import MultiHeadAttention


class FirstValues:
    """The values of the first layer of a stack, of the newest call; a copy of the model starts without any."""

    def __init__(self) -> None:
        self.values: Tensor | None = None

    def __reduce__(self) -> tuple[type["FirstValues"], tuple[()]]:
        return FirstValues, ()


class ValueResidual(nn.Module):
    """v <- (v + v of the first layer) / 2 in every layer but the first. Zhou et al., "Value residual learning", 2024.

    >>> first = FirstValues()
    >>> v = ValueResidual(first, is_first=True)(torch.ones(1, 5, 2, 4))
    >>> ValueResidual(first, is_first=False)(3 * v).unique()
    tensor([2.])
    """

    def __init__(self, first: FirstValues, *, is_first: bool) -> None:
        super().__init__()
        self.first, self.is_first = first, is_first

    def forward(self, v: Float[Tensor, "batch token head d_value"]) -> Float[Tensor, "batch token head d_value"]:
        if self.is_first:
            self.first.values = v
            return v
        assert self.first.values is not None
        return torch.lerp(v, self.first.values.to(v.dtype), 0.5)

    def extra_repr(self) -> str:
        return f"is_first={self.is_first}"


def share_first_values(attentions: Sequence[MultiHeadAttention]) -> None:
    """Let these layers, in their order, have value residuals."""
    first = FirstValues()
    for number, attention in enumerate(attentions):
        attention.value_residual = ValueResidual(first, is_first=number == 0)
