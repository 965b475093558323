"""Wrong commands and wrong calls, generated: each must be refused in a sentence that names what is wrong."""

import io
import itertools
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import torch
from torch import nn

import headwork as hw
from headwork import choices
from headwork.cli import main

NUMBERS = {
    "train digits-vit": (
        "epochs",
        "steps",
        "batch-size",
        "accumulate",
        "lr",
        "seed",
        "workers",
        "evaluate-every",
        "patience",
    ),
    "evaluate nowhere": ("batch-size",),
    "predict nowhere x.png": ("top",),
    "generate nowhere": ("max-new-tokens", "temperature", "top-k", "top-p", "seed"),
    "translate nowhere x": ("beams", "max-new-tokens"),
    "convert nowhere --out new": ("images", "tolerance"),
    "trace gpt2": ("tokens", "batch"),
    "cost gpt2": ("tokens", "batch"),
    "lab temperature": ("seeds",),
}
"""The flags of each command that take a number."""
BAD_NUMBERS = ("-1", "abc", "", "nan", "--json")
CHOICES = ("device", "precision", "strategy", "pooling", "position", "norm")
FOLDERS = ("accept", "evaluate", "predict", "generate", "translate", "convert", "compare", "trace", "cost")
BAD_FOLDERS = ("nowhere", "/dev/null", "/dev/zero", "file.txt", "empty", "empty/below", "a" * 300)
OTHERS = (
    "",
    "trian",
    "--verison",
    "train nothing",
    "train :",
    "train os:system",
    "train no_module:recipe",
    "train digits-vit dates",
    "train --epochs 1 --steps 1",
    "train --set",
    "train --set x",
    "train --set x=1",
    "train --set training.lr=1",
    "train --set training.batch_size=x",
    "train --set model.position=Nothing",
    "train --set data=5",
    "train --text nowhere.txt",
    "train text-gpt --text nowhere.txt",
    "train text-gpt --text empty",
    "train text-gpt --text file.bin",
    "train --out file.txt",
    "train --out full",
    "train --resume nowhere",
    "train --resume empty",
    "train --resume file.txt",
    "train --resume full --epochs 3",
    "train --batch-size 100000",
    "train --batch-size 64 --accumulate 7",
    "train digits-gaussian --position rotary",
    "train dates --pooling cls",
    "train --import no_module",
    "train --strategy ddp",
    "evaluate",
    "evaluate empty --split tset",
    "evaluate empty --like nowhere",
    "predict",
    "predict empty",
    "generate",
    "generate empty --greedy --seed 1",
    "translate",
    "translate empty x --length-penalty 2",
    "compare",
    "compare empty empty",
    "compare empty --page x.txt",
    "compare empty --figure x.txt",
    "convert",
    "convert empty",
    "convert empty --out full",
    "convert empty --out new --to image",
    "convert empty --out new --kernel-size 3",
    "trace nothing",
    "trace file.txt",
    "trace full/config.json",
    "trace digits-vit --image x.png",
    "trace digits-vit --figure x.txt",
    "trace digits-vit --figure x.png --image file.txt",
    "trace digits-vit --figure x.png --batch 2",
    "trace gpt2 --text x",
    "trace gpt2 --tokens 1000000000000",
    "cost nothing",
    "cost vit-b16 --tokens 5",
    "cost gpt2 --tokens 2000",
    "models --nothing",
    "models gpt2",
    "lab nothing",
    "lab --out new",
    "lab temperature --set x=1",
    "lab temperature --all",
)


def wrong_commands() -> list[list[str]]:
    numbers = [
        [*command.split(), f"--{flag}", value]
        for command, flags in NUMBERS.items()
        for flag, value in itertools.product(flags, BAD_NUMBERS)
    ]
    chosen = [["train", "digits-vit", f"--{flag}", value] for flag in CHOICES for value in ("nothing", "")]
    folders = [
        [command, folder, *(["--out", "new"] if command == "convert" else ["x.png"] if command == "predict" else [])]
        for command, folder in itertools.product(FOLDERS, BAD_FOLDERS)
    ]
    unknown = [[command, "--no-such-flag"] for command in (*FOLDERS, "train", "lab", "models")]
    return [*numbers, *chosen, *folders, *unknown, *(words.split() for words in OTHERS)]


def prepare(folder: Path) -> None:
    """The files that the commands name."""
    (folder / "empty").mkdir()
    (folder / "full").mkdir()
    (folder / "full" / "config.json").write_text('{"kind": "Nothing"}')
    (folder / "file.txt").write_text("a text")
    (folder / "file.bin").write_bytes(b"\xff\xfe\x00\x9b")


def try_command(words: list[str]) -> str:
    """What is wrong with how a wrong command ends; nothing if it is refused as it should be."""
    out, err = io.StringIO(), io.StringIO()
    try:
        with redirect_stdout(out), redirect_stderr(err):
            code = main(words)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    said = err.getvalue()
    if code not in (1, 2):
        return f"exit code {code}"
    return "" if len(said.split()) > 3 and "Traceback" not in said else f"it said {said!r}"


def _model() -> nn.Module:
    sizes = {
        "heads": choices.Heads(n_heads=2),
        "feed_forward": choices.FeedForward(d_ff=8),
        "d_model": 8,
        "n_layers": 1,
    }
    return hw.models.DecoderConfig(vocab=11, **sizes).build().eval()


X = torch.zeros(1, 3, 8)
IDS = torch.zeros(1, 3, dtype=torch.long)
BAD = {"count": (0, -1, 2.5, "3", None), "number": (-1.0, "x", float("nan")), "part": (5, "x", object())}


