"""Configs, and objects that keep the arguments of their constructor, as plain data for JSON and back.

>>> data = config_to_dict(choices.FeedForward(d_ff=32))
>>> data
{'kind': 'FeedForward', 'd_ff': 32, 'activation': 'gelu', 'bias': True}
>>> config_from_dict(data, [choices.FeedForward]) == choices.FeedForward(d_ff=32)
True
>>> config_to_dict(hw.layers.AlibiPositions(n_heads=4))
{'kind': 'AlibiPositions', 'n_heads': 4}
"""

import dataclasses
import difflib
import inspect
import math
import types
import typing
from collections.abc import Iterable, Mapping
from typing import TypeVar

from headwork.checks import nearest
from headwork.public import PublicNames

__dir__ = PublicNames(__name__)

Config = TypeVar("Config")

MANY_KINDS = 16
"""So many are not listed in an error."""
_NONE_FITS = object()
_MODULE_LIST = "torch.nn.modules.container.ModuleList"
_OF_A_MODEL = ("config", "positions", "layers", "pooling", "classifier")
"""Arguments of our models: the config, and the parts, which a model keeps in `parts` if they were given."""
_OF_A_MACHINE = ("device", "dtype")
"""Arguments that say where an object was made, not what it is."""


def config_to_dict(config: object) -> dict[str, object]:
    """A frozen dataclass by its fields, any other object by the arguments of its constructor; each says its kind.

    The arguments are read from attributes of the same name, as scikit-learn does, or from `arguments`, a dict of all of
    them, where attributes of these names are something else. One of our models is its config, and
    the parts of a user's own that it was given, if any.
    """
    if _is_builtin(config):
        raise TypeError(f"config must be an instance of a config class or of a class of your own, got {config!r}")
    kind = type(config).__name__
    if type(config).__module__.startswith("torch."):
        raise ValueError(
            "model must be of a class that keeps the arguments of its constructor as attributes, to be saved, "
            f"got PyTorch's own {kind}: put it inside a class of yours"
        )
    if dataclasses.is_dataclass(config):
        return {"kind": kind, **_plain_arguments(config, [field.name for field in dataclasses.fields(config)])}
    arguments, parts = _arguments(type(config)), getattr(config, "parts", None)
    if isinstance(parts, dict) and "config" in arguments:
        about = config_to_dict(config.config)  # type: ignore[attr-defined]
        if not parts and type(config).__module__.startswith("headwork."):
            return about
        own = [name for name in arguments if name not in _OF_A_MODEL]
        plain = {name: _plain(part, f"the part {name}") for name, part in parts.items()}
        return {"kind": kind, "config": about, **_plain_arguments(config, own), **plain}
    return {"kind": kind, **_plain_arguments(config, arguments)}


def flatten(data: object, path: str = "") -> dict[str, object]:
    """The settings of a config by their paths, as `headwork train --set` takes them.

    >>> flatten({"kind": "RunConfig", "training": {"kind": "TrainingConfig", "epochs": 3}})
    {'training': 'TrainingConfig', 'training.epochs': 3}
    """
    if not isinstance(data, Mapping):
        return {path: data}
    choice = {path: data["kind"]} if path and "kind" in data else {}
    inner = (flatten(value, f"{path}.{name}" if path else name) for name, value in data.items() if name != "kind")
    return choice | {name: value for values in inner for name, value in values.items()}


def config_from_dict(data: object, kinds: Iterable[type[Config]], classes: Iterable[type] = ()) -> Config:
    """The config or object that `data` describes, which must be of one of the `kinds`; no other class is ever built.

    `classes` are a user's own, known beside ours: one that has the name of one of ours is the one that is built.

    >>> config_from_dict({"kind": "FeedForward", "d_ff": 32, "activaton": "relu"}, [choices.FeedForward])
    Traceback (most recent call last):
    ValueError: FeedForward has no key 'activaton'; did you mean 'activation'?
    """
    own = check_classes(classes)
    names = {kind.__name__ for kind in own}
    known = check_classes([*own, *(kind for kind in kinds if kind.__name__ not in names)])
    return _build(data, known, known)


