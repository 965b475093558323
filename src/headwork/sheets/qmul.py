"""Queen Mary University of London, Coursework 1, questions 1 and 2.1: self-attention with tokens in columns."""

import math

from jaxtyping import Float
from torch import Tensor

from headwork import functional
from headwork.public import PublicNames


def self_attention(
    x: Float[Tensor, "d token"],
    w_q: Float[Tensor, "d_k d"],
    w_k: Float[Tensor, "d_k d"],
    w_v: Float[Tensor, "d_v d"],
) -> Float[Tensor, "d_v token"]:
    """Q = W^Q X, K = W^K X, V = W^V X, and V softmax(Q'K / sqrt(d_k))': tokens are compared, not features.

    The sheet prints softmax(Q K' / sqrt(d_k)) V, which is for tokens in rows (see the errata).

    >>> x, w = torch.randn(768, 6), torch.randn(3, 768, 768) / 768**0.5
    >>> self_attention(x, *w).shape
    torch.Size([768, 6])
    """
    q, k, v = w_q @ x, w_k @ x, w_v @ x
    return functional.scaled_dot_product_attention(q.mT, k.mT, v.mT, beta=1 / math.sqrt(len(q))).mT


__dir__ = PublicNames(__name__)
