"""What can be done with a run: evaluate, predict, generate, translate, convert; and what cannot."""

import io
import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import headwork as hw
from headwork.cli import main
from headwork.cli.convert import Convert
from headwork.cli.predict import Predict, image_reader, text_reader
from headwork.cli.training_flags import TrainingFlags
from headwork.data import Dates, Tokenizer, sample_digit
from headwork.generation import decode_stream
from headwork.models import describe
from headwork.recipes import find_recipe, override
from headwork.tasks import Classification
from headwork.training import Run, new_run, train_run
from headwork.training.plan import ordered_batches


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of two steps: an image classifier, a residual network, a translator and a language model."""
    folder = tmp_path_factory.mktemp("runs")
    for recipe in ("digits-vit", "digits-gaussian", "digits-resnet", "dates", "text-gpt"):
        config = find_recipe(recipe)
        if isinstance(config.data, Dates):
            config = replace(config, data=replace(config.data, n_train=2000, n_valid=30, n_test=30))
        train_run(new_run(override(config, TrainingFlags(steps=2).overrides(config)), folder / recipe))
    return folder


def say(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> str:
    """What a command prints; what it complains of, if it is to fail."""
    capsys.readouterr()
    assert main([str(argument) for argument in arguments]) == code
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    return captured.out if code == 0 else captured.err


@pytest.fixture
def digit(tmp_path: Path) -> Path:
    path = tmp_path / "digit.png"
    Image.fromarray((255 * sample_digit(7)[0, 0]).byte().numpy()).save(path)
    return path


def test_evaluate_gives_what_the_library_gives(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(say(capsys, "evaluate", runs / "digits-vit", "--json"))
    run = hw.training.open_run(runs / "digits-vit")
    expected = run.task.evaluate(hw.load(runs / "digits-vit"), ordered_batches(run.load_data().test, 64)).metrics
    assert found["examples"] == 300
    assert found["accuracy"] == expected["accuracy"]
    assert found["loss"] == pytest.approx(expected["loss"], abs=1e-6)
    assert "300 valid examples" in say(capsys, "evaluate", runs / "digits-vit", "--split", "valid")


def test_predict_gives_the_probabilities_of_the_model(
    runs: Path, digit: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = json.loads(say(capsys, "predict", runs / "digits-vit", digit, "--top", "10", "--json"))
    image = torch.from_numpy(np.asarray(Image.open(digit), dtype=np.float32) / 255)[None, None]
    expected = hw.load(runs / "digits-vit")(image).softmax(-1)[0]
    assert [label["label"] for label in found["labels"]] == [str(i) for i in expected.argsort(descending=True).tolist()]
    assert sum(label["probability"] for label in found["labels"]) == pytest.approx(1, abs=1e-5)
    assert found["labels"][0]["probability"] == pytest.approx(expected.max().item(), abs=1e-6)


@dataclass(frozen=True)
class Undecided:
    """A task of a user's own."""

    labels: tuple[str, ...] = tuple("abcdefghij")

    def probabilities(self, logits: torch.Tensor) -> torch.Tensor:
        return torch.full_like(logits, 0.1)


