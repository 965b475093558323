"""Multi-head attention: one module for self- and cross-attention, causal or not, cached or not."""

import math
from functools import partial

import torch
from einops import rearrange
from jaxtyping import Bool, Float
from torch import Tensor, nn

from headwork import choices
from headwork.checks import check_positive, check_probability
from headwork.functional.attention import (
    LARGEST_BETA_FOR_A_SUM,
    attention_scores,
    attention_weights,
    check_beta,
    check_visible,
    hide_future,
    hide_unseen,
    softargmax,
)
from headwork.functional.fused import fused_attention
from headwork.functional.processor import check_products
from headwork.layers.cache import AttentionCache, KeysAndValues
from headwork.layers.hook_point import HookPoint, LazyHookPoint
from headwork.layers.linear import HeadwiseLinear, linear
from headwork.layers.positions import RelativeShifts, Rotation


class MultiHeadAttention(nn.Module):
    """Attend from x to memory; self-attention is `memory=x`.

    Widths are per head: `d_head` for queries and keys, `d_value` for values, both d_model / n_heads unless given.
    Dropout acts on the weights that flow on, never on the weights that are shown.

    >>> attention = MultiHeadAttention(d_model=8, n_heads=2)
    >>> x = torch.randn(1, 5, 8)
    >>> attention(x, x, causal=True).shape
    torch.Size([1, 5, 8])
    """

    axes = "batch query d_model"

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        *,
        d_head: int | None = None,
        d_value: int | None = None,
        d_memory: int | None = None,
        n_kv_heads: int | None = None,
        bias: bool = True,
        out_bias: bool | None = None,
        beta: float | None = None,
        dropout: float = 0.0,
        relative: RelativeShifts | None = None,
    ) -> None:
        super().__init__()
        check_positive(d_model=d_model, n_heads=n_heads, d_head=d_head, d_value=d_value, n_kv_heads=n_kv_heads)
        check_positive(d_memory=d_memory)
        check_probability(dropout=dropout)
        if (d_head is None or d_value is None) and d_model % n_heads:
            raise ValueError(f"n_heads must divide d_model, got n_heads={n_heads} and d_model={d_model}")
        n_kv_heads = n_heads if n_kv_heads is None else n_kv_heads
        if n_heads % n_kv_heads:
            raise ValueError(f"n_kv_heads must divide n_heads, got n_kv_heads={n_kv_heads} and n_heads={n_heads}")
        d_head = d_model // n_heads if d_head is None else d_head
        d_value = d_model // n_heads if d_value is None else d_value
        d_memory = d_model if d_memory is None else d_memory

        self.d_model, self.d_memory = d_model, d_memory
        self.n_heads, self.n_kv_heads = n_heads, n_kv_heads
        self.d_head, self.d_value = d_head, d_value
        self.beta = 1 / math.sqrt(d_head) if beta is None else beta
        check_beta(self.beta)
        self.dropout = dropout

        self.query: nn.Module = linear(d_model, n_heads * d_head, bias=bias)
        self.key: nn.Module = linear(d_memory, n_kv_heads * d_head, bias=bias)
        self.value: nn.Module = linear(d_memory, n_kv_heads * d_value, bias=bias)
        self.out = linear(n_heads * d_value, d_model, bias=bias if out_bias is None else out_bias)
        self.relative = relative

        kv_head = "head" if n_kv_heads == n_heads else "kv_head"
        self.queries = HookPoint("batch query head d_head")
        self.keys = HookPoint(f"batch key {kv_head} d_head")
        self.values = HookPoint(f"batch key {kv_head} d_value")
        self.scores = LazyHookPoint("batch head query key")
        self.weights = LazyHookPoint("batch head query key")
        self.heads = HookPoint("batch query head d_value")

    def forward(
        self,
        x: Float[Tensor, "batch query d_model"],
        memory: Float[Tensor, "batch key d_memory"],
        visible: Bool[Tensor, "#batch #head #query #seen"] | Bool[Tensor, "#query #seen"] | None = None,
        *,
        causal: bool = False,
        bias: Float[Tensor, "#batch #head #query #seen"] | None = None,
        rotation: Rotation | None = None,
        cache: AttentionCache | None = None,
    ) -> Float[Tensor, "batch query d_model"]:
        self._check(x, memory, visible, cache)
        check_products(x)
        q = rearrange(self.query(x), "batch query (head d) -> batch query head d", head=self.n_heads)
        q = turn(rearrange(self.queries(q), "batch query head d -> batch head query d"), rotation)
        if cache is not None:
            k, v = cache(partial(self._project, memory, rotation))
        else:
            if causal and visible is not None:
                visible, causal = hide_future(visible, x, memory), False
            k, v = self._project(_hide_unseen_tokens(memory, visible), rotation)
        heads = self._attend(q, *self._for_each_query_head(k, v), visible, causal, bias)
        heads = self.heads(rearrange(heads, "batch head query d -> batch query head d"))
        return self.out(rearrange(heads, "batch query head d -> batch query (head d)"))

    def _project(self, memory: Tensor, rotation: Rotation | None) -> KeysAndValues:
        k = rearrange(self.key(memory), "batch key (head d) -> batch key head d", head=self.n_kv_heads)
        v = rearrange(self.value(memory), "batch key (head d) -> batch key head d", head=self.n_kv_heads)
        k = rearrange(self.keys(k), "batch key head d -> batch head key d")
        v = rearrange(self.values(v), "batch key head d -> batch head key d")
        return turn(k, rotation), v

    def _for_each_query_head(self, k: Tensor, v: Tensor) -> KeysAndValues:
        if self.n_kv_heads == self.n_heads:
            return k, v
        group = self.n_heads // self.n_kv_heads
        return k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)

    def _attend(
        self, q: Tensor, k: Tensor, v: Tensor, visible: Tensor | None, causal: bool, bias: Tensor | None
    ) -> Float[Tensor, "batch head query d_value"]:
        if self.relative is not None:
            q, shift_bias = self.relative(q, k.shape[2], self.beta)
            bias = shift_bias if bias is None else bias + shift_bias
        scores = partial(scaled_scores, q, k, self.beta, bias)
        weights = partial(attention_weights, q, k, visible=visible, causal=causal, bias=bias, beta=self.beta)
        dropout = self.dropout if self.training else 0.0
        new_scores = self.scores.publish(scores)
        if new_scores is not None:
            beta = 1.0 if self.beta < math.inf else math.inf
            weights = partial(softargmax, new_scores, beta, hide_future(visible, q, k) if causal else visible)
        new_weights = self.weights.publish(weights)
        if new_scores is None and new_weights is None and self.beta <= LARGEST_BETA_FOR_A_SUM:
            return fused_attention(q, k, v, visible=visible, causal=causal, bias=bias, beta=self.beta, dropout=dropout)
        (v,) = hide_unseen(visible, v)
        return nn.functional.dropout(weights() if new_weights is None else new_weights, dropout) @ v

    def _check(self, x: Tensor, memory: Tensor, visible: Tensor | None, cache: AttentionCache | None) -> None:
        for name, t, width in (("x", x, self.d_model), ("memory", memory, self.d_memory)):
            if t.ndim != 3 or t.shape[1] == 0 or t.shape[2] != width:
                raise ValueError(
                    f"{name} must have the axes (batch, token, {width}) and at least one token, "
                    f"got shape {tuple(t.shape)}"
                )
            if not t.is_floating_point():
                raise TypeError(f"{name} must hold real numbers, got dtype {t.dtype}")
        if len(x) != len(memory):
            raise ValueError(f"x and memory must have the same batch size, got {len(x)} and {len(memory)}")
        if visible is not None and visible.ndim not in (2, 4):
            raise ValueError(
                "visible must have the axes (query, key) or (batch, head, query, key), each full or 1, "
                f"got shape {tuple(visible.shape)}"
            )
        if cache is None:
            check_visible(visible, torch.Size((len(x), self.n_heads, x.shape[1], memory.shape[1])))


