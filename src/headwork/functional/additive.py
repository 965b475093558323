"""Additive attention: the score is a small network of query and key instead of their product."""

from jaxtyping import Float
from torch import Tensor


def additive_scores(
    q: Float[Tensor, "*batch query d_hidden"],
    k: Float[Tensor, "*batch key d_hidden"],
    w: Float[Tensor, "d_hidden"],
) -> Float[Tensor, "*batch query key"]:
    r"""$w \cdot \tanh(q_i + k_j)$, where `q` and `k` are already projected.

    It needs a table query x key x d_hidden, and a product of matrices needs none. Bahdanau, Cho and Bengio, "Neural
    machine translation by jointly learning to align and translate", 2015.

    >>> additive_scores(torch.zeros(3, 2), torch.zeros(5, 2), torch.ones(2)).shape
    torch.Size([3, 5])
    """
    if q.shape[-1] != k.shape[-1] or q.shape[-1:] != w.shape:
        raise ValueError(f"q, k and w must have the same width, got {q.shape[-1]}, {k.shape[-1]} and {len(w)}")
    return (q.unsqueeze(-2) + k.unsqueeze(-3)).tanh() @ w
