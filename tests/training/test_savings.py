"""Gradient checkpointing changes no number; texts of one length share a batch; an estimate changes nothing."""

import copy
import itertools
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

import headwork as hw
from headwork import choices
from headwork.data import Digits
from headwork.data.text_examples import Rows, TextExamples
from headwork.training import AdamW, Muon, StopRequest, TrainingConfig, shuffled_batches
from headwork.training.estimate import estimate
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


def test_an_estimate_changes_nothing_and_grows_with_the_run() -> None:
    data = Digits().load()
    torch.manual_seed(0)
    model = MODEL.build().eval()
    before, state = {name: t.clone() for name, t in model.state_dict().items()}, torch.get_rng_state()
    plan = Plan.of(data.train, TRAINING)
    found = estimate(model, data.task, data.train.batch(range(32), 0), len(data.valid), plan)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    assert torch.equal(torch.get_rng_state(), state)
    assert not model.training
    n_bytes = 4 * sum(p.numel() for p in model.parameters())
    assert found.n_bytes > 4 * n_bytes
    assert found.minutes > 0
    smaller = estimate(model, data.task, data.train.batch(range(4), 0), len(data.valid), plan)
    assert smaller.n_bytes < found.n_bytes


def test_an_estimate_is_of_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a clock on which 32 examples take 0.6 s, and so does the optimiser: 20 steps take 24 s."""
    ticks = itertools.count(0.0, 0.6)
    monkeypatch.setattr("headwork.training.estimate.time.perf_counter", lambda: next(ticks))
    data = Digits().load()
    plan = Plan.of(data.train, TrainingConfig(batch_size=32, steps=20, evaluate_every=5))
    batch, n_valid = data.train.batch(range(32), 0), 96
    left = [estimate(MODEL.build(), data.task, batch, n_valid, plan, step).minutes * 60 for step in (0, 5, 12, 19)]
    of_evaluation = 96 / 3 / 32 * 0.6
    assert left == pytest.approx([n * 1.2 + m * of_evaluation for n, m in ((20, 4), (15, 3), (8, 2), (1, 1))])


@pytest.mark.computes_in(torch.bfloat16)
def test_an_estimate_is_in_the_precision_of_the_run() -> None:
    """What a step keeps in half precision is smaller."""
    data = Digits().load()
    plan, batch, model = Plan.of(data.train, TRAINING), data.train.batch(range(32), 0), MODEL.build()
    half = estimate(model, data.task, batch, 0, plan, autocast=partial(torch.autocast, "cpu", torch.bfloat16))
    assert half.n_bytes < estimate(model, data.task, batch, 0, plan).n_bytes


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
