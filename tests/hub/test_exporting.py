"""Exported files answer as the model does, at every batch size and length, with padding on either side."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import jaxtyping
import pytest
import torch
from torch import nn

import headwork as hw
from headwork import choices
from headwork.cli import main
from headwork.extras import MissingExtraError

from ..models.small_models import LLAMA, T5, classifier, decoder, encoder_decoder, some_ids, vision_transformer

MODELS: dict[str, Callable[[], nn.Module]] = {
    "encoder": lambda: classifier(choices.FirstToken()),
    "decoder": lambda: decoder(**LLAMA),
    "pair": lambda: encoder_decoder(**T5),
    "image": vision_transformer,
}


@pytest.fixture(autouse=True)
def symbols() -> Iterator[None]:
    """While it exports, PyTorch passes symbols where the types say int."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def sizes(name: str) -> list[dict[str, torch.Tensor]]:
    """Three lengths and two batch sizes that the file was not made with."""
    found = []
    for batch in (2, 5):
        for n in (2, 6, 11):
            visible = torch.ones(batch, n, dtype=torch.bool)
            visible[-1, : n // 2] = False
            texts = {"ids": some_ids(batch, n), "visible": visible}
            pairs = {"source": some_ids(batch, n), "target": some_ids(batch, n + 2), "source_visible": visible}
            found.append({"pair": pairs, "image": {"image": torch.rand(batch, 2, 6, 15)}}.get(name, texts))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_onnx(name: str, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    torch.manual_seed(0)
    model = MODELS[name]().eval()
    done = hw.export(model, tmp_path / "model.onnx")
    assert done.largest_difference < 1e-4
    assert not done.cache
    assert "without a cache" in str(done)
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    for inputs in sizes(name):
        (found,) = session.run(None, {key: tensor.numpy() for key, tensor in inputs.items()})
        with torch.no_grad():
            torch.testing.assert_close(torch.from_numpy(found), model(**inputs), atol=1e-4, rtol=1e-4)
    names = {given.name: given.shape for given in session.get_inputs()}
    assert names.keys() == sizes(name)[0].keys()
    assert all(shape[0] == "batch" for shape in names.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_a_program_of_torch_export(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = MODELS[name]().eval()
    hw.export(model, tmp_path / "model.pt2")
    program = torch.export.load(tmp_path / "model.pt2").module()
    for inputs in sizes(name):
        with torch.no_grad():
            torch.testing.assert_close(program(**inputs), model(**inputs), atol=1e-5, rtol=1e-4)


@pytest.mark.slow
def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime")
    adapted = hw.lora(vision_transformer(), "*.query")
    hw.save(adapted, tmp_path / "ours")
    assert main(["export", str(tmp_path / "ours"), "--out", str(tmp_path / "new" / "model.onnx")]) == 0
    assert "image (batch, 2, 6, 15); off by at most" in capsys.readouterr().out


def test_wrong_use(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    model = vision_transformer()
    with pytest.raises(ValueError, match=r"file must end in \.onnx or \.pt2, got .*model\.h5"):
        hw.export(model, tmp_path / "model.h5")
    (tmp_path / "old.onnx").touch()
    with pytest.raises(ValueError, match="file must be a new one"):
        hw.export(model, tmp_path / "old.onnx")
    with pytest.raises(ValueError, match=r"model must be a whole one, .* got a Linear: for other modules"):
        hw.export(nn.Linear(1, 1), tmp_path / "model.onnx")
    assert main(["export", "nowhere", "--out", str(tmp_path / "model.txt")]) == 2
    assert "out must end in .onnx or .pt2" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'headwork\[export\]'"):
        hw.export(model, tmp_path / "model.onnx")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["old.onnx"]


def test_a_file_that_answers_otherwise_is_not_handed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwork.hub.exporting.write_program", lambda model, *_: lambda inputs: model(**inputs) + 0.1)
    with pytest.raises(RuntimeError, match=r"would answer otherwise than the model: off by 0\.1"):
        hw.export(vision_transformer(), tmp_path / "model.pt2")
    assert list(tmp_path.iterdir()) == []
