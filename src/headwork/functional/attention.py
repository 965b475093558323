"""Attention in three pure steps: scores -> weights -> output. Nothing here owns parameters.

This is the readable path: it builds the whole table of weights. Its fast form with the same meaning is
`headwork.functional.fused.fused_attention`.
"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from headwork.checks import check_type
from headwork.functional.processor import check_products, has_numbers
from headwork.functional.relative import not_ahead

LARGEST_BETA_FOR_A_SUM = 1e6
"""Beyond this the products beta q.k drown what is added to them, or overflow; softargmax alone takes any beta."""


def softargmax(
    scores: Float[Tensor, "*batch query key"],
    beta: float = 1.0,
    visible: Bool[Tensor, "*#batch #query #key"] | None = None,
) -> Float[Tensor, "*batch query key"]:
    r"""Weights over the visible keys (True = may attend); a query that sees no key gets zeros.

    $$\alpha_j = \frac{e^{\beta s_j}}{\sum_{k \text{ visible}} e^{\beta s_k}}$$

    The inverse temperature `beta` runs from 0 (the mean of what is visible) to infinity (hard
    attention: the largest score takes all, ties share, and no gradient reaches the scores). A score of
    -inf hides its key as well; with one of +inf, as with NaN, the row is NaN, as in `torch.softmax` (but for beta=inf,
    where all scores of +inf share). Half precision is computed in float32. A weight below the smallest normal
    number (1e-38 in float32) is exactly 0 and passes no gradient: on many processors each product with
    such a number takes a hundred cycles.

    >>> softargmax(torch.tensor([[0.0, 0.0]]))
    tensor([[0.5000, 0.5000]])
    >>> softargmax(torch.tensor([[1.0, 2.0, 2.0]]), beta=math.inf)
    tensor([[0.0000, 0.5000, 0.5000]])
    >>> softargmax(torch.tensor([[1.0, 2.0]]), visible=torch.tensor([[False, False]]))
    tensor([[0., 0.]])
    """
    check_type(Tensor, "a tensor", scores=scores)
    check_beta(beta)
    check_visible(visible, scores.shape)
    precise = scores.float() if scores.dtype in (torch.float16, torch.bfloat16) else scores
    seen = precise if visible is None else precise.masked_fill(~visible, -math.inf)
    number = torch.finfo(seen.dtype)
    if number.tiny <= beta <= 1:  # a product cannot overflow
        scaled = beta * seen
    elif beta < number.tiny:  # nor can this one, but for -inf
        scaled = beta * seen.clamp(min=number.min)
    else:  # measured from the best score no beta can overflow
        best = seen.detach().amax(-1, keepdim=True).clamp(min=number.min)
        if beta >= number.max:
            is_best = (seen == best).to(seen.dtype)
            return (is_best / is_best.sum(-1, keepdim=True).clamp(min=1)).to(scores.dtype)
        scaled = beta * (seen - best)
    weights = torch.softmax(scaled, dim=-1)
    if beta < number.tiny or not _all_normal_or_zero(weights):
        hidden = (seen == -math.inf) | (weights.detach() < number.tiny)
        weights = torch.softmax(scaled.masked_fill(hidden, number.min), dim=-1).masked_fill(hidden, 0.0)
    return weights.to(scores.dtype)


def _all_normal_or_zero(weights: Tensor) -> bool:
    """Whether that is known: without a look at the numbers it is not, and on other devices a look takes too long."""
    if weights.device.type != "cpu" or not has_numbers(weights) or not weights.numel():
        return False
    found, tiny = weights.detach(), torch.finfo(weights.dtype).tiny
    return bool(found.amin() >= tiny) or bool(((found >= tiny) | (found == 0)).all())


def attention_scores(
    q: Float[Tensor, "*batch query d_head"],
    k: Float[Tensor, "*batch key d_head"],
) -> Float[Tensor, "*batch query key"]:
    r"""How well each query matches each key: $S = Q K^\top$, not yet scaled.

    Half precision is multiplied in float32, where the products cannot overflow.

    >>> attention_scores(torch.ones(1, 2, 8), torch.ones(1, 3, 8))[0, 0]
    tensor([8., 8., 8.])
    """
    if q.shape[-1] != k.shape[-1]:
        raise ValueError(f"q and k must have the same width d_head, got {q.shape[-1]} and {k.shape[-1]}")
    dtype = torch.promote_types(torch.promote_types(q.dtype, k.dtype), torch.float32)
    q, k = q.to(dtype), k.to(dtype)
    check_products(q)
    return q @ k.mT


def attention_weights(
    q: Float[Tensor, "*batch query d_head"],
    k: Float[Tensor, "*batch key d_head"],
    *,
    visible: Bool[Tensor, "*#batch #query #key"] | None = None,
    causal: bool = False,
    bias: Float[Tensor, "*#batch #query #key"] | None = None,
    beta: float | None = None,
) -> Float[Tensor, "*batch query key"]:
    r"""What each query takes from each key: $\operatorname{softargmax}(\beta\, Q K^\top + B)$, rows that sum to 1.

    `beta` is $1/\sqrt{d_{head}}$ unless given; `causal` hides the future in addition to `visible`; `bias` is
    what a position code adds to the scaled scores (ALiBi, T5).

    >>> attention_weights(torch.zeros(2, 3, 8), torch.zeros(2, 5, 8)).shape
    torch.Size([2, 3, 5])
    """
    check_attention(q, k, None, visible=visible)
    visible = hide_future(visible, q, k) if causal else visible
    beta = default_beta(q) if beta is None else beta
    q, (k,) = hide_blind(visible, q), hide_unseen(visible, k)
    scores = attention_scores(q, k)
    if bias is None:
        return softargmax(scores, beta, visible).to(q.dtype)
    check_beta(beta)
    check_bias(bias, scores.shape, beta)
    hidden = bias == -math.inf
    visible = ~hidden if visible is None else visible & ~hidden
    return softargmax(beta * scores + bias.masked_fill(hidden, 0.0), 1.0, visible).to(q.dtype)


def scaled_dot_product_attention(
    q: Float[Tensor, "*batch query d_head"],
    k: Float[Tensor, "*batch key d_head"],
    v: Float[Tensor, "*batch key d_value"],
    *,
    visible: Bool[Tensor, "*#batch #query #key"] | None = None,
    causal: bool = False,
    bias: Float[Tensor, "*#batch #query #key"] | None = None,
    beta: float | None = None,
) -> Float[Tensor, "*batch query d_value"]:
    r"""The mean of the values under the weights: $H = \operatorname{softargmax}(\beta\, Q K^\top) V$.

    Vaswani et al., "Attention is all you need", 2017. A query that sees no key returns zeros. A NaN in a key that no
    query sees reaches nothing; one in a key that some see can reach all of them.

    >>> v = torch.tensor([[[1.0], [3.0]]])
    >>> scaled_dot_product_attention(torch.zeros(1, 1, 4), torch.zeros(1, 2, 4), v)
    tensor([[[2.]]])
    """
    check_attention(q, k, v, visible=visible)
    check_products(v)
    visible = hide_future(visible, q, k) if causal else visible
    weights = attention_weights(q, k, visible=visible, bias=bias, beta=beta)
    (v,) = hide_unseen(visible, v)
    return weights @ v


def default_beta(q: Float[Tensor, "*batch query d_head"]) -> float:
    r"""$1/\sqrt{d_{head}}$: it keeps the variance of the scores at 1, whatever the width."""
    return 1 / math.sqrt(max(q.shape[-1], 1))


def hide_unseen(
    visible: Bool[Tensor, "*#batch #query #key"] | None, *of_keys: Float[Tensor, "*batch key _"]
) -> tuple[Float[Tensor, "*batch key _"], ...]:
    """Zeros in place of the keys that no query may see, so that a NaN in the padding goes nowhere (0 * NaN is NaN).

    A NaN in a key or value that one query may see can reach every query: keeping it out would take a look at each value
    for each pair of query and key.
    """
    if visible is None:
        return of_keys
    unseen = ~visible.any(-2).unsqueeze(-1)
    return tuple(t.masked_fill(unseen, 0.0) for t in of_keys)


def hide_future(
    visible: Bool[Tensor, "*#batch #query #key"] | None,
    q: Float[Tensor, "... query _"],
    k: Float[Tensor, "... key _"],
) -> Bool[Tensor, "*#batch query key"]:
    """What is visible and not in the future, for as many queries and keys as there are in q and k."""
    past = not_ahead(q.shape[-2], k.shape[-2], device=q.device)
    return past if visible is None else past & visible


def hide_blind(
    visible: Bool[Tensor, "*#batch #query #key"] | None, q: Float[Tensor, "*batch query d_head"]
) -> Float[Tensor, "*batch query d_head"]:
    """Zeros in place of the queries that may see no key, for the same reason."""
    return q if visible is None else q.masked_fill(~visible.any(-1).unsqueeze(-1), 0.0)


def check_attention(
    q: Float[Tensor, "*batch query d_head"],
    k: Float[Tensor, "*batch key d_head"],
    v: Float[Tensor, "*batch key d_value"] | None,
    *,
    visible: Bool[Tensor, "*#batch #query #key"] | None,
) -> None:
    """Raise for arguments that do not fit together."""
    for name, t in (("q", q), ("k", k), ("v", v)):
        if t is not None and (t.ndim < 2 or t.shape[-2] == 0):
            raise ValueError(
                f"{name} must have the axes (..., token, d) and at least one token, got shape {tuple(t.shape)}"
            )
    if q.shape[-1] != k.shape[-1]:
        raise ValueError(f"q and k must have the same width d_head, got {q.shape[-1]} and {k.shape[-1]}")
    if v is not None and k.shape[-2] != v.shape[-2]:
        raise ValueError(f"k and v must have the same number of keys, got {k.shape[-2]} and {v.shape[-2]}")
    for name, t in (("k", k), ("v", v)):
        if t is not None and t.shape[:-2] != q.shape[:-2]:
            raise ValueError(f"{name} must have the batch axes of q, {tuple(q.shape[:-2])}, got shape {tuple(t.shape)}")
    check_visible(visible, torch.Size((*q.shape[:-1], k.shape[-2])))


def check_beta(beta: float) -> None:
    if not beta >= 0:  # NaN is not
        raise ValueError(f"beta must lie in 0 .. inf, got {beta}")


def check_beta_of_sum(beta: float) -> None:
    """Raise if scores that are multiplied by this beta would drown what is added to them."""
    if beta > LARGEST_BETA_FOR_A_SUM:
        raise ValueError(
            f"beta must be at most {LARGEST_BETA_FOR_A_SUM:g} with a bias (beyond, the scores alone decide), got {beta}"
        )


def check_bias(bias: Float[Tensor, "*#batch #query #key"], shape: torch.Size, beta: float) -> None:
    check_beta_of_sum(beta)
    check_bias_dtype(bias)
    if not _broadcasts(bias.shape, shape):
        raise ValueError(f"bias must broadcast to the scores {tuple(shape)}, got {tuple(bias.shape)}")


def check_bias_dtype(bias: Tensor | None) -> None:
    """A bias is added to the scores; a mask given instead would be added as 0 and 1."""
    if bias is not None and not bias.is_floating_point():
        remedy = ": a mask is passed as visible=" if bias.dtype == torch.bool else ""
        raise TypeError(f"bias must hold real numbers, which are added to the scores, got {bias.dtype}{remedy}")


def check_visible(visible: Bool[Tensor, "*#batch #query #key"] | None, shape: torch.Size) -> None:
    """Raise unless `visible` is None or a boolean mask that broadcasts to the scores."""
    if visible is None:
        return
    if visible.dtype != torch.bool:
        raise TypeError(
            f"visible must be boolean (True = may attend), got {visible.dtype}: "
            "write visible.bool() for a 0/1 mask, visible == 0 for a mask of 0 and -inf"
        )
    if not _broadcasts(visible.shape, shape):
        remedy = ""
        if (visible.ndim, len(shape)) == (3, 4) and _broadcasts(visible[:, None].shape, shape):
            remedy = ": write visible[:, None] for a mask (batch, query, key)"
        if (visible.ndim, len(shape)) == (2, 4) and _broadcasts(visible[:, None, None].shape, shape):
            remedy = ": write visible[:, None, None] for a mask (batch, key)"
        raise ValueError(
            f"visible must broadcast to the scores (..., query, key) = {tuple(shape)}, "
            f"got {tuple(visible.shape)}{remedy}"
        )


def _broadcasts(shape: torch.Size, target: torch.Size) -> bool:
    return 2 <= len(shape) <= len(target) and all(
        size in (1, wanted) for size, wanted in zip(reversed(shape), reversed(target), strict=False)
    )
