"""Modules that read "batch token width" and return as many tokens: how they are made, called and understood."""

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from headwork.checking.calling import Assignment, Candidate, assignments, call, role_of, tensors_of
from headwork.checking.constructing import make, numbers_read
from headwork.checking.mask_meanings import KIND_OF_RANK, MEANINGS, encode_mask, random_visible
from headwork.checking.names import SIZE_NAMES
from headwork.checking.option import Case, Reading, Weights
from headwork.checking.pointing import is_whole, own_source
from headwork.checking.runner import Made, ProgramError, Result
from headwork.checking.wiring import random_parameters

D_MODEL, N_HEADS, N_QUERY, N_KEY, D_FF, VOCAB, N_MOST = 12, 3, 5, 7, 20, 23, 16
USUAL_SIZES: dict[str, Any] = {
    "d_model": D_MODEL, "n_heads": N_HEADS, "d_out": D_MODEL, "d_head": D_MODEL // N_HEADS, "d_ff": D_FF, "n_tokens": N_MOST, "n_layers": 2,
    "vocab": VOCAB, "temperature": (D_MODEL // N_HEADS) ** 0.5, "ratio": 2, "causal": None, "eps": None, "base": 10000.0, "norm_first": None,
}  # fmt: skip
MASK_RANKS = ("b1qk", "bqk", "qk", "b11k", "bk", "b1k", "bhqk", "11qk", "nqk", "1qk")


@dataclass(frozen=True)
class BlockLayout:
    """Where the axes of "batch token width" go."""

    said: str
    batch: int
    encode: Callable[[Tensor], Tensor]
    decode: Callable[[Tensor], Tensor]


LAYOUTS = (
    BlockLayout("batch, token, width", 2, lambda t: t, lambda t: t),
    BlockLayout("token, batch, width", 2, lambda t: t.transpose(0, 1).contiguous(), lambda t: t.transpose(0, 1)),
    BlockLayout("token, width", 1, lambda t: t[0], lambda t: t[None]),
    BlockLayout("width, token", 1, lambda t: t[0].T.contiguous(), lambda t: t.T[None]),
)


@dataclass(frozen=True)
class Block:
    """A module that was made, its parameters filled with random numbers, and what is known of its sizes."""

    made: Made | None
    target: str | int
    parameters: dict[str, Tensor]
    d_model: int
    n_heads: int
    n_kv_heads: int
    passed: Mapping[str, Any]
    candidate: Candidate | None = None
    """A function with its weights as arguments that every call is given."""


WEIGHT = r"(?i)(w|ws|weights?|wt|b|bias|proj|lin|linear)_?(q|k|v|o|qkv|kqv|query|key|value|out|output)s?(_?(weights?|proj|w|t|bias))?|(q|k|v|o|qkv|query|key|value|out|output|in)(_proj|_lin|_linear)?_?(weights?|w|bias|b|mat(rix)?|kernel)|w_?(queries|keys|values)"


def weight_arguments(candidate: Candidate) -> list[str]:
    """Arguments of a function that are matrices and vectors of a layer, by their names."""
    if candidate.kind != "function":
        return []
    return [p["name"] for p in candidate.parameters if re.fullmatch(WEIGHT, p["name"])]


def weight_dicts(candidate: Candidate) -> dict[str, list[str]]:
    """Arguments of a function that are dicts of weights, with the keys that it reads: `params["wq"]`."""
    own = own_source(candidate.source, candidate.name) if candidate.source else ""
    found = {}
    for p in candidate.parameters:
        keys = re.findall(rf"(?<![\w.]){re.escape(p['name'])}\[[\"'](\w+)[\"']\]", own)
        if keys and all(re.fullmatch(WEIGHT, key) for key in keys):
            found[p["name"]] = list(dict.fromkeys(keys))
    return found


def function_blocks(candidate: Candidate, sizes: Mapping[str, Any]) -> Iterator[Block]:
    """A function that takes the weights of its layer, one by one or in a dict, or the number of its heads as arguments."""
    names, dicts = weight_arguments(candidate), weight_dicts(candidate)
    d = sizes["d_model"]
    counts: dict[str, Any] = {}
    for p in candidate.parameters:
        role = role_of(p["name"], ("n_heads", "d_head", "d_model"), SIZE_NAMES)
        if role is not None and p["name"] not in names and role_of(p["name"], ("q", "k", "v", "x", "mask")) is None:
            counts[p["name"]] = sizes[role]
    heads = [n for n in counts if role_of(n, ("n_heads",), SIZE_NAMES)]
    if not names and not heads and not dicts:
        return
    inner = [f"{name}.{key}" for name, keys in dicts.items() for key in keys]
    fused = any(re.search(FUSED, n) for n in (*names, *inner))
    for whole in ((d, 3 * d), (3 * d, d)) if fused else ((d, d),):
        shapes = {n: _shape_of_weight(n.rpartition(".")[2], d, whole) for n in (*names, *inner)}
        parameters = random_parameters(shapes)
        given: dict[str, Any] = {n: parameters[n] for n in names}
        given |= {name: {key: parameters[f"{name}.{key}"] for key in keys} for name, keys in dicts.items()}
        own = replace(candidate, options={**given, **counts, **candidate.options})
        n_heads = sizes["n_heads"] if heads else 1
        yield Block(None, candidate.name, parameters, d, n_heads, n_heads, counts, own)


FUSED = r"(?i)qkv|kqv|in_proj"


def _shape_of_weight(name: str, d: int, fused: tuple[int, int]) -> tuple[int, ...]:
    if re.match(r"(?i)b|.*(bias|_b)$", name):
        return (3 * d,) if re.search(FUSED, name) else (d,)
    return fused if re.search(FUSED, name) else (d, d)


def blocks(candidate: Candidate, sizes: Mapping[str, Any] = USUAL_SIZES) -> Iterator[Block]:
    """Every way in which the candidate can be made."""
    if candidate.kind == "function":
        yield from function_blocks(candidate, sizes)
        return
    grouped = any(role_of(p["name"], ("n_kv_heads",), SIZE_NAMES) for p in candidate.facts.get("init") or [])
    grouped |= (
        bool(re.search(r"(?i)n_?kv_?heads|num_key_value_heads|num_kv_groups", candidate.source))
        and candidate.kind != "function"
    )
    heads = [v for n, v in numbers_read(candidate).items() if role_of(n, ("d_head",), SIZE_NAMES)]
    if heads and isinstance(heads[0], int):
        sizes = {
            **sizes,
            "d_model": sizes["n_heads"] * heads[0],
            "d_out": sizes["n_heads"] * heads[0],
            "d_head": heads[0],
        }
    if grouped:
        sizes = {**sizes, "d_model": 24, "d_out": 24, "n_heads": 4, "n_kv_heads": 2, "d_head": 6}
    for made, passed in make(candidate, sizes):
        parameters = random_parameters(made.shapes)
        made.set(parameters)
        yield describe(candidate, made, parameters, passed, sizes)


def describe(
    candidate: Candidate, made: Made, parameters: dict[str, Tensor], passed: Mapping[str, Any], sizes: Mapping[str, Any]
) -> Block:
    given = {role_of(n, [r for r in sizes if r in SIZE_NAMES], SIZE_NAMES): v for n, v in flat(passed).items()}
    numbers = {**(candidate.everything.get("globals") or {}), **made.facts["numbers"]}
    inner = [t.shape[-1] for n, t in parameters.items() if t.ndim == 2 and n.endswith("weight")]
    d_model = given.get("d_model") if isinstance(given.get("d_model"), int) else None
    if d_model is None or (inner and d_model not in inner):
        bare = [t.shape[0] for t in parameters.values() if t.ndim == 2]
        d_model = max(set(inner or bare or [D_MODEL]), key=(inner or bare or [D_MODEL]).count)

    def known(role: str, default: int) -> int:
        value = given.get(role)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        for name, number in made.facts["numbers"].items():
            if role_of(name, (role,), SIZE_NAMES) and isinstance(number, int) and number > 0:
                return number
        for path, number in made.facts.get("inner", {}).items():
            if role_of(path.rpartition(".")[2], (role,), SIZE_NAMES):
                return number
        for name, number in numbers.items():
            if role_of(name, (role,), SIZE_NAMES) and isinstance(number, int) and re.search(rf"\b{name}\b", own):
                return number
        return default

    own = own_source(candidate.source, candidate.name) if candidate.source else ""
    n_heads = known("n_heads", 1)
    return Block(made, made.id, parameters, d_model, n_heads, known("n_kv_heads", n_heads), passed)


def mixes_examples(run: Callable[..., dict[str, Tensor]], facts: Mapping[str, Any]) -> bool:
    """Whether example 1 of a batch changes the answer for example 0, in a layout."""
    case = case_of(facts, 0, {})
    other = {k: torch.cat([v[:1], v[1:].flip(1)]) if k in ("x", "memory", "values") else v for k, v in case.items()}
    try:
        before, after = (run(c, {}).get("output") for c in (case, other))
    except ProgramError as error:
        if error.is_final:
            raise
        return True
    return before is None or after is None or not torch.allclose(before[0], after[0], equal_nan=True)


def may_be(candidate: Candidate) -> set[str] | None:
    """Which conventions the source can hold at all; without a source, any."""
    if not candidate.source or not is_whole(candidate.source, candidate.name):
        return None
    own = own_source(candidate.source, candidate.name)
    signs = {
        "turned": r"(?i)rot|rope|freqs|cos\(",
        "wrapped": r"(?i)norm|resid|\bln|\+\s*(x|q|query|inputs?|residual|h)\b|\+=",
        "causal": r"(?i)tri[lu]|causal|mask|inf\b|square_subsequent",
        "split": r"rearrange|permute|view|reshape|unflatten",
    }
    found = {option for option, sign in signs.items() if re.search(sign, own)} | ALWAYS
    return found | {"aligned"} if "causal" in found else found


ALWAYS = {
    "norm_order",
    "activation",
    "final_norm",
    "embedding",
    "positions",
    "pool",
    "head",
    "form",
    "gain",
    "layout",
    "pairs",
    "cross",
}


def flat(passed: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in passed.items():
        if hasattr(value, "content"):
            found.update(value.content if isinstance(value.content, dict) else dict(value.kwargs))
        elif isinstance(value, dict):
            found.update(value)
        else:
            found[name] = value
    return found


def block_case(
    batch: int, n_query: int, n_key: int, d: int, kinds: Mapping[str, str], seed: int, whole: bool = False
) -> Case:
    """x, memory, values of the memory, and a mask for each name: `visible` over the memory or over x itself."""
    generator = torch.Generator().manual_seed(seed)

    def normal(n: int) -> Tensor:
        if whole:
            return torch.randint(-2, 3, (batch, n, d), generator=generator).double()
        return torch.randn(batch, n, d, generator=generator, dtype=torch.float64)

    case: Case = {"x": normal(n_query), "memory": normal(n_key), "values": normal(n_key)}
    for name, kind in kinds.items():
        n = n_query if name == "visible" and "cross" not in kinds.get("shape", "") else n_key
        if name == "shape":
            continue
        if kind == "one padding":
            one = random_visible("padding", 1, n_query, n, generator)
            assert one is not None
            case[name] = one.expand(batch, 1, n_query, n).contiguous()
        else:
            case[name] = random_visible(kind, batch, n_query, n, generator)
    return case


Roles = Mapping[str, str]
"""What a call takes: for each role, which tensor of a case it is given."""
SELF: Roles = {"x": "x"}
CROSS: Roles = {"x": "x", "memory": "memory"}
ROLE_SETS: tuple[Roles, ...] = ({"q": "x", "k": "memory", "v": "values"}, CROSS, SELF)
SELF_AS_THREE: Roles = {"q": "x", "k": "x", "v": "x"}
CROSS_AS_THREE: tuple[Roles, ...] = (
    {"x": "x", "k": "memory", "v": "memory"},
    {"q": "x", "k": "memory", "v": "memory"},
)


def block_readings(
    candidate: Candidate,
    wire: Callable[[Block], Sequence[Weights]],
    *,
    role_sets: Sequence[Roles] = (SELF,),
    masks: Mapping[str, str] | None = None,
    cross_masks: Sequence[str] = (),
    sizes: Mapping[str, Any] = USUAL_SIZES,
    extra: Mapping[str, Any] | None = None,
    n_most: int = N_MOST,
) -> Iterator[Reading]:
    """Readings of a module; `masks` are its mask roles with the name that each has in a case."""
    mask_roles = {"mask": "visible"} if masks is None else dict(masks)
    error: ProgramError | None = None
    n = 0
    for block in blocks(candidate, sizes):
        wirings = tuple(wire(block))
        if not wirings:
            continue
        candidate = block.candidate or candidate
        free = [p for p in candidate.parameters if p["name"] not in candidate.options]
        for roles in role_sets:
            fixed = {"dropout": None, "flag": None, "causal": None, "positions": None}
            worked = False
            for assignment in assignments(free, tuple(roles), tuple(mask_roles), fixed):
                try:
                    for reading in _of_assignment(
                        candidate, block, wirings, roles, assignment, mask_roles, cross_masks, extra or {}
                    ):
                        worked = True
                        n += 1
                        yield reading
                except ProgramError as problem:
                    if problem.is_final:
                        raise
                    error = error or problem
            if worked:
                break
    if n == 0 and n_most != N_QUERY and takes_length(candidate):  # of one length only, perhaps
        fewer = {**sizes, "n_tokens": N_QUERY}
        for reading in block_readings(
            candidate,
            wire,
            role_sets=role_sets,
            masks=masks,
            cross_masks=cross_masks,
            sizes=fewer,
            extra=extra,
            n_most=N_QUERY,
        ):
            n += 1
            yield reading
    if n == 0 and error is not None:
        raise error


def takes_length(candidate: Candidate) -> bool:
    return any(role_of(p["name"], ("n_tokens",), SIZE_NAMES) for p in candidate.facts.get("init") or [])


def _of_assignment(
    candidate: Candidate,
    block: Block,
    wirings: tuple[Weights, ...],
    sources: Roles,
    assignment: Assignment,
    mask_roles: Mapping[str, str],
    cross_masks: Sequence[str],
    extra: Mapping[str, Any],
) -> Iterator[Reading]:
    roles = ("q", "k", "v") if "values" in sources.values() else tuple(dict.fromkeys(sources.values()))
    taken = [r for r in mask_roles if r in assignment.roles.values()]
    names = [p["name"] for p in candidate.parameters]
    shapes = ("cross", "self") if "memory" in roles or "k" in roles else ("self",)
    error: ProgramError | None = None
    for shape in shapes:
        n_layouts = 0
        for layout in _layouts(candidate, block, assignment, sources, shape, roles, mask_roles):
            facts = {
                "may": may_be(candidate), "layout": layout, "shape": shape, "roles": roles, "block": block, "n_heads": block.n_heads, "n_kv_heads": block.n_kv_heads,
                "kinds": {}, "seed": candidate.program.first_seed, "d_model": block.d_model, "mask_roles": mask_roles, "cross_masks": cross_masks, **extra,
            }  # fmt: skip
            runner = _runner(candidate, block.target, assignment, layout, sources, mask_roles)
            facts["grads"] = partial(_gradients, candidate, block.target, assignment, layout, sources)
            without: ProgramError | None = None
            try:
                plain = runner(case_of(facts, 0, {}), {})
            except ProgramError as problem:
                if problem.is_final:
                    raise
                plain, error, without = {}, error or problem, problem
            if "output" not in plain and not taken:
                continue
            said = (assignment.said(names), layout.said)
            cost = (
                0.05 * LAYOUTS.index(layout)
                + (0.0 if assignment.named else 0.5)
                + (0.2 if shape == "self" and len(shapes) > 1 else 0)
            )
            if "output" in plain:
                n_layouts += 1
                yield Reading(
                    (*said, "its mask was not understood" if taken else "no mask"),
                    partial(runner, encodings={}),
                    cost + (0.6 if taken else 0),
                    wirings,
                    {**facts, "optional": True, "partial": bool(taken)},
                )
            if taken:
                optional = "output" in plain
                for reading in _with_masks(candidate, runner, facts, taken, said, cost, wirings, optional, without):
                    n_layouts += 1
                    yield reading
            if n_layouts:
                break
        if n_layouts:
            return
    if error is not None:
        raise error


def _layouts(
    candidate: Candidate,
    block: Block,
    assignment: Assignment,
    sources: Roles,
    shape: str,
    roles: Sequence[str],
    mask_roles: Mapping[str, str],
) -> Sequence[BlockLayout]:
    """Tokens before the batch come first where examples mix in the usual layout, and not in that one."""
    facts = {
        "shape": shape,
        "roles": roles,
        "d_model": block.d_model,
        "n_heads": block.n_heads,
        "seed": candidate.program.first_seed,
        "mask_roles": mask_roles,
    }
    usual, tokens_first = (
        mixes_examples(
            _runner(candidate, block.target, assignment, layout, sources, mask_roles), {**facts, "layout": layout}
        )
        for layout in LAYOUTS[:2]
    )
    return (LAYOUTS[1], LAYOUTS[0], *LAYOUTS[2:]) if usual and not tokens_first else LAYOUTS


def _with_masks(
    candidate: Candidate,
    runner: Callable[..., dict[str, Tensor]],
    facts: dict[str, Any],
    taken: Sequence[str],
    said: tuple[str, ...],
    cost: float,
    wirings: tuple[Weights, ...],
    optional: bool,
    without: ProgramError | None,
) -> Iterator[Reading]:
    """Every meaning and rank of the masks; none where it fails as it does `without` them: they are not the reason."""
    mask_roles = facts["mask_roles"]
    n_alike = 0
    for i, (meaning_said, meaning) in enumerate(MEANINGS.items()):
        ranks = [
            ("bk", "bqk")
            if meaning == "lengths"
            else MASK_RANKS
            if len(taken) == 1
            else ("b1qk", "b11k", "qk", "bqk", "bk", "b1k")
            for _ in taken
        ]
        for chosen in itertools.product(*ranks):
            encodings = {role: (meaning, rank) for role, rank in zip(taken, chosen, strict=True)}
            kinds = {
                mask_roles[role]: "padding" if meaning == "lengths" else KIND_OF_RANK[rank]
                for role, (_, rank) in encodings.items()
            }
            try:
                answer = runner(case_of(facts, 0, kinds), encodings)
            except ProgramError as error:
                if error.is_final:
                    raise
                alike = without is not None and (error.line, error.message) == (without.line, without.message)
                n_alike = n_alike + 1 if alike else 0
                if n_alike > 3:
                    return
                continue
            if "output" not in answer:
                continue
            axes = "; ".join(
                "["
                + ", ".join(
                    {"b": "batch", "q": "query", "k": "key", "h": "head", "n": "batch x head"}.get(c, "1") for c in rank
                )
                + "]"
                for rank in chosen
            )
            worth = 0.01 * i + sum(0.001 * MASK_RANKS.index(rank) for rank in chosen)
            yield Reading(
                (*said, f"mask {axes}: {meaning_said}"),
                partial(runner, encodings=encodings),
                cost + worth,
                wirings,
                {
                    **facts,
                    "kinds": kinds,
                    "optional": optional,
                    "meaning": meaning,
                    "general": all(kind == "each" for kind in kinds.values()),
                },
            )


def _runner(
    candidate: Candidate,
    target: str | int,
    assignment: Assignment,
    layout: BlockLayout,
    sources: Roles,
    mask_roles: Mapping[str, str],
) -> Callable[..., dict[str, Tensor]]:
    required = {
        assignment.roles[p["name"]] for p in candidate.parameters if p["name"] in assignment.roles and not p["optional"]
    }

    def run(case: Case, encodings: Mapping[str, tuple[str, str]]) -> dict[str, Tensor]:
        values: dict[str, Any] = values_of(case, layout, sources)
        for role, name in mask_roles.items():
            visible = case.get(name)
            if role in encodings and visible is not None:
                mask = encode_mask(visible, *encodings[role], case.get("n_heads", N_HEADS))
                if mask is None:
                    return {}
                values[role] = mask
            elif role in required:
                values[role] = None
        return decode(call(candidate, target, assignment, values), layout, case["x"])

    return run


def _gradients(
    candidate: Candidate,
    target: str | int,
    assignment: Assignment,
    layout: BlockLayout,
    sources: Roles,
    case: Case,
) -> dict[str, float | None]:
    values: dict[str, Any] = dict.fromkeys(r for r in assignment.roles.values() if "mask" in r)
    return call(candidate, target, assignment, {**values, **values_of(case, layout, sources)}, grads=True).grads


def values_of(case: Case, layout: BlockLayout, sources: Roles) -> dict[str, Tensor]:
    return {
        role: layout.encode(case[name][..., None])[..., 0] if name == "target" else layout.encode(case[name])
        for role, name in sources.items()
    }


def decode(result: Result, layout: BlockLayout, x: Tensor) -> dict[str, Tensor]:
    leading = layout.encode(x).shape[:-1]
    for name, t in tensors_of(result):
        if (
            not name.startswith("self.")
            and t.ndim == len(leading) + 1
            and t.shape[:-1] == leading
            and t.is_floating_point()
        ):
            return {"output": layout.decode(t.double())}
    return {}


def case_of(facts: Mapping[str, Any], number: int, kinds: Mapping[str, str]) -> Case:
    """Case number so and so for a reading: with other masks, and without one where that is possible."""
    layout: BlockLayout = facts["layout"]
    shape = "self" if facts["shape"] == "self" or (number == 2 and "k" in facts["roles"]) else "cross"
    n_key = N_QUERY if shape == "self" else N_KEY
    d = facts["d_model"]
    masks = {name: "none" if number % 2 == 1 and facts.get("optional") else kind for name, kind in kinds.items()}
    over_memory = (
        "visible" in masks
        and ("k" in facts["roles"] or "memory" in facts["roles"])
        and "memory_visible" not in facts["mask_roles"].values()
    )
    case = block_case(
        layout.batch, N_QUERY, n_key, d, {**masks, "shape": "cross" if over_memory else "self"}, facts["seed"] + number
    )
    case["n_heads"], case["roles"] = facts["n_heads"], facts["roles"]
    if "target" in facts["roles"]:
        generator = torch.Generator().manual_seed(facts["seed"] + number)
        case["target"] = torch.randint(1, VOCAB, (layout.batch, N_QUERY), generator=generator)
    return case


def cases(reading: Reading, number: int) -> Case:
    return case_of(reading.facts, number, reading.facts["kinds"])
