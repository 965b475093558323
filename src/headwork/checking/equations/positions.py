"""Position codes: sinusoidal, rotary, ALiBi, and Gaussian attention over a grid."""

import math

import torch
from torch import Tensor

from headwork.checking.option import How


def sinusoid(n: int, d: int, how: How, base: float = 10000.0) -> Tensor:
    """`PE[pos, 2i] = sin(pos / base^(2i/d))`, `PE[pos, 2i+1] = cos(same)`."""
    start = {"one": 1}.get(str(how.get("positions")), 0)
    position = torch.arange(start, n + start, dtype=torch.float64)[:, None]
    i = torch.arange((d + 1) // 2, dtype=torch.float64)
    base = {"100": 100.0, "1000": 1000.0, "e": math.e, "100000": 100000.0}.get(str(how.get("base")), base)
    exponent = {
        "4i": 4 * i / d,
        "i": i / d,
        "last": i / max(d / 2 - 1, 1),
        "one more": 2 * (i + 1) / d,
        "no d": 2 * i,
        "no minus": -2 * i / d,
    }.get(str(how.get("exponent")), 2 * i / d)
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
        "4i": base ** (-4 * i / d),
        "i": base ** (-i / d),
        "growing": base ** (2 * i / d),
        "d_model": base ** (-2 * i / (d * 3)),
        "one more": base ** (-2 * (i + 1) / d),
    }.get(str(how.get("angle")), base ** (-2 * i / d))
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
        "right": 2 ** (-8 * i / n_heads),
        "from zero": 2 ** (-8 * (i - 1) / n_heads),
        "no heads": 2**-i,
        "growing": 2 ** (8 * i / n_heads) / 256,
        "linear": i / n_heads,
        "inverse": 1 / i,
        "same": torch.full((n_heads,), 2.0 ** (-8 / n_heads), dtype=torch.float64),
    }[str(how.get("slopes", "right"))]
    shift = n_key - n_query
    distance = torch.arange(n_key)[None, :] - torch.arange(n_query)[:, None] - shift
    bias = {
        "right": -distance.abs(),
        "signed": distance,
        "key": torch.arange(n_key)[None, :].expand(n_query, n_key) - n_key + 1,
        "key index": torch.arange(n_key)[None, :].expand(n_query, n_key),
        "past only": distance.clamp(max=0),
        "positive": distance.abs(),
        "reversed": -distance,
        "square": -distance.square(),
    }[str(how.get("sides", "right"))]
    return slope[:, None, None] * bias


def gaussian_weights(rows: int, columns: int, centre: Tensor, alpha: Tensor, how: How) -> Tensor:
    """`softmax(-alpha |key - query - centre|^2)` over the keys of a grid: "head query key"."""
    grid = torch.cartesian_prod(torch.arange(rows), torch.arange(columns)).to(centre.dtype)
    delta = grid[None, :, :] - grid[:, None, :]  # query key 2: key - query
    if how.get("axes") == "exchanged":
        centre = centre.flip(-1)
    shift = centre[:, None, None, :]
    moved = {"right": delta - shift, "plus": delta + shift, "absent": delta + 0 * shift}[str(how.get("shift", "right"))]
    distance = moved.square().sum(-1)
    if how.get("distance") == "root":
        distance = distance.sqrt()
    elif how.get("distance") == "sizes":
        distance = moved.abs().sum(-1)
    sharp = alpha[:, None, None]
    factor = {
        "right": -sharp,
        "variance": -1 / (2 * sharp**2),
        "half": -sharp / 2,
        "positive": sharp,
        "inverse": -1 / sharp,
        "square": -(sharp**2),
    }[str(how.get("alpha", "right"))]
    scores = factor * distance
    over = how.get("softmax")
    if over == "queries":
        return scores.softmax(-2)
    if over == "none":
        return scores.exp()
    return scores.softmax(-1)
