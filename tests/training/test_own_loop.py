"""The pieces of the loop in a loop of one's own: the same batches, and a state that comes back bit for bit."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import headwork as hw
from headwork.functional.denormals import SWITCH, flushes_denormals
from headwork.storage import DamagedError
from headwork.training.plan import Plan


def network() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 7), nn.BatchNorm1d(7), nn.Dropout(0.5), nn.Linear(7, 10))


OPTIMISERS = {
    "adam": lambda model: hw.training.make_optimiser(hw.training.AdamW(), model),
    "sgd": lambda model: hw.training.make_optimiser(hw.training.SGD(), model),
    "pytorch's own": lambda model: torch.optim.AdamW(model.parameters(), amsgrad=True),
    "without momentum": lambda model: torch.optim.SGD(model.parameters(), lr=0.1),
}


def go_on(model: nn.Module, optimiser: torch.optim.Optimizer, n_steps: int) -> list[Tensor]:
    for _ in range(n_steps):  # the images are random as well
        F.cross_entropy(model(torch.rand(16, 1, 8, 8)), torch.randint(10, (16,))).backward()
        optimiser.step()
        optimiser.zero_grad()
    return [tensor.clone() for tensor in model.state_dict().values()]


@pytest.mark.parametrize("make", OPTIMISERS.values(), ids=OPTIMISERS.keys())
def test_a_loop_goes_on_bit_for_bit(tmp_path: Path, make) -> None:
    model = network()
    optimiser = make(model)
    go_on(model, optimiser, 3)
    hw.training.save_state(tmp_path / "state", model, optimiser, step=3, best={"loss": 0.5})
    wanted = go_on(model, optimiser, 3)

    other = network()
    fresh = make(other)
    go_on(other, fresh, 1)
    assert hw.training.load_state(tmp_path / "state", other, fresh) == {"step": 3, "best": {"loss": 0.5}}
    for mine, want in zip(go_on(other, fresh, 3), wanted, strict=True):
        assert torch.equal(mine, want)


def test_a_damaged_state_is_refused_by_its_name(tmp_path: Path) -> None:
    model = network()
    optimiser = OPTIMISERS["adam"](model)
    go_on(model, optimiser, 1)
    hw.training.save_state(tmp_path / "state", model, optimiser)
    for path in sorted((tmp_path / "state").iterdir()):
        whole = path.read_bytes()
        path.write_bytes(whole[:-3] + bytes([whole[-3] ^ 4]) + whole[-2:])
        with pytest.raises(DamagedError, match=str(tmp_path / "state")):
            hw.training.load_state(tmp_path / "state", model, optimiser)
        path.write_bytes(whole)
    hw.training.load_state(tmp_path / "state", model, optimiser)


def test_the_batches_are_those_of_a_run() -> None:
    examples = hw.data.Digits().load(0).train
    training = hw.training.TrainingConfig(batch_size=100, epochs=3, seed=5)
    plan = Plan.of(examples, training)
    for epoch in range(2):
        batches = list(hw.training.shuffled_batches(examples, 100, seed=5, epoch=epoch))
        assert len(batches) == plan.steps_per_epoch
        for within, batch in enumerate(batches):
            ((_, indices),) = plan.parts(epoch * plan.steps_per_epoch + within)
            for mine, want in zip(batch, examples.batch(indices, epoch), strict=True):
                assert torch.equal(mine, want)


class Probe(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.map, self.seen = nn.Linear(64, 10), []

    def forward(self, image: Tensor) -> Tensor:
        self.seen.append(flushes_denormals())
        return self.map(image.flatten(1))


@pytest.mark.skipif(not torch.set_flush_denormal(False), reason="this processor cannot take denormal numbers for 0")
@pytest.mark.parametrize("switch", ["1", "0"])
def test_training_flushes_denormal_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, switch: str) -> None:
    monkeypatch.setenv(SWITCH, switch)
    model = Probe()
    hw.train(model, hw.data.Digits(), hw.training.TrainingConfig(steps=2, batch_size=20), out=tmp_path / "run")
    assert set(model.seen) == {switch == "1"}
    assert not flushes_denormals()