def wrong_calls() -> dict[str, Callable[[], object]]:
    """By what they look like."""
    model, data, attend = _model(), hw.data, hw.functional.scaled_dot_product_attention
    calls: dict[str, Callable[[], object]] = {}

    def add(name: str, call: Callable[[], object]) -> None:
        calls[name] = call

    configs: dict[str, tuple[type, dict[str, object], dict[str, tuple[str, ...]]]] = {
        "Heads": (choices.Heads, {}, {"n_heads": ("count",)}),
        "FeedForward": (choices.FeedForward, {"d_ff": 8}, {"d_ff": ("count",), "activation": ("part",)}),
        "DecoderConfig": (
            hw.models.DecoderConfig,
            {"vocab": 7},
            {"d_model": ("count",), "n_layers": ("count",), "dropout": ("number",), "heads": ("part",)},
        ),
        "ResNetConfig": (
            hw.models.ResNetConfig,
            {"n_classes": 3},
            {"n_blocks": ("count",), "n_channels": ("count",), "widths": ("part",)},
        ),
        "TrainingConfig": (
            hw.training.TrainingConfig,
            {"batch_size": 4, "steps": 2},
            {
                "batch_size": ("count",),
                "accumulate": ("count",),
                "workers": ("number",),
                "clip": ("number",),
                "schedule": ("part",),
            },
        ),
        "AdamW": (hw.training.AdamW, {}, {"lr": ("number",), "weight_decay": ("number",), "betas": ("part",)}),
        "Cosine": (hw.training.Cosine, {}, {"warmup": ("number",), "floor": ("number",)}),
        "TextFile": (data.TextFile, {"path": "x"}, {"n_context": ("count",), "tokenizer": ("part",)}),
        "BytePairs": (data.BytePairs, {}, {"n_tokens": ("count",)}),
    }
    for name, (kind, given, fields) in configs.items():
        for field, (what,) in fields.items():
            for value in BAD[what]:
                if value is None and field in ("clip",):
                    continue
                add(
                    f"{name}({field}={value!r})",
                    lambda kind=kind, given=given, field=field, value=value: kind(**{**given, field: value}),
                )
    for value in (None, 5, "x", [1.0]):
        add(f"hw.trace({value!r})", lambda value=value: hw.trace(value, X))
        add(f"hw.trace(model, {value!r})", lambda value=value: hw.trace(model, value))
        add(f"hw.cost(model, {value!r})", lambda value=value: hw.cost(model, value))
        add(f"hw.load({value!r})", lambda value=value: hw.load(value))
        add(f"hw.save({value!r})", lambda value=value: hw.save(value, "new"))
        add(
            f"hw.train(data={value!r})",
            lambda value=value: hw.train(model, value, hw.training.TrainingConfig(steps=1, batch_size=1), out="new"),
        )
        add(f"published({value!r})", lambda value=value: hw.models.published(value))
    for number in (-1, 10**9, None, 2.5, "x"):
        add(f"sample_digit({number!r})", lambda number=number: data.sample_digit(number))
    add("attention without a batch of keys", lambda: attend(X, X[:, :, :3], X))
    add("mask of numbers", lambda: attend(X, X, X, visible=torch.ones(3, 3)))
    add(
        "mask of another length",
        lambda: attend(X, X, X, visible=torch.ones(3, 5).bool()),
    )
    add("negative radius", lambda: hw.masks.window(3, 3, -1))
    add("causal mask of nothing", lambda: hw.masks.causal(-5, 3))
    add("odd positions", lambda: hw.functional.sinusoidal_positions(-1, 8))
    add("ids outside the vocabulary", lambda: model(torch.tensor([[11]])))
    add("ids that are numbers", lambda: model(torch.zeros(1, 3)))
    add("read_image of 2 channels", lambda: data.read_image(Path("x.png"), (8, 8), 2))
    add("read_image of nothing", lambda: data.read_image(Path("nowhere.png"), (8, 8), 1))
    add("find_images of nothing", lambda: data.find_images(Path("nowhere")))
    add("read_text of nothing", lambda: data.read_text(Path("nowhere")))
    add("record of no such point", lambda: hw.record(model, "layers.9.nothing").__enter__())
    add("patch of no such point", lambda: hw.patch(model, {"nothing": lambda x: x}).__enter__())
    add("ablate of no such layer", lambda: hw.ablate(model, heads={"nothing": [0]}).__enter__())
    add("strings of another length", lambda: hw.figures.draw_inside(model, IDS, strings=[["a"]]))
    add("labels outside", lambda: hw.figures.draw_confusion_matrix(torch.tensor([5]), torch.tensor([0]), "ab"))
    return calls


def try_call(call: Callable[[], object]) -> str:
    """What is wrong with how a wrong call ends; nothing if one of our sentences says what is wrong."""
    try:
        call()
    except (ValueError, TypeError) as error:
        last = error.__traceback__
        while last is not None and last.tb_next is not None:
            last = last.tb_next
        where = "" if last is None else last.tb_frame.f_code.co_filename
        said = str(error)
        if "headwork" not in where or not said:
            return f"{type(error).__name__} of {Path(where).name}: {said[:120]}"
        is_ours = "got" in said or "did you mean" in said or "there are" in said
        return "" if is_ours else f"it said {said!r}"
    except BaseException as error:
        return f"{type(error).__name__}: {str(error)[:120]}"
    return "it was accepted"
