"""What stands beside attention in a layer: linear maps, norms, activations, the feed-forward network."""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from headwork.checking.option import How, Weights


def linear(x: Tensor, w: Weights, name: str) -> Tensor:
    """`x W^T + b`; without a weight of that name x itself."""
    if f"{name}.weight" not in w:
        return x
    return F.linear(x, w[f"{name}.weight"], w.get(f"{name}.bias"))


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
        "right": (biased + eps).sqrt(),
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
    }[str(form or "right")]
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
        "right": (square + eps).sqrt(),
        "eps outside": square.sqrt() + eps,
        "no eps": square.sqrt(),
        "no root": square + eps,
        "sum": (x.square().sum(axis, keepdim=True) + eps).sqrt(),
        "eps squared": (square + eps**2).sqrt(),
        "centred": (centred.square().mean(axis, keepdim=True) + eps).sqrt(),
        "variance": (centred.square().mean(axis, keepdim=True) + eps).sqrt(),
        "mean of sizes": x.abs().mean(axis, keepdim=True) + eps,
        "multiplied": 1 / (square + eps).sqrt(),
    }[str(form or "right")]
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


def wrap(x: Tensor, out: Tensor, w: Weights, how: How) -> Tensor:
    """Some sublayers add their input and normalise by themselves."""
    wrapped = how.get("wrapped")
    if wrapped == "added":
        return x + out
    if wrapped == "added and normalised":
        return norm(x + out, w, "norm", how)
    return out
