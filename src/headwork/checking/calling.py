"""How somebody's program may be called: roles of its arguments, meanings of its mask, layouts, what it returns."""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from headwork.checking.names import ROLES
from headwork.checking.pointing import place_of
from headwork.checking.runner import As, Program, Result


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
    def place(self) -> str:
        """Where it is defined, in words."""
        line = self.facts.get("line")
        return place_of(self.source, self.filename, line) if line else ""

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
