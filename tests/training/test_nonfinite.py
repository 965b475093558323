"""What is not a number stops the run, is traced to where it began, and is never kept or written down."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.training.small_runs import Kind, StopAfter, read_log, read_tensors, small_run
from torch import nn

from headwork.data.image_examples import ImageExamples
from headwork.training import SGD, Constant, NonFiniteError, Run, train_run
from headwork.training.checkpoints import checkpoints
from headwork.training.display import Quiet
from headwork.training.nonfinite import first_nonfinite
from headwork.training.plan import Plan

NAN = float("nan")


class Surgeon(Quiet):
    """Does something to the model after a step."""

    def __init__(self, step: int, change: Callable[[nn.Module], None], monkeypatch: pytest.MonkeyPatch) -> None:
        from headwork.training import loop

        self.at_step, self.change, self.models = step, change, list[nn.Module]()
        make = loop.make_learner

        def watched(*arguments: object) -> loop.Learner:
            learner = make(*arguments)  # type: ignore[arg-type]
            self.models.append(learner.model)
            return learner

        monkeypatch.setattr(loop, "make_learner", watched)

    def stepped(self, step: int, loss: float, examples_per_second: float) -> None:
        if step == self.at_step:
            with torch.no_grad():
                self.change(self.models[0])


def poisoned(examples: ImageExamples, index: int) -> ImageExamples:
    images = examples.images.clone()
    images[index, 0, 3, 3] = NAN
    return replace(examples, images=images)


def check_kept(run: Run, newest: str | None) -> None:
    """All that is left is finite and from before, and no metric was invented."""
    assert [path.name for path in checkpoints(run.folder)][:1] == ([] if newest is None else [newest])
    for path in run.folder.rglob("*.safetensors"):
        for name, tensor in read_tensors(path):
            assert not tensor.is_floating_point() or tensor.isfinite().all(), f"{path} {name}"
    for row in read_log(run.folder):
        assert all(not isinstance(value, float) or abs(value) < float("inf") for value in row.values())
    assert "NaN" not in (run.folder / "metrics.jsonl").read_text()


@pytest.mark.parametrize("accumulate", [1, 3])
def test_nan_in_the_data(tmp_path: Path, accumulate: int) -> None:
    """In the first part of the fourth step, which is not the last that was computed."""
    run = small_run(tmp_path / "run", accumulate=accumulate, save_every=2)
    data = run.load_data()
    assert isinstance(data.train, ImageExamples)
    index = Plan(len(data.train), run.config.training).parts(3)[0][1][0]
    data = replace(data, train=poisoned(data.train, index))
    with pytest.raises(NonFiniteError, match=r"step 4 has the loss nan .* that is not finite is the input\.") as error:
        train_run(run, data=data)
    assert error.value.exit_code == 3
    check_kept(run, "step-00000002")


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("classifier.bias", "the weight classifier.bias"),
        ("layers.0.feed_forward.up.weight", "the weight layers.0.feed_forward.up"),
    ],
)
def test_nan_in_a_weight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, where: str) -> None:
    run = small_run(tmp_path / "run", save_every=2)
    surgeon = Surgeon(4, lambda model: model.get_parameter(name).view(-1)[:1].fill_(NAN), monkeypatch)
    with pytest.raises(NonFiniteError, match=rf"step-00000004 would not be finite, first in {name}\."):
        train_run(run, surgeon)
    check_kept(run, "step-00000002")
    run = small_run(tmp_path / "other")
    surgeon = Surgeon(3, lambda model: model.get_parameter(name).view(-1)[:1].fill_(NAN), monkeypatch)
    with pytest.raises(NonFiniteError, match=rf"step 4 has the loss nan .* is {where}"):
        train_run(run, surgeon)
    check_kept(run, None)


@pytest.mark.parametrize("kind", ["vit", "resnet", "gpt", "translator"])
def test_steps_that_are_too_large(tmp_path: Path, kind: Kind) -> None:
    """The weights explode, in the steps or where they are evaluated; the last good ones are kept."""
    settings = {"optimiser": SGD(lr=1e25), "schedule": Constant(), "clip": None, "save_every": 1}
    run = small_run(tmp_path / "run", kind, **settings)
    with pytest.raises(NonFiniteError, match=r"first (that is not finite is|in) (the )?\S+"):
        train_run(run)
    check_kept(run, next((path.name for path in checkpoints(run.folder)), None))


def test_nan_in_the_validation_data(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run", save_every=2)
    data = run.load_data()
    assert isinstance(data.valid, ImageExamples)
    data = replace(data, valid=poisoned(data.valid, 7))
    with pytest.raises(NonFiniteError, match=r"the evaluation at step 5 gives .*'loss': nan.* is the input"):
        train_run(run, data=data)
    check_kept(run, "step-00000004")


def test_nan_in_a_part_of_a_step_that_is_stopped(tmp_path: Path) -> None:
    """The gradient of the parts so far would be saved: not this one."""
    run = small_run(tmp_path / "run", accumulate=3, save_every=1)
    data = run.load_data()
    assert isinstance(data.train, ImageExamples)
    index = Plan(len(data.train), run.config.training).parts(2)[0][1][0]
    data = replace(data, train=poisoned(data.train, index))
    with pytest.raises(NonFiniteError, match=r"step-00000002-part-0001 would not be finite, first in gradient\."):
        train_run(run, stop=StopAfter(7), data=data)
    check_kept(run, "step-00000002")


class Layers(nn.Module):
    """Three layers, the second of which can go wrong."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.third(self.second(self.first(x)))


def test_the_first_of_many_layers_is_named() -> None:
    model = Layers()
    with torch.no_grad():
        model.first.weight.fill_(1.0)
        model.second.weight.fill_(3e38)
    assert first_nonfinite(model, [lambda: model(torch.ones(2, 3)).sum()]) == "the output of second"


def test_a_gradient_behind_a_finite_loss() -> None:
    model = Layers()
    assert (
        first_nonfinite(model, [lambda: (0 * model(torch.ones(2, 3))).sqrt().sum()]) == "the gradient of first.weight"
    )


def test_each_loss_is_looked_at_until_one_is_found() -> None:
    model, looked = Layers(), []

    def loss(number: int, value: float) -> Callable[[], torch.Tensor]:
        def compute() -> torch.Tensor:
            looked.append(number)
            return model(torch.full((2, 3), value)).sum()

        return compute

    named = first_nonfinite(model, [loss(0, 1.0), loss(1, float("inf")), loss(2, 1.0)])
    assert (named, looked) == ("the input", [0, 1])


def test_if_nothing_is_found_it_is_the_sum() -> None:
    model = Layers()
    assert first_nonfinite(model, [lambda: model(torch.ones(2, 3)).sum()]) == "the sum of the gradients"


def test_the_eyes_are_closed_again() -> None:
    model = Layers()
    first_nonfinite(model, [lambda: model(torch.ones(2, 3)).sum()])
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
