"""Runs small enough to test, for the tests and for `make torture`: every kind of model, on data without a download."""

import json
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Literal, get_args

import torch
from safetensors import safe_open
from torch import Tensor

from headwork import choices
from headwork.data import Dates, Digits, TextFile
from headwork.models import (
    DecoderConfig,
    EncoderDecoderConfig,
    GaussianImageEncoderConfig,
    ResNetConfig,
    VisionTransformerConfig,
)
from headwork.training import Run, RunConfig, StopRequest, TrainingConfig, new_run

Kind = Literal["vit", "gaussian", "resnet", "gpt", "translator"]
KINDS: tuple[Kind, ...] = get_args(Kind)
TEXT = Path(__file__).parents[2] / "LICENSE"

_LAYERS = {"d_model": 8, "heads": choices.Heads(n_heads=2), "feed_forward": choices.FeedForward(d_ff=12)}


def small_config(kind: Kind, *, dropout: float = 0.0, augment: bool = False, **training: object) -> RunConfig:
    """A run of two epochs of 5 steps, unless told otherwise."""
    batch_size = {"gpt": 30, "translator": 18}.get(kind, 354)
    settings = {"batch_size": batch_size, "epochs": None if "steps" in training else 2, **training}
    dropouts = {"dropout": dropout, "attention_dropout": dropout}
    images = Digits(augment=augment, n_valid=10, n_test=10)
    image = {"n_classes": 10, "image": (8, 8), "n_channels": 1, "n_layers": 1}
    match kind:
        case "vit":
            data, model = images, VisionTransformerConfig(patch=(4, 4), **image, **_LAYERS, **dropouts)
        case "gaussian":
            heads = {"heads": choices.GaussianHeads(n_heads=2), "dropout": dropout}
            data, model = images, GaussianImageEncoderConfig(patch=(2, 2), **{**image, **_LAYERS, **heads})
        case "resnet":
            data, model = images, ResNetConfig(n_classes=10, n_channels=1, n_blocks=1, widths=(4, 6))
        case "gpt":
            data = TextFile(path=str(TEXT), n_context=61)
            model = DecoderConfig(
                vocab=1, n_layers=1, position=choices.LearnedPositions(max_tokens=61), **_LAYERS, **dropouts
            )
        case "translator":
            data = Dates(n_train=97, n_valid=23, n_test=29)
            model = EncoderDecoderConfig(vocab=1, n_encoder_layers=1, n_decoder_layers=1, **_LAYERS, **dropouts)
    return RunConfig(name=kind, data=data, model=model, training=TrainingConfig(**settings))


def small_run(folder: Path, kind: Kind = "vit", **changes: object) -> Run:
    return new_run(small_config(kind, **changes), folder)


def changed(run: Run, folder: Path, **training: object) -> Run:
    """The same run in another folder, trained otherwise."""
    config = replace(run.config, training=replace(run.config.training, **training))
    return replace(run, folder=folder, config=config)


class StopAfter(StopRequest):
    """Asks to stop at a given place: the loop looks once after each part of a step."""

    def __init__(self, looks: int) -> None:
        self.looks_left = looks

    @property  # type: ignore[override]
    def signal_number(self) -> int | None:
        self.looks_left -= 1
        return None if self.looks_left > 0 else signal.SIGTERM


def read_tensors(path: Path) -> list[tuple[str, Tensor]]:
    with safe_open(path, "pt") as file:
        return [(name, file.get_tensor(name)) for name in sorted(file.keys())]


def read_log(run: Path) -> list[dict[str, object]]:
    """The metrics of a run, without times and speeds and the check of each line, which these are part of."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    measured = ("seconds", "examples_per_second", "tokens_per_second", "sha256")
    return [{key: value for key, value in row.items() if key not in measured} for row in rows]


def read_state(checkpoint: Path) -> dict[str, object]:
    """What a checkpoint says in JSON, without the time it took."""
    state = json.loads((checkpoint / "state.json").read_text())
    del state["progress"]["seconds"]
    if "pytest" in sys.modules:
        del state["random"]["python"]  # beartype, which checks every call in the test run, draws from it
    return state


def differences(ours: Path, theirs: Path) -> list[str]:
    """What two runs do not share, bit for bit and in the same order: metrics, checkpoints, and which is best."""
    found = [] if read_log(ours) == read_log(theirs) else ["metrics.jsonl"]
    if (ours / "checkpoints/best.json").read_text() != (theirs / "checkpoints/best.json").read_text():
        found.append("best.json")
    names = [sorted(path.name for path in (run / "checkpoints").glob("step-*[0-9]")) for run in (ours, theirs)]
    shared = [name for name in names[0] if name in names[1]]
    if max(names[0]) != max(names[1]):
        found.append(f"the newest is {max(names[0])} and {max(names[1])}")
    for name in shared:
        found += [
            f"{name}/{what}" for what in checkpoint_differences(*(run / "checkpoints" / name for run in (ours, theirs)))
        ]
    return found + file_differences(ours / "model.safetensors", theirs / "model.safetensors")


def checkpoint_differences(ours: Path, theirs: Path) -> list[str]:
    found = [] if read_state(ours) == read_state(theirs) else ["state.json"]
    for name in ("model.safetensors", "training.safetensors"):
        found += file_differences(ours / name, theirs / name)
    return found


def file_differences(ours: Path, theirs: Path) -> list[str]:
    a, b = read_tensors(ours), read_tensors(theirs)
    if [name for name, _ in a] != [name for name, _ in b]:
        return [f"{ours.name}: the names"]
    return [
        f"{ours.name}: {name}"
        for (name, x), (_, y) in zip(a, b, strict=True)
        if x.dtype != y.dtype
        or x.shape != y.shape
        or not torch.equal(x.flatten().view(torch.uint8), y.flatten().view(torch.uint8))
    ]
