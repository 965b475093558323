"""Headwork: Transformers you can read, run, prove and see.

    import headwork as hw

The packages are imported when they are first used, so that `import headwork` and `headwork --help` do not wait for
PyTorch.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwork import batches as batches
    from headwork import checking as checking
    from headwork import choices as choices
    from headwork import convert as convert
    from headwork import data as data
    from headwork import explorer as explorer
    from headwork import figures as figures
    from headwork import functional as functional
    from headwork import generation as generation
    from headwork import hub as hub
    from headwork import inspection as inspection
    from headwork import lab as lab
    from headwork import layers as layers
    from headwork import masks as masks
    from headwork import models as models
    from headwork import quantization as quantization
    from headwork import recipes as recipes
    from headwork import reports as reports
    from headwork import serialise as serialise
    from headwork import sheets as sheets
    from headwork import storage as storage
    from headwork import tasks as tasks
    from headwork import training as training
    from headwork.checking import check as check
    from headwork.convert import from_torch as from_torch
    from headwork.convert import lora as lora
    from headwork.convert import merge_lora as merge_lora
    from headwork.convert import to_torch as to_torch
    from headwork.explorer import explore as explore
    from headwork.generation import generate as generate
    from headwork.hub import export as export
    from headwork.hub import load as load
    from headwork.hub import save as save
    from headwork.inspection import ablate as ablate
    from headwork.inspection import cost as cost
    from headwork.inspection import lens as lens
    from headwork.inspection import patch as patch
    from headwork.inspection import record as record
    from headwork.inspection import trace as trace
    from headwork.quantization import quantize as quantize
    from headwork.training import train as train

__version__ = "0.2.0"

_PACKAGES = (
    "batches",
    "checking",
    "choices",
    "convert",
    "data",
    "explorer",
    "figures",
    "functional",
    "generation",
    "hub",
    "inspection",
    "lab",
    "layers",
    "masks",
    "models",
    "quantization",
    "recipes",
    "reports",
    "serialise",
    "sheets",
    "storage",
    "tasks",
    "training",
)
_FROM = {
    **dict.fromkeys(("ablate", "cost", "lens", "patch", "record", "trace"), "inspection"),
    **dict.fromkeys(("from_torch", "lora", "merge_lora", "to_torch"), "convert"),
    **dict.fromkeys(("export", "load", "save"), "hub"),
    "quantize": "quantization",
    "check": "checking",
    "explore": "explorer",
    "generate": "generation",
    "train": "training",
}


def __getattr__(name: str) -> object:
    if name in _PACKAGES:
        return importlib.import_module(f"headwork.{name}")
    if name in _FROM:
        return getattr(importlib.import_module(f"headwork.{_FROM[name]}"), name)
    raise AttributeError(f"module 'headwork' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(("__version__", *_PACKAGES, *_FROM))
