"""Multi-head attention: one module for self- and cross-attention, causal or not, cached or not."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from headwork import choices, masks
from headwork.checks import check_above_zero, check_divides, check_positive, check_probability
from headwork.functional.attention import (
    LARGEST_BETA_FOR_A_SUM,
    attention_scores,
    attention_weights,
    check_beta,
    check_beta_of_sum,
    check_bias_dtype,
    check_visible,
    hide_future,
    hide_unseen,
    scaled_dot_product_attention,
    softargmax,
)
from headwork.functional.fused import fused_attention
from headwork.functional.processor import check_products
from headwork.functional.soft_cap import capped_attention, capped_attention_weights, soft_cap
from headwork.layers.cache import AttentionCache, FixedCache, GrowingCache, KeysAndValues
from headwork.layers.hook_point import HookPoint, LazyHookPoint
from headwork.layers.linear import HeadwiseLinear, OneToken, affine, linear
from headwork.layers.norm import AnyNorm, make_norm
from headwork.layers.positions import LearnedShifts, RelativeShifts, Rotation

OF_OTHERS = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "o_proj": "out", "out_proj": "out"}
"""What the four maps are called in many other modules, whose state dicts can be loaded."""


class MultiHeadAttention(nn.Module):
    """Attend from x to itself, or to a memory: softargmax(beta q k^T) v for each head, then a linear map of all heads.

    Queries are made from x, keys from the memory, values from the memory or from `values`. The inputs have the widths
    `d_model`, `d_memory` (d_model unless given) and `d_values` (d_memory unless given), the output has `d_out` (d_model
    unless given). Each head has `d_head` features for queries and keys and `d_value` for values, both d_model / n_heads
    unless given. Queries and keys are normalised if `qk_norm` says how; a query sees only the keys that are less than
    `window` tokens away. Dropout acts on the weights that flow on, never on the weights that are shown. With fewer
    `n_kv_heads` than `n_heads` it is grouped-query attention (GQA; multi-query with one): neighbouring heads of queries
    share a head of keys and values.

    >>> attention = MultiHeadAttention(d_model=8, n_heads=2)
    >>> x = torch.randn(1, 5, 8)
    >>> attention(x, causal=True).shape
    torch.Size([1, 5, 8])
    >>> attention(x, torch.randn(1, 7, 8)).shape  # cross-attention
    torch.Size([1, 5, 8])
    """

    axes = "batch query d_model"
    operation = "attention"
    operation_inside = "projections"

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        *,
        d_head: int | None = None,
        d_value: int | None = None,
        d_memory: int | None = None,
        d_values: int | None = None,
        d_out: int | None = None,
        n_kv_heads: int | None = None,
        bias: bool = True,
        out_bias: bool | None = None,
        beta: float | None = None,
        dropout: float = 0.0,
        relative: RelativeShifts | None = None,
        qk_norm: choices.QKNorm | None = None,
        window: int | None = None,
    ) -> None:
        super().__init__()
        check_positive(
            window=window, d_model=d_model, n_heads=n_heads, d_head=d_head, d_value=d_value, n_kv_heads=n_kv_heads
        )
        check_positive(d_memory=d_memory, d_values=d_values, d_out=d_out)
        check_probability(dropout=dropout)
        if d_head is None or d_value is None:
            check_divides(n_heads=n_heads, d_model=d_model)
        n_kv_heads = n_heads if n_kv_heads is None else n_kv_heads
        check_divides(n_kv_heads=n_kv_heads, n_heads=n_heads)
        d_head = d_model // n_heads if d_head is None else d_head
        d_value = d_model // n_heads if d_value is None else d_value
        d_memory = d_model if d_memory is None else d_memory

        self.d_model, self.d_memory = d_model, d_memory
        self.d_values = d_memory if d_values is None else d_values
        self.d_out = d_model if d_out is None else d_out
        if self.d_out != d_model:
            self.axes = "batch query d_out"
        self.n_heads, self.n_kv_heads = n_heads, n_kv_heads
        self.d_head, self.d_value = d_head, d_value
        self.beta = 1 / math.sqrt(d_head) if beta is None else beta
        check_beta(self.beta)
        if relative is not None:
            check_beta_of_sum(self.beta)
        self.dropout = dropout

        self.query: nn.Module = linear(d_model, n_heads * d_head, bias=bias)
        self.key: nn.Module = linear(d_memory, n_kv_heads * d_head, bias=bias)
        self.value: nn.Module = linear(self.d_values, n_kv_heads * d_value, bias=bias)
        self.relative, self.window, self.qk_norm = relative, window, qk_norm
        self.query_norm = None if qk_norm is None else _make_qk_norm(qk_norm, n_heads, d_head)
        self.key_norm = None if qk_norm is None else _make_qk_norm(qk_norm, n_kv_heads, d_head)
        self.value_residual: nn.Module | None = None
        """What a stack adds to the values, see `headwork.layers.value_residual`."""
        kv_head = "head" if n_kv_heads == n_heads else "kv_head"
        self.queries = HookPoint("batch query head d_head")
        self.keys = HookPoint(f"batch key {kv_head} d_head")
        self.values = HookPoint(f"batch key {kv_head} d_value")
        self.rotated_queries = HookPoint("batch query head d_head")
        self.rotated_keys = HookPoint(f"batch key {kv_head} d_head")
        self.scores = LazyHookPoint("batch head query key")
        self.weights = LazyHookPoint("batch head query key")
        self.heads = HookPoint("batch query head d_value")
        self.out = linear(n_heads * d_value, self.d_out, bias=bias if out_bias is None else out_bias)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """A state dict with the names of others becomes one with ours, before PyTorch reads it."""
        for theirs, ours in OF_OTHERS.items():
            for part in ("weight", "bias"):
                name, own = f"{prefix}{theirs}.{part}", f"{prefix}{ours}.{part}"
                if name in state_dict and own not in state_dict:
                    state_dict[own] = state_dict.pop(name)
        super()._load_from_state_dict(state_dict, prefix, *args)

    def forward(
        self,
        x: Float[Tensor, "batch query d_model"],
        memory: Float[Tensor, "batch key d_memory"] | None = None,
        visible: Bool[Tensor, "#batch #head #query #seen"] | Bool[Tensor, "#query #seen"] | None = None,
        *,
        values: Float[Tensor, "batch key d_values"] | None = None,
        causal: bool = False,
        bias: Float[Tensor, "#batch #head #query #seen"] | None = None,
        rotation: Rotation | None = None,
        cache: AttentionCache | None = None,
    ) -> Float[Tensor, "batch query d_out"]:
        """Without a memory, x attends to itself. `values` are inputs of their own for the values, one for each key.

        `visible` (True = may attend) and `causal` hide keys; `bias` is added to the scaled scores; `rotation` rotates
        queries and keys. With a cache, mask and bias cover the keys of the past as well.
        """
        memory = x if memory is None else memory
        values = memory if values is None else values
        self._check(x, memory, values, visible, bias, cache)
        check_products(x)
        q = self._split(self.query(x), self.n_heads, self.query_norm)
        q = self._rotate(self.queries(q), rotation, self.rotated_queries)
        if cache is not None:
            k, v = cache(partial(self._project, memory, values, rotation))
        else:
            if causal and visible is not None:
                visible, causal = hide_future(visible, x, memory), False
            seen = _hide_unseen_tokens(memory, visible)
            k, v = self._project(seen, seen if values is memory else _hide_unseen_tokens(values, visible), rotation)
        if self.window is not None:
            visible = _hide_distant(visible, q, k, self.window)
        heads = self._attend(q, *self._for_each_query_head(k, v), visible, causal, bias)
        return self.out(self.heads(heads.transpose(1, 2)).flatten(2))

    def one_token(self) -> OneToken:
        """The same for one new token of each row: (x, visible, bias, rotation, cache), with heads split by a view.

        The new key and value join the cache; a `FixedCache` has those of the memory already.
        """
        query, key = self._split_one(self.query, self.query_norm), self._split_one(self.key, self.key_norm)
        value, out, residual = affine(self.value), affine(self.out), self.value_residual
        n_heads, n_kv_heads, d_head, d_value, beta = self.n_heads, self.n_kv_heads, self.d_head, self.d_value, self.beta
        relative, window, is_fused, attend_hidden = self.relative, self.window, self._is_fused(), self._attention()

        def attend(
            x: Tensor,
            visible: Tensor | None,
            bias: Tensor | None,
            rotation: Rotation | None,
            cache: GrowingCache | FixedCache,
        ) -> Tensor:
            q = query(x)
            if isinstance(cache, FixedCache):
                k, v = cache.known()
            else:
                k, v = key(x), value(x).view(-1, n_kv_heads, 1, d_value)
                v = v if residual is None else residual(v)
                if rotation is not None:
                    q, k = rotation.rotate(q), rotation.rotate(k)
                k, v = cache.append(k, v)
            if window is not None and k.shape[2] > window:
                k, v = k[:, :, -window:], v[:, :, -window:]
                visible, bias = (None if t is None else t[..., -window:] for t in (visible, bias))
            if relative is not None:
                q, bias = add_relative(relative, q, k.shape[2], beta, bias)
            if n_kv_heads < n_heads:  # the heads that share a key become its queries: no key is copied
                q = q.view(-1, n_kv_heads, n_heads // n_kv_heads, d_head)
                if bias is not None and bias.shape[1] > 1:
                    bias = bias.reshape(len(bias), n_kv_heads, -1, bias.shape[3])
            if visible is None and bias is None and is_fused:
                heads = nn.functional.scaled_dot_product_attention(q, k, v, scale=beta)
            else:
                heads = attend_hidden(q, k, v, visible=visible, bias=bias, beta=beta)
            return out(heads.reshape(-1, n_heads * d_value))

        return attend

    def _project(self, memory: Tensor, values: Tensor, rotation: Rotation | None) -> KeysAndValues:
        k = self._split(self.key(memory), self.n_kv_heads, self.key_norm)
        v = split_heads(self.value(values), self.n_kv_heads)
        v = v if self.value_residual is None else self.value_residual(v)
        k = self._rotate(self.keys(k), rotation, self.rotated_keys)
        return k, self.values(v).transpose(1, 2)

    def _split(
        self, x: Float[Tensor, "batch token d"], n_heads: int, norm: nn.Module | None
    ) -> Float[Tensor, "batch token head d_head"]:
        """The heads of queries or keys, normalised each by itself or all together."""
        if norm is None:
            return split_heads(x, n_heads)
        if self.qk_norm is not None and not self.qk_norm.per_head:
            return split_heads(norm(x), n_heads)
        return norm(split_heads(x, n_heads))

    def _split_one(self, projection: nn.Module, norm: AnyNorm | None) -> OneToken:
        """The same for one token in each row, [batch head 1 d_head]."""
        project, d_head = affine(projection), self.d_head
        n_heads = self.n_heads if projection is self.query else self.n_kv_heads
        if norm is None:
            return lambda x: project(x).view(-1, n_heads, 1, d_head)
        normalise = norm.one_token()
        if self.qk_norm is not None and not self.qk_norm.per_head:
            return lambda x: normalise(project(x)).view(-1, n_heads, 1, d_head)
        return lambda x: normalise(project(x).view(-1, n_heads, 1, d_head))

    def _rotate(
        self, x: Tensor, rotation: Rotation | None, rotated: HookPoint
    ) -> Float[Tensor, "batch head token d_head"]:
        """Heads first, and rotated if there is a rotation; only then the hook point is passed."""
        x = x.transpose(1, 2)
        return x if rotation is None else rotated(rotation.rotate(x).transpose(1, 2)).transpose(1, 2)

    def _for_each_query_head(self, k: Tensor, v: Tensor) -> KeysAndValues:
        """Grouped-query attention: each head of keys and values once for every head of queries that shares it."""
        if self.n_kv_heads == self.n_heads:
            return k, v
        group = self.n_heads // self.n_kv_heads
        return k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)

    def _attend(
        self, q: Tensor, k: Tensor, v: Tensor, visible: Tensor | None, causal: bool, bias: Tensor | None
    ) -> Float[Tensor, "batch head query d_value"]:
        if self.relative is not None:
            q, bias = add_relative(self.relative, q, k.shape[2], self.beta, bias)
        scores = partial(self._scores, q, k, bias, visible, causal)
        weights = partial(self._weights, q, k, bias, visible, causal)
        dropout = self.dropout if self.training else 0.0
        new_scores = self.scores.publish(scores)
        if new_scores is not None:  # the mask still holds, and a score of -inf hides one more key
            mask = hide_future(visible, q, k) if causal else visible
            not_hidden = new_scores != -math.inf
            beta = 1.0 if self.beta < math.inf else math.inf
            weights = partial(softargmax, new_scores, beta, not_hidden if mask is None else mask & not_hidden)
        new_weights = self.weights.publish(weights)
        if new_scores is None and new_weights is None and self._is_fused():
            return fused_attention(q, k, v, visible=visible, causal=causal, bias=bias, beta=self.beta, dropout=dropout)
        (v,) = hide_unseen(hide_future(visible, q, k) if causal and visible is not None else visible, v)
        return nn.functional.dropout(weights() if new_weights is None else new_weights, dropout) @ v

    def _scores(
        self, q: Tensor, k: Tensor, bias: Tensor | None, visible: Tensor | None, causal: bool
    ) -> Float[Tensor, "batch head query key"]:
        return masked_scores(q, k, self.beta, bias, visible, causal)

    def _weights(
        self, q: Tensor, k: Tensor, bias: Tensor | None, visible: Tensor | None, causal: bool
    ) -> Float[Tensor, "batch head query key"]:
        return attention_weights(q, k, visible=visible, causal=causal, bias=bias, beta=self.beta)

    def _is_fused(self) -> bool:
        """Whether PyTorch's kernel says what this layer says."""
        return self.beta <= LARGEST_BETA_FOR_A_SUM

    def _attention(self) -> Callable[..., Tensor]:
        """From q, k and v to the heads: (q, k, v, visible=, bias=, beta=)."""
        return fused_attention if self._is_fused() else scaled_dot_product_attention

    def _check(
        self,
        x: Tensor,
        memory: Tensor,
        values: Tensor,
        visible: Tensor | None,
        bias: Tensor | None,
        cache: AttentionCache | None,
    ) -> None:
        inputs = (("x", x, self.d_model), ("memory", memory, self.d_memory), ("values", values, self.d_values))
        for name, t, width in inputs:
            if t.dtype == torch.bool:
                raise TypeError(f"{name} must hold real numbers, got a mask: write visible=...")
            if t.ndim != 3 or t.shape[1] == 0 or t.shape[2] != width:
                raise ValueError(
                    f"{name} must have the axes (batch, token, {width}) and at least one token, "
                    f"got shape {tuple(t.shape)}"
                )
            if not t.is_floating_point():
                raise TypeError(f"{name} must hold real numbers, got dtype {t.dtype}")
        if x.shape[0] != memory.shape[0]:
            raise ValueError(f"x and memory must have the same batch size, got {x.shape[0]} and {memory.shape[0]}")
        if values.shape[:2] != memory.shape[:2]:
            raise ValueError(
                f"values must have one token for each key, (batch, key) = {tuple(memory.shape[:2])}, "
                f"got shape {tuple(values.shape)}"
            )
        check_bias_dtype(bias)
        if visible is not None and visible.is_floating_point() and visible.shape[-1:] == values.shape[-1:]:
            raise TypeError("visible must be a boolean mask, got real numbers: write values=... for those of values")
        if visible is not None and visible.ndim not in (2, 4):
            remedy = ": write visible[:, None] for a mask (batch, query, key)" if visible.ndim == 3 else ""
            raise ValueError(
                "visible must have the axes (query, key) or (batch, head, query, key), each full or 1, "
                f"got shape {tuple(visible.shape)}{remedy}"
            )
        if cache is None:
            check_visible(visible, torch.Size((x.shape[0], self.n_heads, x.shape[1], memory.shape[1])))


