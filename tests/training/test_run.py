"""A run's folder rebuilds everything, is nobody else's, and is not overwritten."""

import json
import os
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.training.small_runs import KINDS, TEXT, Kind, small_config, small_run

import headwork as hw
from headwork.cli import main
from headwork.data import Dataset, Digits, TextFile, TorchExamples
from headwork.models import ResNetConfig
from headwork.recipes import RECIPES
from headwork.storage import DamagedError
from headwork.tasks import Classification
from headwork.training import Run, new_run, open_run
from headwork.training.run import RUN_CLASSES


def written(folder: Path, kind: Kind = "vit", **changes: object) -> Run:
    run = small_run(folder, kind, **changes)
    folder.mkdir()
    run.write()
    return run


@pytest.mark.parametrize("kind", KINDS)
def test_the_folder_rebuilds_the_run(tmp_path: Path, kind: Kind) -> None:
    run = written(tmp_path / "run", kind, ema=0.9, patience=3, clip=None)
    again = open_run(tmp_path / "run")
    assert again.config == run.config
    assert (again.tokenizer is None) == (run.tokenizer is None)
    if run.tokenizer is not None and again.tokenizer is not None:
        assert again.tokenizer.to_json() == run.tokenizer.to_json()
    assert again.task == run.task
    assert again.own_weights == run.own_weights
    assert again.config.model.build().config == run.config.model


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_survives_its_own_file(name: str) -> None:
    from headwork.serialise import config_from_dict, config_to_dict

    config = RECIPES[name]()
    assert config_from_dict(json.loads(json.dumps(config_to_dict(config))), RUN_CLASSES) == config


