"""Headwork: Transformers you can read, run, prove and see.

    import headwork as hw

The rooms are imported when they are first entered, so that `import headwork` and `headwork --help` do not wait for
PyTorch.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwork import choices as choices
    from headwork import configs as configs
    from headwork import convert as convert
    from headwork import data as data
    from headwork import functional as functional
    from headwork import inspection as inspection
    from headwork import lab as lab
    from headwork import layers as layers
    from headwork import masks as masks
    from headwork import models as models
    from headwork.inspection import cost as cost
    from headwork.inspection import ledger as ledger
    from headwork.inspection import record as record

__version__ = "0.1.0"

_ROOMS = ("choices", "configs", "convert", "data", "functional", "inspection", "lab", "layers", "masks", "models")
_FROM_INSPECTION = ("cost", "ledger", "record")


def __getattr__(name: str) -> object:
    if name in _ROOMS:
        return importlib.import_module(f"headwork.{name}")
    if name in _FROM_INSPECTION:
        return getattr(importlib.import_module("headwork.inspection"), name)
    raise AttributeError(f"module 'headwork' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted((*globals(), *_ROOMS, *_FROM_INSPECTION))
