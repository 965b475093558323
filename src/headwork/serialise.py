"""Configs as plain data, ready for JSON, and back; what a file gets wrong is named.

>>> data = config_to_dict(choices.FeedForward(d_ff=32))
>>> data
{'kind': 'FeedForward', 'd_ff': 32, 'activation': 'gelu', 'bias': True}
>>> config_from_dict(data, [choices.FeedForward]) == choices.FeedForward(d_ff=32)
True
"""

import dataclasses
import math
import types
import typing
from collections.abc import Iterable, Mapping
from typing import TypeVar

from headwork.checks import nearest

Config = TypeVar("Config")


def config_to_dict(config: object) -> dict[str, object]:
    """A frozen dataclass as a dictionary; each one inside it says its kind."""
    if not dataclasses.is_dataclass(config) or isinstance(config, type):
        raise TypeError(f"config must be an instance of a config class, got {config!r}")
    fields = {field.name: _plain(getattr(config, field.name)) for field in dataclasses.fields(config)}
    return {"kind": type(config).__name__, **fields}


def config_from_dict(data: object, kinds: Iterable[type[Config]]) -> Config:
    """The config that `data` describes, which must be of one of the `kinds`.

    >>> config_from_dict({"kind": "FeedForward", "d_ff": 32, "activaton": "relu"}, [choices.FeedForward])
    Traceback (most recent call last):
    ValueError: FeedForward has no key 'activaton'; did you mean 'activation'?
    """
    by_name = {kind.__name__: kind for kind in kinds}
    if not isinstance(data, Mapping):
        raise ValueError(f"a config must be an object with a 'kind' of {', '.join(by_name)}, got {data!r}")
    name = data.get("kind")
    if not isinstance(name, str) or name not in by_name:
        raise ValueError(f"kind must be one of {', '.join(by_name)}, got {name!r}")
    kind = by_name[name]
    hints = typing.get_type_hints(kind)
    given = {key: value for key, value in data.items() if key != "kind"}
    for key in given:
        if key not in hints:
            raise ValueError(f"{name} has no key {key!r}{nearest(key, hints)}")
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]  # every kind is a dataclass
        if field.name not in given and field.default is dataclasses.MISSING:
            raise ValueError(f"{name} needs the key {field.name!r}, which is missing")
    return kind(**{key: _read(value, hints[key], f"{name}.{key}") for key, value in given.items()})


class Checked:
    """A config whose fields are of the kinds their annotations say; dataclasses inherit from it."""

    def __post_init__(self) -> None:
        hints = typing.get_type_hints(type(self))
        for field in dataclasses.fields(self):  # type: ignore[arg-type]  # every heir is a dataclass
            value, options = getattr(self, field.name), _options(hints[field.name])
            if not any(_fits(value, option) for option in options):
                where = f"{type(self).__name__}.{field.name}"
                hint = " (an instance, with parentheses)" if isinstance(value, type) else ""
                raise ValueError(f"{where} must be {_wanted(options)}{hint}, got {value!r}")


def _plain(value: object) -> object:
    if dataclasses.is_dataclass(value):
        return config_to_dict(value)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and math.isinf(value):
        return "inf"  # JSON has no infinity
    return value


def _read(value: object, hint: object, where: str) -> object:
    """The value as the annotation wants it, or a ValueError that says where it does not fit."""
    options = _options(hint)
    configs = [option for option in options if dataclasses.is_dataclass(option)]
    if configs and isinstance(value, Mapping):
        return config_from_dict(value, typing.cast(list[type[object]], configs))
    for option in options:
        if _fits(value, option):
            return _as(value, option)
    raise ValueError(f"{where} must be {_wanted(options)}, got {value!r}")


def _options(hint: object) -> tuple[object, ...]:
    return typing.get_args(hint) if typing.get_origin(hint) in (types.UnionType, typing.Union) else (hint,)


def _wanted(options: tuple[object, ...]) -> str:
    return " or ".join(_name_of(option) for option in options)


def _name_of(option: object) -> str:
    if typing.get_origin(option) is typing.Literal:
        return "one of " + ", ".join(map(str, typing.get_args(option)))
    return "None" if option is type(None) else getattr(option, "__name__", str(option))


def _fits(value: object, option: object) -> bool:
    if option in (None, type(None)):
        return value is None
    if typing.get_origin(option) is typing.Literal:
        return value in typing.get_args(option)
    if typing.get_origin(option) is tuple:
        items = typing.get_args(option)
        if not isinstance(value, list | tuple):
            return False
        items = (items[0],) * len(value) if items[-1] is Ellipsis else items
        return len(items) == len(value) and all(map(_fits, value, items))
    if option is float:
        return value == "inf" or (isinstance(value, int | float) and not isinstance(value, bool))
    if option is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(option, type) and isinstance(value, option)


def _as(value: object, option: object) -> object:
    if option is float:
        return float(typing.cast(float, value))
    return tuple(value) if isinstance(value, list) else value
