"""What the documents show is run."""

import json
import re
import shlex
from pathlib import Path

import pytest
from PIL import Image

from headwork.cli import main
from headwork.data import sample_digit

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize(
    "name", ["README.md", "docs/guide.md", "docs/convolution.md", "docs/data.md", "docs/own.md", "docs/pretrained.md"]
)
def test_the_code_runs(name, capsys):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(encoding="utf-8"), re.DOTALL)
    assert blocks
    exec("\n".join(blocks), {})
    assert capsys.readouterr().out


def test_the_notebook_runs(capsys):
    notebook = json.loads((ROOT / "docs/quickstart.ipynb").read_text(encoding="utf-8"))
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    names: dict[str, object] = {"__name__": "notebook"}
    for cell in cells:
        exec("".join(line for line in cell.splitlines(keepends=True) if not line.startswith("%")), names)
    assert notebook["nbformat"] == 4
    assert names["done"].test["accuracy"] > 0.5


def test_the_commands_of_the_readme_run(tmp_path, monkeypatch, capsys):
    """In their order, in an empty folder; trainings stop after two steps."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = "\n".join(re.findall(r"```bash\n(.*?)```", text, re.DOTALL))
    lines = re.findall(r"^headwork (.*?)(?:\s+#.*)?$", blocks, re.MULTILINE)
    inline = [command for command in re.findall(r"`headwork ([a-z][^`]*)`", text) if "RUN" not in command]
    assert len(lines) >= 5
    assert len(inline) >= 5
    monkeypatch.chdir(tmp_path)
    sample_image(tmp_path / "my-digit.png")
    for command in [*lines, *inline]:
        arguments = shlex.split(command)
        if arguments[0] == "convert" or arguments == ["lab"]:
            continue  # named only; tests/cli runs them
        if arguments[0] == "train" and not {"--list", "--resume"} & set(arguments):
            arguments = [*re.sub(r"--epochs \d+", "", command).split(), "--steps", "2"]
        assert main(arguments) == 0, command
    assert capsys.readouterr().out


def sample_image(path):
    pixels = (255 * sample_digit(3)[0, 0]).byte().numpy()
    Image.fromarray(pixels).save(path)


@pytest.mark.parametrize(
    "name",
    [
        "README.md",
        "CONTRIBUTING.md",
        *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs").rglob("*.md"))),
    ],
)
def test_links_lead_somewhere(name):
    path = ROOT / name
    for link in re.findall(r"\]\(([^)#]+)\)", path.read_text(encoding="utf-8")):
        assert (path.parent / link).exists(), link