def check_classes(classes: Iterable[type]) -> list[type]:
    """The classes as a list; raise if one is something else, or if two have the same name."""
    if isinstance(classes, type):
        raise ValueError(f"classes must be a list, classes=[{classes.__name__}], got the class {classes.__name__}")
    found = list(dict.fromkeys(classes))
    for kind in found:
        if not isinstance(kind, type):
            raise ValueError(f"classes must be classes, not objects of them, got {kind!r}")
    names = [kind.__name__ for kind in found]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"classes must have different names, got {names.count(name)} that are called {name}")
    return found


def _build(data: object, allowed: list[type[Config]], kinds: list[type[Config]]) -> Config:
    """One of the `allowed`; where anything may stand inside it, one of the `kinds` that the caller passed."""
    by_name = {kind.__name__: kind for kind in allowed}
    if not isinstance(data, Mapping):
        raise ValueError(f"a config must be an object with a 'kind' of {', '.join(by_name)}, got {data!r}")
    name = data.get("kind")
    if not isinstance(name, str) or name not in by_name:
        wanted = f"one of {', '.join(by_name)}" if len(by_name) < MANY_KINDS else "a class that is known here"
        raise ValueError(f"kind must be {wanted}, got {name!r}{_remedy(name, by_name)}")
    kind = by_name[name]
    known, needed = _keys(kind)
    given = {key: value for key, value in data.items() if key != "kind"}
    for key in given:
        if key not in known:
            raise ValueError(f"{name} has no key {key!r}{nearest(key, known)}")
    for key in needed:
        if key not in given:
            raise ValueError(f"{name} needs the key {key!r}, which is missing")
    read = _read if dataclasses.is_dataclass(kind) else _read_argument
    return kind(**{key: read(value, known[key], f"{name}.{key}", kinds) for key, value in given.items()})


def _remedy(name: object, known: Iterable[str]) -> str:
    if not isinstance(name, str):
        return ""
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
    own = f"; if it is a class of your own, pass it: classes=[{name}], or --import my_module on the command line"
    return f"; did you mean {close[0]!r}?" if close else own


class Checked:
    """A config whose fields are what their annotations say; dataclasses inherit from it.

    An annotation may carry a rule: `n_heads: Count` is `Annotated[int, check_positive]`, see `headwork.checks`.
    """

    def __post_init__(self) -> None:
        hints, with_rules = (typing.get_type_hints(type(self), include_extras=extras) for extras in (False, True))
        for field in dataclasses.fields(self):  # type: ignore[arg-type]  # every subclass is a dataclass
            value, options = getattr(self, field.name), _options(hints[field.name])
            fitting = next((option for option in options if _fits(value, option)), _NONE_FITS)
            if isinstance(value, list) and fitting is not _NONE_FITS:  # as it will be when it is read from a file
                object.__setattr__(self, field.name, _as(value, fitting))
            if fitting is _NONE_FITS:
                where = f"{type(self).__name__}.{field.name}"
                hint = " (an instance, with parentheses)" if isinstance(value, type) else ""
                raise ValueError(f"{where} must be {_wanted(options)}{hint}, got {value!r}")
            for option in _options(with_rules[field.name]) if value is not None else ():
                for check in getattr(option, "__metadata__", ()):
                    check(**{field.name: value})


def _plain(value: object, where: str = "") -> object:
    if dataclasses.is_dataclass(value):
        return config_to_dict(value)
    if isinstance(value, list | tuple) or _is_module_list(value):
        return [_plain(item, where) for item in typing.cast(Iterable[object], value)]
    if isinstance(value, dict):
        return {key: _plain(item, where) for key, item in value.items()}
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"  # JSON has no infinity
    if where and not isinstance(value, str | int | float | types.NoneType):
        if hasattr(value, "shape") or _is_builtin(value):
            raise ValueError(f"{where} must be plain data or an object of a class of yours to be saved, got {value!r}")
        return config_to_dict(value)
    return value


