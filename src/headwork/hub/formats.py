"""`hw.load` and `hw.save`: our own folders and those of Hugging Face, by one call."""

import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

import torch
from torch import nn

from headwork import storage
from headwork.checks import check_one_of
from headwork.hub.download import find_folder
from headwork.hub.pretrained import MANIFEST, is_pretrained, load_pretrained, save_pretrained


class UnverifiedWarning(UserWarning):
    """A folder says nothing of what its files should be: damage that leaves them readable is not found."""


def load(
    folder: Path | str,
    *,
    classes: Iterable[type] = (),
    model: nn.Module | None = None,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> nn.Module:
    """The model in a folder, in `eval` mode: of `hw.save`, of a run (the best of its checkpoints), of Hugging Face.

    It can also be a GGUF file, or the id of a model on the Hub, "owner/name".

    `classes` are your own, which a folder of ours may name and only you can pass; `model` is filled instead of building
    one. See `headwork.hub.load_pretrained` for what is read of Hugging Face's folders.

    The weights are mapped from the file: while the model lives, replace or delete the file, but do not write into it.
    """
    folder = find_folder(folder)
    if not is_pretrained(folder):
        return storage.load(folder, classes=classes, model=model, device=device, dtype=dtype)
    if model is not None:
        raise ValueError(f"model must be None for a folder of Hugging Face's, got {type(model).__name__} for {folder}")
    if note := note_of_unverified(folder):
        warnings.warn(note, UnverifiedWarning, stacklevel=2)
    return load_pretrained(folder, device=device, dtype=dtype)


def note_of_unverified(folder: Path | str) -> str | None:
    """What a user should know of a folder without a manifest; None if there is one."""
    if (Path(folder) / MANIFEST).is_file():
        return None
    return (
        f"{folder} is loaded unverified: it has no manifest, as folders that headwork did not write have none, so its "
        "weights are not compared with checksums"
    )


def save(
    model: nn.Module,
    folder: Path | str,
    *,
    format: Literal["headwork", "huggingface"] = "headwork",  # noqa: A002  # the word that a caller would type
    like: Path | str | None = None,
    labels: Sequence[str] | None = None,
) -> None:
    """Write a model into a new folder, as `hw.load` reads it or (`format="huggingface"`) as `from_pretrained` does too.

    Ours can be any model whose config or constructor says all about it; see `headwork.hub.save_pretrained` for what
    Hugging Face understands, and for `like` and `labels`.
    """
    check_one_of(("headwork", "huggingface"), format=format)
    if format == "huggingface":
        save_pretrained(model, folder, like=like, labels=labels)
    elif like is not None or labels is not None:
        name, got = ("like", like) if labels is None else ("labels", labels)
        raise ValueError(f"{name} must be None unless format='huggingface', got {got}")
    else:
        storage.save(model, folder)
