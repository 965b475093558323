"""The subjects as equations with options: `how` names what is done otherwise, and everything else is right.

Written for reading beside a student's code, not for speed: plain products in float64. Nothing here checks its input.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

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


def linear(x: Tensor, w: Weights, name: str) -> Tensor:
    """`x W^T + b`; without a weight of that name x itself."""
    if f"{name}.weight" not in w:
        return x
    return F.linear(x, w[f"{name}.weight"], w.get(f"{name}.bias"))


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


def wrap(x: Tensor, out: Tensor, w: Weights, how: How) -> Tensor:
    """Some sublayers add their input and normalise by themselves."""
    wrapped = how.get("wrapped")
    if wrapped == "added":
        return x + out
    if wrapped == "added and normalised":
        return norm(x + out, w, "norm", how)
    return out


def turn(q: Tensor, k: Tensor, v: Tensor, how: How, facts: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Rotary codes inside of a layer."""
    inner = {"pairs": str(how["turned"]).split()[0], **{key: how[key] for key in ("angle", "turn") if key in how}}
    base = facts.get("base", 10000.0)
    turned_v = rotary(v, torch.arange(v.shape[-2]), inner, base) if how.get("turned_too") == "values" else v
    turned_k = k if how.get("turned_too") == "queries only" else rotary(k, torch.arange(k.shape[-2]), inner, base)
    return rotary(q, torch.arange(q.shape[-2]), inner, base), turned_k, turned_v


def norm(x: Tensor, w: Weights, name: str, how: How) -> Tensor:
    weight, bias = w.get(f"{name}.weight"), w.get(f"{name}.bias")
    eps: float = w.get("eps", 1e-5)
    kind = w.get("norm_kind", "layer")
    return rms_norm(x, weight, eps, how) if kind == "rms" else layer_norm(x, weight, bias, eps, how)


def layer_norm(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, how: How) -> Tensor:
    """`(x - mean) / sqrt(var + eps) * weight + bias`, over the last axis."""
    axes = {
        "tokens": (-2,),
        "batch": (0,),
        "all but the batch": tuple(range(1, x.ndim)),
        "everything": tuple(range(x.ndim)),
    }
    axis = axes.get(str(how.get("axis")), (-1,))
    form = how.get("form")
    mean = x.mean(axis, keepdim=True)
    centred = x - mean
    biased = centred.square().mean(axis, keepdim=True)
    unbiased = x.var(axis, keepdim=True, correction=1)
    below = {
        None: (biased + eps).sqrt(),
        "annotated": unbiased.sqrt() + eps,
        "unbiased": (unbiased + eps).sqrt(),
        "eps outside": biased.sqrt() + eps,
        "no eps": biased.sqrt(),
        "no eps, unbiased": unbiased.sqrt(),
        "no root": biased + eps,
        "no root, unbiased": unbiased + eps,
        "not centred": (biased + eps).sqrt(),
        "mean square": (x.square().mean(axis, keepdim=True) + eps).sqrt(),
        "eps squared": (biased + eps**2).sqrt(),
        "sum": (centred.square().sum(axis, keepdim=True) + eps).sqrt(),
    }[form if form is None else str(form)]
    normal = (x if form == "not centred" else centred) / below
    return affine(normal, weight, bias, how)


def affine(normal: Tensor, weight: Tensor | None, bias: Tensor | None, how: How) -> Tensor:
    gain = how.get("gain")
    if gain == "not used":
        weight = None
    elif gain == "one more" and weight is not None:
        weight = weight + 1
    if how.get("offset") == "not used":
        bias = None
    if gain == "bias first" and weight is not None and bias is not None:
        return (normal + bias) * weight
    if gain == "exchanged" and weight is not None and bias is not None:
        return normal * bias + weight
    if gain == "divided" and weight is not None:
        normal, weight = normal / weight, None
    out = normal if weight is None else normal * weight
    if bias is None:
        return out
    return out - bias if how.get("offset") == "subtracted" else out + bias