def _is_builtin(value: object) -> bool:
    """Whether it is a class, or an object of a class that is not written in Python (a number, a function)."""
    written_in_python = 1 << 9  # Py_TPFLAGS_HEAPTYPE
    return isinstance(value, type) or not type(value).__flags__ & written_in_python


def _is_module_list(value: object) -> bool:
    """Whether it is how a module keeps a list of modules, `self.layers = nn.ModuleList(layers)`; without torch."""
    return any(f"{base.__module__}.{base.__name__}" == _MODULE_LIST for base in type(value).__mro__)


def _plain_arguments(config: object, arguments: Iterable[str]) -> dict[str, object]:
    kind, names = type(config).__name__, list(arguments)
    kept = getattr(config, "arguments", None)
    if not isinstance(kept, dict) or kept.keys() != set(names):
        for name in names:
            if not hasattr(config, name):
                raise ValueError(
                    f"{kind} must keep its argument {name} as an attribute, self.{name} = {name}, to be saved"
                )
        kept = {name: getattr(config, name) for name in names}
    return {name: _plain(kept[name], f"{kind}.{name}") for name in names}


def _arguments(kind: type) -> dict[str, inspect.Parameter]:
    """The arguments of a constructor, by name."""
    owner = next(base for base in kind.__mro__ if "__init__" in vars(base))
    if f"{owner.__module__}.{owner.__name__}" in ("builtins.object", "torch.nn.modules.module.Module"):  # without any
        return {}
    init = kind.__init__  # type: ignore[misc]
    arguments = dict(list(inspect.signature(init).parameters.items())[1:])
    for argument in arguments.values():
        if argument.kind not in (argument.POSITIONAL_OR_KEYWORD, argument.KEYWORD_ONLY):
            raise ValueError(f"{kind.__name__} must name each argument of its constructor to be saved, got {argument}")
    return {name: argument for name, argument in arguments.items() if name not in _OF_A_MACHINE}


def _keys(kind: type) -> tuple[dict[str, object], list[str]]:
    """The keys of a kind with their annotations, and those without a default."""
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        fields = dataclasses.fields(kind)
        missing = dataclasses.MISSING
        needed = [f.name for f in fields if f.default is missing and f.default_factory is missing]
        return {field.name: hints[field.name] for field in fields}, needed
    arguments = _arguments(kind)
    try:
        hints = typing.get_type_hints(kind.__init__)  # type: ignore[misc]
    except NameError:  # a name that only its own module knows
        hints = {}
    needed = [name for name, argument in arguments.items() if argument.default is argument.empty]
    return {name: hints.get(name, object) for name in arguments}, needed


def _read(value: object, hint: object, where: str, kinds: list[type]) -> object:
    """The value as the annotation wants it, or a ValueError that says where it does not fit."""
    options = _options(hint)
    if isinstance(value, Mapping):
        allowed = [option for option in options if dataclasses.is_dataclass(option)]
        allowed += kinds if any(_is_open(option) for option in options) else []
        if allowed:
            return _build(value, typing.cast(list[type], allowed), kinds)
    for option in options:
        if _fits(value, option):
            return _as(value, option)
    raise ValueError(f"{where} must be {_wanted(options)}, got {value!r}")


def _read_argument(value: object, hint: object, where: str, kinds: list[type]) -> object:
    """As `_read`, for a class of a user's own: its annotations are a help, not a rule."""
    if isinstance(value, Mapping):
        named = [option for option in _options(hint) if dataclasses.is_dataclass(option)]
        return _build(value, [*kinds, *typing.cast(list[type], named)], kinds) if "kind" in value else dict(value)
    for option in _options(hint):
        if _fits(value, option) and option is not object:
            return _as(value, option)
    return [_read_argument(item, object, where, kinds) for item in value] if isinstance(value, list) else value


def _is_open(option: object) -> bool:
    """Whether objects of classes that are not known beforehand may stand there: a protocol, or any object."""
    return option in (typing.Any, object) or getattr(option, "_is_protocol", False)


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
        return value in ("inf", "-inf") or (isinstance(value, int | float) and not isinstance(value, bool))
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
