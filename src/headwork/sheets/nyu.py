"""New York University, Homework 4: multi-head attention in columns (1.2(a)), and the MLP head of the ViT (1.5(c))."""

from jaxtyping import Float
from torch import Tensor, nn

from headwork import layers
from headwork.checks import check_divides
from headwork.models.vision_transformer import MLPHead as MLPHead
from headwork.public import PublicNames


class MultiHeadAttention(nn.Module):
    """1.2(a): Q in R^(d x n), K in R^(d x m) and V in R^(t x m), tokens in columns, give H in R^(t x n).

    It has 2 d^2 + 2 t^2 weights, however many heads there are.

    >>> attention = MultiHeadAttention(d=12, t=6, n_heads=3)
    >>> attention(torch.randn(12, 5), torch.randn(12, 7), torch.randn(6, 7)).shape
    torch.Size([6, 5])
    """

    axes = "t query"

    def __init__(self, d: int, t: int, n_heads: int, *, beta: float | None = None) -> None:
        super().__init__()
        check_divides(n_heads=n_heads, d=d)
        check_divides(n_heads=n_heads, t=t)
        self.attention = layers.MultiHeadAttention(
            d, n_heads, d_value=t // n_heads, d_values=t, d_out=t, bias=False, beta=beta
        )

    def forward(
        self, q: Float[Tensor, "d query"], k: Float[Tensor, "d key"], v: Float[Tensor, "t key"]
    ) -> Float[Tensor, "t query"]:
        out: Tensor = self.attention(q.mT[None], k.mT[None], values=v.mT[None])
        return out[0].mT


__dir__ = PublicNames(__name__)
