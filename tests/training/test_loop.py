"""What a run leaves behind: the best by validation, its metrics, a few checkpoints, and nothing twice."""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from tests.training.small_runs import (
    StopAfter,
    changed,
    differences,
    file_differences,
    read_log,
    read_tensors,
    small_run,
)
from torch import nn
from torch.utils.tensorboard import SummaryWriter

import headwork as hw
from headwork.data import Dataset, Digits
from headwork.data.image_examples import ImageExamples
from headwork.storage import DamagedError
from headwork.storage.metrics_log import read_metrics
from headwork.storage.sealed_json import sealed
from headwork.tasks import Task
from headwork.training import AdamW, Run, StoppedError, TrainingConfig, open_run, train_run
from headwork.training import checkpoints as saving
from headwork.training.checkpoints import checkpoints
from headwork.training.display import Quiet, Values
from headwork.training.estimate import Estimate, estimate
from headwork.training.optimiser import learning_rate
from headwork.training.plan import Plan, ordered_batches
from headwork.training.recorder import make_watchers


class Ears(Quiet):
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.said: list[str] = []
        self.estimates: list[str] = []
        self.evaluations: list[tuple[float, Mapping[str, Mapping[str, float]], bool]] = []

    def stepped(self, step: int, loss: float, examples_per_second: float) -> None:
        assert examples_per_second > 0
        self.losses.append(loss)

    def evaluated(self, epoch: float, values: Values, task: Task, *, best: bool) -> None:
        self.evaluations.append((epoch, values, best))

    def say(self, text: str) -> None:
        """What a run will take is measured: another number each time."""
        is_estimate = text.endswith(" of memory with PyTorch and the data")
        (self.estimates if is_estimate else self.said).append(text)


def at_the_end(run: Run) -> str:
    """What a run says last, so that nobody waits in silence."""
    best = json.loads((run.folder / "checkpoints" / "best.json").read_text())["checkpoint"]
    return f"evaluating the best checkpoint, of step {int(best.removeprefix('step-'))}"


def misleading(run: Run) -> Dataset:
    """Wrong labels in the validation data: a model that learns well does badly there, and well on the test."""
    data = run.load_data()
    assert isinstance(data.train, ImageExamples)
    right, labels = data.train, data.train.labels
    wrong = replace(right, labels=(labels + 5) % 10)
    return Dataset(right, wrong, right, data.task)


def test_the_best_is_chosen_on_validation_and_not_on_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saving, "N_KEPT", 99)
    settings = {"epochs": None, "steps": 60, "evaluate_every": 10, "optimiser": AdamW(lr=0.03)}
    run = small_run(tmp_path / "run", "resnet", **settings)
    data = misleading(run)
    outcome = train_run(run, data=data)
    valid = {row["step"]: row["accuracy"] for row in read_log(run.folder) if row["split"] == "valid"}
    test = {
        int(path.name[5:]): run.task.evaluate(hw.load(path), ordered_batches(data.test, 354)).metrics["accuracy"]
        for path in checkpoints(run.folder)
    }
    best = max(sorted(valid), key=valid.__getitem__)
    assert sorted(test) == sorted(valid) == [10, 20, 30, 40, 50, 60]
    assert outcome.best_step == best
    assert best != max(test, key=test.__getitem__)
    assert outcome.test["accuracy"] == test[best] < max(test.values())
    assert outcome.valid["accuracy"] == valid[best]


def test_patience_ends_a_run_early_and_for_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"epochs": None, "steps": 60, "evaluate_every": 4, "patience": 2, "optimiser": AdamW(lr=0.03)}
    run = small_run(tmp_path / "run", "resnet", **settings)
    data = misleading(run)
    outcome = train_run(run, data=data)
    steps = [row["step"] for row in read_log(run.folder) if row["split"] == "valid"]
    assert steps[-1] == outcome.best_step + 2 * 4 < 60
    log = read_log(run.folder)
    again = train_run(run, data=data)
    assert (again.best_step, again.valid, again.test) == (outcome.best_step, outcome.valid, outcome.test)
    assert read_log(run.folder) == log


