"""What the documents show is run."""

import doctest
import json
import re
import shlex
from pathlib import Path

import pytest
from PIL import Image

from headwork.cli import main
from headwork.cli.commands import COMMANDS, parse
from headwork.cli.lab import Lab, answer, read_setting
from headwork.cli.train import Train
from headwork.data import sample_digit
from headwork.lab import find, labels
from headwork.lab.questions import is_question
from headwork.recipes import RECIPES, find_recipe, override, read_settings

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize(
    "name",
    [
        "README.md",
        "docs/guide.md",
        pytest.param("docs/convolution.md", marks=pytest.mark.slow),
        "docs/data.md",
        pytest.param("docs/own.md", marks=pytest.mark.slow),
        "docs/pretrained.md",
        pytest.param("docs/sheets.md", marks=pytest.mark.slow),
        "docs/choices.md",
        "docs/generation.md",
    ],
)
def test_the_code_runs(name, capsys):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(encoding="utf-8"), re.DOTALL)
    assert blocks
    exec("\n".join(blocks), {})
    assert capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::headwork.hub.UnverifiedWarning")
def test_the_pages_about_a_real_model(monkeypatch, capsys):
    """With the checkpoints that `make checkpoints` fetches."""
    monkeypatch.chdir(ROOT)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/inside.md").read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, object] = {}
    exec("\n".join(blocks), names)
    assert "(' Paris', 0.7" in capsys.readouterr().out
    assert names["ranked"][0] in ((18, 6), (17, 5))
    (first, second), (first_without, second_without) = names["whole"], names["without"]
    assert abs(first - first_without) < 0.1
    assert second_without > 1.5 * second
    assert names["others"][0] > first + 1
    sessions = re.findall(r"```pycon\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert len(sessions) == 1
    lines = doctest.DocTestParser().get_doctest(sessions[0], {}, "README", "README.md", 0)
    assert doctest.DocTestRunner().run(lines).failed == 0


@pytest.mark.slow
def test_the_notebook_runs(capsys):
    notebook = json.loads((ROOT / "docs/quickstart.ipynb").read_text(encoding="utf-8"))
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    names: dict[str, object] = {"__name__": "notebook"}
    for cell in cells:
        exec("".join(line for line in cell.splitlines(keepends=True) if not line.startswith("%")), names)
    assert notebook["nbformat"] == 4
    assert names["done"].test["accuracy"] > 0.5


@pytest.mark.parametrize("folder", [ROOT, ROOT / "docs", None])
def test_the_first_cell_of_the_notebook_installs_the_clone(
    folder: Path | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No index has the package: it comes from the folder that the notebook is in."""
    notebook = json.loads((ROOT / "docs/quickstart.ipynb").read_text(encoding="utf-8"))
    first = next(cell for cell in notebook["cells"] if cell["cell_type"] == "code")["source"]
    *lines, install = first
    names: dict[str, object] = {}
    monkeypatch.chdir(folder or tmp_path)
    if folder is None:
        with pytest.raises(FileNotFoundError, match=f"got the folder {re.escape(str(tmp_path))}"):
            exec("".join(lines), names)
        return
    exec("".join(lines), names)
    assert install == '%pip install --quiet "{clone}[train]"'
    assert names["clone"] == ROOT


def are_real(arguments: list[str]) -> bool:
    """Whether no name stands for another one, as RUN or FILE.py does."""
    return not any(re.fullmatch(r"[A-Z]+(\.\w+)?", argument) for argument in arguments)


@pytest.mark.slow
def test_the_commands_of_the_readme_run(tmp_path, monkeypatch, capsys):
    """In their order, in an empty folder; trainings stop after two steps."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = "\n".join(re.findall(r"```bash\n(.*?)```", text, re.DOTALL))
    lines = re.findall(r"^headwork (.*?)(?:\s+#.*)?$", blocks, re.MULTILINE)
    inline = re.findall(r"`headwork ([a-z][^`]*)`", text)
    assert len(lines) >= 5
    assert len(inline) >= 5
    monkeypatch.chdir(tmp_path)
    sample_image(tmp_path / "my-digit.png")
    for command in [*lines, *inline]:
        arguments = shlex.split(command)
        if "--help" in arguments or not are_real(arguments):
            continue  # tests/cli runs such commands
        if arguments[0] == "explore" and "--export" not in arguments:
            continue  # it serves until it is stopped, as tests/explorer does
        if arguments[0] == "train" and not {"--list", "--resume"} & set(arguments):
            arguments = [*re.sub(r"--epochs \d+", "", command).split(), "--steps", "2"]
        assert main(arguments) == 0, command
    assert capsys.readouterr().out


LAB = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs" / "lab").glob("*.md"))]
"""The pages of the claims, and of the answers to the five sheets."""
DOCUMENTS = [
    *("README.md", "CONTRIBUTING.md"),
    *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs").glob("*.md"))),
    "docs/lab/ADDING.md",
]
CHEAP = ("trace", "cost", "models", "--help", "--version")
"""Commands that end within seconds, and write nothing unless they are told to."""


def commands_in(name: str) -> list[str]:
    """Every `headwork ...` of a document, in a block or inside a sentence, with or without what starts it."""
    text = (ROOT / name).read_text(encoding="utf-8").replace("\\\n", " ")
    blocks = "\n".join(block for _, block in re.findall(r"^```(\w*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE))
    in_blocks = re.findall(r"^(?:\$ )?(?:torchrun .*-m )?headwork\b(.*?)(?:\s+#.*)?$", blocks, re.MULTILINE)
    in_sentences = re.findall(r"`(?:[A-Z_]+=\S+ )?(?:torchrun [^`]*-m )?headwork +([^`]*)`", text)
    return [command.strip() for command in (*in_blocks, *in_sentences)]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_commands_of_the_documents_exist(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Subcommand and flags; those that name a command only, such as `headwork convert`, need not be complete."""
    for command in commands_in(name):
        arguments = shlex.split(command)
        if "--help" in arguments:
            with pytest.raises(SystemExit, match=r"0|None"):
                parse(arguments)
        elif arguments[0] in COMMANDS and len(arguments) > 1:
            parse(arguments)
        else:
            assert arguments[0] in (*COMMANDS, "--help", "--version"), command


@pytest.mark.parametrize(
    "command",
    sorted(
        {
            command
            for name in (*DOCUMENTS, *LAB)
            for command in commands_in(name)
            if command.split()[:1] == ["train"] and set(command.split()) & set(RECIPES)
            if not {"--help", "--data"} & set(command.split())  # the data of one's own change the config before --set
        }
    ),
)
def test_the_configs_that_documents_train_can_be_made(command: str) -> None:
    """What `--set` and the flags change fits the recipe; nothing is read or trained."""
    train = parse(shlex.split(command))
    assert isinstance(train, Train)
    recipe = find_recipe(train.recipe or "")
    values = train.overrides(recipe) | read_settings(train.set)
    if train.from_ is not None:  # the model is another one
        values = {path: value for path, value in values.items() if not path.startswith("model.")}
    override(recipe, values)


def test_the_pages_of_the_lab_run_claims_and_questions_that_are_there() -> None:
    """The claims themselves run in tests/lab."""
    names = {label.name for label in labels()}
    found = {command for page in ("docs/sheets.md", *LAB) for command in commands_in(page) if "ADDING" not in page}
    claims = set()
    for command in found:
        lab = parse(shlex.split(command))
        if not isinstance(lab, Lab) or not are_real(shlex.split(command)):
            continue
        if lab.document is not None or (lab.name is not None and is_question(lab.name)):
            assert answer(lab.document or lab.name or "", as_json=False)
        elif lab.name is not None:
            assert lab.name in names, command
            claims.add(lab.name)
    assert claims == names


@pytest.mark.slow
def test_the_commands_of_the_sheets_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Trainings stop after two steps; those whose data have to be fetched are left out, and the claims."""
    monkeypatch.chdir(tmp_path)
    for command in dict.fromkeys(command for name in ("docs/sheets.md", *LAB) for command in commands_in(name)):
        arguments = shlex.split(command)
        if arguments[0] == "lab" or len(arguments) == 1:
            lab = parse(arguments)
            if isinstance(lab, Lab) and lab.set and lab.name is not None:
                claim = find(lab.name)
                claim.change(claim.setup, dict(map(read_setting, lab.set)))
            continue
        if arguments[0] == "train":
            if hasattr(find_recipe(arguments[1]).data, "directory"):
                continue
            arguments = [*shlex.split(re.sub(r" --epochs \d+", "", command)), "--steps", "2"]
        if arguments[0] == "compare":
            for run in arguments[2:4]:  # the page writes out the first of the three trainings
                assert main(["train", "digits-vit", "--steps", "2", "--out", run]) == 0
        assert main(arguments) == 0, command
        assert capsys.readouterr().out, command


def test_the_search_finds_the_commands() -> None:
    assert "cost llama-2-7b --tokens 4096" in commands_in("docs/guide.md")
    assert "train my_module:my_recipe --epochs 3 --set training.optimiser.lr=1e-3" in commands_in("docs/own.md")
    assert "train text-gpt --out /shared/runs/gpt" in commands_in("docs/scaling.md")
    assert "convert runs/digits-resnet --out as-attention" in commands_in("docs/convolution.md")


@pytest.mark.slow
def test_the_cheap_commands_of_the_documents_run(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    found = {command for name in DOCUMENTS for command in commands_in(name)}
    cheap = sorted(
        command
        for command in found
        if command.split()[0] in CHEAP and " runs/" not in command and are_real(shlex.split(command))
    )
    assert len(cheap) >= 5
    for command in [*cheap, "lab temperature"]:
        if command == "--help":
            with pytest.raises(SystemExit, match=r"0|None"):
                main([command])
        else:
            assert main(shlex.split(command)) == 0, command
        assert capsys.readouterr().out, command


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
