"""What the processor cannot multiply is said in a sentence, found out in another process, and only when it is asked."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import headwork as hw
from headwork import choices
from headwork.functional import processor

SAYS = r"dtype must be float32 on this machine, got bfloat16: a trial of it in another process died of SIGILL\. .* AMX"


@pytest.fixture
def liar(monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor that announces bfloat16 and dies of it."""
    monkeypatch.setitem(processor.ANSWERS, torch.bfloat16, "died of SIGILL")


@pytest.fixture
def nothing_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: str) -> str:
        raise AssertionError("another process was started")

    monkeypatch.setattr(processor, "ANSWERS", {})
    monkeypatch.setattr(processor, "run_trial", fail)


@pytest.mark.parametrize(
    ("code", "answer"),
    [
        ("", ""),
        ("import os, signal; os.kill(os.getpid(), signal.SIGILL)", "died of SIGILL"),
        ("raise ArithmeticError('no such unit')", "failed (ArithmeticError: no such unit)"),
        ("import sys; sys.exit(5)", "failed (exit code 5)"),
    ],
)
def test_the_trial_says_what_happened_to_the_other_process(code: str, answer: str) -> None:
    assert processor.run_trial(code) == answer


def test_there_is_one_trial_for_each_dtype(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []
    monkeypatch.setattr(processor, "ANSWERS", {})
    monkeypatch.setattr(processor, "run_trial", lambda _, dtype: tried.append(dtype) or "")
    for dtype in (torch.bfloat16, torch.float16, torch.bfloat16, torch.float32):
        for _ in range(3):
            processor.check_products(torch.zeros(2, dtype=dtype))
    with torch.autocast("cpu", torch.bfloat16):
        processor.check_products(torch.zeros(2))
    assert tried == ["bfloat16", "float16"]


def test_the_trial_itself_runs_in_numbers_that_every_processor_has() -> None:
    """What it computes is right, so that it fails for the processor's reasons only."""
    assert processor.run_trial(processor._TRIAL, "float32") == ""


SMALL = {"d_model": 8, "n_layers": 1, "heads": choices.Heads(n_heads=2), "feed_forward": choices.FeedForward(d_ff=16)}
TEXT, IMAGE = torch.tensor([[1, 2, 3]]), torch.zeros(1, 1, 8, 8)
X, GRID = torch.zeros(1, 3, 8), torch.zeros(1, 4, 5, 8)
MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[torch.Tensor, ...]]] = {
    "encoder": (
        lambda: hw.models.Encoder(hw.models.EncoderConfig(vocab=9, head=choices.NoHead(), **SMALL)),
        (TEXT,),
    ),
    "decoder": (lambda: hw.models.Decoder(hw.models.DecoderConfig(vocab=9, **SMALL)), (TEXT,)),
    "encoder-decoder": (
        lambda: hw.models.EncoderDecoder(
            hw.models.EncoderDecoderConfig(
                vocab=9,
                n_encoder_layers=1,
                n_decoder_layers=1,
                **{name: value for name, value in SMALL.items() if name != "n_layers"},
            )
        ),
        (TEXT, TEXT),
    ),
    "vision transformer": (
        lambda: hw.models.VisionTransformer(
            hw.models.VisionTransformerConfig(n_classes=2, image=(8, 8), patch=(4, 4), n_channels=1, **SMALL)
        ),
        (IMAGE,),
    ),
    "gaussian image encoder": (
        lambda: hw.models.GaussianImageEncoder(
            hw.models.GaussianImageEncoderConfig(n_classes=2, image=(8, 8), n_channels=1, d_model=8, n_layers=1)
        ),
        (IMAGE,),
    ),
    "resnet": (lambda: hw.models.ResNet(hw.models.ResNetConfig(n_classes=2, n_channels=1, n_blocks=1)), (IMAGE,)),
    "attention": (lambda: hw.layers.MultiHeadAttention(8, 2), (X, X)),
    "split heads": (lambda: hw.layers.SplitHeadAttention(8, 2), (X, X)),
    "feed-forward": (lambda: hw.layers.FeedForward(8, 16), (X,)),
    "gated feed-forward": (lambda: hw.layers.GatedFeedForward(8, 16), (X,)),
    "gaussian heads": (lambda: hw.layers.GaussianAttention(8, 2), (GRID,)),
    "shift heads": (lambda: hw.layers.ShiftAttention(8, 2, (4, 5)), (GRID,)),
    "content and shift": (lambda: hw.layers.ContentShiftAttention(8, 2, (4, 5)), (GRID,)),
}
every_model = pytest.mark.parametrize("name", MODELS)


def call(name: str, dtype: torch.dtype) -> torch.Tensor:
    make, inputs = MODELS[name]
    return make().to(dtype)(*(x.to(dtype) if x.is_floating_point() else x for x in inputs))


@every_model
@pytest.mark.usefixtures("liar")
def test_a_processor_that_lies_gives_a_sentence(name: str) -> None:
    with pytest.raises(ValueError, match=SAYS):
        call(name, torch.bfloat16)


