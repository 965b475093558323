"""How somebody's program may be called: roles of its arguments, meanings of its mask, layouts, what it returns."""

import ast
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from headwork.checking.finding import snake
from headwork.checking.names import PARTS, ROLES, SIZE_NAMES
from headwork.checking.pointing import called_arguments, own_source
from headwork.checking.runner import As, Made, Program, ProgramError, Result

USUAL_EPS = 1e-5


def role_of(name: str, wanted: Sequence[str], names: Mapping[str, str] = ROLES) -> str | None:
    """The first role that a name stands for.

    >>> role_of("queries", ("q", "k", "v")), role_of("foo", ("q",))
    ('q', None)
    """
    plain = re.sub(r"^(number|num|n|nb)_of_|_count$", "", name.lower().strip("_"))
    return next((role for role in wanted if re.fullmatch(names[role].lower(), plain)), None)


@dataclass(frozen=True)
class Candidate:
    """A function, class or object of somebody's program that may be a subject."""

    name: str
    facts: dict[str, Any]
    program: Program
    source: str = ""
    filename: str = ""
    everything: Mapping[str, Any] = field(default_factory=dict)
    """All names of the program with their facts, and `globals` for its numbers."""
    dropout: float = 0.0
    options: Mapping[str, Any] = field(default_factory=dict)
    """Arguments that every call is given besides its inputs."""
    made_with: Mapping[str, Any] = field(default_factory=dict)
    """Arguments that the constructor is given besides the sizes."""

    @property
    def kind(self) -> str:
        return self.facts["kind"]

    @property
    def parameters(self) -> list[dict[str, Any]]:
        """What a call takes."""
        found = self.facts.get("call" if self.kind == "function" else "forward")
        return [] if found is None else [p for p in found if p["kind"] not in ("VAR_POSITIONAL", "VAR_KEYWORD")]

    @property
    def is_variadic(self) -> bool:
        return any(p["kind"] == "VAR_POSITIONAL" for p in self.facts.get("forward") or self.facts.get("call") or [])


@dataclass(frozen=True)
class Assignment:
    """Which argument plays which role; what else has to be passed; how sure the names make it."""

    roles: Mapping[str, str]
    fixed: Mapping[str, Any]
    named: bool
    keyword: frozenset[str] = frozenset()

    def said(self, order: Sequence[str]) -> str:
        return "(" + ", ".join(self.roles[p] for p in order if p in self.roles) + ")"


def assignments(
    parameters: Sequence[Mapping[str, Any]],
    required: Sequence[str],
    optional: Sequence[str] = (),
    fixed: Mapping[str, Any] | None = None,
) -> Iterator[Assignment]:
    """Roles by the names of the parameters; where the names do not say, every order of the roles that are left."""
    roles: dict[str, str] = {}
    constants: dict[str, Any] = {}
    open_parameters: list[str] = []
    wanted = (*required, *optional)
    for p in parameters:
        name = p["name"]
        role = side_of(name) if "memory" in required and "x" in required else None
        role = role or role_of(name, [r for r in wanted if r not in roles.values()])
        constant = role_of(name, list(fixed or {}))
        if name in ("device", "dtype"):
            if not p["optional"]:
                constants[name] = As("device", "cpu") if name == "device" else As("dtype", "float64")
        elif re.fullmatch(r"(is_|in_)?train(ing)?(_mode)?", name.lower()):
            constants[name] = False
        elif role is not None and not (constant is not None and p["optional"] and role in ("x", "k")):
            roles[name] = role
        elif constant is not None and fixed is not None:
            if not p["optional"] or fixed[constant] is not None:
                constants[name] = fixed[constant]
        elif not p["optional"]:
            open_parameters.append(name)
    left = [r for r in required if r not in roles.values()]
    extra = [r for r in optional if r not in roles.values()]
    keyword = frozenset(p["name"] for p in parameters if p["kind"] == "KEYWORD_ONLY")
    if not left and not open_parameters:
        yield Assignment(roles, constants, named=True, keyword=keyword)
        return
    if not open_parameters:  # names took them all, for the wrong roles perhaps
        open_parameters = [p["name"] for p in parameters if p["name"] not in constants and not p["optional"]]
        roles, left, extra = {}, list(required), list(optional)
    if len(left) > len(open_parameters) or len(open_parameters) > len(left) + len(extra) or len(open_parameters) > 5:
        return
    pool = [*left, *extra]
    for order in itertools.permutations(pool, len(open_parameters)):
        if set(left) <= set(order):
            yield Assignment({**roles, **dict(zip(open_parameters, order, strict=True))}, constants, False, keyword)


