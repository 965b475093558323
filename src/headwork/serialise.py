"""Configs as plain data, ready for JSON, and back; what a file gets wrong is named.

>>> data = config_to_dict(choices.FeedForward(d_ff=32))
>>> data
{'kind': 'FeedForward', 'd_ff': 32, 'activation': 'gelu', 'bias': True}
>>> config_from_dict(data, [choices.FeedForward]) == choices.FeedForward(d_ff=32)
True
"""

import dataclasses
import inspect
import math
import types
import typing
from collections.abc import Iterable, Mapping
from typing import TypeVar

from headwork.checks import nearest

Config = TypeVar("Config")


def config_to_dict(config: object) -> dict[str, object]:
    """A frozen dataclass, or an object by its constructor's arguments, as a dictionary; each one inside says its kind.

    A model that has its config is that config, and the parts it was given beside it.
    """
    if config is None or isinstance(config, type | int | float | str | Mapping | list | tuple):
        raise TypeError(f"config must be an instance of a config class, got {config!r}")
    if not dataclasses.is_dataclass(config) and hasattr(getattr(config, "config", None), "build"):
        parts: dict[str, object] = getattr(config, "parts", {})
        own = config.config  # type: ignore[attr-defined]
        if not parts:
            return config_to_dict(own)
        arguments = {"config": own, **parts}
    else:
        arguments = arguments_of(config)
    return {"kind": type(config).__name__, **{name: _plain(value) for name, value in arguments.items()}}


def arguments_of(config: object) -> dict[str, object]:
    """What makes an equal object: the fields of a dataclass, or the constructor's arguments, kept as attributes."""
    if dataclasses.is_dataclass(config):
        return {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    found = {}
    for name in _parameters(type(config)):
        if name not in ("device", "dtype"):
            if not hasattr(config, name):
                kind = type(config).__name__
                raise ValueError(
                    f"{kind} must keep its argument {name!r} as an attribute of that name, so that it can be saved: "
                    f"write `self.{name} = {name}` in its __init__"
                )
            found[name] = getattr(config, name)
    return found


def config_from_dict(data: object, classes: Iterable[type[Config]]) -> Config:
    """The object that `data` describes, which must be of one of the `classes`; those inside it, too.

    >>> config_from_dict({"kind": "FeedForward", "d_ff": 32, "activaton": "relu"}, [choices.FeedForward])
    Traceback (most recent call last):
    ValueError: FeedForward has no key 'activaton'; did you mean 'activation'?
    """
    classes = list(classes)
    return _build(data, classes, classes, is_open=True)


def _build(data: object, kinds: list[type[Config]], classes: Iterable[type], *, is_open: bool) -> Config:
    by_name = {kind.__name__: kind for kind in kinds}
    if not isinstance(data, Mapping):
        raise ValueError(f"a config must be an object with a 'kind' of {', '.join(by_name)}, got {data!r}")
    name = data.get("kind")
    if not isinstance(name, str) or name not in by_name:
        own = f"; a class of your own must be passed: classes=[{name}], or --import my_module on the command line"
        hint = own if is_open and isinstance(name, str) else ""
        raise ValueError(f"kind must be one of {', '.join(by_name)}, got {name!r}{hint}")
    kind = by_name[name]
    hints, required = _signature(kind)
    given = {key: value for key, value in data.items() if key != "kind"}
    for key in given:
        if key not in hints:
            raise ValueError(f"{name} has no key {key!r}{nearest(key, hints)}")
    for key in required:
        if key not in given:
            raise ValueError(f"{name} needs the key {key!r}, which is missing")
    return kind(**{key: _read(value, hints[key], f"{name}.{key}", classes) for key, value in given.items()})


def _signature(kind: type) -> tuple[dict[str, object], list[str]]:
    """The annotation of each argument, and which are required."""
    if dataclasses.is_dataclass(kind):
        required = [
            field.name
            for field in dataclasses.fields(kind)
            if field.init and field.default is field.default_factory is dataclasses.MISSING
        ]
        return typing.get_type_hints(kind), required
    parameters = _parameters(kind)
    # Only the names matter: what is not annotated with a plain type is built by its kind.
    return dict.fromkeys(parameters, object), [
        name for name, parameter in parameters.items() if parameter.default is inspect.Parameter.empty
    ]


def _parameters(kind: type) -> dict[str, inspect.Parameter]:
    starred = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
    return {n: p for n, p in inspect.signature(kind).parameters.items() if p.kind not in starred}


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
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and math.isinf(value):
        return "inf"  # JSON has no infinity
    if value is None or isinstance(value, str | int | float):
        return value
    return config_to_dict(value)


def _read(value: object, hint: object, where: str, classes: Iterable[type]) -> object:
    """The value as the annotation wants it, or a ValueError that says where it does not fit."""
    options = _options(hint)
    if isinstance(value, Mapping):
        configs = [option for option in options if dataclasses.is_dataclass(option)]
        if configs:
            return _build(value, typing.cast(list[type[object]], configs), classes, is_open=False)
        if any(_is_open(option) for option in options):
            return _build(value, list(classes), classes, is_open=True)
    if hint is object:
        return [_read(item, object, where, classes) for item in value] if isinstance(value, list) else value
    for option in options:
        if _fits(value, option):
            return _as(value, option)
    raise ValueError(f"{where} must be {_wanted(options)}, got {value!r}")


def _is_open(option: object) -> bool:
    """Whether a user's class may stand here: a protocol, a base class, or anything."""
    plain = (bool, int, float, str, type(None))
    return isinstance(option, type) and option not in plain and not dataclasses.is_dataclass(option)


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
    if isinstance(value, list | tuple):
        items = typing.get_args(option)
        items = (items[0],) * len(value) if items[-1:] == (Ellipsis,) else items
        return tuple(map(_as, value, items))
    return value
