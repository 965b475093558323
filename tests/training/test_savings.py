"""Gradient checkpointing changes no number; texts of one length share a batch; an estimate changes nothing."""

import copy
import itertools
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest
import torch
from torch import nn

import headwork as hw
from headwork import choices
from headwork.batches import ImageBatch
from headwork.data import Digits, Examples
from headwork.data.text_examples import Rows, TextExamples
from headwork.training import AdamW, Muon, StopRequest, TrainingConfig, shuffled_batches
from headwork.training.display import Quiet
from headwork.training.estimate import Seconds, Trial, estimate
from headwork.training.gradient_checkpointing import checkpointed_layers
from headwork.training.plan import Plan

MODEL = hw.models.VisionTransformerConfig(
    n_classes=10,
    image=(8, 8),
    n_channels=1,
    patch=(2, 2),
    d_model=16,
    n_layers=3,
    heads=choices.Heads(n_heads=2),
    feed_forward=choices.FeedForward(d_ff=32),
    dropout=0.3,
)
TRAINING = TrainingConfig(batch_size=32, steps=4, evaluate_every=2)


def gradients(model: nn.Module, image: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor], int]:
    kept = 0

    def count(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal kept
        kept += tensor.numel()
        return tensor

    torch.manual_seed(3)
    with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        out = model(image)
    out.square().mean().backward()
    return out.detach(), {name: p.grad for name, p in model.named_parameters() if p.grad is not None}, kept


@pytest.mark.parametrize("heads", [choices.Heads(n_heads=2), None])
def test_checkpointing_changes_no_number(heads) -> None:
    config = (
        MODEL
        if heads
        else hw.models.GaussianImageEncoderConfig(
            n_classes=10, image=(8, 8), n_channels=1, d_model=12, n_layers=2, dropout=0.3
        )
    )
    torch.manual_seed(0)
    model = config.build()
    other, image = copy.deepcopy(model), torch.rand(5, 1, 8, 8)
    out, grads, kept = gradients(model, image)
    with checkpointed_layers(other):
        same, same_grads, fewer = gradients(other, image)
    assert torch.equal(out, same)
    for name, gradient in grads.items():
        torch.testing.assert_close(same_grads[name], gradient)
    assert fewer < kept / 2
    assert all("forward" not in vars(module) for module in other.modules())


def test_checkpointing_needs_layers() -> None:
    with pytest.raises(ValueError, match="gradient_checkpointing is for a model whose description names its layers"):
        checkpointed_layers(nn.Linear(2, 2)).__enter__()


@pytest.mark.parametrize("change", [{"gradient_checkpointing": True}, {}])
def test_runs_are_the_same(tmp_path: Path, change: dict[str, bool]) -> None:
    plain = hw.train(MODEL, Digits(), TRAINING, out=tmp_path / "plain")
    other = hw.train(MODEL, Digits(), replace(TRAINING, **change), out=tmp_path / "other")
    assert other.test["loss"] == pytest.approx(plain.test["loss"], rel=1e-5)


def test_muon_is_resumed_bitwise(tmp_path: Path) -> None:
    training = replace(TRAINING, optimiser=Muon(lr=0.02, adamw=AdamW(lr=1e-3)), ema=0.9, save_every=1)
    whole = hw.train(MODEL, Digits(), training, out=tmp_path / "whole")

    class StopAt(StopRequest):
        n_asked = 0

        @property
        def signal_number(self):
            self.n_asked += 1
            return 15 if self.n_asked > 3 else None

        @signal_number.setter
        def signal_number(self, value): ...

    with pytest.raises(hw.training.StoppedError):
        hw.train(MODEL, Digits(), training, out=tmp_path / "stopped", stop=StopAt())
    resumed = hw.train(MODEL, Digits(), training, out=tmp_path / "stopped", resume=True)
    assert resumed.test == whole.test
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(tensor, resumed.model.state_dict()[name]), name


def texts(n: int) -> TextExamples:
    lengths = torch.randint(1, 60, (n,), generator=torch.Generator().manual_seed(0)).tolist()
    return TextExamples(Rows.of([[5] * length for length in lengths]), torch.arange(n))


def test_texts_of_one_length_share_a_batch() -> None:
    examples = texts(1003)
    plan = Plan.of(examples, TrainingConfig(batch_size=10, epochs=2, batch_by_length=True, seed=4))
    for epoch in (0, 1):
        steps = range(epoch * plan.steps_per_epoch, (epoch + 1) * plan.steps_per_epoch)
        batches = [plan.parts(step)[0][1] for step in steps]
        seen = [index for batch in batches for index in batch]
        assert len(seen) == len(set(seen)) == 1000
        padded = sum(examples.batch(batch).ids.numel() for batch in batches)
        real = int(examples.lengths[torch.tensor(seen)].sum())
        assert real / padded > 0.95
    assert plan.order(0) != plan.order(1)
    assert plan.order(0) == Plan.of(texts(1003), plan.training).order(0)
    longest = [examples.batch(plan.parts(step)[0][1]).ids.shape[1] for step in range(100)]
    assert longest != sorted(longest)
    plain = sum(batch.ids.numel() for batch in shuffled_batches(examples, 10, seed=4, epoch=0))
    assert plain > 1.5 * int(examples.lengths.sum())


def test_only_texts_have_lengths() -> None:
    with pytest.raises(ValueError, match="batch_by_length is for texts with lengths, got ImageExamples, without"):
        Plan.of(Digits().load().train, replace(TRAINING, batch_by_length=True))


@pytest.fixture
def nothing_resident(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the tests before have left in memory does not count."""
    monkeypatch.setattr("headwork.training.estimate.resident_bytes", lambda: 0)


@pytest.mark.usefixtures("nothing_resident")
def test_an_estimate_changes_nothing_and_grows_with_the_run() -> None:
    data = Digits().load()
    torch.manual_seed(0)
    model = MODEL.build().eval()
    before, state = {name: t.clone() for name, t in model.state_dict().items()}, torch.get_rng_state()
    found = estimate(model, data.task, data, Plan.of(data.train, TRAINING))
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    assert torch.equal(torch.get_rng_state(), state)
    assert not model.training
    n_bytes = 4 * sum(p.numel() for p in model.parameters())
    assert found.n_bytes > 3 * n_bytes
    assert found.minutes > 0
    smaller = estimate(model, data.task, data, Plan.of(data.train, replace(TRAINING, batch_size=4)))
    assert smaller.n_bytes < found.n_bytes
    going_on = estimate(model, data.task, data, Plan.of(data.train, TRAINING), 1)
    assert found.n_bytes - going_on.n_bytes == pytest.approx(2 * n_bytes, rel=0.01)  # Adam's moments are there already


def test_an_estimate_is_of_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a clock on which 32 examples take 0.6 s, the optimiser too, and so does an evaluation of 32."""
    ticks = itertools.count(0.0, 0.6)
    monkeypatch.setattr("headwork.training.estimate.time.perf_counter", lambda: next(ticks))
    data = Digits().load()
    plan = Plan.of(data.train, TrainingConfig(batch_size=32, steps=21, evaluate_every=5))
    left = [estimate(MODEL.build(), data.task, data, plan, step).minutes * 60 for step in (0, 5, 12, 20)]
    n_valid, n_test = len(data.valid), len(data.test)
    expected = [
        n_steps * 1.2 + ((n_evaluations + 1) * n_valid + n_test) / 32 * 0.6
        for n_steps, n_evaluations in ((21, 5), (16, 4), (9, 3), (1, 1))
    ]
    assert left == pytest.approx(expected)


def test_an_estimate_is_the_mean_of_several_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine some steps take long: here every fourth. The first of all is not timed."""
    found = iter([Seconds(0.25, 0.0)] + [Seconds(0.25 * (i % 4 == 3), 0.0) for i in range(100)])
    monkeypatch.setattr(Trial, "step", lambda *_: next(found))
    monkeypatch.setattr(Trial, "evaluate", lambda *_: 0.0)
    data = Digits().load()
    plan = Plan.of(data.train, TrainingConfig(batch_size=32, steps=800))
    assert estimate(MODEL.build(), data.task, data, plan).minutes * 60 == pytest.approx(800 / 16)


@pytest.mark.computes_in(torch.bfloat16)
@pytest.mark.usefixtures("nothing_resident")
def test_an_estimate_is_in_the_precision_of_the_run() -> None:
    """What a step keeps in half precision is smaller."""
    data = Digits().load()
    plan, model = Plan.of(data.train, TRAINING), MODEL.build()
    half = estimate(model, data.task, data, plan, autocast=partial(torch.autocast, "cpu", torch.bfloat16))
    assert half.n_bytes < estimate(model, data.task, data, plan).n_bytes


class Slow(nn.Module):
    """A classifier of texts that takes a second for each token of the longest one, on a clock of its own."""

    seconds = 0.0

    def __init__(self, d_model: int = 4) -> None:
        super().__init__()
        self.d_model, self.embedding = d_model, nn.Embedding(6, d_model)
        self.out = nn.Linear(d_model, 2)

    def forward(self, ids: torch.Tensor, visible: torch.Tensor) -> torch.Tensor:
        Slow.seconds += ids.shape[1]
        return self.out((self.embedding(ids) * visible[..., None]).mean(1))


def labelled(n: int, longest: int = 60) -> TextExamples:
    lengths = torch.randint(1, longest, (n,), generator=torch.Generator().manual_seed(0)).tolist()
    return TextExamples(Rows.of([[5] * length for length in lengths]), torch.arange(n) % 2)


class Listener(Quiet):
    """Remembers what is said, and what Slow's clock says then."""

    def __init__(self) -> None:
        self.said: list[tuple[str, float]] = []

    def say(self, text: str) -> None:
        self.said.append((text, Slow.seconds))


@pytest.mark.parametrize(("seed", "batch_by_length"), [(0, True), (1, True), (2, False)])
def test_the_minutes_are_right_whatever_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, batch_by_length: bool
) -> None:
    """By the clock of the model, the run takes what was said before it."""
    monkeypatch.setattr("headwork.training.estimate.time.perf_counter", lambda: Slow.seconds)
    data = hw.data.Dataset(labelled(200), labelled(20), labelled(30), hw.tasks.Classification(("a", "b")))
    training = TrainingConfig(batch_size=10, epochs=2, seed=seed, batch_by_length=batch_by_length)
    listener = Listener()
    hw.train(Slow(), data, training, out=tmp_path / "run", display=listener)
    ((minutes, begun),) = [
        (int(found[1]), when) for text, when in listener.said if (found := re.match(r"about (\d+) minutes", text))
    ]
    assert minutes == pytest.approx((Slow.seconds - begun) / 60, rel=0.1)


@pytest.mark.usefixtures("nothing_resident")
def test_the_memory_is_that_of_the_longest_texts() -> None:
    def bytes_of(longest: int, **changes: object) -> int:
        data = hw.data.Dataset(labelled(200, longest), labelled(20), labelled(20), hw.tasks.Classification(("a", "b")))
        training = replace(TrainingConfig(batch_size=10, epochs=2, batch_by_length=True), **changes)
        return estimate(Slow(), data.task, data, Plan.of(data.train, training)).n_bytes

    assert bytes_of(60, seed=0) == bytes_of(60, seed=1) == bytes_of(60, seed=2) > 3 * bytes_of(10)
    assert bytes_of(60, accumulate=5) < bytes_of(60)


def test_the_memory_is_that_of_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwork.training.estimate.resident_bytes", lambda: 3 * 2**30, raising=False)
    listener = Listener()
    hw.train(MODEL, Digits(), TRAINING, out=tmp_path / "run", display=listener)
    assert [text for text, _ in listener.said if text.endswith(", and 3.0 GB of memory with PyTorch and the data")]


class Drawn:
    """Examples that draw from NumPy's generator, as a user's may."""

    def __init__(self, examples: Examples) -> None:
        self.examples = examples

    def __len__(self) -> int:
        return len(self.examples)

    def batch(self, indices: Sequence[int], epoch: int | None = None) -> ImageBatch:
        image, label = self.examples.batch(indices, epoch)
        return ImageBatch(image + 0.1 * float(np.random.rand()), label)  # noqa: NPY002


def test_a_run_is_the_same_whether_it_is_estimated_or_not(tmp_path: Path) -> None:
    digits = Digits().load()
    data = replace(digits, train=Drawn(digits.train))
    training = replace(TRAINING, optimiser=Muon(lr=0.02), ema=0.9)
    results = [
        hw.train(MODEL, data, training, out=tmp_path / name, display=display)
        for name, display in (("silent", Quiet()), ("estimated", Listener()))
    ]
    assert results[0].test == results[1].test
    states = [result.model.state_dict() for result in results]
    assert all(torch.equal(tensor, states[1][name]) for name, tensor in states[0].items())


class Unique(Slow):
    """A model that cannot be copied."""

    def __deepcopy__(self, memo: object) -> NoReturn:
        raise TypeError("there is one of these")


def test_a_model_that_cannot_be_copied_is_trained_without_an_estimate(tmp_path: Path) -> None:
    data = hw.data.Dataset(labelled(20), labelled(20), labelled(20), hw.tasks.Classification(("a", "b")))
    listener = Listener()
    hw.train(Unique(), data, TrainingConfig(batch_size=10, steps=1), out=tmp_path / "run", display=listener)
    said = [text for text, _ in listener.said]
    assert "no estimate of time and memory: TypeError: there is one of these" in said


def test_a_folder_that_changed_is_refused_by_resume(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text("text,label\n" + "".join(f"word{i} here,{i % 2}\n" for i in range(60)))
    config = hw.models.EncoderConfig(
        vocab=hw.training.VOCAB_OF_DATA,
        head=choices.ClassificationHead(n_classes=2, pooling=choices.MeanPooling()),
        d_model=8,
        n_layers=1,
        heads=choices.Heads(n_heads=2),
        feed_forward=choices.FeedForward(d_ff=8),
    )
    data = hw.data.TextTable(path=str(path))
    training = TrainingConfig(batch_size=8, steps=2, batch_by_length=True)
    hw.train(config, data, training, out=tmp_path / "run")
    hw.train(config, data, training, out=tmp_path / "run", resume=True)
    path.write_text(path.read_text().replace("word59 here", "word59  here"))
    with pytest.raises(ValueError, match="data must be what the run was begun with, got other examples"):
        hw.train(config, data, training, out=tmp_path / "run", resume=True)