def side_of(name: str) -> str | None:
    """x or memory, of a decoder whose arguments are named after the two languages.

    >>> side_of("trg"), side_of("src_representations_batch"), side_of("src_mask")
    ('x', 'memory', None)
    """
    plain = name.lower()
    if "mask" in plain or "len" in plain:
        return None
    sides = {"x": r"(tgt|trg|target|dec)(_.*|s|inputs?)?", "memory": r"(src|source|enc)(_.*|s|oded|outputs?)?"}
    return next((side for side, names in sides.items() if re.fullmatch(names, plain)), None)


def call(
    candidate: Candidate,
    target: str | int,
    assignment: Assignment,
    values: Mapping[str, Any],
    *,
    method: str | None = None,
    train: bool = False,
    grads: bool = False,
) -> Result:
    """Call with a value for each role; roles without a value are left to their defaults."""
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    gap = False
    for p in candidate.parameters if method is None else candidate.facts["methods_of"][method]:
        name = p["name"]
        if name in candidate.options:
            value = candidate.options[name]
        elif name in assignment.roles and assignment.roles[name] in values:
            value = values[assignment.roles[name]]
        elif name in assignment.fixed:
            value = assignment.fixed[name]
        else:
            gap = True
            continue
        if value is not None:
            candidate.program.passed.add(name)
        if gap or p["kind"] == "KEYWORD_ONLY":
            kwargs[name] = value
        else:
            args.append(value)
    candidate.program.target = target
    return candidate.program.call(target, args, kwargs, method=method, train=train, grads=grads)


def tensors_of(result: Result) -> list[tuple[str, Tensor]]:
    """Every tensor that came back, with where it was."""
    found: list[tuple[str, Tensor]] = []

    def walk(value: Any, name: str) -> None:
        if isinstance(value, Tensor):
            found.append((name, value))
        elif isinstance(value, list):
            for i, v in enumerate(value):
                walk(v, f"{name}[{i}]")
        elif isinstance(value, dict):
            for k, v in value.items():
                walk(v, f"{name}.{k}")

    walk(result.value, "result")
    return [*found, *((f"self.{name}", t) for name, t in result.attributes.items())]


def pick(result: Result, shape: Sequence[int], *, attributes: bool = False) -> tuple[str, Tensor] | None:
    """The first tensor of a shape."""
    for name, t in tensors_of(result):
        if tuple(t.shape) == tuple(shape) and (attributes or not name.startswith("self.")):
            return name, t.to(torch.float64)
    return None


# Masks -----------------------------------------------------------------------------------------------------------


MEANINGS: dict[str, str] = {
    "True = may attend": "keep",
    "1 = may attend": "keep ones",
    "True = hidden": "block",
    "1 = hidden": "block ones",
    "added to the scores, -inf = hidden": "added",
    "added to the scores, -1e9 = hidden": "added finite",
    "lengths": "lengths",
}
RANKS = ("b1qk", "bqk", "qk", "b11k", "b1k", "bk", "bhqk", "nqk", "11qk", "1qk", "k")


