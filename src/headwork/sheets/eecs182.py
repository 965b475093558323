"""UC Berkeley, EECS 182, Final Review: the two listings, with the sheet's masks (True = padding).

Two things are better here than in the listings: a query whose keys are all hidden gets zeros instead of NaN, and for
fewer queries than keys the causal mask is aligned to the *last* key, as a cache needs it.
"""

import torch
from einops import rearrange, repeat
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from headwork import functional
from headwork.checks import check_divides
from headwork.layers.linear import linear
from headwork.public import PublicNames

KeyPadding = Bool[Tensor, "batch key"] | Int[Tensor, "batch key"]


def scaled_dot_product_attention(
    q: Float[Tensor, "batch query d_head"],
    k: Float[Tensor, "batch key d_head"],
    v: Float[Tensor, "batch key d_value"],
    key_padding_mask: KeyPadding | None = None,
    causal: bool = False,
) -> Float[Tensor, "batch query d_value"]:
    """Question 1: softmax(q k' / sqrt(d_head)) v; keys that `key_padding_mask` marks are hidden.

    >>> q, k = torch.randn(2, 5, 8), torch.randn(2, 7, 8)
    >>> scaled_dot_product_attention(q, k, k, key_padding_mask=torch.arange(7).expand(2, 7) > 4).shape
    torch.Size([2, 5, 8])
    """
    visible = None if key_padding_mask is None else ~key_padding_mask.to(torch.bool)[:, None, :]
    return functional.scaled_dot_product_attention(q, k, v, visible=visible, causal=causal)


class MHA(nn.Module):
    """Question 2: queries, keys and values from three inputs of the same width, several heads, one output map.

    Its parameters are called as in the listing, so that state dicts of a module written from it can be loaded.

    >>> q, k = torch.randn(2, 5, 8), torch.randn(2, 7, 8)
    >>> MHA(d_model=8, n_heads=2)(q, k, k).shape
    torch.Size([2, 5, 8])
    """

    axes = "batch query d_model"

    def __init__(self, d_model: int, n_heads: int, *, bias: bool = True) -> None:
        super().__init__()
        check_divides(n_heads=n_heads, d_model=d_model)
        self.d_model, self.n_heads, self.bias = d_model, n_heads, bias
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (linear(d_model, d_model, bias=bias) for _ in range(4))

    def forward(
        self,
        q: Float[Tensor, "batch query d_model"],
        k: Float[Tensor, "batch key d_model"],
        v: Float[Tensor, "batch key d_model"],
        key_padding_mask: KeyPadding | None = None,
        causal: bool = False,
    ) -> Float[Tensor, "batch query d_model"]:
        q, k, v = (
            rearrange(project(x), "b l (nh dh) -> (b nh) l dh", nh=self.n_heads)
            for project, x in ((self.q_proj, q), (self.k_proj, k), (self.v_proj, v))
        )
        if key_padding_mask is not None:
            key_padding_mask = repeat(key_padding_mask, "b sl -> (b nh) sl", nh=self.n_heads)
        o = scaled_dot_product_attention(q, k, v, key_padding_mask, causal)
        return self.o_proj(rearrange(o, "(b nh) tl dh -> b tl (nh dh)", nh=self.n_heads))


__dir__ = PublicNames(__name__)