@every_model
@pytest.mark.usefixtures("liar")
def test_under_autocast_too(name: str) -> None:
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(ValueError, match=SAYS):
        call(name, torch.float32)


@every_model
@pytest.mark.usefixtures("nothing_is_tried")
@pytest.mark.parametrize("wide", [torch.float32, torch.float64], ids=str)
def test_other_numbers_need_no_trial(name: str, wide: torch.dtype) -> None:
    assert call(name, wide).dtype == wide


FUNCTIONS = {
    "attention": lambda x: hw.functional.scaled_dot_product_attention(x, x, x),
    "fused attention": lambda x: hw.functional.fused_attention(x, x, x),
    "patches": lambda x: hw.functional.embed_patches(x[None], x[None]),
    "patches by convolution": lambda x: hw.functional.embed_patches_by_convolution(x[None], x[None]),
    "gaussian": lambda x: hw.functional.gaussian_attention(x[None], torch.zeros(2, 2), torch.ones(2)),
    "gaussian by table": lambda x: hw.functional.gaussian_attention_by_table(x[None], torch.zeros(2, 2), torch.ones(2)),
    "values along axes": lambda x: hw.functional.mix_heads_along_axes(x[None, None], x[:1, :, :2], x[:1, :2, :2]),
    "absolute scores": lambda x: hw.functional.absolute_scores(x[0], x[0], x[0].T, x[0].T),
    "relative scores": lambda x: hw.functional.relative_scores(
        x[0], x[0], x[0], torch.zeros(2, 2).long(), x[0, 0], x[0, 0]
    ),
}


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS.keys())
@pytest.mark.usefixtures("liar", "as_users_run_it")
def test_functions_say_it_as_well(function: Callable[[torch.Tensor], object]) -> None:
    with pytest.raises(ValueError, match=SAYS):
        function(torch.ones(3, 2, 4, dtype=torch.bfloat16))


COMPILED = """
import torch
from headwork.functional import processor
from headwork.layers import FeedForward, MultiHeadAttention

x = torch.zeros(1, 3, 8)
processor.run_trial = lambda *_: "died of SIGILL"
for layer, n_inputs in ((FeedForward(8, 16), 1), (MultiHeadAttention(8, 2), 2)):
    torch.compiler.reset()
    torch.compile(layer, backend="eager", fullgraph=True)(*n_inputs * [x])
    assert not processor.ANSWERS
for layer, n_inputs in ((FeedForward(8, 16), 1), (MultiHeadAttention(8, 2), 2)):
    torch.compiler.reset()
    try:
        torch.compile(layer.bfloat16(), backend="eager")(*n_inputs * [x.bfloat16()])
    except ValueError as error:
        print(error)
"""


@pytest.mark.slow
def test_compiled_layers_say_it_as_well() -> None:
    """In a process of its own: the compiler cannot read functions that the shape checks of the test run wrap."""
    child = subprocess.run([sys.executable, "-c", COMPILED], capture_output=True, text=True, check=False)
    assert child.returncode == 0, child.stderr[-2000:]
    said = child.stdout.splitlines()
    assert len(said) == 2
    assert all(re.match(SAYS, line) for line in said)


@pytest.mark.usefixtures("liar")
def test_under_vmap_too() -> None:
    layer = hw.layers.FeedForward(8, 16).bfloat16()
    with pytest.raises(ValueError, match=SAYS):
        torch.vmap(layer)(X.bfloat16())


@pytest.mark.usefixtures("nothing_is_tried")
def test_what_is_only_traced_needs_no_trial() -> None:
    layer, x = hw.layers.MultiHeadAttention(8, 2).bfloat16(), X.bfloat16()
    with FakeTensorMode(allow_non_fake_inputs=True):
        assert layer(x, x).dtype == torch.bfloat16
    assert layer.to("meta")(x.to("meta"), x.to("meta")).dtype == torch.bfloat16


def test_the_library_asks_without_what_trains() -> None:
    """Importing lightning for a question about the processor would take seconds."""
    code = "import sys, headwork.models; sys.exit('lightning_fabric' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(("names", "amd"), [("AuthenticAMD", True), ("GenuineIntel", False)])
@pytest.mark.parametrize("where", ["linux", "elsewhere"])
def test_the_processor_says_whose_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, names: str, amd: bool, where: str
) -> None:
    written = tmp_path / "cpuinfo"
    if where == "linux":
        written.write_text(f"processor : 0\nvendor_id : {names}\n")
    monkeypatch.setattr(processor, "CPU_INFO", written)
    monkeypatch.setattr(processor.platform, "processor", lambda: f"AMD64 Family 25, {names}")
    for has_mkl in (True, False):
        monkeypatch.setattr(torch.backends.mkl, "is_available", lambda has_mkl=has_mkl: has_mkl)
        assert processor.is_amd.__wrapped__() == (amd and has_mkl)


def test_the_name_of_the_processor(tmp_path: Path) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text("processor\t: 0\nmodel name\t: A Fast One: 3 GHz\nprocessor\t: 1\nmodel name\t: Another\n")
    assert processor.processor_name(info) == "A Fast One: 3 GHz"
    assert processor.processor_name(tmp_path / "missing")