def encode_mask(visible: Tensor, meaning: str, rank: str, heads: int) -> Tensor | None:
    """Our mask "batch 1 query key" as somebody wants it; None where it cannot be said in that rank."""
    batch, _, n_query, n_key = visible.shape
    same_rows = bool((visible == visible[:, :, :1]).all())
    same_batch = bool((visible == visible[:1]).all())
    if meaning == "lengths":
        counts = visible.sum(-1)
        if not bool((visible == (torch.arange(n_key) < counts[..., None])).all()):
            return None
        return counts[:, 0, 0] if same_rows and rank == "bk" else counts[:, 0] if rank == "bqk" else None
    if rank in ("qk", "11qk", "1qk") and not same_batch:
        return None
    if rank in ("b11k", "b1k", "bk") and not same_rows:
        return None
    if rank == "k" and not (same_rows and same_batch):
        return None
    shaped = {
        "b1qk": lambda: visible,
        "bqk": lambda: visible[:, 0],
        "qk": lambda: visible[0, 0],
        "11qk": lambda: visible[:1],
        "1qk": lambda: visible[0],
        "b11k": lambda: visible[:, :, :1],
        "b1k": lambda: visible[:, 0, :1],
        "bk": lambda: visible[:, 0, 0],
        "k": lambda: visible[0, 0, 0],
        "bhqk": lambda: visible.expand(batch, heads, n_query, n_key),
        "nqk": lambda: visible.expand(batch, heads, n_query, n_key).flatten(0, 1),
    }[rank]()
    dtype = torch.float64
    zero = torch.zeros(shaped.shape, dtype=dtype)
    return {
        "keep": lambda: shaped.contiguous(),
        "keep ones": lambda: shaped.to(dtype),
        "block": lambda: ~shaped,
        "block ones": lambda: (~shaped).to(dtype),
        "added": lambda: zero.masked_fill(~shaped, float("-inf")),
        "added finite": lambda: zero.masked_fill(~shaped, -1e9),
    }[meaning]()


