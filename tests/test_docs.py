"""What the documents show is run."""

import re
import shlex
from pathlib import Path

import pytest

from headwork.cli import main

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("name", ["README.md", "docs/guide.md", "docs/convolution.md", "docs/data.md"])
def test_the_code_runs(name, capsys):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(encoding="utf-8"), re.DOTALL)
    assert blocks
    exec("\n".join(blocks), {})
    assert capsys.readouterr().out


def test_the_commands_of_the_readme_run(capsys):
    commands = re.findall(r"`headwork ([a-z][^`]*)`", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert len(commands) >= 3
    for command in commands:
        arguments = [word for word in shlex.split(command) if not word.endswith(".png") and word != "--figure"]
        assert main(arguments) == 0, command
    assert capsys.readouterr().out


@pytest.mark.parametrize(
    "name", ["README.md", "docs/guide.md", "docs/convolution.md", "docs/benchmarks.md", "CONTRIBUTING.md"]
)
def test_links_lead_somewhere(name):
    path = ROOT / name
    for link in re.findall(r"\]\(([^)#]+)\)", path.read_text(encoding="utf-8")):
        assert (path.parent / link).exists(), link