def test_a_text_model_has_as_many_words_as_its_data(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run", "gpt")
    assert run.tokenizer is not None
    assert run.config.model.vocab == len(run.tokenizer) > 40  # type: ignore[union-attr]


def fill_with_a_run(folder: Path) -> None:
    written(folder)


def fill_with_a_file(folder: Path) -> None:
    folder.write_text("a letter")


def fill_with_files(folder: Path) -> None:
    folder.mkdir()
    (folder / "letter.txt").write_text("a letter")


def fill_with_a_broken_config(folder: Path) -> None:
    folder.mkdir()
    (folder / "config.json").write_text("{")


@pytest.mark.parametrize(
    ("fill", "message"),
    [
        (fill_with_a_run, "holds another run; go on with it by --resume"),
        (fill_with_a_file, "holds something else"),
        (fill_with_files, "holds something else"),
        (fill_with_a_broken_config, "holds something else"),
    ],
)
def test_a_folder_that_is_taken_stays_as_it_is(tmp_path: Path, fill: object, message: str) -> None:
    fill(tmp_path / "run")  # type: ignore[operator]
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(ValueError, match=rf"out must be a new or an empty folder, got .*run, which {message}"):
        new_run(small_config("vit"), tmp_path / "run")
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_an_empty_folder_will_do(tmp_path: Path) -> None:
    assert new_run(small_config("vit"), tmp_path).folder == tmp_path


def test_only_one_of_many_processes_checks(tmp_path: Path) -> None:
    fill_with_a_run(tmp_path / "run")
    assert new_run(small_config("vit"), tmp_path / "run", check=False).folder == tmp_path / "run"


def test_a_run_of_headwork_0_1_is_refused_in_a_sentence(tmp_path: Path) -> None:
    written(tmp_path / "run")
    path = tmp_path / "run" / "config.json"
    about = json.loads(path.read_text())
    del about["task"], about["sha256"]
    path.write_text(json.dumps(about | {"labels": ["0", "1"]}))
    with pytest.raises(ValueError, match=r"was written by headwork 0\.1, .* Train the model again"):
        open_run(tmp_path / "run")


@pytest.mark.parametrize("content", [None, "{}", '{"model": {}}'])
def test_a_folder_that_is_not_a_run(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(ValueError, match=r"run must be the folder of a run \(with config\.json"):
        open_run(tmp_path)


def test_a_run_with_a_broken_config(tmp_path: Path) -> None:
    written(tmp_path / "run")
    path = tmp_path / "run" / "config.json"
    path.write_text(path.read_text()[:50])
    with pytest.raises(DamagedError, match=r"config\.json is damaged"):
        open_run(tmp_path / "run")


def test_a_run_without_its_tokens(tmp_path: Path) -> None:
    written(tmp_path / "run", "gpt")
    (tmp_path / "run" / "tokenizer.json").unlink()
    with pytest.raises(DamagedError, match=r"tokenizer\.json is missing"):
        open_run(tmp_path / "run")


def test_data_that_speak_other_words_now(tmp_path: Path) -> None:
    """A text that was changed since: the ids would mean other letters, and nobody would notice."""
    text = tmp_path / "text"
    text.write_text("the quick brown fox jumps over the lazy dog. " * 90)
    config = small_config("gpt")
    run = new_run(replace(config, data=TextFile(path=str(text), n_context=13)), tmp_path / "run")
    text.write_text("THE QUICK BROWN FOX JUMPS OVER THE LAZY DOG. " * 90)
    with pytest.raises(
        ValueError, match=r"data must be what the run was begun with, got another task or tokenizer for"
    ):
        run.load_data()


def test_the_data_are_read_once_the_model_is_built_once_and_the_test_set_answered_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the whole of `headwork train`, report and all."""
    calls: Counter[str] = Counter()

    def counted(kind: type, name: str) -> None:
        before = getattr(kind, name)

        def method(self: object, *arguments: object, **named: object) -> object:
            calls[f"{kind.__name__}.{name}"] += 1
            return before(self, *arguments, **named)

        monkeypatch.setattr(kind, name, method)

    counted(Digits, "load")
    counted(ResNetConfig, "build")
    counted(Classification, "evaluate")
    assert main(["train", "digits-resnet", "--steps", "1", "--out", str(tmp_path / "run")]) == 0
    # The trial of two examples; the estimate; one evaluation after the only step; then the best on valid and test.
    assert calls == {"Digits.load": 1, "ResNetConfig.build": 1, "Classification.evaluate": 5}


def test_a_run_can_be_moved(tmp_path: Path) -> None:
    run = written(tmp_path / "run")
    shutil.move(tmp_path / "run", tmp_path / "moved")
    assert open_run(tmp_path / "moved").config == run.config


def examples_of(shift: float, n: int = 12) -> Dataset:
    examples = TorchExamples([(torch.full((1, 8, 8), shift + i % 2), i % 2) for i in range(n)])
    return Dataset(examples, examples, examples, Classification(("a", "b")))


@pytest.mark.parametrize("other", [examples_of(0.5), examples_of(0.0, n=11)], ids=["other pixels", "fewer examples"])
def test_a_run_does_not_go_on_with_other_data_for_the_same_task(tmp_path: Path, other: Dataset) -> None:
    model = hw.models.ResNetConfig(n_classes=2, n_channels=1, n_blocks=1, widths=(4,))
    training = hw.training.TrainingConfig(batch_size=4, steps=2)

    def train(data: Dataset, **more: object) -> object:
        return hw.train(model, data, training, out=tmp_path / "run", **more)

    train(examples_of(0.0))
    with pytest.raises(ValueError, match="data must be what the run was begun with, got other examples"):
        train(other, resume=True)
    train(examples_of(0.0), resume=True)


def test_another_text_with_the_same_characters(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text(TEXT.read_text())
    run = new_run(replace(small_config("gpt"), data=TextFile(path=str(path), n_context=61)), tmp_path / "run")
    run.folder.mkdir()
    run.write()
    open_run(tmp_path / "run").load_data()
    lines = TEXT.read_text().splitlines(keepends=True)
    path.write_text("".join([*reversed(lines[:20]), *lines[20:]]))
    with pytest.raises(ValueError, match="begun with, got other examples"):
        open_run(tmp_path / "run").load_data()


def test_the_file_that_changed_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    lines = TEXT.read_text().splitlines(keepends=True)
    (folder / "a.txt").write_text("".join(lines[:40]))
    (folder / "b.txt").write_text("".join(lines[40:]))
    run = new_run(replace(small_config("gpt"), data=TextFile(path=str(folder), n_context=61)), tmp_path / "run")
    run.folder.mkdir()
    run.write()
    (folder / "b.txt").write_text("".join([*reversed(lines[40:60]), *lines[60:]]))
    now = (run.folder / "config.json").stat().st_mtime
    os.utime(folder / "b.txt", (now + 9, now + 9))
    with pytest.raises(ValueError, match=r"got other examples for .*run: .*b\.txt was written after the run was last"):
        run.load_data()
    os.utime(folder / "b.txt", (now - 9, now - 9))
    os.utime(folder / "a.txt", (now - 9, now - 9))
    with pytest.raises(ValueError, match=r"got other examples for .*run$"):
        run.load_data()