def rms_norm(x: Tensor, weight: Tensor | None, eps: float, how: How) -> Tensor:
    """`x / sqrt(mean(x^2) + eps) * weight`, over the last axis."""
    axes = {
        "tokens": (-2,),
        "batch": (0,),
        "all but the batch": tuple(range(1, x.ndim)),
        "everything": tuple(range(x.ndim)),
    }
    axis = axes.get(str(how.get("axis")), (-1,))
    form = how.get("form")
    square = x.square().mean(axis, keepdim=True)
    centred = x - x.mean(axis, keepdim=True)
    below = {
        None: (square + eps).sqrt(),
        "eps outside": square.sqrt() + eps,
        "no eps": square.sqrt(),
        "no root": square + eps,
        "sum": (x.square().sum(axis, keepdim=True) + eps).sqrt(),
        "eps squared": (square + eps**2).sqrt(),
        "centred": (centred.square().mean(axis, keepdim=True) + eps).sqrt(),
        "variance": (centred.square().mean(axis, keepdim=True) + eps).sqrt(),
        "mean of sizes": x.abs().mean(axis, keepdim=True) + eps,
        "multiplied": 1 / (square + eps).sqrt(),
    }[form if form is None else str(form)]
    return affine((centred if form == "centred" else x) / below, weight, None, how)


def gelu(x: Tensor, how: How) -> Tensor:
    """`x Phi(x)`, by erf or by tanh."""
    form = str(how.get("form", "erf"))
    cubic = 0.044715 * x**3
    root = math.sqrt(2 / math.pi)
    return {
        "erf": lambda: 0.5 * x * (1 + torch.erf(x / math.sqrt(2))),
        "tanh": lambda: 0.5 * x * (1 + torch.tanh(root * (x + cubic))),
        "sigmoid": lambda: x * torch.sigmoid(1.702 * x),
        "constant": lambda: 0.5 * x * (1 + torch.tanh(root * (x + 0.44715 * x**3))),
        "constant, ten times too small": lambda: 0.5 * x * (1 + torch.tanh(root * (x + 0.0044715 * x**3))),
        "no cube": lambda: 0.5 * x * (1 + torch.tanh(root * (x + 0.044715 * x**2))),
        "cube left out": lambda: 0.5 * x * (1 + torch.tanh(root * x)),
        "cube scaled alone": lambda: 0.5 * x * (1 + torch.tanh(root * x + cubic)),
        "root of pi/2": lambda: 0.5 * x * (1 + torch.tanh(math.sqrt(math.pi / 2) * (x + cubic))),
        "no root of 2/pi": lambda: 0.5 * x * (1 + torch.tanh(2 / math.pi * (x + cubic))),
        "erf without root": lambda: 0.5 * x * (1 + torch.erf(x)),
        "erf over 2": lambda: 0.5 * x * (1 + torch.erf(x / 2)),
        "erf times root": lambda: 0.5 * x * (1 + torch.erf(x * math.sqrt(2))),
        "no half": lambda: x * (1 + torch.erf(x / math.sqrt(2))),
        "no half, tanh": lambda: x * (1 + torch.tanh(root * (x + cubic))),
        "no x": lambda: 0.5 * (1 + torch.erf(x / math.sqrt(2))),
        "no one": lambda: 0.5 * x * torch.erf(x / math.sqrt(2)),
        "minus": lambda: 0.5 * x * (1 - torch.erf(x / math.sqrt(2))),
        "density": lambda: x * torch.exp(-x * x / 2) / math.sqrt(2 * math.pi),
        "relu": lambda: x.relu(),
        "silu": lambda: x * torch.sigmoid(x),
    }[form]()


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "gelu": lambda x: gelu(x, {}),
    "gelu tanh": lambda x: gelu(x, {"form": "tanh"}),
    "silu": F.silu,
    "squared relu": lambda x: torch.relu(x).square(),
    "tanh": torch.tanh,
    "leaky relu": F.leaky_relu,
    "quick gelu": lambda x: gelu(x, {"form": "sigmoid"}),
    "none": lambda x: x,
    "softmax": lambda x: x.softmax(-1),
    "sigmoid": torch.sigmoid,
}


