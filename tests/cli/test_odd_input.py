"""What a user may give a command: odd images and texts, pipes and devices, models without a run, control characters."""

import io
import json
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import headwork as hw
from headwork import choices
from headwork.cli import main
from headwork.cli.predict import text_reader
from headwork.data import Dataset, TextFile, Tokenizer, bundled_text, sample_digit
from headwork.models import describe
from headwork.recipes import find_recipe
from headwork.tasks import Classification
from headwork.training import Run, TrainingConfig

ESCAPE = "\x1b[31m"
ONE_STEP = TrainingConfig(steps=1, batch_size=8)
SIZES = {"heads": choices.Heads(n_heads=2), "feed_forward": choices.FeedForward(d_ff=8), "d_model": 8, "n_layers": 2}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The smallest runs of one step: two of images, one of texts."""
    folder = tmp_path_factory.mktemp("runs")
    vit = hw.models.VisionTransformerConfig(n_classes=10, image=(8, 8), n_channels=1, patch=(4, 4), **SIZES)
    resnet = hw.models.ResNetConfig(n_classes=10, n_channels=1, n_blocks=1, widths=(4,))
    for name, config in (("vit-2", vit), ("resnet", resnet)):
        hw.train(config, hw.data.Digits(), ONE_STEP, out=folder / name, name="of-a-recipe")
    (folder / "some.txt").write_text("the cat sat on the mat. " * 40)
    data = TextFile(path=str(folder / "some.txt"), n_context=8)
    gpt = hw.models.DecoderConfig(vocab=len(data.load().tokenizer), **SIZES)
    hw.train(gpt, data, ONE_STEP, out=folder / "gpt")
    masked = hw.data.MaskedText(text=data)
    bert = hw.models.EncoderConfig(vocab=len(masked.load().tokenizer), head=choices.MaskedLMHead(), **SIZES)
    hw.train(bert, masked, ONE_STEP, out=folder / "bert")
    return folder


def say(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> tuple[str, str]:
    capsys.readouterr()
    assert main([str(argument) for argument in arguments]) == code
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    return captured.out, captured.err


def write_digit(path: Path, *, dark_ink: bool = False) -> Path:
    pixels = (255 * sample_digit(7)[0, 0]).byte().numpy()
    Image.fromarray(255 - pixels if dark_ink else pixels).save(path)
    return path


@pytest.mark.parametrize("run", ["vit-2", "resnet"])
def test_dark_ink_is_noticed_and_can_be_inverted(
    run: str, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    light, dark = write_digit(tmp_path / "light.png"), write_digit(tmp_path / "dark.png", dark_ink=True)
    expected, said = say(capsys, "predict", runs / run, light, "--json")
    assert said == ""
    _, said = say(capsys, "predict", runs / run, dark, "--json")
    assert f"{dark} looks like dark ink on light paper" in said
    assert "--invert swaps black and white" in said
    inverted, said = say(capsys, "predict", runs / run, dark, "--json", "--invert")
    for ours, theirs in zip(json.loads(inverted)["labels"], json.loads(expected)["labels"], strict=True):
        assert ours == {"label": theirs["label"], "probability": pytest.approx(theirs["probability"])}
    assert said == ""
    _, said = say(capsys, "predict", runs / run, light, "--invert")
    assert "looks like dark ink" in said


def test_invert_is_for_images(tmp_path: Path, runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, said = say(capsys, "predict", runs / "gpt", tmp_path / "x", "--invert", code=2)
    assert "run must be one of a classifier" in said


@pytest.mark.parametrize(("text", "n_unknown"), [("good bad", 0), ("good xyzzy", 0), ("xyzzy plugh good", 2)])
def test_a_review_of_unknown_words_is_said_to_be(
    text: str, n_unknown: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = find_recipe("reviews-encoder")
    path = tmp_path / "review.txt"
    path.write_text(text)
    tokenizer = Tokenizer.words(["good bad film"], n_tokens=7)
    run = Run(tmp_path, recipe, Classification(("negative", "positive")), tokenizer)
    text_reader(run, describe(recipe.model))(path)
    said = capsys.readouterr().err
    assert said == (
        f"headwork: of {path} {n_unknown} of 3 tokens (67 %) are not known to the model: its answer says little\n"
        if n_unknown
        else ""
    )


def test_a_skipped_file_is_named(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_digit(tmp_path / "a.png")
    Image.new("LAB", (8, 8)).save(tmp_path / "lab.tif")
    Image.fromarray(np.full((8, 8), 70_000, dtype=np.int32)).save(tmp_path / "wide.tif")
    _, said = say(capsys, "predict", runs / "vit-2", tmp_path, "--skip-bad")
    for name in ("lab.tif", "wide.tif"):
        assert f"skipped: image must be a picture that can be read, got {tmp_path / name}" in said
    assert "skipped 2 of 3 files" in said
    assert "lab.tif" in say(capsys, "predict", runs / "vit-2", tmp_path, code=2)[1]


def test_a_model_without_its_run_is_used_like_one(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A converted one knows where it comes from; one saved by itself is told."""
    of_run = json.loads(say(capsys, "evaluate", runs / "resnet", "--json")[0])
    say(capsys, "convert", runs / "resnet", "--out", tmp_path / "converted", "--images", "2")
    hw.save(hw.load(runs / "resnet"), tmp_path / "saved")
    converted = json.loads(say(capsys, "evaluate", tmp_path / "converted", "--json")[0])
    saved = json.loads(say(capsys, "evaluate", tmp_path / "saved", "--like", runs / "resnet", "--json")[0])
    for found in (converted, saved):
        assert found["loss"] == pytest.approx(of_run["loss"], abs=1e-4)
        assert found["accuracy"] == of_run["accuracy"]
    digit = write_digit(tmp_path / "digit.png")
    answers = [
        json.loads(say(capsys, "predict", *which, digit, "--json")[0])["labels"][0]["label"]
        for which in ([runs / "resnet"], [tmp_path / "converted"], [tmp_path / "saved", "--like", runs / "resnet"])
    ]
    assert len(set(answers)) == 1
    _, said = say(capsys, "evaluate", tmp_path / "saved", code=2)
    assert f"--like RUN, whose data and task it shares, got {tmp_path / 'saved'}" in said
    _, said = say(capsys, "predict", tmp_path / "saved", "--like", runs / "gpt", digit, code=2)
    assert "run must be one of a classifier" in said
    _, said = say(capsys, "train", "--resume", tmp_path / "converted", code=2)
    assert str(tmp_path / "converted") in said


