"""A checkpoint holds everything, or it is refused by name and the one before it is used."""

import json
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.training.small_runs import KINDS, Kind, StopAfter, differences, read_log, small_run
from tests.training.test_loop import Ears, at_the_end
from torch import nn
from torch.amp.grad_scaler import GradScaler

import headwork as hw
from headwork.metric import MetricSums
from headwork.storage import DamagedError, verify
from headwork.training import AdamW, NonFiniteError, StoppedError, train_run
from headwork.training.checkpoints import (
    Progress,
    at_step,
    checkpoints,
    find_whole,
    load_checkpoint,
    save_checkpoint,
    set_aside,
)
from headwork.training.learner import EMA, Learner


def learner(seed: int, ema: float | None = None) -> Learner:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Linear(5, 2))
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.1)
    return Learner(model, model, optimiser, None if ema is None else EMA(model, ema), GradScaler("cpu"))


def step(of: Learner, *, optimise: bool = True) -> None:
    of.model(torch.randn(7, 3)).square().sum().backward()
    if optimise:
        of.optimiser.step()
        of.optimiser.zero_grad()
        if of.ema is not None:
            of.ema.update(3)


def flip(path: Path, place: float = 0.5) -> None:
    content = bytearray(path.read_bytes())
    content[int(place * len(content))] ^= 1
    path.write_bytes(content)


@pytest.mark.usefixtures("as_users_run_it")  # the checks of the test run draw from Python's generator
@pytest.mark.parametrize("ema", [None, 0.9])
@pytest.mark.parametrize("part", [0, 2])
def test_everything_comes_back(tmp_path: Path, ema: float | None, part: int) -> None:
    """Weights, averages, moments, gradients, counts, scale and chances; then one step on either side is the same."""
    ours, theirs = learner(0, ema), learner(1, ema)
    step(ours)
    if part:
        step(ours, optimise=False)
    assert ours.scaler is not None
    ours.scaler.load_state_dict(ours.scaler.state_dict() | {"scale": 77.0, "_growth_tracker": 5})
    progress = Progress(
        step=4, part=part, metrics=MetricSums({"loss": (1.5, 2.0)}), best_step=3, best_value=0.25, n_worse=1
    )
    random.seed(11)
    np.random.seed(12)  # noqa: NPY002
    save_checkpoint(tmp_path, ours, progress, {"note.txt": "beside"}, writes=True)
    path = checkpoints(tmp_path)[0]
    assert path == at_step(tmp_path, 4, part)
    assert (path / "note.txt").read_text() == "beside"
    drawn = random.random(), np.random.random(), torch.rand(3)  # noqa: NPY002
    assert load_checkpoint(path, theirs) == progress
    assert (random.random(), np.random.random()) == drawn[:2]  # noqa: NPY002
    assert torch.equal(torch.rand(3), drawn[2])
    assert theirs.scaler_state() == ours.scaler_state()
    for each in (ours, theirs):
        torch.manual_seed(5)
        step(each)
    for name, tensor in ours.model.state_dict().items():
        assert torch.equal(theirs.model.state_dict()[name], tensor), name
    if ours.ema is not None and theirs.ema is not None:
        for name, tensor in ours.ema.state.items():
            assert torch.equal(theirs.ema.state[name], tensor), name
    torch.testing.assert_close(
        ours.optimiser.state_dict()["state"], theirs.optimiser.state_dict()["state"], rtol=0, atol=0
    )
    for a, b in zip(ours.optimiser.param_groups, theirs.optimiser.param_groups, strict=True):
        assert {**a, "params": 0} == {**b, "params": 0}


