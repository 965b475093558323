"""A subject from what the command is given: a run, a folder, a file, or a published name."""

import warnings
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import torch

from headwork.checks import nearest
from headwork.explorer.subject import AnyTokenizer, Subject
from headwork.hub import (
    ImagePreprocessing,
    MarianTokenizer,
    PretrainedTokenizer,
    find_folder,
    is_pretrained,
    labels_of,
    load,
)
from headwork.hub.weights import read_json
from headwork.models import PUBLISHED, describe, published
from headwork.storage.models import CONFIG
from headwork.tasks import LabelTask
from headwork.training import open_run
from headwork.training.run import is_run


def open_subject(where: Path | str, classes: Iterable[type] = ()) -> Subject:
    """A run, a folder of a model (ours or Hugging Face's), a GGUF file, or a published size with random weights."""
    classes = tuple(classes)
    if not Path(where).exists() and len(Path(where).parts) == 1 and "/" not in str(where):
        return _published(str(where))
    folder = find_folder(where)
    if is_pretrained(folder):
        return _pretrained(folder)
    if not folder.is_dir():
        raise ValueError(f"model must be a folder, a GGUF file or a published name (`headwork models`), got {where}")
    run = open_run(folder, classes) if is_run(folder) else None
    model = load(folder, classes=classes)
    made = Subject.of(model, tokenizer=None if run is None else run.tokenizer, name=folder.resolve().name)
    labels = run.task.labels if run is not None and isinstance(run.task, LabelTask) else None
    return replace(made, folder=folder, run=run, labels=labels, classes=classes)


def _published(name: str) -> Subject:
    if name not in PUBLISHED:
        raise ValueError(
            f"model must be a folder that exists or a published name, got {name!r}{nearest(name, PUBLISHED)}"
        )
    config = published(name)
    check_memory(name, sum(p.numel() for p in config.build(device="meta").parameters()))
    torch.manual_seed(0)
    return Subject.of(config.build(), name=f"{name}, random weights")


def _pretrained(folder: Path) -> Subject:
    """A folder of Hugging Face's or a GGUF file."""
    check_memory(str(folder), _stored_bytes(folder) // 2)
    with warnings.catch_warnings(action="ignore"):
        model = load(folder)
    description, settings = describe(model), {} if folder.is_file() else read_json(folder / CONFIG)
    assert description is not None
    marian = settings.get("model_type") == "marian"
    tokenizer: AnyTokenizer | None = None
    if description.input != "image":
        try:
            tokenizer = MarianTokenizer.load(folder) if marian else PretrainedTokenizer.load(folder)
        except (ValueError, OSError):
            tokenizer = None  # ids work
    made = Subject.of(model, tokenizer=tokenizer, name=folder.name)
    begin = settings.get("decoder_start_token_id")
    return replace(
        made,
        folder=folder,
        labels=labels_of(folder, description.n_outputs) if description.output in ("class", "token class") else None,
        begin=begin if made.begin is None and isinstance(begin, int) else made.begin,
        preprocessing=ImagePreprocessing.load(folder) if description.input == "image" else None,
    )


def check_memory(name: str, n_parameters: int) -> None:
    """Raise before a model fills the memory of the machine."""
    free = _free_bytes()
    if 4 * n_parameters * 1.2 > free:
        raise ValueError(
            f"model must fit into memory: {name} needs about {4.8 * n_parameters / 1e9:.1f} GB, "
            f"and {free / 1e9:.1f} GB are free"
        )


def _free_bytes() -> int:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return 2**62


def _stored_bytes(folder: Path) -> int:
    """Of the weights, which are in 16 bits or fewer in most folders."""
    files = [folder] if folder.is_file() else [*folder.glob("*.safetensors"), *folder.glob("*.bin")]
    return sum(file.stat().st_size for file in files)