def test_loading_a_run_gives_its_best(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run", epochs=4, optimiser=AdamW(lr=0.02))
    outcome = train_run(run)
    best = tmp_path / "run" / "checkpoints" / f"step-{outcome.best_step:08d}"
    assert json.loads((tmp_path / "run" / "checkpoints" / "best.json").read_text())["checkpoint"] == best.name
    for name, tensor in hw.load(run.folder).state_dict().items():
        assert torch.equal(tensor, dict(read_tensors(best / "model.safetensors"))[name])
    assert file_differences(run.folder / "model.safetensors", best / "model.safetensors") == []
    data = run.load_data()
    assert run.task.evaluate(hw.load(run.folder), ordered_batches(data.valid, 354)).metrics == outcome.valid
    assert run.task.evaluate(hw.load(run.folder), ordered_batches(data.test, 354)).metrics == outcome.test
    assert hw.load(best).config == run.config.model


def test_the_best_and_the_two_newest_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"epochs": None, "steps": 24, "evaluate_every": 6, "save_every": 2, "optimiser": AdamW(lr=0.03)}
    run = small_run(tmp_path / "run", "resnet", **settings)
    data = misleading(run)
    outcome = train_run(run, data=data)
    names = [path.name for path in checkpoints(run.folder)]
    assert names == ["step-00000024", "step-00000022", f"step-{outcome.best_step:08d}"]
    assert outcome.best_step == 6