def test_nothing_in_a_checkpoint_can_execute_code(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run", "gpt", ema=0.9)
    train_run(run)
    suffixes = {path.suffix for path in checkpoints(run.folder)[0].iterdir()}
    assert suffixes == {".json", ".safetensors"}
    for path in checkpoints(run.folder)[0].glob("*.json"):
        json.loads(path.read_text(), parse_constant=pytest.fail)


def test_a_process_that_does_not_write_does_not(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, learner(0), Progress(), {}, writes=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("where", ["weight", "average", "moment", "gradient"])
def test_what_is_not_finite_is_not_kept(tmp_path: Path, where: str) -> None:
    sick = learner(0, ema=0.9)
    step(sick)
    step(sick, optimise=False)
    assert sick.ema is not None
    weight = sick.model[2].weight  # type: ignore[index]
    tensors = {
        "weight": weight.data,
        "average": sick.ema.state["2.weight"],
        "moment": sick.optimiser.state[weight]["exp_avg_sq"],
        "gradient": weight.grad,
    }
    tensors[where][1, 3] = float("nan")
    with pytest.raises(NonFiniteError, match=r"step-00000004-part-0001 would not be finite, first in .*2\.weight"):
        save_checkpoint(tmp_path, sick, Progress(step=4, part=1), {}, writes=True)
    assert checkpoints(tmp_path) == []


def test_names_sort_as_they_were_written() -> None:
    places = [(7, 0), (7, 1), (7, 12), (8, 0), (10, 0), (99_999, 3), (100_000, 0)]
    paths = [at_step(Path("run"), *place) for place in places]
    assert paths == sorted(paths)


@pytest.mark.parametrize(
    "name", ["model.safetensors", "training.safetensors", "state.json", "config.json", "manifest.json"]
)
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(tmp_path: Path, name: str) -> None:
    alone, run = small_run(tmp_path / "alone"), small_run(tmp_path / "run")
    if name == "model.safetensors":  # once is enough for the long way
        train_run(alone)
    with pytest.raises(StoppedError):
        train_run(run, stop=StopAfter(7))
    newest, before = checkpoints(run.folder)
    flip(newest / name)
    path, problems = find_whole(run.folder)
    assert path == before
    assert list(problems) == [newest]
    assert str(newest) in problems[newest]
    if name == "model.safetensors":
        ears = Ears()
        train_run(run, ears)
        not_used = f"{problems[newest]}; this checkpoint is not used"
        assert ears.said == [f"vit in {run.folder}", not_used, "going on from step 5 of 10", at_the_end(run)]
        assert differences(run.folder, alone.folder) == []
        assert newest.with_name(f"damaged-{newest.name}").is_dir()
        for each in checkpoints(run.folder):
            verify(each)


def test_a_damaged_checkpoint_is_written_again(tmp_path: Path) -> None:
    """Not kept because something of its name is there already."""
    alone, run = (small_run(tmp_path / name, save_every=2) for name in ("alone", "run"))
    train_run(alone)
    with pytest.raises(StoppedError):
        train_run(run, stop=StopAfter(6))
    assert [path.name for path in checkpoints(run.folder)] == ["step-00000006", "step-00000005"]
    for path in checkpoints(run.folder):
        flip(path / "training.safetensors")
    train_run(run)
    assert differences(run.folder, alone.folder) == []


def test_if_all_are_damaged_the_run_begins_anew(tmp_path: Path) -> None:
    alone, run = small_run(tmp_path / "alone"), small_run(tmp_path / "run")
    train_run(alone)
    with pytest.raises(StoppedError):
        train_run(run, stop=StopAfter(7))
    for path in checkpoints(run.folder):
        flip(path / "state.json")
    ears = Ears()
    train_run(run, ears)
    name, *damaged, last, end = ears.said
    assert name == f"vit in {run.folder}"
    assert (last, end) == ("no checkpoint can be used: beginning again at step 0", at_the_end(run))
    assert len(damaged) == 2
    assert all("state.json is damaged" in said for said in damaged)
    assert len(ears.losses) == 10
    assert differences(run.folder, alone.folder) == []


@pytest.mark.parametrize(
    "name", ["model.safetensors", "training.safetensors", "state.json", "config.json", "manifest.json", "all of it"]
)
def test_a_best_that_is_damaged_is_named_and_chosen_again(tmp_path: Path, name: str) -> None:
    run = small_run(tmp_path / "run", epochs=None, steps=12, evaluate_every=2, optimiser=AdamW(lr=1e-30))
    with pytest.raises(StoppedError):
        train_run(run, stop=StopAfter(9))
    best = at_step(run.folder, 2)
    assert best in checkpoints(run.folder)[2:]
    shutil.rmtree(best) if name == "all of it" else flip(best / name)
    with pytest.raises(DamagedError, match=r"step-00000002"):
        hw.load(run.folder)
    ears = Ears()
    assert train_run(run, ears).best_step == 10
    assert ears.said == [
        f"vit in {run.folder}",
        f"the best checkpoint, {best}, is damaged or missing: the best is chosen again from here on",
        "going on from step 9 of 12",
        at_the_end(run),
    ]
    assert json.loads((run.folder / "checkpoints/best.json").read_text())["checkpoint"] == "step-00000010"
    hw.load(run.folder)


@pytest.mark.parametrize("is_removed", [True, False])
def test_a_finished_run_that_has_lost_its_best_ends_well(tmp_path: Path, *, is_removed: bool) -> None:
    """Again and again: what it ended with is its best then."""
    run = small_run(tmp_path / "run", epochs=None, steps=8, evaluate_every=2, optimiser=AdamW(lr=1e-30))
    train_run(run)
    shutil.rmtree(at_step(run.folder, 2)) if is_removed else flip(at_step(run.folder, 2) / "model.safetensors")
    for _ in range(2):
        assert train_run(run).best_step == 8
        hw.load(run.folder)


def test_setting_aside_twice(tmp_path: Path) -> None:
    for text in ("old", "new"):
        (tmp_path / "step-00000001").mkdir()
        (tmp_path / "step-00000001" / text).write_text(text)
        set_aside(tmp_path / "step-00000001")
    assert [path.name for path in (tmp_path / "damaged-step-00000001").iterdir()] == ["new"]
    assert checkpoints(tmp_path) == []


@pytest.mark.parametrize("kind", KINDS)
def test_stopped_in_the_middle_of_a_step(tmp_path: Path, kind: Kind) -> None:
    """Two of three parts are in the gradient when it stops, in the very first step and in the second epoch."""
    settings = {"accumulate": 3, "dropout": 0.1, "augment": True, "ema": 0.9}
    alone, run = (small_run(tmp_path / name, kind, **settings) for name in ("alone", "run"))
    train_run(alone)
    for looks, name in ((2, "step-00000000-part-0002"), (20, "step-00000007-part-0001")):
        with pytest.raises(StoppedError):
            train_run(run, stop=StopAfter(looks))
        assert checkpoints(run.folder)[0].name == name
    train_run(run)
    assert differences(run.folder, alone.folder) == []
    assert read_log(run.folder) == read_log(alone.folder)


def test_killed_while_an_old_checkpoint_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of it is gone, and its name with it; the next start sweeps the rest."""
    run = small_run(tmp_path / "run", steps=9, save_every=1)

    def removed_by_half(path: Path, **_: object) -> None:
        (path / "state.json").unlink()
        raise KilledError

    monkeypatch.setattr("headwork.training.checkpoints.rmtree", removed_by_half)
    with pytest.raises(KilledError):
        train_run(run)
    monkeypatch.undo()
    for path in checkpoints(run.folder):
        verify(path)
    assert list((run.folder / "checkpoints").glob(".gone-*"))
    train_run(run)
    assert not list((run.folder / "checkpoints").glob(".*"))


class KilledError(BaseException):
    """Nobody catches it."""
