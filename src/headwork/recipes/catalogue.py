"""Recipes: functions that return a complete RunConfig, ours by name and anybody's by module."""

import importlib
import inspect
import sys
from collections.abc import Callable

from headwork.checks import nearest
from headwork.recipes.dates import dates
from headwork.recipes.digits import digits_gaussian, digits_resnet, digits_vit
from headwork.recipes.mnist import mnist_vit
from headwork.recipes.reviews import reviews_encoder
from headwork.recipes.text import text_gpt
from headwork.training.config import RunConfig

Recipe = Callable[[], RunConfig]
RECIPES: dict[str, Recipe] = {
    recipe.__name__.replace("_", "-"): recipe
    for recipe in (digits_vit, digits_gaussian, digits_resnet, mnist_vit, dates, text_gpt, reviews_encoder)
}


def find_recipe(name: str) -> RunConfig:
    """The recipe of that name, complete; `my_module:my_recipe` is one of your own.

    >>> find_recipe("digits-vit").training.batch_size
    64
    """
    module, colon, function = name.partition(":")
    if not colon and name not in RECIPES:
        raise ValueError(f"recipe {name!r} is not known{nearest(name, RECIPES)} (your own: my_module:my_recipe)")
    recipe = own_recipe(module, function) if colon else RECIPES[name]
    if required := required_arguments(recipe):
        raise ValueError(f"recipe must need no argument, got {name}, which needs {', '.join(required)}")
    config = recipe()
    if not isinstance(config, RunConfig):
        raise ValueError(f"recipe must return a RunConfig, got {type(config).__name__} from {name}")
    return config


def required_arguments(function: Callable[..., object]) -> list[str]:
    parameters = inspect.signature(function).parameters.values()
    starred = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
    return [p.name for p in parameters if p.default is inspect.Parameter.empty and p.kind not in starred]


def own_recipe(module: str, function: str) -> Recipe:
    names = vars(import_own(module))
    if function not in names or not callable(names[function]):
        functions = [name for name, value in names.items() if callable(value) and not name.startswith("_")]
        raise ValueError(f"recipe must be a function of {module}, got {function!r}{nearest(function, functions)}")
    return names[function]


def import_own(name: str) -> object:
    """A module of the user's own, from the current directory or wherever Python finds it."""
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise ValueError(f"module must be importable, got {name!r} (looked in {', '.join(sys.path[:3])} ...)") from None


def own_classes(names: tuple[str, ...]) -> list[type]:
    """The configs and modules that are defined in modules of the user's own: what their files may name."""
    from dataclasses import is_dataclass

    from torch import nn

    found = [value for name in names for value in vars(import_own(name)).values() if isinstance(value, type)]
    # Not what the modules import from elsewhere: a file must not build anything else.
    return [
        kind
        for kind in found
        if any(kind.__module__ == name or kind.__module__.startswith(f"{name}.") for name in names)
        and (is_dataclass(kind) or issubclass(kind, nn.Module))
    ]
