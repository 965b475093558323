"""Which parameter plays which part in a whole layer or model: attention, norms and feed-forward, layer by layer."""

import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor

from headwork.checking.option import Weights
from headwork.checking.wiring import attention_wirings, feed_forward_wirings, linears, norms

FEED = r"(?i)(^|[._])(ff|ffn|mlp|feed|pos_ff|positionwise|fc[12_]|fc_|linear_?[12]|lin[12]|dense_?[12h4]|intermediate|c_fc|w[123]$|expand|fflayer|net\.|feedforward)"


def layer_wirings(
    parameters: Mapping[str, Tensor], n_heads: int, facts: Mapping[str, Any], d_model: int, cross: bool = False
) -> list[Weights]:
    """Weights of one layer: `attention`, perhaps `cross`, `feed`, `norms`; other orders of the norms follow."""
    found = linears(parameters)
    feed: dict[str, Tensor] = {}
    attend: dict[str, dict[str, Tensor]] = {}
    normal: dict[str, Tensor] = {}
    norm_paths = {path for path, _ in norms(parameters)}
    for name, t in parameters.items():
        path = next((p for p in found if name == p or name.startswith(f"{p}.")), None)
        if path is None:
            owner = name.rpartition(".")[0]
            if owner in norm_paths or name in norm_paths:
                normal[name] = t
            elif name.endswith("bias") and any(name[:-4] + "weight" == n for n in parameters):
                attend.setdefault(group(name), {})[name] = t
            continue
        matrix = next(iter(found[path].values()))
        widths = set(found[path].get("weight", found[path].get("bare", matrix)).shape)
        is_feed = bool(re.search(FEED, path)) or (
            len(widths) == 2 and d_model in widths and 3 * d_model not in widths and not _attends(path)
        )
        if is_feed and not _attends(path):
            feed[name] = t
        else:
            attend.setdefault(group(path), {})[name] = t
    for name, t in parameters.items():  # in_proj_bias and its like
        if (
            name.endswith("_bias")
            and not any(name in g for g in attend.values())
            and name not in normal
            and name not in feed
        ):
            attend.setdefault(group(name), {})[name] = t
    groups = sorted(
        attend.items(),
        key=lambda item: bool(
            re.search(
                r"(?i)cross|src|enc|memory|inter|attn_?2|attention_?2|mha_?2|multihead_attn|context|second", item[0]
            )
        ),
    )
    wanted = 2 if cross else 1
    if len(groups) < wanted:
        return []
    attentions = [
        list(itertools.islice((w for w in attention_wirings(own, n_heads) if "q.weight" in w), 6))
        for _, own in groups[:wanted]
    ]
    feeds = feed_forward_wirings(feed)
    if not all(attentions) or not feeds:
        return []
    own_norms = [w for _, w in norms(normal)]
    kinds = kind_of_norms(facts)
    eps = eps_of(facts)
    wirings = []
    orders = [list(o) for o in itertools.permutations(own_norms)] if len(own_norms) <= 3 else [own_norms]
    for order in orders[:6]:
        for up in feeds[:2]:
            for chosen in itertools.product(*attentions):
                wirings.append({
                    "attention": chosen[0], "cross": chosen[1] if cross else None, "feed": up, "norms": order, "norm_kind": kinds, "eps": eps,
                })  # fmt: skip
    return wirings[:24]


def _attends(path: str) -> bool:
    return bool(re.search(r"(?i)att|mha|qkv|q_proj|k_proj|v_proj|query|key|value|in_proj|msa|wq|wk|wv", path))


def group(path: str) -> str:
    """The attention layer that a parameter belongs to: its path without the last part, numbers and lists of heads."""
    parts = [p for p in path.split(".") if not p.isdigit()]
    parts = [
        p
        for p in parts[:-1]
        if p not in ("linears", "heads", "projections", "weight", "self", "output", "to_out", "fn", "att_heads")
    ]
    return ".".join(parts)


def kind_of_norms(facts: Mapping[str, Any]) -> str:
    return "rms" if any("rms" in kind.lower() for kind in facts["modules"].values()) else "layer"


def eps_of(facts: Mapping[str, Any]) -> float:
    return next((float(v) for k, v in facts.get("settings", {}).items() if "eps" in k and isinstance(v, float)), 1e-5)


def split_layers(parameters: Mapping[str, Tensor]) -> tuple[dict[str, list[dict[str, Tensor]]], dict[str, Tensor]]:
    """Parameters by stack and layer number, and the rest: `encoder.layers.0.x` is stack "encoder.layers", layer 0."""
    stacks: dict[str, dict[int, dict[str, Tensor]]] = {}
    rest: dict[str, Tensor] = {}
    for name, t in parameters.items():
        match = re.match(r"(.*?)(?:^|[._])(\d+)\.(.*)", name)
        if match and (
            match[1] == "" or re.search(r"(?i)layer|block|stack|^h$|\.h$|enc|dec|transformer|net|module", match[1])
        ):
            stacks.setdefault(match[1], {}).setdefault(int(match[2]), {})[match[3]] = t
        else:
            rest[name] = t
    whole: dict[str, list[dict[str, Tensor]]] = {}
    for stack, layers in stacks.items():
        least = 8 if len(layers) == 1 else 4  # parameters of a layer; fewer are a head's, or a feed-forward network's
        alike = {tuple(own) for own in layers.values()}
        if len(alike) == 1 and len(next(iter(alike))) >= least:
            whole[stack] = [layers[i] for i in sorted(layers)]
        else:
            rest.update({f"{stack}.{i}.{n}": t for i, own in layers.items() for n, t in own.items()})
    return whole, rest


def all_layers(
    layers: list[dict[str, Tensor]], n_heads: int, facts: Mapping[str, Any], d_model: int, cross: bool = False
) -> Iterator[list[Weights]]:
    """The same wiring for every layer of a stack."""
    each = [layer_wirings(own, n_heads, facts, d_model, cross) for own in layers]
    yield from (list(chosen) for chosen in zip(*each, strict=False))
