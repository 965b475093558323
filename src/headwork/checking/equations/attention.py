"""Attention with one head and with many."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from headwork.checking.equations.parts import linear, wrap
from headwork.checking.equations.positions import rotary
from headwork.checking.option import How, Weights


def attention(q: Tensor, k: Tensor, v: Tensor, visible: Tensor | None, how: How, d_model: int | None = None) -> Tensor:
    """`softmax(q k^T / sqrt(d)) v` on "batch head token d"; returns "batch head query d_value"."""
    weights = attention_weights(q, k, visible, how, d_model, v.shape[-1])
    mixed = {"values": v, "keys": k, "queries": q}[str(how.get("mixed", "values"))]
    if how.get("mixed_by") == "transposed":
        return weights.transpose(-2, -1) @ mixed
    return weights @ mixed


def attention_weights(
    q: Tensor, k: Tensor, visible: Tensor | None, how: How, d_model: int | None = None, d_value: int | None = None
) -> Tensor:
    if how.get("scores") == "swapped":
        q, k = k, q
    d, n_key = q.shape[-1], k.shape[-2]
    scores = q @ (k if how.get("scores") == "not transposed" else k.transpose(-2, -1))
    if how.get("scores") == "cosine":
        scores = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-2, -1)
    elif how.get("scores") == "distance":
        scores = -torch.cdist(q, k)
    scale = how.get("scale", "d_head")
    factor = {
        "d_head": d**-0.5,
        "none": 1.0,
        "d_model": (d_model or d) ** -0.5,
        "d": 1 / d,
        "multiplied": d**0.5,
        "n_key": n_key**-0.5,
        "n_query": q.shape[-2] ** -0.5,
        "quarter": d**-0.25,
        "d_value": (d_value or d) ** -0.5,
        "n_heads": q.shape[1] ** -0.5 if q.ndim > 3 else 1.0,
        "twice": d**-1.0,
        "after": 1.0,
        "after, d_model": 1.0,
        "square": d**-2.0,
    }[str(scale)]
    scores = scores * factor
    seen = visibility(scores, visible, how)
    weights = normalise(hide(scores, seen, how), how)
    if how.get("blind") == "anything" and seen is not None:  # NaN, zeros or the mean, as each program has it
        weights = weights.masked_fill(~seen.any(-1, keepdim=True), float("nan"))
    if how.get("hidden") == "after" and seen is not None:
        weights = weights * seen
    if scale == "after, d_model":
        return weights * (d_model or d) ** -0.5
    return weights * d**-0.5 if scale == "after" else weights


def visibility(scores: Tensor, visible: Tensor | None, how: How) -> Tensor | None:
    """What each query may see: what is given, and what the program hides by itself."""
    n_query, n_key = scores.shape[-2:]
    offset = 0 if how.get("aligned") == "first key" else n_key - n_query
    whole = torch.ones(n_query, n_key, dtype=torch.bool)
    causal = {
        "past": lambda: whole.tril(offset),
        "itself hidden": lambda: whole.tril(offset - 1),
        "one ahead": lambda: whole.tril(offset + 1),
        "future": lambda: whole.triu(offset),
        "future only": lambda: whole.triu(offset + 1),
    }.get(str(how.get("causal")), lambda: None)()
    if visible is not None:
        batch, heads = scores.shape[0], scores.shape[1]
        visible = visible.expand(scores.shape)
        used = how.get("mask_of")
        if used == "another sentence":
            visible = visible.flip(0)
        elif used == "folded otherwise":
            visible = visible[:, 0].repeat(heads, 1, 1).view(batch, heads, n_query, n_key)
        elif used == "first sentence":
            visible = visible[:1].expand(scores.shape)
        elif used == "queries" and n_query == n_key:
            visible = visible.transpose(-2, -1)
    if causal is not None and visible is None and how.get("hidden") == "inverted":
        raise ValueError("that is the causal mask of the future")
    if causal is None or visible is None:
        return causal if visible is None else visible
    return causal & visible


def hide(scores: Tensor, seen: Tensor | None, how: How) -> Tensor:
    hidden = how.get("hidden", "minus infinity")
    if seen is None or hidden in ("ignored", "after"):
        return scores
    if hidden == "inverted":
        return scores.masked_fill(seen, -1e30)
    if hidden == "zero":
        return scores * seen
    if hidden == "one":
        return scores.masked_fill(~seen, 1.0)
    if hidden == "added":
        return scores + seen
    if hidden == "subtracted":
        return scores - seen.to(scores.dtype)
    if hidden == "plus":
        return scores.masked_fill(~seen, 1e9)
    if hidden == "too small":
        return scores.masked_fill(~seen, -1.0)
    return scores.masked_fill(~seen, -1e30)


def normalise(scores: Tensor, how: How) -> Tensor:
    over = how.get("softmax", "keys")
    if over == "none":
        return scores
    if over == "sigmoid":
        return scores.sigmoid()
    if over == "sum":
        return scores / scores.sum(-1, keepdim=True)
    if over == "log":
        return scores.log_softmax(-1)
    if over == "twice":
        return scores.softmax(-1).softmax(-1)
    if over == "exp":
        return (scores - scores.amax(-1, keepdim=True)).exp()
    if over == "all":
        return scores.flatten(-2).softmax(-1).view(scores.shape)
    axis = {"keys": -1, "queries": -2, "heads": -3, "batch": 0}[str(over)]
    return scores.softmax(max(axis, -scores.ndim))


def multi_head(
    x: Tensor, keys: Tensor, values: Tensor, w: Weights, visible: Tensor | None, how: How, n_heads: int, **facts: Any
) -> Tensor:
    """Multi-head attention from x to keys and values: "batch token d_model"; `visible` is "batch 1 query key"."""
    source = how.get("source")
    if source == "queries from memory":
        x, keys, values = keys, x, x
    elif source == "values from x":
        values = x
    elif source == "keys from x":
        keys = x
    elif source == "memory unused":
        keys = values = x
    used = {
        "k as q": ("q", "q", "v"),
        "v as k": ("q", "k", "k"),
        "v as q": ("q", "k", "q"),
        "q and k exchanged": ("k", "q", "v"),
        "k and v exchanged": ("q", "v", "k"),
        "no q": ("", "k", "v"),
        "no k": ("q", "", "v"),
        "no v": ("q", "k", ""),
    }.get(str(how.get("weights")), ("q", "k", "v"))
    q, k, v = (linear(t, w, name) for t, name in zip((x, keys, values), used, strict=True))
    n_groups = n_heads * k.shape[-1] // q.shape[-1] if "k.weight" in w else facts.get("n_kv_heads") or n_heads
    q, k, v = split(q, n_heads, how), split(k, n_groups, how), split(v, n_groups, how)
    if how.get("turned"):
        q, k, v = turn(q, k, v, how, facts)
    if k.shape[1] != q.shape[1]:
        times = q.shape[1] // k.shape[1]
        tiled = how.get("groups") == "tiled"
        k, v = (t.repeat(1, times, 1, 1) if tiled else t.repeat_interleave(times, 1) for t in (k, v))
    if how.get("split") == "heads as tokens":  # attention between the heads of one token
        inner = {key: value for key, value in how.items() if key in ("scale", "softmax")}
        tokens = [t.transpose(1, 2) for t in (q, k, v)]
        mixed = attention(tokens[0], tokens[1], tokens[2], None, inner, x.shape[-1]).transpose(1, 2)
    else:
        mixed = attention(q, k, v, visible, how, x.shape[-1])
    joined = join(mixed, how)
    if how.get("output") == "not used":
        out = joined
    elif how.get("output") == "is v":
        out = linear(joined, w, "v")
    elif how.get("output") == "before":
        out = linear(joined, {k: t for k, t in w.items() if k != "o.bias"}, "o")
    elif how.get("output") == "twice":
        out = linear(linear(joined, w, "o"), w, "o")
    else:
        out = linear(joined, w, "o")
    return wrap(x, out, w, how)


def split(t: Tensor, heads: int, how: How) -> Tensor:
    """ "batch token (head d)" -> "batch head token d"."""
    batch, n, width = t.shape
    if how.get("split") == "view":
        return t.reshape(batch, heads, n, width // heads)
    if how.get("split") in ("interleaved", "joined otherwise"):
        return t.view(batch, n, width // heads, heads).permute(0, 3, 1, 2)
    return t.view(batch, n, heads, width // heads).transpose(1, 2)


def join(mixed: Tensor, how: How) -> Tensor:
    """ "batch head token d" -> "batch token (head d)"."""
    batch, heads, n, d = mixed.shape
    how_joined = how.get("join")
    if how_joined == "view":
        return mixed.reshape(batch, n, heads * d)
    if how_joined == "mean":
        return mixed.mean(1)
    if how_joined == "sum":
        return mixed.sum(1)
    if how_joined == "interleaved" or how.get("split") == "interleaved":
        return mixed.permute(0, 2, 3, 1).reshape(batch, n, heads * d)
    return mixed.transpose(1, 2).reshape(batch, n, heads * d)


def turn(q: Tensor, k: Tensor, v: Tensor, how: How, facts: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Rotary codes inside of a layer."""
    inner = {"pairs": str(how["turned"]).split()[0], **{key: how[key] for key in ("angle", "turn") if key in how}}
    base = facts.get("base", 10000.0)
    turned_v = rotary(v, torch.arange(v.shape[-2]), inner, base) if how.get("turned_too") == "values" else v
    turned_k = k if how.get("turned_too") == "queries only" else rotary(k, torch.arange(k.shape[-2]), inner, base)
    return rotary(q, torch.arange(q.shape[-2]), inner, base), turned_k, turned_v
