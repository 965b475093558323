"""What `dir` shows of our modules: their public names."""

import sys
from dataclasses import dataclass
from types import ModuleType
from typing import TypeVar, get_origin

HELPERS = ("headwork.checks", "headwork.extras", "headwork.public")
"""Modules whose names every other uses and none offers."""


@dataclass(frozen=True)
class PublicNames:
    """The `__dir__` of a module: what it offers, without what it imports for itself; `more` are imported late.

    A package offers what it takes from the files of headwork, any other module only what it defines.

    >>> [name for name in dir(hw.masks) if name < "d"]
    ['causal', 'check_padding', 'chunked', 'cross']
    """

    module: str
    more: tuple[str, ...] = ()

    def __call__(self) -> list[str]:
        found = vars(sys.modules[self.module])
        homes = "headwork." if "__path__" in found else self.module
        return sorted([*self.more, *(name for name, value in found.items() if self._is_public(name, value, homes))])

    def _is_public(self, name: str, value: object, homes: str) -> bool:
        if name.startswith("_") or name == "TYPE_CHECKING" or isinstance(value, ModuleType | TypeVar):
            return False
        # A constant has no module, and that of an alias such as `tuple[Tensor, ...]` is not where it was written.
        home = self.module if get_origin(value) is not None else getattr(value, "__module__", self.module)
        return home.startswith(homes) and home not in HELPERS
