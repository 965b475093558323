"""Which parameter plays which part: by name, by shape, and where those do not say, every possibility for behaviour to decide.

Weights come out as `q.weight` ("out in"), `q.bias`, ... `up`, `gate`, `down`, `norm`: the names that the equations read.
"""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from headwork.checking.option import Weights

Parameters = Mapping[str, Tensor]
FUSED = r"qkv|kqv|c_attn|in_proj|query_key_value|attn_in|to_kqv|packed|fused|keyqueryval|key_query_value|w_?attn|(^|in_)projections?$|kvq|vkq|qvk"
WEIGHT_OF_NORM = r"weight|gamma|a_?2?|alpha|scale|g|gain|w"


def random_parameters(shapes: Mapping[str, Sequence[int]], seed: int = 7) -> dict[str, Tensor]:
    """Numbers for every parameter: gains around 1, the rest around 0, nothing that a default could hide."""
    generator = torch.Generator().manual_seed(seed)
    values = {}
    for name, shape in shapes.items():
        t = (
            torch.randn(*shape, generator=generator, dtype=torch.float64)
            if shape
            else torch.randn((), generator=generator, dtype=torch.float64)
        )
        fan = max(shape[-1], 1) if len(shape) > 1 else 1
        is_gain = len(shape) == 1 and re.search(rf"(^|[._])({WEIGHT_OF_NORM})$", name.lower())
        values[name] = 1 + 0.3 * t if is_gain else t * (0.8 * fan**-0.5 if len(shape) > 1 else 0.4)
        if re.search(r"emb|wte|wpe|pos", name.lower()) and len(shape) > 1:
            values[name] = t * 0.7
    return values


def modules(parameters: Parameters) -> dict[str, dict[str, Tensor]]:
    """Parameters by the module that owns them; one that stands alone owns itself."""
    found: dict[str, dict[str, Tensor]] = {}
    for name, t in parameters.items():
        owner, _, leaf = name.rpartition(".")
        partner = _bare_partner(name, parameters) if leaf not in ("weight", "bias") else ""
        if owner and t.ndim > 1 and re.fullmatch(r"(?i)w|weights|kernel|matrix", leaf):  # of a Linear of one's own
            leaf = "bare"
        elif owner and t.ndim < 3 and re.fullmatch(r"(?i)b|biases", leaf) and 1 in (*t.shape, t.ndim):
            leaf = "bias"
        elif partner and t.ndim > 1:  # the biases of the heads: b_Q [head, d] beside W_Q [head, d_model, d]
            owner, leaf = partner, "bias"
        elif leaf not in ("weight", "bias") and t.ndim > 1:
            owner, leaf = name, "weight" if leaf.endswith("weight") else "bare"
        elif leaf.endswith("_bias") and t.ndim == 1 and f"{name[:-5]}_weight" in parameters:
            owner, leaf = f"{name[:-5]}_weight", "bias"
        elif partner:
            owner, leaf = partner, "bias"
        found.setdefault(owner, {})[leaf] = t
    return found


def _bare_partner(name: str, parameters: Parameters) -> str:
    """The bare matrix that a bare vector belongs to: b_q to W_q."""
    owner, _, leaf = name.rpartition(".")
    for other in parameters:
        path, _, last = other.rpartition(".")
        deeper = parameters[other].ndim > max(1, parameters[name].ndim)
        is_pair = path == owner and other != name and deeper and re.match(r"(?i)b", leaf)
        if is_pair and re.sub(r"(?i)^b(ias)?_?", "", leaf) == re.sub(r"(?i)^(w(eight)?|linear|proj)_?", "", last):
            return other
    return ""


def linears(parameters: Parameters) -> dict[str, dict[str, Tensor]]:
    return {path: own for path, own in modules(parameters).items() if any(t.ndim > 1 for t in own.values())}


def norms(parameters: Parameters) -> list[tuple[str, Weights]]:
    """Modules with vectors only: (path, {weight, bias}), in the order in which they were made."""
    found = []
    for path, own in modules(parameters).items():
        if all(t.ndim <= 1 for t in own.values()) and 1 <= len(own) <= 2:
            weights: Weights = {}
            for leaf, t in own.items():
                is_gain = bool(re.fullmatch(WEIGHT_OF_NORM, leaf.lower())) or len(own) == 1
                weights["weight" if is_gain and "weight" not in weights else "bias"] = t
            found.append((path, weights))
    return found


