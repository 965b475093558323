"""A run's folder tells the truth or says so, and nothing outside it is ever written."""

import contextlib
import json
import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from tests.storage.sealing import seal_again
from tests.training.small_runs import StopAfter, differences, small_config, small_run

import headwork as hw
from headwork.cli import main
from headwork.storage import DamagedError, verify
from headwork.storage.log_lines import read_lines
from headwork.training import AdamW, Run, StoppedError, new_run, open_run, train_run
from headwork.training.checkpoints import checkpoints, load_checkpoint
from headwork.training.learner import Learner
from headwork.training.loop import build_model
from headwork.training.optimiser import make_optimiser
from headwork.training.recorder import WatchCentres, join_events, read_centres
from headwork.training.session import Clock


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of text, stopped in its middle."""
    run = small_run(tmp_path_factory.mktemp("stopped") / "run", "gpt")
    with pytest.raises(StoppedError):
        train_run(run, stop=StopAfter(7))
    return run


def edit(path: Path, change: Callable[[dict], object]) -> None:
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


def set_learning_rate(about: dict) -> None:
    about["run"]["training"]["optimiser"]["lr"] = 0.25


# --- config.json, tokenizer.json --------------------


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_one_flipped_bit_is_refused_by_name(stopped: Run, name: str) -> None:
    path = stopped.folder / name
    whole, chance = path.read_bytes(), random.Random(0)
    try:
        for bit in chance.sample(range(8 * len(whole)), 300):
            damaged = bytearray(whole)
            damaged[bit // 8] ^= 1 << bit % 8
            path.write_bytes(damaged)
            with contextlib.suppress(DamagedError):  # JSON can say some things in two ways: 1e-5 and 1E-5
                assert open_run(stopped.folder).files() == stopped.files()
            if name == "tokenizer.json":
                with pytest.raises(DamagedError, match=name):
                    open_run(stopped.folder)
    finally:
        path.write_bytes(whole)


def test_who_edits_a_config_on_purpose_says_so(
    tmp_path: Path, stopped: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    run = small_run(tmp_path / "run")
    with pytest.raises(StoppedError):
        train_run(run, stop=StopAfter(3))
    edit(run.folder / "config.json", set_learning_rate)
    assert main(["train", "--resume", str(run.folder)]) == 1
    message = rf"{run.folder}/config.json is damaged: .*; if you edited it, say so: `headwork accept {run.folder}`"
    with pytest.raises(DamagedError, match=message):
        open_run(run.folder)
    assert main(["accept", str(run.folder)]) == 0
    assert "config.json" in capsys.readouterr().out
    assert open_run(run.folder).config.training.optimiser.lr == 0.25
    train_run(open_run(run.folder))


def test_an_edit_that_makes_no_sense_is_not_accepted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = small_run(tmp_path / "run")
    run.folder.mkdir()
    run.write()
    edit(run.folder / "config.json", lambda about: about["model"].update(n_layers=2))
    assert main(["accept", str(run.folder)]) == 2
    assert "must say the same in model and in run.model" in capsys.readouterr().err
    edit(run.folder / "config.json", lambda about: about["run"]["training"].update(epochs=-1))
    assert main(["accept", str(run.folder)]) == 2
    assert "config.json: epochs must be" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["cost", "trace", "compare", "evaluate"])
def test_no_command_believes_a_config_that_was_changed(tmp_path: Path, command: str) -> None:
    run = small_run(tmp_path / "run", epochs=1)
    train_run(run)
    edit(run.folder / "config.json", lambda about: about["model"].update(n_layers=3))
    assert main([command, str(run.folder)]) in (1, 2)


def test_cost_of_a_saved_model_looks_at_the_manifest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hw.save(hw.models.published("digits-vit").build(), tmp_path / "model")
    assert main(["cost", str(tmp_path / "model")]) == 0
    edit(tmp_path / "model" / "config.json", lambda about: about["model"].update(n_layers=3))
    assert main(["cost", str(tmp_path / "model")]) == 2
    assert "config.json" in capsys.readouterr().err


# --- best.json --------------------


@pytest.mark.parametrize(
    "name", ["..", ".", "", "/etc", "../../other", "step-00000005/..", "best", "step-5", 5, None, ["step-00000005"]]
)
def test_best_json_names_a_checkpoint_of_the_run(tmp_path: Path, name: object) -> None:
    from headwork.storage.sealed_json import sealed

    run = small_run(tmp_path / "run", epochs=1)
    (run.folder / "checkpoints").mkdir(parents=True)
    hw.save(hw.models.published("digits-vit").build(), tmp_path / "other")
    best = run.folder / "checkpoints" / "best.json"
    best.write_text(sealed({"checkpoint": name}))
    with pytest.raises(DamagedError, match=r"best\.json is damaged: it must name a checkpoint"):
        hw.load(run.folder)
    best.write_text(json.dumps({"checkpoint": "step-00000005"}))
    with pytest.raises(DamagedError, match=r"best\.json is damaged: it must state its sha256"):
        hw.load(run.folder)


# --- Two starts, early failures, leftovers --------------------


def test_two_starts_do_not_become_one_run(tmp_path: Path) -> None:
    """Both found the folder empty; the second comes when the first is done."""
    first, second = small_run(tmp_path / "run", epochs=1), small_run(tmp_path / "run", epochs=1)
    train_run(first)
    before = {path: path.read_bytes() for path in first.folder.rglob("*") if path.is_file()}
    with pytest.raises(ValueError, match=r"out must be a new or an empty folder, got .* which holds another run"):
        train_run(second)
    assert {path: path.read_bytes() for path in first.folder.rglob("*") if path.is_file()} == before
    train_run(first)
    train_run(open_run(first.folder))


def test_two_trainings_in_one_process(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run", epochs=1)

    def again(*_: object) -> None:
        with pytest.raises(RuntimeError, match=r"this process is at work on .* already"):
            train_run(run)

    train_run(run, watchers=[again])


def test_what_an_early_failure_leaves_is_no_obstacle(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run", "gpt")
    run.folder.mkdir()
    (run.folder / ".lock").touch()
    (run.folder / ".config.json.4711.part").write_text("{")
    assert run.tokenizer is not None
    (run.folder / "tokenizer.json").write_text(run.tokenizer.to_json())
    train_run(new_run(small_config("gpt"), run.folder))
    assert not list(run.folder.glob("*.part"))


def test_another_tokenizer_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("somebody's")
    with pytest.raises(ValueError, match="which holds something else"):
        new_run(small_config("gpt"), tmp_path)


def test_a_report_that_was_half_written_is_swept_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page goes by a name that the next start knows as left over."""
    from headwork.reports.page import Page
    from headwork.storage.folders import sweep

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pathlib.Path.replace", killed)
    monkeypatch.setattr("pathlib.Path.unlink", lambda *_, **__: None)
    with pytest.raises(KeyboardInterrupt):
        Page("a report").write(tmp_path / "report.html")
    monkeypatch.undo()
    assert len(list(tmp_path.iterdir())) == 1
    sweep(tmp_path)
    assert not list(tmp_path.iterdir())


