"""Configurations that constructors take: an object, a dict, a dataclass of the file, or one inside of another."""

import re
from collections.abc import Mapping
from typing import Any

from headwork.checking.calling import Candidate, role_of
from headwork.checking.names import SIZE_NAMES
from headwork.checking.pointing import own_source
from headwork.checking.runner import As

USUAL_EPS = 1e-5


def size_roles(sizes: Mapping[str, Any]) -> list[str]:
    """The sizes that are known, in the order in which a name is tried for them: channels are an image's where there is one."""
    return sorted((r for r in sizes if r in SIZE_NAMES), key=lambda r: r != "n_channels")


def is_config(candidate: Candidate, p: Mapping[str, Any]) -> bool:
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