class SplitHeadAttention(MultiHeadAttention):
    """The heads of the C182 sheet: head i projects only its own slice X_i of the token, not the whole token.

    The projections of queries, keys and values shrink from d^2 to d^2 / n_heads numbers each, and features of
    different slices meet only in the output projection.

    >>> x = torch.randn(1, 5, 8)
    >>> SplitHeadAttention(d_model=8, n_heads=2)(x, x).shape
    torch.Size([1, 5, 8])
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        *,
        bias: bool = True,
        beta: float | None = None,
        dropout: float = 0.0,
        relative: RelativeShifts | None = None,
    ) -> None:
        super().__init__(d_model, n_heads, bias=bias, beta=beta, dropout=dropout, relative=relative)
        self.query = HeadwiseLinear(d_model, n_heads, bias=bias)
        self.key = HeadwiseLinear(d_model, n_heads, bias=bias)
        self.value = HeadwiseLinear(d_model, n_heads, bias=bias)


def make_attention(
    choice: choices.AnyHeads,
    d_model: int,
    *,
    position: choices.TextPositions | choices.GridPositions = choices.NoPositions(),
    dropout: float = 0.0,
) -> MultiHeadAttention:
    match choice:
        case choices.Heads():
            attention = MultiHeadAttention(
                d_model,
                choice.n_heads,
                d_head=choice.d_head,
                d_value=choice.d_value,
                n_kv_heads=choice.n_kv_heads,
                bias=choice.bias,
                out_bias=choice.out_bias,
                beta=choice.beta,
                dropout=dropout,
            )
        case choices.SplitHeads():
            attention = SplitHeadAttention(d_model, choice.n_heads, bias=choice.bias, dropout=dropout)
    if isinstance(position, choices.RelativePositions):
        attention.relative = RelativeShifts(d_model, attention.n_heads, attention.d_head)
    return attention


def scaled_scores(
    q: Float[Tensor, "batch head query d_head"],
    k: Float[Tensor, "batch head key d_head"],
    beta: float,
    bias: Float[Tensor, "#batch #head #query #key"] | None,
) -> Float[Tensor, "batch head query key"]:
    """What the softargmax is taken of; for hard attention (beta=inf) the scores without scale."""
    scores = attention_scores(q, k)
    if beta < math.inf:
        scores = beta * scores
    return (scores if bias is None else scores + bias).to(q.dtype)


def turn(x: Float[Tensor, "batch head token d"], rotation: Rotation | None) -> Float[Tensor, "batch head token d"]:
    return x if rotation is None else rotation(x)


def _hide_unseen_tokens(memory: Tensor, visible: Tensor | None) -> Float[Tensor, "batch key d_memory"]:
    """Zeros in place of the tokens that no head and no query may see: not even a NaN passes the projections."""
    if visible is None:
        return memory
    seen = visible.any(0) if visible.ndim == 2 else visible.any(2).any(1)
    return memory.masked_fill(~seen[..., None], 0.0)