def part_of(path: str) -> str | None:
    """q, k, v, o, qkv or kv, as the name says.

    >>> part_of("attn.W_query"), part_of("out_proj"), part_of("linears.2")
    ('q', 'o', None)
    """
    names = [c for c in path.lower().split(".") if not c.isdigit()]
    if not names:
        return None
    last = names[-1]
    if re.search(FUSED, last):
        return "qkv"
    if re.search(r"(^|_|to)kv(_|$)|(^|_)(key_?value|kvs?)", last):
        return "kv"
    for part, word in (("q", r"quer(y|ies)|query"), ("k", r"keys?"), ("v", r"val(ue)?s?")):
        if re.search(word, last):
            return part
    for part in "qkv":
        if (
            re.search(rf"(^|_|to|w|lin|linear|fc|proj|wt)_?{part}s?(_|$|\d|proj|lin|linear|net|w|s$)", last)
            or last == part
        ):
            return part
    if re.search(
        r"out|proj|unify|dense|final|(^|_|w|linear|fc|lin|to)_?o(_|$|proj)|^fc$|^linear$|^ff$|^lin$|combine|merge|concat|mix|head_linear|top_layer",
        last,
    ):
        return "o"
    return None


def _oriented(own: Mapping[str, Tensor], flip: bool, part: str | None = None) -> Tensor:
    """As [out, in]: a Linear has it so, a bare matrix is usually [in, out], a bare block has one more axis for the heads."""
    if "weight" in own:
        return own["weight"]
    t = own["bare"]
    if t.ndim == 3:
        width = max(range(3), key=lambda axis: t.shape[axis])  # of the model; the others are (head, d)
        if part == "o":
            return t.movedim(width, 0).flatten(1)
        return t.movedim(width, -1).flatten(0, 1)
    return t if flip else t.T


def _put(w: Weights, part: str, weight: Tensor, bias: Tensor | None) -> None:
    w[f"{part}.weight"] = weight
    if bias is not None:
        w[f"{part}.bias"] = bias.reshape(-1)


def attention_wirings(parameters: Parameters, n_heads: int, most: int = 80) -> list[Weights]:
    """Weights of one attention layer in every order that names and shapes allow, the most plausible first."""
    found = linears(parameters)
    if not found:
        return [{}]
    bare = any("bare" in own for own in found.values())
    wirings: list[Weights] = []
    for flip in (False, True) if bare else (False,):
        wirings += itertools.islice(_attention_wirings(found, n_heads, flip), most)
    wrapped = norms(parameters)
    for w in wirings:
        if wrapped:
            w.update({f"norm.{leaf}": t for leaf, t in wrapped[0][1].items()})
        _share(w, n_heads)
    return wirings


def _share(w: Weights, n_heads: int) -> None:
    """One small projection that every head uses, as the projection of the whole width that it is."""
    for part in "qkv":
        t, out = w.get(f"{part}.weight"), w.get("o.weight")
        if t is not None and out is not None and t.shape[0] == t.shape[1] and t.shape[0] * n_heads == out.shape[1]:
            w[f"{part}.weight"] = torch.block_diag(*[t] * n_heads)  # type: ignore[no-untyped-call]
            if f"{part}.bias" in w:
                w[f"{part}.bias"] = w[f"{part}.bias"].repeat(n_heads)


def _attention_wirings(found: dict[str, dict[str, Tensor]], n_heads: int, flip: bool) -> Iterator[Weights]:
    parts: dict[str, list[str]] = {}
    for path in found:
        parts.setdefault(part_of(path) or "?", []).append(path)
    matrices = {path: _oriented(own, flip, part_of(path)) for path, own in found.items()}
    biases = {path: own.get("bias") for path, own in found.items()}
    fused = [path for path in parts.get("qkv", []) if matrices[path].shape[0] != matrices[path].shape[1]]
    if not fused and len(parts.get("qkv", [])) == 3:  # a list of three, called qkv
        parts.setdefault("?", []).extend(parts.pop("qkv"))
    if fused and len(fused) < len(parts["qkv"]):  # `projection` beside `qkv` is the one of the output
        parts.setdefault("o", []).extend(path for path in parts["qkv"] if path not in fused)
        parts["qkv"] = fused
    if "qkv" not in parts and "q" not in parts:
        fused = [p for p, m in matrices.items() if m.shape[0] == 3 * m.shape[1] and m.shape[1] > 1]
        if len(fused) == 1:
            parts = {"qkv": fused, "o": [p for p in matrices if p not in fused]}
    if "qkv" in parts:
        yield from _fused(parts, matrices, biases, n_heads)
        return
    if "kv" in parts and "q" in parts:
        for pair in (("k", "v"), ("v", "k")):
            w: Weights = {}
            _put(w, "q", matrices[parts["q"][0]], biases[parts["q"][0]])
            for part, block, bias in zip(
                pair, matrices[parts["kv"][0]].chunk(2), _chunks(biases[parts["kv"][0]], 2), strict=True
            ):
                _put(w, part, block, bias)
            for o in parts.get("o", [])[:1]:
                _put(w, "o", matrices[o], biases[o])
            yield w
        return
    if all(p in parts for p in "qkv") and len({len(parts[p]) for p in "qkv"}) == 1:
        w = {}
        for part in "qkv":
            paths = parts[part]
            own = [biases[p] for p in paths]
            _put(
                w,
                part,
                torch.cat([matrices[p] for p in paths]),
                torch.cat([b for b in own if b is not None]) if all(b is not None for b in own) else None,
            )
        outs = [*parts.get("o", []), *parts.get("?", [])]
        # Weights that are there and may not be used come first as what they are.
        for o in outs:
            each = dict(w)
            _put(each, "o", matrices[o], biases[o])
            yield each
        if not outs:
            yield w
        return
    paths = list(found)
    if 2 <= len(paths) <= 5:
        roles = {1: "q", 2: "qk", 3: "qkv", 4: "qkvo", 5: "qkvo"}[len(paths)]
        for order in itertools.permutations(paths, len(roles)):
            w = {}
            for part, path in zip(roles, order, strict=True):
                _put(w, part, matrices[path], biases[path])
            yield w