def random_visible(kind: str, batch: int, n_query: int, n_key: int, generator: torch.Generator) -> Tensor | None:
    """A mask "batch 1 query key" under which every query sees something.

    Kinds: `none`, `all` (nothing is hidden), `each` (another for every query and sentence), `pairs` (for every query), `padding` (lengths).
    """
    if kind == "none":
        return None
    if kind == "all":
        return torch.ones(batch, 1, n_query, n_key, dtype=torch.bool)
    if kind == "padding":
        lengths = torch.full((batch,), max(1, n_key // 2))
        if batch > 1:
            lengths[0] = max(1, n_key - 2)
        return (torch.arange(n_key) < lengths[:, None, None, None]).expand(batch, 1, n_query, n_key).contiguous()
    n = 1 if kind == "pairs" else batch
    visible = torch.rand(n, 1, n_query, n_key, generator=generator) < 0.6
    if kind == "rows":
        visible = visible[:, :, :1].expand(n, 1, n_query, n_key).clone()
    visible[..., 0] |= ~visible.any(-1)
    visible[:, :, 0, -1] = False
    visible[:, :, -1, -1] = True
    visible[:, :, 0, 0] = True
    return visible.expand(batch, 1, n_query, n_key).contiguous()


KIND_OF_RANK = {
    "b1qk": "each", "bqk": "each", "bhqk": "each", "nqk": "each", "qk": "pairs", "11qk": "pairs", "1qk": "pairs",
    "b11k": "padding", "b1k": "padding", "bk": "padding", "k": "one padding",
}  # fmt: skip


# Constructors ----------------------------------------------------------------------------------------------------


def constructor_values(
    candidate: Candidate, sizes: Mapping[str, Any], defaults: Mapping[str, Any] | None = None
) -> Iterator[tuple[list[Any], dict[str, Any], tuple[str, ...]]]:
    """Arguments for the constructor of a class, from its names for sizes; configs, dicts and globals as well."""
    taken = _taken(candidate.facts.get("init"))
    known = candidate.everything.get("globals") or {}
    around = {p["name"]: known[p["name"]] for p in taken if isinstance(known.get(p["name"]), int)}
    for args, kwargs, used in _constructor_values(candidate, taken, usual_sizes(candidate, sizes, defaults)):
        yield args, kwargs, used
        if around and {**kwargs, **around} != kwargs:  # its parts may read globals of the same names
            yield args, {**kwargs, **around}, used


def _taken(parameters: Sequence[Mapping[str, Any]] | None) -> list[Mapping[str, Any]]:
    return [p for p in parameters or [] if p["kind"] not in ("VAR_POSITIONAL", "VAR_KEYWORD")]


def usual_sizes(
    candidate: Candidate, sizes: Mapping[str, Any], defaults: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    return {
        "dropout": candidate.dropout,
        "bias": True,
        "device": None,
        "dtype": None,
        "pad": 0,
        "activation": None,
        **(defaults or {}),
        **sizes,
    }


def _constructor_values(
    candidate: Candidate, parameters: Sequence[Mapping[str, Any]], sizes: Mapping[str, Any], depth: int = 0
) -> Iterator[tuple[list[Any], dict[str, Any], tuple[str, ...]]]:
    kwargs: dict[str, Any] = {}
    unknown: list[str] = []
    stacked = any(role_of(p["name"], ("n_layers",), SIZE_NAMES) for p in parameters)
    for p in parameters:
        name = p["name"]
        role = _size_role(p, sizes)
        if stacked and "vocab" in sizes and re.fullmatch(r"(in|out)put_(dim|size)", name.lower()):
            role = "vocab"  # of a whole model, beside its hid_dim
        if role == "dropout" and p["annotation"] == "int":  # "rate" may be a factor
            role = "ratio" if "ratio" in sizes else None
        if is_part(candidate, p, role):
            part = make_part(candidate, p, sizes, depth)
            if part is None:  # a module that this program has no class for
                return
            kwargs[name] = part
            continue
        if _is_config(candidate, p):
            config = make_config(candidate, p, sizes)
            if config is not None:
                kwargs[name] = config
            elif not p["optional"]:
                unknown.append(name)
            continue
        if role is None:
            if not p["optional"]:
                unknown.append(name)
            continue
        value = sizes[role]
        if p["optional"] and (
            value is None or role in ("bias", "base", "activation", "pad", "d_head", "norm_first", "pooling", "causal")
        ):
            continue
        if role == "dropout" and p["optional"] and (p["default"] is None or p["default"] > 1):
            continue
        if role in ("device",):
            value = As("device", "cpu")
        elif role == "dtype":
            value = As("dtype", "float64" if candidate.program.double else "float32")
        elif role == "activation":
            value = "relu" if p["annotation"] == "str" else As("module", "ReLU")
        elif value is None:
            if not p["optional"]:
                kwargs[name] = {"causal": False, "norm_first": False, "eps": USUAL_EPS}.get(role)
            continue
        kwargs[name] = value
    if not unknown:
        yield [], kwargs, tuple(kwargs)
        shapes = {n: [v] for n, v in kwargs.items() if n.endswith("shape") and isinstance(v, int)}
        if shapes:
            yield [], {**kwargs, **shapes}, tuple(kwargs)
        if "t" in kwargs:  # a width, beside d
            yield [], {**kwargs, "t": sizes.get("d_model")}, tuple(kwargs)
        return
    used = {role_of(n, [r for r in sizes if r in SIZE_NAMES], SIZE_NAMES) for n in kwargs}
    pool = [
        r
        for r in ("d_model", "n_heads", "d_head", "d_ff", "n_tokens", "n_layers", "vocab")
        if r in sizes and r not in used
    ]
    for order in itertools.islice(itertools.permutations(pool, len(unknown)), 60):
        yield [], {**kwargs, **{n: sizes[r] for n, r in zip(unknown, order, strict=True)}}, order


def is_part(candidate: Candidate, p: Mapping[str, Any], role: str | None) -> bool:
    """Whether an argument of the constructor is a module: it is called, cloned or looped over, or its name says so."""
    name = p["name"]
    if p["optional"] or candidate.kind != "class" or p["annotation"] in ("int", "float", "bool", "str"):
        return False
    if role in ("activation", "dropout", "device", "dtype"):
        return False
    if "Module" in p["annotation"] or p["annotation"] in candidate.everything.get("parts", {}):
        return True
    if candidate.source and name in called_arguments(candidate.source, candidate.name):
        return True
    return role is None and part_of_name(name) is not None and not _is_config(candidate, p)


def part_of_name(name: str) -> str | None:
    return next((part for part, (called, _) in PARTS.items() if re.fullmatch(called, name.lower())), None)


def make_part(candidate: Candidate, p: Mapping[str, Any], sizes: Mapping[str, Any], depth: int = 0) -> As | None:
    """A module for an argument: of the class that it is annotated with, or of one whose name fits; a list of two for layers."""
    classes = candidate.everything.get("parts", {})
    listed = "List" in p["annotation"] or "list" in p["annotation"]
    chosen = p["annotation"].strip("'\"") if p["annotation"].strip("'\"") in classes else None
    if chosen is None:
        part = part_of_name(p["name"])
        if part == "encoder layer" and "decoder" in snake(candidate.name):
            part = "decoder layer"
        if part is None:
            table = re.fullmatch(r"(\w*_)?(emb(ed(ding)?s?)?)(_layer)?", p["name"].lower())
            return As("module", "Embedding", args=(sizes["vocab"], sizes["d_model"])) if table else None
        named = [n for n in classes if n != candidate.name and re.fullmatch(PARTS[part][1], snake(n))]
        named.sort(key=lambda n: _fitness(part, snake(n)))
        if not named:
            return None
        chosen = named[0]
    of_part = replace(candidate, name=chosen, facts=classes[chosen])
    if depth > 3:
        return None
    for _, kwargs, _ in _constructor_values(of_part, _taken(classes[chosen]["init"]), sizes, depth + 1):
        new = As("new", chosen, kwargs)
        return As("modules", [new, new]) if listed or p["name"].lower().endswith(("layers", "blocks")) else new
    return None


def missing_parts(candidate: Candidate, sizes: Mapping[str, Any]) -> list[str]:
    """Modules that the constructor takes, and that no class of the program makes."""
    if candidate.kind != "class" or next(factories(candidate), None) is not None:
        return []
    usual = usual_sizes(candidate, sizes)
    parts = [p for p in _taken(candidate.facts.get("init")) if is_part(candidate, p, _size_role(p, usual))]
    return [p["name"] for p in parts if make_part(candidate, p, usual) is None]


def unknown_arguments(candidate: Candidate, sizes: Mapping[str, Any]) -> list[str]:
    """Arguments that the constructor must be given, and whose names say nothing."""
    if candidate.kind != "class":
        return []
    usual = usual_sizes(candidate, sizes)
    taken = [p for p in _taken(candidate.facts.get("init")) if not p["optional"] and not _is_config(candidate, p)]
    return [p["name"] for p in taken if _size_role(p, usual) is None and not is_part(candidate, p, None)]


def _size_role(p: Mapping[str, Any], sizes: Mapping[str, Any]) -> str | None:
    if p["name"] == "N" and "n_layers" in sizes:  # as in the paper; a length is not called so
        return "n_layers"
    return role_of(p["name"], size_roles(sizes), SIZE_NAMES)


def _fitness(part: str, name: str) -> tuple[bool, ...]:
    if part == "cross-attention":
        return "cross" not in name, "multi" not in name, "scale" in name
    if part == "attention":
        return "cross" in name, "multi" not in name, "scale" in name or "dot" in name
    return "encoder" not in name, len(name) > 20


def factories(candidate: Candidate) -> Iterator[str]:
    """Functions of the program that call the class and return something: make_model, build_transformer."""
    tree = ast.parse(candidate.source) if candidate.source else ast.Module([], [])
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and candidate.everything.get("names", {}).get(node.name, {}).get("call"):
            calls = {n.func.id for n in ast.walk(node) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
            if candidate.name in calls and any(isinstance(n, ast.Return) and n.value for n in ast.walk(node)):
                yield node.name


def size_roles(sizes: Mapping[str, Any]) -> list[str]:
    """The sizes that are known, in the order in which a name is tried for them: channels are an image's where there is one."""
    return sorted((r for r in sizes if r in SIZE_NAMES), key=lambda r: r != "n_channels")


def _is_config(candidate: Candidate, p: Mapping[str, Any]) -> bool:
    """Whether an argument is a configuration: by its name, or because the class reads `name["key"]` or `name.key`."""
    name = p["name"]
    if re.fullmatch(
        r"(\w*_)?(config|cfg|conf|args|params|hparams|opt|options|hyperparams|model_args|hp|settings)", name.lower()
    ):
        return True
    if candidate.kind != "class" or not candidate.source or p["annotation"] in ("int", "float", "bool", "str"):
        return False
    own = own_source(candidate.source, candidate.name)
    read = re.findall(rf"(?<![\w.]){re.escape(name)}(?:\[[\"']([a-z_]\w*)[\"']\]|\.([a-z]\w*)\b(?!\s*\())", own)
    return any(role_of(key or attribute, list(SIZE_NAMES), SIZE_NAMES) for key, attribute in read)


def make_config(candidate: Candidate, p: Mapping[str, Any], sizes: Mapping[str, Any]) -> Any:
    """A configuration object with every name that the source reads from it."""
    name = p["name"]
    read = set(re.findall(rf"(?:\b|self\.){re.escape(name)}\s*(?:\.|\[[\"']|\.get\([\"'])(\w+)", candidate.source))
    if re.search(r"config|cfg|args|params", name.lower()):
        read |= set(re.findall(r"(?:config|cfg|args|params)\s*(?:\.|\[[\"']|\.get\([\"'])(\w+)", candidate.source))
    read -= {"get", "items", "keys", "values", "copy", "update", "pop"}
    values: dict[str, Any] = {}
    for known in (candidate.everything.get("globals") or {}).values():
        if isinstance(known, dict):
            content = known.get("dict") or known.get("object") or {}
            if read & set(content):
                values.update(content)
    fields = {}
    classes = candidate.everything.get("names", {})
    annotated = p["annotation"].strip("'\"")
    if not classes.get(annotated, {}).get("fields"):  # a dataclass that has all that is read
        annotated = next((n for n, c in classes.items() if read and read <= set(c.get("fields", ()))), "")
    if annotated:
        fields = {f["name"]: f for f in classes[annotated]["init"] or []}
        read |= set(fields)
    inner = nested(candidate.source, name)
    for key in read:
        if key in inner and not isinstance(values.get(key), dict | As):
            values[key] = As("config", _nested_values(key, inner[key], sizes))
            continue
        role = role_of(key, size_roles(sizes), SIZE_NAMES)
        if role is not None and sizes[role] is not None:
            values[key] = sizes[role]
        elif key in fields and fields[key]["optional"]:
            values[key] = fields[key]["default"]
        elif role == "eps":
            values[key] = USUAL_EPS
        elif key not in values:
            values[key] = False if re.match(r"use_|is_|flash|return_|tie|do_|with_", key) else None
    if fields:
        return As("new", annotated, {k: v for k, v in values.items() if k in fields and v is not None})
    return As("config", values) if values else None


def nested(source: str, name: str) -> dict[str, set[str]]:
    """What is read from the parts of a configuration: `config.transformer["num_heads"]`, `config.patches.size`."""
    found: dict[str, set[str]] = {}
    of = rf"(?:\b{re.escape(name)}|config|cfg|args)"
    for key, inner in re.findall(rf"{of}\.(\w+)(?:\.get\([\"']|\[[\"']|\.)(\w+)", source):
        found.setdefault(key, set()).add(inner)
    for key, inner in re.findall(rf"{of}\[[\"'](\w+)[\"']\](?:\.get\([\"']|\[[\"'])(\w+)", source):
        found.setdefault(key, set()).add(inner)
    methods = {
        "get",
        "items",
        "keys",
        "values",
        "copy",
        "update",
        "pop",
        "split",
        "lower",
        "format",
        "startswith",
        "join",
    }
    return {key: inner - methods for key, inner in found.items() if inner - methods and key not in methods}


def _nested_values(key: str, inner: set[str], sizes: Mapping[str, Any]) -> dict[str, Any]:
    one = re.sub(r"(?<=h)es$|s$", "", key)
    values: dict[str, Any] = {}
    for name in inner:
        role = role_of(f"{one}_{name}", size_roles(sizes), SIZE_NAMES) or role_of(name, size_roles(sizes), SIZE_NAMES)
        values[name] = None if role in (None, "grid") else sizes[role]
    return values


def make_with(candidate: Candidate, args: Sequence[Any], kwargs: dict[str, Any], sizes: Mapping[str, Any]) -> Made:
    """Construct it; what another file reads from a configuration is added as it is asked for."""
    configs = [v for v in kwargs.values() if isinstance(v, As) and v.kind == "config"]
    for _ in range(12):
        try:
            return candidate.program.make(candidate.name, args, kwargs)
        except ProgramError as error:
            asked = re.search(r"config has no '(\w+)'", error.message) or re.fullmatch(r"'(\w+)'", error.message)
            if not configs or asked is None or asked[1] in configs[0].content:
                raise
            role = role_of(asked[1], size_roles(sizes), SIZE_NAMES)
            for config in configs:
                config.content[asked[1]] = None if role is None else sizes[role]
    return candidate.program.make(candidate.name, args, kwargs)


def make(
    candidate: Candidate, sizes: Mapping[str, Any], defaults: Mapping[str, Any] | None = None
) -> Iterator[tuple[Made, dict[str, Any]]]:
    """Every way to construct the candidate that does not fail, with what was passed; an object is given already."""
    if candidate.kind == "instance":
        yield Made(candidate.program, candidate.facts["made"]), {}
        return
    last: ProgramError | None = None
    n = 0
    for args, kwargs, _ in constructor_values(candidate, sizes, defaults):
        kwargs = {**kwargs, **candidate.made_with}
        try:
            made = make_with(candidate, args, kwargs, sizes)
            candidate.program.constructed[made.id] = dict(kwargs)
            yield made, dict(kwargs)
            n += 1
        except ProgramError as error:
            if error.is_final:
                raise
            last = error
    if n == 0:
        for name in factories(candidate):
            taken = _taken(candidate.everything["names"][name]["call"])
            of_function = replace(candidate, facts=candidate.everything["names"][name])
            for _, kwargs, _ in _constructor_values(of_function, taken, usual_sizes(candidate, sizes, defaults)):
                try:
                    result = candidate.program.call(name, [], kwargs).value
                except ProgramError as error:
                    last = last or error
                    continue
                paths = (
                    [n for n, kind in result.facts["modules"].items() if kind == candidate.name]
                    if isinstance(result, Made)
                    else []
                )
                if paths:
                    made = result if paths[0] == "" else candidate.program.part(result, paths[0])
                    candidate.program.constructed[made.id] = dict(kwargs)
                    yield made, dict(kwargs)
                    return
    if n == 0 and last is not None:
        raise last