def test_checkpoints_do_not_pile_up_before_the_first_evaluation(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run", save_every=1, evaluate_every=10)
    with pytest.raises(StoppedError):
        train_run(run, stop=StopAfter(8))
    assert [path.name for path in checkpoints(run.folder)] == ["step-00000008", "step-00000007"]


def test_the_log_has_the_metrics_and_nothing_twice(tmp_path: Path) -> None:
    run, ears = small_run(tmp_path / "run"), Ears()
    outcome = train_run(run, ears)
    log = read_log(run.folder)
    rows = [row for row in log if row["split"] != "step"]
    assert [(row["step"], row["split"], row["epoch"]) for row in rows] == [
        (5, "train", 1.0),
        (5, "valid", 1.0),
        (10, "train", 2.0),
        (10, "valid", 2.0),
        (outcome.best_step, "test", outcome.best_step / 5),
    ]
    assert rows[0]["loss"] == pytest.approx(sum(ears.losses[:5]) / 5, abs=1e-6)
    assert rows[2]["loss"] == pytest.approx(sum(ears.losses[5:]) / 5, abs=1e-6)
    assert [(epoch, values["valid"]["loss"]) for epoch, values, _ in ears.evaluations] == [
        (1.0, rows[1]["loss"]),
        (2.0, rows[3]["loss"]),
    ]
    assert (run.folder / "tensorboard").is_dir()
    train_run(run)
    assert read_log(run.folder) == log


def test_every_step_is_logged_with_its_loss_learning_rate_gradient_and_speed(tmp_path: Path) -> None:
    run, ears = small_run(tmp_path / "run"), Ears()
    train_run(run, ears)
    rows = [row for row in read_metrics(run.folder / "metrics.jsonl") if row.split == "step"]
    assert [row.step for row in rows] == list(range(1, 11))
    assert [row.values["loss"] for row in rows] == ears.losses
    training = run.config.training
    rates = [training.optimiser.lr * learning_rate(training.schedule, step, 10) for step in range(10)]
    assert [row.values["lr"] for row in rows] == rates
    for row in rows:
        assert row.values["gradient_norm"] > 0
        assert row.values["examples_per_second"] > 0
        assert "tokens_per_second" not in row.values  # images have none


def test_steps_are_logged_of_a_run_that_fails_too(tmp_path: Path) -> None:
    """They are written with the next evaluation, or when the run ends, however it ends."""
    run = small_run(tmp_path / "run", evaluate_every=10)
    with pytest.raises(StoppedError):
        train_run(run, stop=StopAfter(3))
    assert [(row["step"], row["split"]) for row in read_log(run.folder)] == [(1, "step"), (2, "step"), (3, "step")]

    class Broken(Ears):
        def stepped(self, step: int, loss: float, examples_per_second: float) -> None:
            if step == 6:
                raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        train_run(run, Broken())
    assert [row["step"] for row in read_log(run.folder)] == [1, 2, 3, 4, 5]


def test_a_long_run_logs_every_so_many_steps() -> None:
    examples = Digits().load().train
    for n_steps, n_logged in ((150, 150), (1000, 1000), (1001, 500), (10**5, 1000)):
        plan = Plan.of(examples, TrainingConfig(steps=n_steps, batch_size=8))
        assert sum(map(plan.logs, range(1, n_steps + 1))) == n_logged


def test_what_is_evaluated_and_kept_is_the_average(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run", "resnet", ema=0.7)
    train_run(run)
    newest = checkpoints(run.folder)[0]
    averaged, rest = (dict(read_tensors(newest / name)) for name in ("model.safetensors", "training.safetensors"))
    own = {name.removeprefix("own."): tensor for name, tensor in rest.items() if name.startswith("own.")}
    assert own.keys() == averaged.keys()
    assert not torch.equal(own["classifier.weight"], averaged["classifier.weight"])
    assert not torch.equal(own["norm.running_mean"], averaged["norm.running_mean"])
    assert torch.equal(own["norm.num_batches_tracked"], averaged["norm.num_batches_tracked"])
    row = next(row for row in read_log(run.folder) if (row["step"], row["split"]) == (10, "valid"))
    metrics = run.task.evaluate(hw.load(newest), ordered_batches(run.load_data().valid, 354)).metrics
    assert {name: row[name] for name in metrics} == metrics


def test_without_an_average_nothing_else_changes(tmp_path: Path) -> None:
    """The average is fed by the weights and never feeds them: evaluating it in between leaves them alone."""
    run = small_run(tmp_path / "run", "resnet", ema=0.7)
    plain = changed(run, tmp_path / "plain", ema=None)
    for each in (run, plain):
        train_run(each)
    own = dict(read_tensors(checkpoints(run.folder)[0] / "training.safetensors"))
    for name, tensor in read_tensors(checkpoints(plain.folder)[0] / "model.safetensors"):
        assert torch.equal(own[f"own.{name}"], tensor)


def test_watchers_look_at_every_evaluation(tmp_path: Path) -> None:
    seen: list[tuple[str, int]] = []

    def watch(board: object, model: nn.Module, step: int) -> None:
        assert hasattr(board, "add_scalar")
        seen.append((type(model).__name__, step))

    train_run(small_run(tmp_path / "run"), watchers=[watch])
    assert seen == [("VisionTransformer", 0), ("VisionTransformer", 5), ("VisionTransformer", 10)]


@pytest.mark.parametrize("n_evaluations", [1, 4, 7, 60])
def test_attention_is_drawn_a_few_times_however_often_a_run_is_evaluated(tmp_path: Path, n_evaluations: int) -> None:
    plan = Plan.of(Digits().load().train, TrainingConfig(steps=n_evaluations, evaluate_every=1, batch_size=8))
    drawn: list[int] = []
    _, watcher = make_watchers(tmp_path, plan, lambda _: [Figure()])
    with SummaryWriter(str(tmp_path)) as board:
        board.add_figure = lambda tag, figure, step: drawn.append(step)  # type: ignore[method-assign]
        for step in range(1, n_evaluations + 1):
            watcher(board, nn.Linear(1, 1), step)
    assert 1 <= len(drawn) <= 4


def test_a_stop_says_how_to_go_on(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run")
    with pytest.raises(
        StoppedError,
        match=rf"stopped by SIGTERM and saved at step 7 of 10; go on with `headwork train --resume {run.folder}`",
    ):
        train_run(run, stop=StopAfter(7))
    ears = Ears()
    train_run(run, ears)
    assert ears.said == [f"vit in {run.folder}", "going on from step 7 of 10", at_the_end(run)]
    assert len(ears.losses) == 3


@pytest.mark.parametrize("looks", [(1,), (5,), (7, 2), (15,)])
def test_stopped_at_a_step_that_was_saved_already(tmp_path: Path, looks: Sequence[int]) -> None:
    """At an epoch's edge, at the very end, twice, and in the first step: the same as if left alone."""
    alone, run = small_run(tmp_path / "alone", epochs=3), small_run(tmp_path / "run", epochs=3)
    train_run(alone)
    for each in looks:
        with pytest.raises(StoppedError):
            train_run(run, stop=StopAfter(each))
    train_run(run)
    assert differences(run.folder, alone.folder) == []


def test_checkpoints_that_are_gone_are_not_trained_again(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run", steps=2)
    train_run(run)
    for path in checkpoints(run.folder):
        shutil.rmtree(path)
    weights = (run.folder / "model.safetensors").read_bytes()
    with pytest.raises(ValueError, match="holds its model and none of its checkpoints: begin again in another folder"):
        train_run(run)
    assert (run.folder / "model.safetensors").read_bytes() == weights


def test_killed_before_the_best_was_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkpoint is there, the note of the best is not: it is written when the run goes on."""
    settings = {"epochs": 3, "optimiser": AdamW(lr=0.001), "evaluate_every": 5}
    alone, run = small_run(tmp_path / "alone", **settings), small_run(tmp_path / "run", **settings)
    train_run(alone)

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(saving, "replace_file", die)
        with pytest.raises(KeyboardInterrupt):
            train_run(run)
    assert not (run.folder / "checkpoints" / "best.json").exists()
    with pytest.raises(StoppedError):
        train_run(run, stop=StopAfter(1))
    assert (run.folder / "checkpoints" / "best.json").exists()
    hw.load(run.folder)
    train_run(run)
    assert differences(run.folder, alone.folder) == []


def test_what_a_killed_process_left_is_swept_away(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run")
    with pytest.raises(StoppedError):
        train_run(run, stop=StopAfter(2))
    left = run.folder / "checkpoints" / ".step-00000003.4711.part"
    left.mkdir()
    (left / "model.safetensors").write_bytes(b"half")
    (run.folder / ".metrics.jsonl.4711.part").write_text("half")
    (run.folder / "mine.part").write_text("not half of anything")
    train_run(run)
    assert list(run.folder.rglob(".*.part")) == []
    assert (run.folder / "mine.part").exists()


def test_a_checkpoint_is_not_a_run(tmp_path: Path) -> None:
    """It can stand alone and looks like one, but going on in there would bury a run in a run."""
    run = small_run(tmp_path / "run")
    train_run(run)
    newest = checkpoints(run.folder)[0]
    before = sorted(newest.iterdir())
    with pytest.raises(
        ValueError, match=rf"must be the folder of a run, got {newest}, which is one of its checkpoints"
    ):
        train_run(open_run(newest))
    assert sorted(newest.iterdir()) == before


def test_a_best_that_is_gone_is_named(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run")
    train_run(run)
    note = run.folder / "checkpoints" / "best.json"
    note.write_text(sealed({"checkpoint": "step-00000099"}))
    with pytest.raises(DamagedError, match=r"best\.json names .*step-00000099, which is not there"):
        hw.load(run.folder)


def test_the_random_numbers_of_the_caller_go_on_as_before(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run", steps=1)
    torch.manual_seed(3)
    np.random.seed(3)  # noqa: NPY002
    before = torch.get_rng_state(), np.random.get_state()[1].tolist()  # noqa: NPY002
    train_run(run)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.random.get_state()[1].tolist() == before[1]  # noqa: NPY002


def test_nothing_is_said_before_the_check(tmp_path: Path) -> None:
    ears = Ears()
    run = small_run(tmp_path / "run", steps=1)
    wrong = replace(run, config=replace(run.config, model=replace(run.config.model, n_classes=3)))
    with pytest.raises(ValueError, match="must have 10 classes"):
        train_run(wrong, ears)
    assert ears.said == ears.estimates == []
    train_run(run, ears)
    assert len(ears.estimates) == 1
    assert ears.said == [f"vit in {run.folder}", at_the_end(run)]


def test_what_is_left_is_said_when_a_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def note(*arguments: object, **options: object) -> Estimate:
        asked.append(arguments[-1])  # type: ignore[arg-type]
        return estimate(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr("headwork.training.loop.estimate", note)
    run = small_run(tmp_path / "run", steps=3)
    with pytest.raises(StoppedError):
        train_run(run, Ears(), StopAfter(2))
    ears = Ears()
    train_run(run, ears)
    assert asked == [0, 2]
    assert ears.said[1] == "going on from step 2 of 3"
    assert len(ears.estimates) == 1
    again = Ears()
    train_run(run, again)
    assert again.estimates == []


def test_batch_norms_know_the_images_after_a_few_steps(tmp_path: Path) -> None:
    """Their averages begin with the first batch: those of PyTorch would still be half of what they began with."""
    run = small_run(tmp_path / "run", "vit", steps=4, batch_size=64)
    stem = replace(run.config.model, embedding=hw.choices.ConvolutionalStem(widths=(8, 12)))
    run = replace(run, config=replace(run.config, model=stem))
    model = train_run(run).model
    (image, _), norm = run.load_data().train.batch(range(500)), model.patches.norms[0]
    with torch.no_grad():
        variance = model.patches.convolutions[0](image).var((0, 2, 3))
    torch.testing.assert_close(norm.running_var, variance, rtol=0.3, atol=0.01)