def _chunks(bias: Tensor | None, n: int) -> Sequence[Tensor | None]:
    return [None] * n if bias is None else bias.chunk(n)


def _fused(
    parts: dict[str, list[str]], matrices: dict[str, Tensor], biases: dict[str, Tensor | None], n_heads: int
) -> Iterator[Weights]:
    path = parts["qkv"][0]
    whole, bias = matrices[path], biases[path]
    outs = [*parts.get("o", []), *parts.get("?", [])]
    if whole.shape[0] % 3:  # grouped: q, then k and v of fewer heads
        return
    d = whole.shape[0] // 3 // n_heads if n_heads else 0

    def blocks(t: Tensor, layout: str) -> list[Tensor]:
        if layout == "blocks":
            return list(t.chunk(3))
        if layout == "heads":  # (head three d)
            return [b.flatten(0, 1) for b in t.view(n_heads, 3, d, *t.shape[1:]).unbind(1)]
        return [b.flatten(0, 1) for b in t.view(n_heads, d, 3, *t.shape[1:]).unbind(2)]  # (head d three)

    for layout in ("blocks", "heads", "last"):
        if layout != "blocks" and (n_heads <= 1 or whole.shape[0] % (3 * n_heads)):
            continue
        for order in ("qkv", "kqv", "vqk", "qvk", "kvq", "vkq"):
            w: Weights = {}
            own = blocks(bias, layout) if bias is not None else [None] * 3
            for part, block, b in zip(order, blocks(whole, layout), own, strict=True):
                _put(w, part, block, b)
            for o in outs[:1]:
                _put(w, "o", matrices[o], biases[o])
            w["fused"] = order
            yield w


def feed_forward_wirings(parameters: Parameters) -> list[Weights]:
    """`up` widens, `down` narrows; of two that widen, one is the gate."""
    found = linears(parameters)
    wirings: list[Weights] = []
    bare = any("bare" in own for own in found.values())
    for flip in (False, True) if bare else (False,):
        matrices = [(p, _oriented(own, flip), own.get("bias")) for p, own in found.items()]
        matrices = [
            (p, m.reshape(m.shape[0], m.shape[1]) if m.ndim > 2 and m.numel() == m.shape[0] * m.shape[1] else m, b)
            for p, m, b in matrices
        ]
        if len(matrices) == 2:
            (a, b) = matrices
            orders = [(a, b)] if a[1].shape[0] == b[1].shape[1] else []
            if b[1].shape[0] == a[1].shape[1]:
                orders.append((b, a))
            orders.sort(key=lambda o: o[0][1].shape[0] < o[0][1].shape[1])
            for up, down in orders:
                w: Weights = {}
                _put(w, "up", up[1], up[2])
                _put(w, "down", down[1], down[2])
                wirings.append(w)
                if up[1].shape[0] % 2 == 0 and down[1].shape[1] * 2 == up[1].shape[0]:
                    pass
            if not orders:
                for up, down in ((a, b), (b, a)):
                    if up[1].shape[0] == 2 * down[1].shape[1]:
                        for first, second in (("gate", "up"), ("up", "gate")):
                            w = {}
                            biases = _chunks(up[2], 2)
                            for part, block, bias in zip((first, second), up[1].chunk(2), biases, strict=True):
                                _put(w, part, block, bias)
                            _put(w, "down", down[1], down[2])
                            wirings.append(w)
        elif len(matrices) == 3:
            shapes = [m.shape for _, m, _ in matrices]
            for last in range(3):
                ups = [i for i in range(3) if i != last]
                if shapes[ups[0]] == shapes[ups[1]] and shapes[last] == shapes[ups[0]][::-1]:
                    for gate, up_ in (ups, ups[::-1]):
                        w = {}
                        for part, i in (("gate", gate), ("up", up_), ("down", last)):
                            _put(w, part, matrices[i][1], matrices[i][2])
                        wirings.append(w)
    wrapped = norms(parameters)
    for w in wirings:
        if wrapped:
            w.update({f"norm.{leaf}": t for leaf, t in wrapped[0][1].items()})
    return wirings