def test_files_of_tensorboard_do_not_pile_up(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = small_run(tmp_path / "run", epochs=None, steps=12, evaluate_every=2)
    for _ in range(5):
        with pytest.raises(StoppedError):
            train_run(run, stop=StopAfter(2))
    train_run(run)
    board = run.folder / "tensorboard"
    assert len(list(board.iterdir())) <= 2
    events = EventAccumulator(str(board))
    events.Reload()
    assert [event.step for event in events.Scalars("loss/valid")] == [2, 4, 6, 8, 10, 12]


def test_a_record_of_tensorboard_that_was_cut_off_hides_nothing(tmp_path: Path) -> None:
    def record(data: bytes) -> bytes:
        return len(data).to_bytes(8, "little") + b"crc1" + data + b"crc2"

    for number, data in enumerate((record(b"one") + record(b"two")[:-3], record(b"three"), b"", b"torn")):
        (tmp_path / f"events.out.tfevents.{number}").write_bytes(data)
    join_events(tmp_path)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [record(b"one") + record(b"three")]


def test_a_pipe_among_the_files_of_tensorboard_is_not_waited_for(tmp_path: Path) -> None:
    for number in (1, 3):
        (tmp_path / f"events.out.tfevents.{number}").write_bytes(b"")
    os.mkfifo(tmp_path / "events.out.tfevents.2")
    join_events(tmp_path)
    assert sorted(path.name[-1] for path in tmp_path.iterdir()) == ["1", "2"]


def test_a_clock_that_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    from headwork.training.checkpoints import Progress

    monkeypatch.setattr(time, "monotonic", lambda: 7.0)
    clock = Clock(Progress())
    assert (clock.seconds, clock.steps_per_second(3)) == (0.0, 0.0)


@pytest.mark.parametrize("content", [None, "manifest.json"])
def test_folders_under_names_of_coming_checkpoints(tmp_path: Path, content: str | None) -> None:
    """They neither push out the good ones nor stand in the way of those that come."""
    alone, run = (small_run(tmp_path / name, save_every=1) for name in ("alone", "run"))
    train_run(alone)

    class Intruder(StopAfter):
        @property  # type: ignore[override]
        def signal_number(self) -> int | None:
            for step in (8, 9, 10, 99, 99_999_999):
                path = run.folder / "checkpoints" / f"step-{step:08d}"
                if self.looks_left == 4:
                    path.mkdir()
                    if content is not None:
                        (path / content).write_text("{}")
            return super().signal_number

    with pytest.raises(StoppedError):
        train_run(run, stop=Intruder(8))
    assert [path.name for path in checkpoints(run.folder) if (path / "state.json").exists()][:2] == [
        "step-00000008",
        "step-00000007",
    ]
    for path in checkpoints(run.folder)[-2:]:
        verify(path)
    train_run(run)
    assert differences(run.folder, alone.folder) == []


# --- heads.jsonl --------------------


def test_a_line_of_heads_that_was_cut_off_does_no_harm(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run", "gaussian", epochs=None, steps=6, evaluate_every=2)
    path = run.folder / "heads.jsonl"
    with pytest.raises(StoppedError):
        train_run(run, stop=StopAfter(4), watchers=[WatchCentres(path)])
    whole = path.read_text()
    path.write_text(whole[:-9])
    train_run(run, watchers=[WatchCentres(path)])
    assert [row["step"] for _, row in read_lines(path)] == [0, 2, 6]
    assert len(read_centres(run.folder)) == 3
    path.write_text(path.read_text().replace('"step": 2', '"step": 3'))
    for read in (lambda: read_centres(run.folder), lambda: train_run(run)):
        with pytest.raises(DamagedError, match=r"heads\.jsonl, line 2 is damaged"):
            read()


# --- A wrong state.json under a right manifest --------------------


def learner_of(run: Run) -> Learner:
    model = build_model(run.config)
    return Learner(model, model, make_optimiser(run.config.training.optimiser, model))


def change(*keys: object) -> Callable[[dict], None]:
    """Set what is at the place of all but the last key to the last."""
    *way, name, value = keys

    def apply(data: dict) -> None:
        for key in way:
            data = data[key]
        if value is ...:
            del data[name]
        else:
            data[name] = value

    return apply


WRONG_STATES = {
    "nothing": lambda state: state.clear(),
    "no progress": change("progress", ...),
    "no optimiser": change("optimiser", ...),
    "no scaler": change("scaler", ...),
    "no random": change("random", ...),
    "another step": change("progress", "step", 6),
    "a negative step": change("progress", "step", -7),
    "a step that is a word": change("progress", "step", "7"),
    "a step that is true": change("progress", "step", True),
    "another part": change("progress", "part", 3),
    "a best step to come": change("progress", "best_step", 99),
    "a best value that is a word": change("progress", "best_value", "good"),
    "a best without a value": change("progress", "best_value", None),
    "seconds without end": change("progress", "seconds", 1e999),
    "metrics that are a list": change("progress", "metrics", [1]),
    "metrics of three numbers": change("progress", "metrics", {"loss": [1, 2, 3]}),
    "one thing more": change("progress", "more", 1),
    "a group less": lambda state: state["optimiser"].pop(),
    "groups that are a number": change("optimiser", 5),
    "groups that are numbers": change("optimiser", [5, 5]),
    "another parameter": change("optimiser", 0, "params", ["nothing"]),
    "a learning rate that is a word": change("optimiser", 0, "lr", "fast"),
    "no betas": change("optimiser", 0, "betas", ...),
    "chances of another kind": change("random", "python", [3, [1, 2], None]),
    "chances that are words": change("random", "python", "3"),
    "chances of NumPy of another kind": change("random", "numpy", ["PCG64", [1], 0, 0, 0.0]),
    "too few chances of NumPy": change("random", "numpy", ["MT19937", [1], 0, 0, 0.0]),
}


@pytest.mark.parametrize("name", WRONG_STATES)
def test_a_wrong_state_under_a_right_manifest_is_refused_by_name(stopped: Run, name: str) -> None:
    path = checkpoints(stopped.folder)[0]
    whole = (path / "state.json").read_bytes()
    try:
        edit(path / "state.json", WRONG_STATES[name])
        seal_again(path)
        with pytest.raises(DamagedError, match=r"state\.json"):
            load_checkpoint(path, learner_of(stopped))
    finally:
        (path / "state.json").write_bytes(whole)
        seal_again(path)
    load_checkpoint(path, learner_of(stopped))


def test_betas_come_back_as_they_were(stopped: Run) -> None:
    learner = learner_of(stopped)
    load_checkpoint(checkpoints(stopped.folder)[0], learner)
    assert learner.optimiser.param_groups[0]["betas"] == AdamW().betas
    assert isinstance(learner.optimiser.param_groups[0]["betas"], tuple)


def test_what_is_no_number_is_not_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Finite weights, whose products are not: neither "nan %" nor JSON that nobody can read."""
    run = small_run(tmp_path / "run", epochs=1)
    train_run(run)
    best = checkpoints(run.folder)[0]
    tensors = load_file(best / "model.safetensors")
    save_file({name: torch.full_like(tensor, 3e38) for name, tensor in tensors.items()}, best / "model.safetensors")
    seal_again(best)
    Image.new("L", (8, 8), 200).save(tmp_path / "digit.png")
    for arguments in (["evaluate", run.folder, "--json"], ["predict", run.folder, tmp_path / "digit.png"]):
        assert main(list(map(str, arguments))) == 3
        captured = capsys.readouterr()
        assert captured.out == ""
        assert "nan for" in captured.err
