"""Matplotlib is imported by `headwork.figures` and by nothing else."""

import re
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "headwork"


def test_no_other_package_imports_matplotlib():
    importers = {
        path.relative_to(SOURCE).parts[0]
        for path in SOURCE.rglob("*.py")
        if re.search(r"^\s*(from|import) matplotlib\b", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    }
    assert importers == {"figures"}


def test_looking_inside_waits_for_no_drawing_library():
    asked = (
        "import sys, headwork.inspection; print({'matplotlib', 'tensorboard'} & {m.split('.')[0] for m in sys.modules})"
    )
    answer = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "set()"
