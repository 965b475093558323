"""Every recipe learns one batch by heart, as it stands; every flag reaches the model or is refused."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image
from tests.small_sets import write_small_sets

from headwork.cli.training_flags import TrainingFlags
from headwork.data import BundledText, BytePairs, Dates, ImageFolder, Reviews, TextFile, TextPairs, TextTable
from headwork.recipes import RECIPES, find_recipe, override, with_data
from headwork.training import Constant, RunConfig, StopRequest, check_fit, new_run
from headwork.training.checkpoints import Progress
from headwork.training.loop import build_model, make_learner, take_step
from headwork.training.machine import make_fabric
from headwork.training.plan import Plan

N_STEPS = 30


@pytest.fixture(scope="module", autouse=True)
def small_sets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("data") / "sets"
    write_small_sets(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADWORK_DATA", str(folder))
        yield folder


def with_flags(config: RunConfig, flags: TrainingFlags) -> RunConfig:
    return override(config, flags.overrides(config))


def with_little_data(config: RunConfig) -> RunConfig:
    """The same kind of examples, read in a moment."""
    match config.data:
        case Reviews() as data:
            return replace(config, data=replace(data, source="rotten_tomatoes", max_tokens=40))
        case Dates() as data:
            return replace(config, data=replace(data, n_train=50, n_valid=10, n_test=10))
        case _:
            return config


LARGE = ("cifar10-gaussian", "cifar10-vit", "fashion-vit", "mnist-vit", "multi30k", "shakespeare-gpt", "text-gpt")


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in LARGE else n for n in RECIPES])
def test_it_learns_one_batch_by_heart(name: str, tmp_path: Path) -> None:
    config = with_little_data(find_recipe(name))
    training = replace(
        config.training, batch_size=4, epochs=None, steps=N_STEPS, schedule=Constant(warmup=0.1), label_smoothing=0.0
    )
    run = new_run(replace(config, training=training), tmp_path / "run")
    data, fabric, progress = run.load_data(), make_fabric(training), Progress()
    learner = make_learner(build_model(run.config), training, fabric)
    plan, batch = Plan.of(data.train, training), data.train.batch(range(4))
    losses = [take_step(fabric, learner, run.task, [batch], plan, progress, StopRequest()).loss for _ in range(N_STEPS)]
    assert losses[0] > 0.5
    assert losses[-1] < losses[0] / 4


@pytest.mark.parametrize("name", RECIPES)
def test_each_recipe_says_how_long_it_takes_and_what_it_reaches(name: str) -> None:
    about = RECIPES[name].__doc__ or ""
    assert re.search(r"\d (seconds|minutes)", about)
    assert re.search(r"seed 0:\s.*(\d %|BLEU \d|loss of \d)", about, re.DOTALL)


@pytest.mark.parametrize("pooling", ["cls", "gap", "map"])
@pytest.mark.parametrize("name", ["digits-vit", "reviews-encoder"])
def test_every_pooling(name: str, pooling: str) -> None:
    model = with_flags(find_recipe(name), TrainingFlags(pooling=pooling)).model
    chosen = model.pooling if name == "digits-vit" else model.head.pooling
    words = {"ClassToken": "cls", "FirstToken": "cls", "MeanPooling": "gap", "AttentionPooling": "map"}
    assert words[type(chosen).__name__] == pooling


@pytest.mark.parametrize("position", ["none", "learned", "sinusoidal", "rotary", "alibi", "buckets", "relative"])
@pytest.mark.parametrize("name", ["text-gpt", "dates", "reviews-encoder"])
def test_every_position_code_runs(name: str, position: str) -> None:
    model = with_flags(find_recipe(name), TrainingFlags(position=position)).model.build().eval()
    ids = torch.zeros(2, 5, dtype=torch.long)
    words = {"NoPositions": "none"}.get(type(model.config.position).__name__, position)
    assert words == position
    assert torch.as_tensor(model(ids, ids) if name == "dates" else model(ids)).isfinite().all()


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("name", [name for name in RECIPES if not name.endswith("-resnet")])
def test_both_positions_of_the_norm(name: str, norm: str) -> None:
    assert with_flags(find_recipe(name), TrainingFlags(norm=norm)).model.norm_order == norm


def test_what_is_trained_and_how_long() -> None:
    changed = with_flags(
        find_recipe("digits-vit"), TrainingFlags(steps=7, lr=0.5, batch_size=9, evaluate_every=3, patience=2)
    )
    training = changed.training
    assert (training.steps, training.epochs, training.optimiser.lr, training.batch_size) == (7, None, 0.5, 9)
    assert (training.evaluate_every, training.patience) == (3, 2)


def test_a_text_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    path.write_text("to be or not to be, that is the question " * 200)
    recipe = replace(find_recipe("text-gpt"), data=BundledText(n_context=64, tokenizer=BytePairs(n_tokens=280)))
    assert with_flags(recipe, TrainingFlags(text=path)).data == TextFile(
        path=str(path), n_context=64, tokenizer=BytePairs(n_tokens=280)
    )
    config = with_flags(find_recipe("text-gpt"), TrainingFlags(text=path))
    run = new_run(config, tmp_path / "run")
    assert run.tokenizer is not None
    assert run.config.model.vocab == len(run.tokenizer) < 30


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("digits-vit", {"epochs": 1, "steps": 1}, "give epochs or steps, not both, got 1 and 1"),
        (
            "digits-vit",
            {"position": "rotary"},
            "position must be one of none, learned, sinusoidal for a VisionTransformer, got rotary",
        ),
        ("digits-vit", {"text": Path("a.txt")}, "text is for a language model, got a.txt"),
        ("digits-resnet", {"norm": "pre"}, "norm cannot be set for a ResNet"),
        ("digits-resnet", {"position": "none"}, "position cannot be set for a ResNet"),
        ("text-gpt", {"pooling": "cls"}, "pooling cannot be set for a Decoder, got cls"),
        ("dates", {"patience": 0}, "patience must be 1 or more, got 0"),
        ("dates", {"lr": -1.0}, "lr must be more than 0 and finite, got -1.0"),
        ("dates", {"seed": -1}, "seed must lie in 0"),
    ],
)
def test_what_cannot_be_set_is_said(name: str, changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        with_flags(find_recipe(name), TrainingFlags(**changes))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("digits-vit", ImageFolder),
        ("cifar10-resnet", ImageFolder),
        ("cifar10-gaussian", ImageFolder),
        ("reviews-encoder", TextTable),
        ("sst2-encoder", TextTable),
        ("dates", TextPairs),
        ("multi30k", TextPairs),
        ("text-gpt", TextFile),
        ("shakespeare-gpt", TextFile),
    ],
)
def test_every_recipe_takes_data_of_ones_own(name: str, kind: type, tmp_path: Path) -> None:
    path = tmp_path / "own"
    if kind is ImageFolder:
        for number in range(9):
            for label in ("cat", "dog", "emu"):
                (path / label).mkdir(parents=True, exist_ok=True)
                Image.new("RGB", (40, 30), (number * 20, len(label), number)).save(
                    path / label / f"{label}{number}.png"
                )
    elif kind is TextTable:
        path = path.with_suffix(".csv")
        path.write_text("text,label\n" + "".join(f"word{i} and more,{'abc'[i % 3]}\n" for i in range(60)))
    elif kind is TextPairs:
        path = path.with_suffix(".tsv")
        path.write_text("".join(f"a dog {i}\tein Hund {i}\n" for i in range(60)))
    else:
        path = path.with_suffix(".txt")
        path.write_text("To be, or not to be: that is the question.\n" * 200)
    config = with_data(find_recipe(name), [str(path)])
    assert type(config.data) is kind
    config = replace(config, training=replace(config.training, batch_size=4, epochs=None, steps=1, evaluate_every=1))
    done = new_run(config, tmp_path / "run")
    model = build_model(done.config)
    data = done.load_data()
    check_fit(model, data)
    if kind in (ImageFolder, TextTable):
        assert data.task.labels in (("cat", "dog", "emu"), ("a", "b", "c"))
    assert data.found


def test_two_files_are_a_translation() -> None:
    config = with_data(find_recipe("dates"), ["one.en", "two.de"])
    assert (config.data.path, config.data.target_path) == ("one.en", "two.de")
    with pytest.raises(ValueError, match=r"data must be one file or folder \(two files, for a translation\), got a, b"):
        with_data(find_recipe("text-gpt"), ["a", "b"])


def test_an_unknown_recipe_names_the_nearest() -> None:
    with pytest.raises(ValueError, match="recipe 'digit-vit' is not known; did you mean 'digits-vit'"):
        find_recipe("digit-vit")