def test_predict_asks_the_task_for_probabilities(runs: Path, digit: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = hw.training.open_run(runs / "digits-vit")
    description = describe(run.config.model)
    assert description is not None
    asked = Predict(run_folder=runs / "digits-vit", files=(str(digit),), top=2)
    asked.predict_all(asked.open()[1], Undecided(), image_reader(run, description), is_image=True)
    assert capsys.readouterr().out == f"{digit}: a 10.0 %, b 10.0 %\n"


@pytest.mark.parametrize("recipe", ["digits-vit", "digits-gaussian", "digits-resnet"])
def test_predict_takes_a_folder(runs: Path, digit: Path, recipe: str, capsys: pytest.CaptureFixture[str]) -> None:
    (digit.parent / "notes.txt").write_text("not an image")
    assert say(capsys, "predict", runs / recipe, digit.parent).count("digit.png") == 1


def test_an_image_that_cannot_be_read(runs: Path, digit: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = digit.parent / "bad.png"
    bad.write_text("not an image")
    assert "bad.png" in say(capsys, "predict", runs / "digits-vit", digit.parent, code=2)
    assert "digit.png" in say(capsys, "predict", runs / "digits-vit", digit.parent, "--skip-bad")


def test_generate_is_the_same_for_the_same_seed(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ask = ("generate", runs / "text-gpt", "--prompt", "The ", "--max-new-tokens", "9", "--seed", "3", "--json")
    first, second = (json.loads(say(capsys, *ask)) for _ in range(2))
    assert first == second
    assert first["tokens"] == 9
    assert len(first["text"]) == 9
    streamed = say(capsys, *ask[:-1])
    assert streamed == "The " + first["text"] + "\n"


def test_generate_beyond_the_positions(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(
        say(capsys, "generate", runs / "text-gpt", "--prompt", "\n", "--max-new-tokens", "300", "--greedy", "--json")
    )
    assert found["tokens"] == 300


def test_translate_from_arguments_and_from_stdin(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "15 november 2026"
    found = json.loads(say(capsys, "translate", runs / "dates", text, "--json", "--max-new-tokens", "5"))
    assert found["source"] == text
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{text}\n\n{text}\n"))
    said = say(capsys, "translate", runs / "dates", "--max-new-tokens", "5")
    assert said == f"{found['translation']}\n\n{found['translation']}\n"  # a line for each line
    beams = json.loads(
        say(capsys, "translate", runs / "dates", text, "--json", "--max-new-tokens", "5", "--beams", "3")
    )
    assert beams["score"] >= found["score"] - 1e-4  # the same words by another kernel may round otherwise


def test_bytes_on_stdin_that_are_no_text(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for errors in ("strict", "surrogateescape"):  # as different locales have it
        stdin = io.TextIOWrapper(io.BytesIO(b"caf\xe9\n"), encoding="utf-8", errors=errors)
        monkeypatch.setattr("sys.stdin", stdin)
        assert "stdin must be UTF-8, got the byte 0xe9" in say(capsys, "translate", runs / "dates", code=2)


def test_transparent_paper_does_not_hide_the_ink(
    runs: Path, digit: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ink = Image.open(digit)
    light = Image.merge("LA", (Image.new("L", ink.size, 255), ink))
    light.save(tmp_path / "light.png")
    dark = Image.merge("LA", (Image.new("L", ink.size, 0), ink))
    dark.save(tmp_path / "dark.png")
    Image.eval(ink, lambda value: 255 - value).save(tmp_path / "inverse.png")
    names = (digit, *(tmp_path / f"{name}.png" for name in ("light", "inverse", "dark")))
    lines = say(capsys, "predict", runs / "digits-vit", *names, "--json").splitlines()
    opaque, light, inverse, dark = (json.loads(line)["labels"] for line in lines)
    assert light == opaque
    assert dark == inverse
    assert light != dark


def test_compare_by_what_the_best_was_chosen_by(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert json.loads(say(capsys, "compare", runs / "dates", "--json"))["metric"] == "exact_match"
    assert json.loads(say(capsys, "compare", runs / "dates", runs / "digits-vit", "--json"))["metric"] == "loss"


def test_convert_a_residual_network_and_back(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    there = json.loads(say(capsys, "convert", runs / "digits-resnet", "--out", tmp_path / "there", "--json"))
    assert there["largest_difference"] < 1e-4
    assert there["same_predictions"] == there["n_images"] == 64
    assert there["images"] == "the run's test images"
    assert there["conversion"]["kind"] == "ToAttention"
    assert all(layer["n_heads"] in (1, 9) for layer in there["layers"])
    images = torch.rand(2, 1, 8, 8)
    expected = hw.load(runs / "digits-resnet")(images)
    torch.testing.assert_close(hw.load(tmp_path / "there")(images), expected, rtol=0, atol=1e-4)
    say(capsys, "convert", tmp_path / "there", "--to", "convolution", "--out", tmp_path / "back")
    torch.testing.assert_close(hw.load(tmp_path / "back")(images), expected, rtol=0, atol=1e-4)


def test_convert_gaussian_heads(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ask = ("convert", runs / "digits-gaussian", "--kernel-size", "3", "5", "--out", tmp_path / "out", "--json")
    found = json.loads(say(capsys, *ask))
    assert [len(layer["single_pixel"]) for layer in found["layers"]] == [5, 5, 5]
    assert all(layer["error_bound"] > 0 for layer in found["layers"])
    model = hw.load(tmp_path / "out")
    assert model.layers[0].attention.conv.weight.shape[2:] == (3, 5)


def test_convert_prints_the_report_of_the_library(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = say(capsys, "convert", runs / "digits-gaussian", "--out", tmp_path / "out")
    model = hw.load(runs / "digits-gaussian")
    converted = hw.convert.to_convolution(model)
    images = hw.training.open_run(runs / "digits-gaussian").load_data().test.batch(range(64))[0]
    comparison = hw.convert.compare(model, converted.model, images)
    assert said == f"{converted}\non the run's test images, {comparison}\nwritten to {tmp_path / 'out'}\n"


@pytest.mark.parametrize(("size", "said"), [((), "32 x 32"), (("--image", "6", "10"), "6 x 10")])
def test_the_size_of_the_images_is_said_where_no_run_tells_it(
    size: tuple[str, ...], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hw.save(hw.models.ResNetConfig(n_classes=3, n_blocks=1, widths=(2,)).build(), tmp_path / "resnet")
    ask = ("convert", tmp_path / "resnet", "--out", tmp_path / "there", "--images", "2", *size)
    assert f"on random images of {said} pixels, the outputs differ" in say(capsys, *ask)
    ask = ("convert", tmp_path / "there", "--out", tmp_path / "back", "--images", "2", *size)
    assert f"for inputs in [-1, 1] on {said} positions" in say(capsys, *ask)


@pytest.mark.usefixtures("as_users_run_it")
def test_a_model_of_one_size_is_converted_in_that_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = hw.models.GaussianImageEncoderConfig(n_classes=3, image=(6, 10), d_model=4, n_layers=1)
    hw.save(config.build(), tmp_path / "heads")
    ask = ("convert", tmp_path / "heads", "--out", tmp_path / "out")
    assert "image is for a model of any size without a run, got (6, 8)" in say(
        capsys, *ask, "--image", "6", "8", code=2
    )
    said = say(capsys, *ask)
    assert "on 3 x 5 positions" in said
    assert "on random images of 6 x 10 pixels" in said


def test_a_model_with_both_kinds_of_layers_needs_a_direction() -> None:
    model = torch.nn.Sequential(torch.nn.Conv2d(1, 1, 1), hw.layers.GaussianAttention(1, 1))
    ask = Convert(folder=Path(), out=Path())
    with pytest.raises(ValueError, match="to must be given for a model that allows both, attention and convolution"):
        ask.convert(model, (5, 7))
    assert [layer.name for layer in replace(ask, to="attention").convert(model, (5, 7)).layers] == ["0"]
    assert [layer.name for layer in replace(ask, to="convolution").convert(model, (5, 7)).layers] == ["1"]


def test_trace_and_cost_look_into_a_run(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "patches" in say(capsys, "trace", runs / "digits-vit", "--figure", tmp_path / "inside.png")
    assert (tmp_path / "inside.png").stat().st_size > 10_000
    assert "parameters" in say(capsys, "cost", runs / "digits-vit")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("evaluate nowhere", "run must be the folder of a run"),
        ("evaluate digits-vit --batch-size 0", "batch_size must be 1 or more, got 0"),
        ("predict digits-vit", "files must name at least one file"),
        ("predict digits-vit nothing.png", "image must be a file that exists, got nothing.png"),
        ("predict digits-vit x.png --top 0", "top must be 1 or more, got 0"),
        ("predict text-gpt x.txt", "run must be one of a classifier"),
        ("generate digits-vit", "run must be one of a language model"),
        ("generate text-gpt --max-new-tokens 0", "max_new_tokens must be 1 or more, got 0"),
        ("generate text-gpt --temperature 0", "temperature must be more than 0"),
        ("generate text-gpt --top-p 2", "top_p"),
        ("generate text-gpt --top-k 0", "top_k must be 1 or more, got 0"),
        ("generate text-gpt --greedy --top-k 3", "greedy needs no choice"),
        ("generate text-gpt --prompt ''", "prompt must have at least one token"),
        (f"generate text-gpt --prompt '{'a ' * 65}'", "prompt must have at most 128 tokens, .* got 130"),
        ("translate text-gpt hello", "run must be one of a translator"),
        ("translate dates ''", "texts must not be empty"),
        ("translate dates x --beams 0", "beams must be 1 or more, got 0"),
        ("convert nowhere --out new", "folder must be one that exists"),
        ("convert text-gpt --out new", "folder must hold a model of images"),
        ("convert digits-vit --out new", "model must have an nn.Conv2d"),
        ("convert digits-resnet --out digits-vit", "out must be a new folder"),
        ("convert digits-resnet --out new --tolerance 2", r"tolerance must lie in \(0, 1\), got 2.0"),
        ("convert digits-gaussian --out new --kernel-size 0 3", "kernel_rows must be 1 or more, got 0"),
        ("convert digits-resnet --out new --kernel-size 5 5", "kernel_size is for the direction convolution"),
        ("convert digits-gaussian --out new --tolerance 0.1", "tolerance is for the direction attention, got 0.1"),
        ("predict digits-vit -", "files must be images for this run"),
        ("generate text-gpt --greedy --seed 3", "greedy needs no choice: leave out seed, got 3"),
        ("convert digits-resnet --out new --to convolution", "model must have Gaussian heads for to_convolution"),
        ("convert digits-gaussian --out new --to attention", "model must have an nn.Conv2d for to_attention"),
        (
            "convert digits-resnet --out new --image 8 8",
            r"image is for a model of any size without a run, got \(8, 8\)",
        ),
        ("convert digits-resnet --out new --image 0 8", "image_rows must be 1 or more, got 0"),
        ("convert digits-resnet --out new --images 0", "images must be 1 or more, got 0"),
    ],
)
@pytest.mark.usefixtures("as_users_run_it")
def test_what_cannot_be_done_is_said(
    runs: Path, command: str, message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import re
    import shlex

    monkeypatch.chdir(runs)
    before = sorted(path.name for path in runs.iterdir())
    assert re.search(message, say(capsys, *shlex.split(command), code=2))
    assert sorted(path.name for path in runs.iterdir()) == before


@pytest.mark.parametrize(("text", "warning"), [("abc", ""), ("abcd", "the first 3 of 4 tokens are read")])
def test_a_text_that_is_cut_is_said_to_be(
    text: str, warning: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = find_recipe("reviews-encoder")
    config = replace(recipe, data=replace(recipe.data, max_tokens=4))
    path = tmp_path / "review.txt"
    path.write_text(text)
    run = Run(tmp_path, config, Classification(("negative", "positive")), Tokenizer.characters(["abcd"]))
    batch = text_reader(run, describe(config.model))(path)
    assert batch.ids.shape == (1, 4)
    said = capsys.readouterr().err
    assert warning in said
    assert bool(said) == bool(warning)


@pytest.mark.parametrize("kind", ["characters", "byte_pairs", "words"])
def test_a_text_is_decoded_piece_by_piece(kind: str) -> None:
    """In constant time for each token, and the pieces are the whole text: also for characters of four bytes."""
    text = "the café 🙂 is naïve, 𝄞 and ☂; " * 9
    make = {"byte_pairs": lambda: Tokenizer.byte_pairs([text], 262), "words": lambda: Tokenizer.words([text], 20)}
    tokenizer = make.get(kind, lambda: Tokenizer.characters([text]))()
    ids = [*tokenizer.encode(text), tokenizer.unknown]
    pieces = list(decode_stream(tokenizer, ids))
    assert "".join(pieces) == tokenizer.decode(ids)
    assert len(pieces) > 50
    lengths: list[int] = []

    class Counted(Tokenizer):
        def decode(self, ids: list[int]) -> str:
            lengths.append(len(ids))
            return super().decode(ids)

    list(decode_stream(Counted(tokenizer.tokenizer), ids))
    assert max(lengths) < 25 < len(ids)
