"""The attention that came before the product of queries and keys."""

from functools import partial

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from headwork.checks import check_positive, check_probability
from headwork.functional.additive import additive_scores
from headwork.functional.attention import check_visible, hide_unseen, softargmax
from headwork.functional.processor import check_products
from headwork.layers.hook_point import LazyHookPoint
from headwork.layers.linear import linear


class AdditiveAttention(nn.Module):
    """softargmax(w . tanh(W_q q + W_k k)) v, one head; the values are taken as they are.

    Bahdanau, Cho and Bengio, "Neural machine translation by jointly learning to align and translate", 2015.

    >>> attention = AdditiveAttention(d_query=3, d_key=5, d_hidden=8)
    >>> attention(torch.randn(2, 1, 3), torch.randn(2, 7, 5), torch.randn(2, 7, 4)).shape
    torch.Size([2, 1, 4])
    """

    axes = "batch query d_value"
    operation = "attention"
    operation_inside = "projections"

    def __init__(self, d_query: int, d_key: int, d_hidden: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        check_positive(d_query=d_query, d_key=d_key, d_hidden=d_hidden)
        check_probability(dropout=dropout)
        self.query = linear(d_query, d_hidden, bias=False)
        self.key = linear(d_key, d_hidden, bias=False)
        self.score = nn.Parameter(torch.randn(d_hidden) / d_hidden**0.5)
        self.weights = LazyHookPoint("batch query key")
        self.dropout = dropout

    def forward(
        self,
        q: Float[Tensor, "batch query d_query"],
        k: Float[Tensor, "batch key d_key"],
        v: Float[Tensor, "batch key d_value"],
        visible: Bool[Tensor, "#batch #query #key"] | None = None,
    ) -> Float[Tensor, "batch query d_value"]:
        """The mean of the values under the weights; `visible` (True = may attend) hides keys."""
        check_products(q)
        check_visible(visible, torch.Size((*q.shape[:2], k.shape[1])))
        k, v = hide_unseen(visible, k, v)
        weigh = partial(self._weigh, q, k, visible)
        new = self.weights.publish(weigh)
        weights = weigh() if new is None else new
        return nn.functional.dropout(weights, self.dropout if self.training else 0.0) @ v

    def _weigh(self, q: Tensor, k: Tensor, visible: Tensor | None) -> Float[Tensor, "batch query key"]:
        return softargmax(additive_scores(self.query(q), self.key(k), self.score), 1.0, visible)