@pytest.mark.parametrize("command", ["evaluate", "predict", "convert"])
def test_a_config_that_is_no_json_any_more_is_named(
    command: str, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And not taken for a folder of something else."""
    shutil.copytree(runs / "resnet", tmp_path / "run")
    path = tmp_path / "run" / "config.json"
    path.write_text(path.read_text().replace('"', "'", 1))
    more = {"predict": [write_digit(tmp_path / "digit.png")], "convert": ["--out", tmp_path / "new"], "evaluate": []}
    assert f"{path} is damaged" in say(capsys, command, tmp_path / "run", *more[command], code=1)[1]
    assert not (tmp_path / "new").exists()


def test_a_converted_model_is_not_accepted_as_edited(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What it was converted by would be lost."""
    say(capsys, "convert", runs / "resnet", "--out", tmp_path / "converted", "--images", "2")
    before = (tmp_path / "converted" / "config.json").read_text()
    assert "which has a manifest" in say(capsys, "accept", tmp_path / "converted", code=2)[1]
    assert (tmp_path / "converted" / "config.json").read_text() == before
    (tmp_path / "converted" / "config.json").write_text(before.replace("10", "11", 1))
    said = say(capsys, "evaluate", tmp_path / "converted", code=1)[1]
    assert "config.json is damaged" in said
    assert "headwork accept" not in said


@pytest.mark.parametrize("run", ["gpt", "bert"])
def test_the_windows_of_another_text_are_judged(
    run: str, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other, out = tmp_path / "other.txt", tmp_path / "judged.jsonl"
    other.write_text("the mat sat on the cat. " * 3)
    metrics, said = say(capsys, "evaluate", runs / run, "--data", other, "--json", "--out", out)
    assert f"72 characters in {other}" in said
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(rows) == json.loads(metrics)["examples"] == 8
    assert rows[0]["loss"] > 0
    if run == "gpt":
        assert "".join(row["text"] for row in rows) == other.read_text()[:64]
        assert sum(row["loss"] for row in rows) / 8 == pytest.approx(json.loads(metrics)["loss"], abs=1e-5)


@pytest.mark.parametrize("run", ["gpt", "bert"])
def test_a_text_larger_than_memory_is_judged_alike(
    run: str, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other.txt"
    other.write_text("the mat sat on the cat. " * 3)
    judged = say(capsys, "evaluate", runs / run, "--data", other, "--json")[0]
    monkeypatch.setenv("HEADWORK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(bundled_text, "IN_MEMORY", 10)
    assert say(capsys, "evaluate", runs / run, "--data", other, "--json")[0] == judged
    assert len(list((tmp_path / "cache" / "tokens").iterdir())) == 1


def test_evaluate_with_mirror_images(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, model = hw.training.open_run(runs / "resnet"), hw.load(runs / "resnet").eval()
    test = run.load_data().test
    images, labels = test.batch(range(len(test)))
    with torch.no_grad():
        logits = (model(images) + model(images.flip(3))) / 2
    found = json.loads(say(capsys, "evaluate", runs / "resnet", "--mirror", "--json")[0])
    assert found["loss"] == pytest.approx(torch.nn.functional.cross_entropy(logits, labels).item(), rel=1e-5)
    plain = json.loads(say(capsys, "evaluate", runs / "resnet", "--json")[0])
    assert found["loss"] != pytest.approx(plain["loss"], rel=1e-5)


def test_mirror_images_are_for_images(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "mirror is for models that classify images" in say(capsys, "evaluate", runs / "gpt", "--mirror", code=2)[1]


def test_evaluate_names_the_run_and_not_its_recipe(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert say(capsys, "evaluate", runs / "vit-2")[0].startswith(f"{runs / 'vit-2'} on 300 test examples")
    assert str(runs / "vit-2") in say(capsys, "generate", runs / "vit-2", code=2)[1]


def test_trace_of_a_converted_network_is_of_its_layers_and_images(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    say(capsys, "convert", runs / "resnet", "--out", tmp_path / "converted", "--images", "2")
    for folder, first in ((runs / "resnet", "features"), (tmp_path / "converted", "conv.attention.weights")):
        rows = json.loads(say(capsys, "trace", folder, "--json")[0])
        assert rows[0]["name"] == first
        assert {"name": "features", "axes": ["batch", "channel", "row", "column"], "shape": [1, 4, 8, 8]} in rows
    assert "parameters" in say(capsys, "cost", tmp_path / "converted")[0]


def test_trace_of_a_residual_network_draws_an_image(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[torch.Tensor] = []
    monkeypatch.setattr("headwork.figures.draw_inside", lambda model, image, **_: drawn.append(image) or Drawing())
    digit = write_digit(tmp_path / "digit.png")
    say(capsys, "trace", runs / "resnet", "--figure", tmp_path / "x.png")
    say(capsys, "trace", runs / "resnet", "--figure", tmp_path / "x.png", "--image", digit)
    torch.testing.assert_close(drawn[0], sample_digit(0))
    torch.testing.assert_close(drawn[1], sample_digit(7), rtol=0, atol=0.01)


class Drawing:
    """Of nothing."""

    def savefig(self, path: Path) -> None:
        path.write_bytes(b"")


def test_trace_of_a_text_has_its_words_on_the_axes(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "the cat"
    out, _ = say(capsys, "trace", runs / "gpt", "--text", text, "--figure", tmp_path / "x.svg", "--json")
    shapes = {row["name"]: row["shape"] for row in json.loads(out)}
    assert shapes["layers.0.attention.weights"] == [1, 2, len(text), len(text)]
    assert (tmp_path / "x.svg").stat().st_size > 10_000
    for wrong, message in (
        (["gpt2", "--text", "x"], "text is for a model with a tokenizer, got gpt2"),
        ([runs / "vit-2", "--text", "x"], f"text is for a model with a tokenizer, got {runs / 'vit-2'}"),
        ([runs / "gpt", "--text", ""], "text must not be empty"),
        ([runs / "gpt", "--text", "x", "--tokens", "3"], "leave out batch and tokens"),
    ):
        assert message in say(capsys, "trace", *wrong, code=2)[1]
    assert "1 tokens of 'the ☃' are not known" in say(capsys, "trace", runs / "gpt", "--text", "the ☃")[1]


@pytest.mark.parametrize("device", ["fifo", "/dev/zero"])
def test_what_never_ends_is_refused(
    device: str, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(device)
    if device == "fifo":
        path = tmp_path / "fifo"
        os.mkfifo(path)
    (tmp_path / "config.json").symlink_to(path)
    for command in (
        ["predict", runs / "vit-2", path],
        ["train", "text-gpt", "--text", path, "--out", tmp_path / "new"],
        ["cost", tmp_path / "config.json"],
        ["trace", "digits-vit", "--figure", tmp_path / "x.png", "--image", path],
    ):
        named = tmp_path / "config.json" if "cost" in command else path
        assert f"file on a disk, got {named}, which is a pipe or a device" in say(capsys, *command, code=2)[1]


@pytest.mark.parametrize("name", ["config.json", "manifest.json", "tokenizer.json", "metrics.jsonl"])
def test_a_giant_file_in_a_folder_is_refused_by_name(
    name: str, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Six gigabytes that take no room on the disk."""
    shutil.copytree(runs / "gpt", tmp_path / "run")
    folder = tmp_path / "run"
    if name == "manifest.json":
        folder = next(iter(sorted((folder / "checkpoints").glob("step-*"))))
    with (folder / name).open("r+b") as file:
        file.truncate(6 * 10**9)
    command = ["compare", folder] if name == "metrics.jsonl" else ["generate", folder, "--max-new-tokens", "1"]
    code = main([str(word) for word in command])
    said = capsys.readouterr().err
    assert code in (1, 2)
    assert name in said
    assert "6,000,000,000" in said
    assert "Traceback" not in said


def test_stdin_that_never_ends_a_line(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from headwork.cli.arguments import lines_of_stdin
    from headwork.cli.predict import text_of_stdin

    with Path("/dev/zero").open(encoding="utf-8") as zeros:
        monkeypatch.setattr("sys.stdin", zeros)
        with pytest.raises(ValueError, match="stdin must have lines of at most 1,000,000 characters"):
            next(lines_of_stdin())

    class Yes:
        def readline(self, _most: int) -> str:
            return "y" * 10**5 + "\n"

    monkeypatch.setattr("sys.stdin", Yes())
    with pytest.raises(ValueError, match="stdin must be a text of at most 10,000,000 characters"):
        text_of_stdin()


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("train digits-vit --workers 100000", "workers must lie in 0 .. 256, got 100000"),
        ("translate gpt x --max-new-tokens 10000000", "max_new_tokens must be at most 4,096, got 10000000"),
        ("translate gpt x --beams 10000000", "beams must be at most 256, got 10000000"),
        ("convert resnet --out new --images 10000000", "images must be at most 10,000, got 10000000"),
    ],
)
def test_sizes_without_end_are_refused(
    command: str, message: str, runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(runs)
    assert message in say(capsys, *command.split(), code=2)[1]


class Screen(io.StringIO):
    """A terminal that remembers."""

    def isatty(self) -> bool:
        return True


@pytest.mark.usefixtures("as_users_run_it")
def test_control_characters_do_not_reach_a_terminal(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the name of a file, the text of an error, the label of a task and what a model writes."""
    data = hw.data.Digits().load()
    labels = tuple(f"{ESCAPE}{i}\x9b" for i in range(10))
    hostile = Dataset(data.train, data.valid, data.test, replace(data.task, labels=labels))
    hw.train(hw.training.open_run(runs / "vit-2").config.model, hostile, ONE_STEP, out=tmp_path / "run")
    digit = write_digit(tmp_path / f"{ESCAPE}digit.png")
    bad = tmp_path / f"bad{ESCAPE}.png"
    bad.write_text("no image")
    out, err = Screen(), Screen()
    monkeypatch.setattr("sys.stdout", out)
    monkeypatch.setattr("sys.stderr", err)
    assert main(["predict", str(tmp_path / "run"), str(digit), str(bad), "--skip-bad"]) == 0
    assert main(["predict", str(runs / "resnet"), str(digit), "--json"]) == 0
    assert main(["predict", str(runs / "resnet"), str(bad)]) == 2
    assert main(["trace", f"{ESCAPE}model"]) == 2
    said = out.getvalue() + err.getvalue()
    assert "\\x1b[31mdigit.png" in said
    assert not [character for character in said if character < " " and character not in "\n\t"]
    assert "\x9b" not in said


def test_a_label_or_the_name_of_a_file_draws_no_line_of_its_own(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = hw.data.Digits().load()
    labels = tuple(f"{i}\nheadwork: failed\u202e" for i in range(10))
    hostile = Dataset(data.train, data.valid, data.test, replace(data.task, labels=labels))
    hw.train(hw.training.open_run(runs / "vit-2").config.model, hostile, ONE_STEP, out=tmp_path / "a\nrun")
    digit, bad = write_digit(tmp_path / "a\nheadwork: digit.png"), tmp_path / "a\nheadwork: bad.png"
    bad.write_text("no image")
    out, err = say(capsys, "predict", tmp_path / "a\nrun", digit, bad, "--skip-bad", "--top", 1)
    assert len(out.splitlines()) == 1
    assert "a\\nheadwork: digit.png: " in out
    assert "\\nheadwork: failed\\u202e" in out
    assert [line[:17] for line in err.splitlines() if line.startswith("headwork: ")] == [
        "headwork: skipped",
        "headwork: skipped",
    ]
    out, _ = say(capsys, "compare", tmp_path / "a\nrun", runs / "vit-2")
    assert "a\\nrun" in out


def test_a_file_gets_what_a_model_writes_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.StringIO()
    monkeypatch.setattr("sys.stdout", file)
    monkeypatch.setattr("headwork.cli.commands.Models.run", lambda _: print(ESCAPE))
    assert main(["models"]) == 0
    assert file.getvalue() == f"{ESCAPE}\n"
    assert sys.stdout is file
