"""Any field of a run's config by its path: `training.optimiser.lr`, `model.position`, `data.n_valid`."""

import ast
import json
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, is_dataclass, replace
from typing import Any

from torch import nn

from headwork.checks import nearest
from headwork.serialise import config_from_dict, config_to_dict
from headwork.storage.models import classes_in
from headwork.training.config import RunConfig
from headwork.training.run import RUN_CLASSES


def override(config: RunConfig, values: Mapping[str, object], classes: Iterable[type] = ()) -> RunConfig:
    """The config with other values, checked again as a whole; a choice is set by the name of its class, or by a dict.

    >>> config = hw.recipes.find_recipe("text-gpt")
    >>> changed = override(config, {"training.optimiser.lr": 1e-3, "model.position": "RotaryPositions"})
    >>> changed.training.optimiser.lr, type(changed.model.position).__name__
    (0.001, 'RotaryPositions')
    """
    if isinstance(config.model, nn.Module) and not any(path.partition(".")[0] == "model" for path in values):
        # Built again from its arguments it would lose its weights.
        rest = override(replace(config, model=_NoModel()), values, classes)
        return replace(rest, model=config.model)
    data: dict[str, Any] = config_to_dict(config)
    for path, value in values.items():
        *parents, name = path.split(".")
        inside = data
        for number, parent in enumerate(parents):
            inside = _field(inside, parent, path)
            if not isinstance(inside, dict):
                raise ValueError(f"{path} cannot be set: {'.'.join(parents[: number + 1])} is {inside!r}")
        before = _field(inside, name, path)
        is_choice = isinstance(before, dict) and isinstance(value, str)
        inside[name] = {"kind": value} if is_choice else value
    return config_from_dict(data, RUN_CLASSES, {*classes_in(config), *classes, _NoModel})


@dataclass(frozen=True)
class _NoModel:
    def build(self) -> nn.Module:
        raise NotImplementedError


def _field(data: dict[str, Any], name: str, path: str) -> Any:
    names = [key for key in data if key != "kind"]
    # A choice that was just set by its name has its own fields only once it is built.
    if name not in names and len(data) > 1:
        raise ValueError(f"{path} cannot be set: {data['kind']} has no field {name!r}{nearest(name, names)}")
    return data.get(name)


def read_settings(settings: Iterable[str]) -> dict[str, object]:
    """`path=value` pairs as people type them: the value in JSON or as in Python, or else a text.

    >>> read_settings(["training.optimiser.lr=1e-3", "model.image=(8, 8)", "model.position=RotaryPositions"])
    {'training.optimiser.lr': 0.001, 'model.image': [8, 8], 'model.position': 'RotaryPositions'}
    """
    found: dict[str, object] = {}
    for setting in settings:
        path, equals, text = setting.partition("=")
        if not equals or not path:
            raise ValueError(f"set must be path=value, such as training.optimiser.lr=1e-3, got {setting!r}")
        found[path.strip()] = _read_value(text.strip())
    return found


def _read_value(text: str) -> object:
    for read in (json.loads, ast.literal_eval):
        try:
            value = read(text)
        except (ValueError, SyntaxError):
            continue
        return json.loads(json.dumps(value))  # tuples are lists in JSON
    return text


def choices_at(config: RunConfig, path: str) -> list[str] | None:
    """The names of the choices for a field, in the order of its annotation; None if there is no such field."""
    *parents, name = path.split(".")
    inside: object = config
    for parent in parents:
        inside = getattr(inside, parent, None)
    if not is_dataclass(inside) or not hasattr(inside, name):
        return None
    hint = typing.get_type_hints(type(inside))[name]
    options = typing.get_args(hint) if typing.get_origin(hint) in (types.UnionType, typing.Union) else (hint,)
    return [option.__name__ for option in options if is_dataclass(option) and isinstance(option, type)]
