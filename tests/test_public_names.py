"""What `dir` and a notebook's completion show: the public names, and nothing that a module imports for itself."""

import importlib
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import headwork as hw

MODULES = [name for name in dir(hw) if isinstance(getattr(hw, name), ModuleType)]
INTERNAL = {
    "torch",
    "Tensor",
    "nn",
    "F",
    "np",
    "Literal",
    "TYPE_CHECKING",
    "annotations",
    "dataclass",
    "importlib",
    "sys",
}


def test_the_package_shows_its_parts_and_its_functions() -> None:
    assert {"__version__", "layers", "train", "record", "load"} <= set(dir(hw))
    assert not {"importlib", "TYPE_CHECKING"} & set(dir(hw))
    assert len(MODULES) == 23


@pytest.mark.parametrize("module", MODULES)
def test_a_module_shows_what_it_offers_only(module: str) -> None:
    shown = dir(getattr(hw, module))
    assert shown
    assert not INTERNAL & set(shown)
    assert not [name for name in shown if name.startswith(("_", "check_positive", "need", "PublicNames"))]
    for name in shown:
        value = getattr(getattr(hw, module), name)
        assert not isinstance(value, ModuleType) or name == "position_costs"


def test_all_that_a_package_passes_on_is_shown() -> None:
    """`from headwork.x import Name as Name` says that a name is public."""
    for module in MODULES:
        package = importlib.import_module(f"headwork.{module}")
        if hasattr(package, "__path__") and module != "figures":  # whose Figure is Matplotlib's
            lines = Path(str(package.__file__)).read_text(encoding="utf-8").splitlines()
            passed_on = {line.split()[-1] for line in lines if " as " in line and "import" in line}
            assert passed_on <= set(dir(package)), module


@pytest.mark.parametrize("first", ["headwork.layers", "headwork.training"])
def test_whatever_was_imported_first(first: str) -> None:
    program = f"import {first} as module, headwork as hw\nassert 'torch' not in dir(module) + dir(hw.layers)"
    subprocess.run([sys.executable, "-c", program], check=True)
