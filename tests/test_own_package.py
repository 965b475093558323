"""A user's own model, task, streaming data and recipe are as good as ours: no file of headwork knows of them."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import nn

import headwork as hw
from headwork.cli import main
from headwork.storage import DamagedError
from headwork.training import AdamW, StoppedError, TrainingConfig
from headwork.training.checkpoints import checkpoints
from tests.training.small_runs import StopAfter, differences

HOME = Path(__file__).parent / "own_package"


@pytest.fixture(autouse=True)
def on_the_path(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(HOME))
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "pendulum"]:
        del sys.modules[name]


def settings(**changes: object) -> TrainingConfig:
    return TrainingConfig(**{"batch_size": 12, "epochs": 4, "optimiser": AdamW(lr=0.02), **changes})


def run_headwork(*words: object, folder: Path = HOME) -> "subprocess.Popen[str]":
    """A fresh process, started in the directory of the user's package."""
    command = [sys.executable, "-m", "headwork", *map(str, words)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_trained_from_python(tmp_path: Path) -> None:
    from pendulum import FilterBank, Oscillations

    torch.manual_seed(3)
    model = FilterBank(n_filters=6)
    begun = model.filters.weight.detach().clone()
    done = hw.train(model, Oscillations(), settings(epochs=30), out=tmp_path / "run")
    assert done.test.keys() == {"loss", "hits"}
    assert done.test["loss"] < 0.03  # guessing the mean frequency has a loss of 1 / 12
    assert done.model is model
    assert not model.training
    assert not torch.equal(begun, model.filters.weight)
    rows = hw.storage.metrics_log.read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert {row.split for row in rows} == {"step", "train", "valid", "test"}


def test_a_model_keeps_its_weights(tmp_path: Path) -> None:
    """And they are in the checkpoint of step 0, since no seed brings them back."""
    from pendulum import FilterBank, Oscillations

    torch.manual_seed(3)
    model = FilterBank(n_filters=6)
    begun = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(StoppedError):
        hw.train(model, Oscillations(), settings(), out=tmp_path / "run", stop=StopAfter(1))
    oldest = checkpoints(tmp_path / "run")[-1]
    assert oldest.name == "step-00000000"
    loaded = hw.load(oldest, classes=[FilterBank]).state_dict()
    assert all(torch.equal(tensor, loaded[name]) for name, tensor in begun.items())


@pytest.mark.parametrize("looks", [1, 13])
def test_stopped_and_resumed_bitwise_from_python(tmp_path: Path, looks: int) -> None:
    from pendulum import FilterBank, Oscillations

    def train(name: str, stop: StopAfter | None = None, *, resume: bool = False) -> object:
        torch.manual_seed(3 if not resume else 99)  # whoever resumes may pass a model with any weights
        model = FilterBank(n_filters=6, dropout=0.2)
        training = settings(save_every=3, accumulate=2, ema=0.9)
        return hw.train(model, Oscillations(), training, out=tmp_path / name, stop=stop, resume=resume)

    train("alone")
    with pytest.raises(StoppedError):
        train("stopped", StopAfter(looks))
    train("stopped", resume=True)
    assert differences(tmp_path / "stopped", tmp_path / "alone") == []


@pytest.mark.slow
def test_killed_early_and_resumed_bitwise_on_the_command_line(tmp_path: Path) -> None:
    """SIGKILL before the first evaluation, then `--resume --import` in a fresh process."""
    words = ("--out", tmp_path / "alone", "--set", "training.epochs=2")
    alone = run_headwork("train", "pendulum:pendulum", *words)
    said = alone.communicate()
    assert alone.returncode == 0, said[1]
    killed = run_headwork("train", "pendulum:pendulum", "--out", tmp_path / "killed", "--set", "training.epochs=2")
    end = time.monotonic() + 100
    while not checkpoints(tmp_path / "killed") and time.monotonic() < end:
        time.sleep(0.001)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    resumed = run_headwork("train", "--resume", tmp_path / "killed", "--import", "pendulum")
    said = resumed.communicate()
    assert resumed.returncode == 0, said[1]
    assert differences(tmp_path / "killed", tmp_path / "alone") == []


def test_a_recipe_may_bring_weights_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changing anything but the model keeps them; the checkpoint of step 0 has them."""
    from pendulum import pendulum

    from headwork.recipes import override

    config = pendulum()
    changed = override(config, {"training.seed": 7, "data.noise": 0.3})
    assert changed.model is config.model
    assert (changed.training.seed, changed.data.noise) == (7, 0.3)
    assert override(config, {"model.width": 3}).model.filters.weight.shape == (6, 1, 3)


def test_used_from_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(HOME)
    out = str(tmp_path / "run")
    changes = ["--steps", "3", "--set", "model.n_filters=4", "--set", "data.noise=0.5", "--lr", "0.5"]
    assert main(["train", "pendulum:pendulum", "--out", out, "--json", *changes]) == 0
    about = json.loads(capsys.readouterr().out)
    assert main(["evaluate", out, "--import", "pendulum", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["loss"] == pytest.approx(about["test"]["loss"], abs=1e-5)
    run = json.loads((tmp_path / "run" / "config.json").read_text())["run"]
    assert (run["model"]["n_filters"], run["data"]["noise"]) == (4, 0.5)
    assert (run["training"]["optimiser"]["lr"], run["training"]["steps"], run["training"]["epochs"]) == (0.5, 3, None)
    assert main(["evaluate", out]) == 2
    assert "classes=[Oscillations], or --import my_module" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["pendulm:pendulum"], "module must be importable, got 'pendulm'"),
        (["pendulum:pendulm"], "recipe must be a function of pendulum, got 'pendulm'; did you mean 'pendulum'?"),
        (
            ["pendulum:FilterBank", "--set", "x=1"],
            "recipe must need no argument, got pendulum:FilterBank, which needs n_filters",
        ),
        (["pendulum:pendulum", "--set", "model.n_filter=3"], "no field 'n_filter'; did you mean 'n_filters'?"),
        (["pendulum:pendulum", "--set", "trainin.seed=3"], "no field 'trainin'; did you mean 'training'?"),
        (["pendulum:pendulum", "--set", "training.seed"], "set must be path=value"),
        (["pendulum:pendulum", "--set", "training.seed=x"], "TrainingConfig.seed must be int, got 'x'"),
        (["pendulum:pendulum", "--set", "name.x=3"], "name.x cannot be set: name is 'pendulum'"),
        (["pendulum:pendulum", "--position", "rotary"], "position cannot be set for a FilterBank, got rotary"),
        (["pendulum:pendulum", "--set", "training.label_smoothing=0.1"], "label_smoothing is for tasks that have it"),
    ],
)
def test_what_is_wrong_is_said(
    tmp_path: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(HOME)
    assert main(["train", *words, "--out", str(tmp_path / "run")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_saved_and_loaded_in_a_fresh_process(tmp_path: Path) -> None:
    from pendulum import FilterBank

    model = FilterBank(n_filters=3, width=7).eval()
    hw.save(model, tmp_path / "model")
    series = torch.linspace(0, 1, 32)[None]
    program = (
        "import sys, torch, headwork as hw\nfrom pendulum import FilterBank\n"
        f"model = hw.load({str(tmp_path / 'model')!r}, classes=[FilterBank], dtype=torch.float64)\n"
        "print(model.width, model(torch.linspace(0, 1, 32, dtype=torch.float64)[None]).item())"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=HOME, capture_output=True, text=True, check=True)
    width, answer = done.stdout.split()
    assert width == "7"
    assert float(answer) == pytest.approx(model(series).item(), abs=1e-6)
    assert json.loads((tmp_path / "model" / "config.json").read_text())["model"] == {
        "kind": "FilterBank",
        "n_filters": 3,
        "width": 7,
        "dropout": 0.0,
    }


def test_a_class_that_was_not_passed_is_not_built(tmp_path: Path) -> None:
    from pendulum import FilterBank

    hw.save(FilterBank(n_filters=3), tmp_path / "model")
    with pytest.raises(
        ValueError, match=r"got 'FilterBank'; if it is a class of your own, pass it: classes=\[FilterBank\]"
    ):
        hw.load(tmp_path / "model")
    filled = hw.load(tmp_path / "model", model=FilterBank(n_filters=3))
    assert isinstance(filled, FilterBank)


def test_recorded(tmp_path: Path) -> None:
    from pendulum import FilterBank

    model = FilterBank(n_filters=3)
    with hw.record(model, "mix.0") as seen:
        model(torch.randn(2, 32))
    assert seen["mix.0"].shape == (2, 16)


class Changed(nn.Module):
    """Does not keep its argument."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)


def test_a_model_that_could_not_be_rebuilt_is_not_saved(tmp_path: Path) -> None:
    from pendulum import FilterBank

    with pytest.raises(ValueError, match="Changed must keep its argument width as an attribute"):
        hw.save(Changed(3), tmp_path / "model")
    model = FilterBank(n_filters=3)
    model.mix[1] = nn.Tanh()
    with pytest.raises(ValueError, match=r"got a Tanh at 'mix\.1', where ReLU would be built"):
        hw.save(model, tmp_path / "model")
    model = FilterBank(n_filters=3)
    model.mix[3] = nn.Linear(16, 2)
    with pytest.raises(ValueError, match=r"got \(2, 16\) for 'mix\.3\.weight', where \(1, 16\) would be built"):
        hw.save(model, tmp_path / "model")
    ours = hw.models.published("digits-vit").build()
    ours.add_module("adapter", nn.Linear(2, 2))
    with pytest.raises(ValueError, match="got a Linear at 'adapter', where nothing would be built"):
        hw.save(ours, tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_data_from_python_must_be_passed_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from pendulum import FilterBank, Oscillations

    data = Oscillations().load()
    with pytest.raises(StoppedError):
        hw.train(FilterBank(n_filters=3), data, settings(), out=tmp_path / "run", stop=StopAfter(2))
    assert main(["train", "--resume", str(tmp_path / "run"), "--import", "pendulum"]) == 2
    assert "data must be passed again" in capsys.readouterr().err
    with pytest.raises(ValueError, match=r"as it was begun: training\.epochs must be 4, got 9 for"):
        hw.train(FilterBank(n_filters=3), data, settings(epochs=9), out=tmp_path / "run", resume=True)
    with pytest.raises(ValueError, match="holds another run"):
        hw.train(FilterBank(n_filters=3), data, settings(), out=tmp_path / "run")
    assert hw.train(FilterBank(n_filters=3), data, settings(), out=tmp_path / "run", resume=True).best_step > 0


def test_weights_of_ones_own_that_are_lost_are_not_replaced_by_others(tmp_path: Path) -> None:
    from pendulum import FilterBank, Oscillations

    with pytest.raises(StoppedError):
        hw.train(FilterBank(n_filters=3), Oscillations(), settings(), out=tmp_path / "run", stop=StopAfter(1))
    for path in checkpoints(tmp_path / "run"):
        (path / "model.safetensors").write_bytes(b"broken")
    with pytest.raises((ValueError, DamagedError), match="began with weights of its own"):
        hw.train(FilterBank(n_filters=3), Oscillations(), settings(), out=tmp_path / "run", resume=True)


@dataclass(frozen=True, kw_only=True)
class Misfit:
    """Series of another length: the first layer cannot read them."""

    def load(self, seed: int = 0) -> "hw.data.Dataset":
        examples = hw.data.TorchExamples([(torch.zeros(3), torch.zeros(())) for _ in range(20)])
        return hw.data.Dataset(examples, examples, examples, hw.tasks.Regression())


def test_a_model_without_a_description_is_tried_on_a_batch(tmp_path: Path) -> None:
    from pendulum import FilterBank

    with pytest.raises(ValueError, match=r"model, data and task must fit, got an error when Regression scored a Filt"):
        hw.train(FilterBank(n_filters=3), Misfit(), settings(), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