class SplitHeadAttention(MultiHeadAttention):
    """The heads of the C182 sheet: head i projects only its own slice X_i of the token, not the whole token.

    The projections of queries, keys and values shrink from d^2 to d^2 / n_heads numbers each, and features of
    different slices meet only in the output projection.

    >>> x = torch.randn(1, 5, 8)
    >>> SplitHeadAttention(d_model=8, n_heads=2)(x).shape
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


class CappedAttention(MultiHeadAttention):
    """Attention whose scores cannot grow beyond a cap: c tanh(beta q k^T / c), as in Gemma 2. No fused kernel has it.

    >>> x = torch.randn(1, 5, 8)
    >>> CappedAttention(d_model=8, n_heads=2, cap=50.0)(x, causal=True).shape
    torch.Size([1, 5, 8])
    """

    def __init__(self, d_model: int, n_heads: int, *, cap: float, **others: Any) -> None:
        super().__init__(d_model, n_heads, **others)
        check_above_zero(cap=cap)
        check_beta_of_sum(self.beta)
        self.cap = cap

    def one_token(self) -> OneToken:
        return super().one_token()

    def _scores(
        self, q: Tensor, k: Tensor, bias: Tensor | None, visible: Tensor | None, causal: bool
    ) -> Float[Tensor, "batch head query key"]:
        scores = soft_cap(masked_scores(q, k, self.beta, None, None, False), self.cap)
        scores = (scores if bias is None else scores + bias).to(q.dtype)
        visible = hide_future(visible, q, k) if causal else visible
        return scores if visible is None else scores.masked_fill(~visible, -math.inf)

    def _weights(
        self, q: Tensor, k: Tensor, bias: Tensor | None, visible: Tensor | None, causal: bool
    ) -> Float[Tensor, "batch head query key"]:
        return capped_attention_weights(q, k, self.cap, visible=visible, causal=causal, bias=bias, beta=self.beta)

    def _is_fused(self) -> bool:
        return False

    def _attention(self) -> Callable[..., Tensor]:
        return partial(capped_attention, cap=self.cap)


def make_attention(
    choice: choices.AnyHeads,
    d_model: int,
    *,
    position: choices.TextPositions | choices.GridPositions = choices.NoPositions(),
    dropout: float = 0.0,
    window: int | None = None,
) -> MultiHeadAttention:
    match choice:
        case choices.Heads():
            kind = MultiHeadAttention if choice.softcap is None else partial(CappedAttention, cap=choice.softcap)
            attention = kind(
                d_model,
                choice.n_heads,
                d_head=choice.d_head,
                d_value=choice.d_value,
                n_kv_heads=choice.n_kv_heads,
                bias=choice.bias,
                out_bias=choice.out_bias,
                beta=choice.beta,
                dropout=dropout,
                qk_norm=choice.qk_norm,
                window=window,
            )
        case choices.SplitHeads():
            attention = SplitHeadAttention(d_model, choice.n_heads, bias=choice.bias, dropout=dropout)
            attention.window = window
    n_heads, d_head = attention.n_heads, attention.d_head
    if isinstance(position, choices.RelativePositions):
        check_beta_of_sum(attention.beta)
        attention.relative = RelativeShifts(d_model, n_heads, d_head)
    if isinstance(position, choices.LearnedRelativePositions):
        check_beta_of_sum(attention.beta)
        attention.relative = LearnedShifts(n_heads, d_head, position.max_distance, biases=position.biases)
    return attention


def split_heads(x: Float[Tensor, "batch token d_heads"], n_heads: int) -> Float[Tensor, "batch token head d"]:
    return x.reshape(x.shape[0], x.shape[1], n_heads, x.shape[2] // n_heads)  # an empty batch too


def masked_scores(
    q: Float[Tensor, "batch head query d_head"],
    k: Float[Tensor, "batch head key d_head"],
    beta: float,
    bias: Float[Tensor, "#batch #head #query #key"] | None,
    visible: Bool[Tensor, "#batch #head #query #key"] | Bool[Tensor, "#query #key"] | None,
    causal: bool,
) -> Float[Tensor, "batch head query key"]:
    """What the softargmax is taken of: beta q k^T + bias, and -inf where the key is hidden.

    For hard attention (beta=inf) these are the scores without scale.
    """
    scores = attention_scores(q, k)
    if beta < math.inf:
        scores = beta * scores
    scores = (scores if bias is None else scores + bias).to(q.dtype)
    visible = hide_future(visible, q, k) if causal else visible
    return scores if visible is None else scores.masked_fill(~visible, -math.inf)


def add_relative(
    relative: RelativeShifts, q: Tensor, n_key: int, beta: float, bias: Tensor | None
) -> tuple[Float[Tensor, "batch head query d_head"], Float[Tensor, "batch head query key"]]:
    """The queries and the bias with what a relative position code adds to them."""
    q, shift_bias = relative(q, n_key, beta)
    return q, shift_bias if bias is None else bias + shift_bias


def _make_qk_norm(choice: choices.QKNorm, n_heads: int, d_head: int) -> AnyNorm:
    norm = make_norm(choice.norm, d_head if choice.per_head else n_heads * d_head)
    norm.axes = "batch token head d_head" if choice.per_head else "batch token d_heads"
    return norm


def _hide_distant(
    visible: Tensor | None, q: Float[Tensor, "... query _"], k: Float[Tensor, "... key _"], window: int
) -> Tensor | None:
    """What is visible and less than `window` tokens away; nothing is made where all keys are."""
    if k.shape[-2] <= window:
        return visible
    near = masks.window(q.shape[-2], k.shape[-2], window - 1, device=q.device)
    return near if visible is None else near & visible


def _hide_unseen_tokens(memory: Tensor, visible: Tensor | None) -> Float[Tensor, "batch key d"]:
    """Zeros in place of the tokens that no head and no query may see: not even a NaN passes the projections."""
    if visible is None:
        return memory
    seen = visible.any(0) if visible.ndim == 2 else visible.any(2).any(1)
    return memory.masked_fill(~seen[..., None], 0.0)
