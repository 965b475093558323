"""How a class of somebody's program may be made: sizes by their names, modules, configurations, globals, factories."""

import ast
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from headwork.checking.calling import Candidate, role_of
from headwork.checking.configuring import USUAL_EPS, is_config, make_config, size_roles
from headwork.checking.finding import snake
from headwork.checking.names import PARTS, SIZE_NAMES
from headwork.checking.pointing import called_arguments, own_source
from headwork.checking.runner import As, Made, ProgramError


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
    has_length = any(_size_role(p, sizes) == "n_tokens" for p in parameters if p["name"] != "n")
    for p in parameters:
        name = p["name"]
        role = _size_role(p, sizes)
        if stacked and "vocab" in sizes and re.fullmatch(r"(in|out)put_(dim|size)", name.lower()):
            role = "vocab"  # of a whole model, beside its hid_dim
        if name == "n" and has_length and "n_layers" in sizes:
            role = "n_layers"
        if role == "dropout" and p["annotation"] == "int":  # "rate" may be a factor
            role = "ratio" if "ratio" in sizes else None
        if is_part(candidate, p, role):
            part = make_part(candidate, p, sizes, depth)
            if part is None:  # a module that this program has no class for
                return
            kwargs[name] = part
            continue
        if is_config(candidate, p):
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
    return role is None and part_of_name(name) is not None and not is_config(candidate, p)


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


def numbers_read(candidate: Candidate) -> dict[str, float]:
    """Numbers that a program takes from around it, and those that are the defaults of a call."""
    found = {p["name"]: p["default"] for p in candidate.parameters if p["optional"]}
    own = own_source(candidate.source, candidate.name) if candidate.source else ""
    taken = {p["name"] for p in [*candidate.parameters, *(candidate.facts.get("init") or [])]}
    for name, value in (candidate.everything.get("globals") or {}).items():
        read = rf"(?<![\w.]){re.escape(name)}\b(?!\s*(=[^=]|\())"
        bound = rf"(?<![\w.]){re.escape(name)}\s*=[^=]"
        if name not in taken and re.search(read, own) and not re.search(bound, own):
            found[name] = value
    return {n: v for n, v in found.items() if isinstance(v, int | float) and not isinstance(v, bool) and v > 0}


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
    taken = [p for p in _taken(candidate.facts.get("init")) if not p["optional"] and not is_config(candidate, p)]
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
