"""The claim that docs/lab/ADDING.md shows is one."""

import importlib
import importlib.util
import re
import sys
from pathlib import Path

from headwork.lab import catalogue
from headwork.lab.pages import claim_page

PAGE = Path(__file__).parents[2] / "docs" / "lab" / "ADDING.md"


def test_the_example_is_a_claim_that_holds_and_can_fail(tmp_path, monkeypatch):
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    path = tmp_path / "averaging.py"
    path.write_text(example, encoding="utf-8")
    monkeypatch.setattr(catalogue, "FOLDER", tmp_path)
    catalogue.labels.cache_clear()
    (label,) = catalogue.labels()
    catalogue.labels.cache_clear()
    spec = importlib.util.spec_from_file_location("averaging", path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "averaging", module)
    spec.loader.exec_module(module)
    claim = module.CLAIM
    assert (label.name, label.says) == (claim.name, claim.says)
    for setup in (claim.small, claim.setup):
        finding = claim.examine(setup, n_seeds=20, broken=True)
        assert finding.n_held == 20
        assert not any(verdict.holds for verdict in finding.broken.values())
        assert "Broken on purpose" in claim_page(finding)
    assert finding.draw().get_suptitle()


def test_the_names_that_the_page_lists_are_there():
    rows = re.findall(r"^\| `(headwork\.lab\.\w+)` \| (.*) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(rows) == 4
    for module, words in rows:
        for name in re.findall(r"`(\w+)`", words):
            assert hasattr(importlib.import_module(module), name), f"{module}.{name}"