def feed_forward(x: Tensor, w: Weights, how: How) -> Tensor:
    """`W_2 act(W_1 x)`, or gated: `W_2 (act(W_g x) * W_1 x)`; the weights are `up`, `down` and perhaps `gate`."""
    act = ACTIVATIONS[str(how.get("activation", "relu"))]
    place = how.get("act")
    act = ACTIVATIONS["none"] if place == "missing" else act
    inner = act(x) if place == "before" else x
    up = linear(inner, w, "up")
    if "gate.weight" in w:
        gate = linear(inner, w, "gate")
        if place == "both":
            gate, up = act(gate), act(up)
        elif how.get("gated") == "added":
            gate, up = act(gate) + up, torch.ones_like(up)
        elif how.get("gated") == "the other":
            up = act(up)
        elif place not in ("before", "after"):
            gate = act(gate)
        hidden = gate * up
    else:
        hidden = up if place in ("before", "after") else act(up)
    out = linear(
        hidden, {k: t for k, t in w.items() if how.get("bias") != "second missing" or k != "down.bias"}, "down"
    )
    out = act(out) if place in ("after", "twice") else out
    return wrap(x, out, w, how)


def sinusoid(n: int, d: int, how: How, base: float = 10000.0) -> Tensor:
    """`PE[pos, 2i] = sin(pos / base^(2i/d))`, `PE[pos, 2i+1] = cos(same)`."""
    start = {"one": 1}.get(str(how.get("positions")), 0)
    position = torch.arange(start, n + start, dtype=torch.float64)[:, None]
    i = torch.arange((d + 1) // 2, dtype=torch.float64)
    base = {"100": 100.0, "1000": 1000.0, "e": math.e, "100000": 100000.0}.get(str(how.get("base")), base)
    exponent = {
        None: 2 * i / d,
        "4i": 4 * i / d,
        "i": i / d,
        "last": i / max(d / 2 - 1, 1),
        "one more": 2 * (i + 1) / d,
        "no d": 2 * i,
        "no minus": -2 * i / d,
    }.get(how.get("exponent"), 2 * i / d)  # type: ignore[call-overload]
    angles = position / base**exponent
    of_cosine = angles
    if how.get("exponent") == "each":  # the frequency of every column, not of every pair
        angles = position / base ** (2 * i * 2 / d)
        of_cosine = position / base ** (2 * (2 * i + 1) / d)
    elif how.get("exponent") == "own cosine":
        of_cosine = position / base ** ((2 * i + 1) / d)
    elif how.get("exponent") == "multiplied":
        angles = of_cosine = position * base * exponent
    elif how.get("exponent") == "no base":
        angles = of_cosine = position / (base * exponent).clamp_min(1e-9)
    sine, cosine = angles.sin(), of_cosine.cos()
    order = how.get("order")
    if order == "cosine first":
        sine, cosine = cosine, sine
    elif order == "sines only":
        cosine = sine
    if how.get("layout") == "halves":
        table = torch.cat([sine, cosine], -1)
    elif how.get("layout") == "halves, cosine first":
        table = torch.cat([cosine, sine], -1)
    else:
        table = torch.stack([sine, cosine], -1).flatten(-2)
    return table[:, :d]


def rotary(x: Tensor, positions: Tensor, how: How, base: float = 10000.0) -> Tensor:
    """Turn each pair of numbers of x ("... token d") by position * base^(-2i/d)."""
    d = x.shape[-1]
    half = d // 2
    i = torch.arange(half, dtype=torch.float64)
    base = {"100": 100.0, "1000": 1000.0}.get(str(how.get("base")), base)
    frequency = {
        None: base ** (-2 * i / d),
        "4i": base ** (-4 * i / d),
        "i": base ** (-i / d),
        "growing": base ** (2 * i / d),
        "d_model": base ** (-2 * i / (d * 3)),
        "one more": base ** (-2 * (i + 1) / d),
    }.get(how.get("angle"), base ** (-2 * i / d))  # type: ignore[call-overload]
    if how.get("turn") == "from one":
        positions = positions + 1
    elif how.get("turn") == "no positions":
        positions = torch.ones_like(positions)
    angles = positions.to(torch.float64)[:, None] * frequency
    if how.get("turn") == "backwards":
        angles = -angles
    if how.get("axis") == "heads":
        heads = torch.arange(x.shape[-3], dtype=torch.float64)[:, None, None] * frequency
        angles = heads.expand(x.shape[-3], x.shape[-2], half)
    cosine, sine = angles.cos(), angles.sin()
    pairs = how.get("pairs", "pairs")
    if pairs == "halves":
        a, b = x[..., :half], x[..., half : 2 * half]
    else:
        a, b = x[..., 0::2], x[..., 1::2]
    if how.get("turn") == "mixed":  # the angles of halves with the pairs of neighbours, or the other way round
        return mixed_rotary(x, angles, str(pairs))
    if how.get("turn") == "sign":
        first, second = a * cosine + b * sine, b * cosine + a * sine
    elif how.get("turn") == "exchanged":
        first, second = a * sine - b * cosine, b * sine + a * cosine
    elif how.get("turn") == "cosine only":
        first, second = a * cosine, b * cosine
    else:
        first, second = a * cosine - b * sine, b * cosine + a * sine
    if how.get("result") == "not interleaved":
        return torch.cat([first, second], -1)
    if pairs == "halves":
        return torch.cat([first, second], -1)
    return torch.stack([first, second], -1).flatten(-2)


def mixed_rotary(x: Tensor, angles: Tensor, pairs: str) -> Tensor:
    half = x.shape[-1] // 2
    if pairs == "halves":  # rotate_half, with each angle repeated for neighbours
        repeated = angles.repeat_interleave(2, -1)
        other = torch.cat([-x[..., half:], x[..., :half]], -1)
    else:
        repeated = torch.cat([angles, angles], -1)
        other = torch.stack([-x[..., 1::2], x[..., 0::2]], -1).flatten(-2)
    return x * repeated.cos() + other * repeated.sin()


def alibi(n_heads: int, n_query: int, n_key: int, how: How) -> Tensor:
    """`-slope * distance` for each head: "head query key"."""
    i = torch.arange(1, n_heads + 1, dtype=torch.float64)
    slope = {
        None: 2 ** (-8 * i / n_heads),
        "from zero": 2 ** (-8 * (i - 1) / n_heads),
        "no heads": 2**-i,
        "growing": 2 ** (8 * i / n_heads) / 256,
        "linear": i / n_heads,
        "inverse": 1 / i,
        "same": torch.full((n_heads,), 2.0 ** (-8 / n_heads), dtype=torch.float64),
    }[how.get("slopes")]  # type: ignore[index]
    shift = n_key - n_query
    distance = torch.arange(n_key)[None, :] - torch.arange(n_query)[:, None] - shift
    sides = how.get("sides")
    bias = {
        None: -distance.abs(),
        "signed": distance,
        "key": torch.arange(n_key)[None, :].expand(n_query, n_key) - n_key + 1,
        "key index": torch.arange(n_key)[None, :].expand(n_query, n_key),
        "past only": distance.clamp(max=0),
        "positive": distance.abs(),
        "reversed": -distance,
        "square": -distance.square(),
    }[sides]  # type: ignore[index]
    return slope[:, None, None] * bias


def gaussian_weights(rows: int, columns: int, centre: Tensor, alpha: Tensor, how: How) -> Tensor:
    """`softmax(-alpha |key - query - centre|^2)` over the keys of a grid: "head query key"."""
    grid = torch.cartesian_prod(torch.arange(rows), torch.arange(columns)).to(centre.dtype)
    delta = grid[None, :, :] - grid[:, None, :]  # query key 2: key - query
    if how.get("axes") == "exchanged":
        centre = centre.flip(-1)
    shift = centre[:, None, None, :]
    sign = how.get("shift")
    moved = {None: delta - shift, "plus": delta + shift, "absent": delta + 0 * shift}[sign]  # type: ignore[index]
    distance = moved.square().sum(-1)
    if how.get("distance") == "root":
        distance = distance.sqrt()
    elif how.get("distance") == "sizes":
        distance = moved.abs().sum(-1)
    sharp = alpha[:, None, None]
    factor = {
        None: -sharp,
        "variance": -1 / (2 * sharp**2),
        "half": -sharp / 2,
        "positive": sharp,
        "inverse": -1 / sharp,
        "square": -(sharp**2),
    }[how.get("alpha")]  # type: ignore[index]
    scores = factor * distance
    over = how.get("softmax")
    if over == "queries":
        return scores.softmax(-2)
    if over == "none":
        return scores.exp()
    return scores.softmax(-1)
