"""Training on from somebody's model: its tokens, its way to read images, and a head for the classes of the data."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from headwork import choices
from headwork.convert import LoRA, lora, train_only
from headwork.data import DataConfig, Dataset, PreprocessedImages, Pretrained
from headwork.hub import (
    ImagePreprocessing,
    find_folder,
    is_pretrained,
    load_pretrained,
    with_classes,
    with_masked_lm,
)
from headwork.models import describe
from headwork.seeds import seed_everything
from headwork.storage import load

HEADS = ("head.*", "classifier.*", "lm_head.*")
"""Where the last layers of our models are."""
LR, LR_OF_FEW = 5e-5, 1e-3
"""What usually works for all weights, and for few: a new head, or low-rank adaptation."""


@dataclass(frozen=True)
class Start:
    """Where a training begins: a model, and data that it can read."""

    model: nn.Module
    config: DataConfig
    data: Dataset
    new: tuple[str, ...]
    """The parameters that are fresh."""
    lr: float
    """A learning rate that suits what is trained."""


def start_from(
    model: str,
    data: DataConfig,
    *,
    freeze: bool = False,
    adapt: LoRA | None = None,
    pooling: choices.TextPooling | choices.ImagePooling | None = None,
    seed: int = 0,
) -> Start:
    """A folder of Hugging Face's, a GGUF file, an id of the Hub or a run of ours, made ready to learn from the data.

    Texts get the tokens of the model, images its preprocessing; a head that does not fit the task is replaced by a
    fresh one. All weights are trained, or the last layers only (`freeze`), or low-rank adaptations (`adapt`) with the
    head, if it is fresh. `hw.train(start.model, start.config, ...)` goes on from there.
    """
    folder = find_folder(model)
    theirs = is_pretrained(folder)
    before = load_pretrained(folder, dtype=torch.float32) if theirs else load(folder)
    check_can_start(before, folder)
    config = fit_data(data, before, str(folder.resolve()), theirs=theirs)
    loaded = config.load(seed)
    seed_everything(seed)
    ready = fit_head(before, loaded, pooling=pooling, like=str(folder) if theirs and folder.is_dir() else None)
    kept = before.state_dict()
    new = tuple(
        name
        for name, tensor in ready.state_dict().items()
        if ready is not before and (name not in kept or not torch.equal(kept[name], tensor))
    )
    if adapt is not None:
        ready = lora(ready, adapt.names, rank=adapt.rank, alpha=adapt.alpha, train=head_of(ready) if new else ())
    elif freeze:
        train_only(ready, check_head(ready))
    return Start(ready, config, loaded, new, LR_OF_FEW if freeze or adapt else LR)


def check_can_start(model: nn.Module, folder: Path) -> None:
    """An encoder-decoder would need the tokens of two languages, and where a translation begins and ends."""
    description = describe(model)
    if description is not None and description.input == "text pair":
        rule = "read a text or an image to be trained on: translators are trained from the beginning only"
        raise ValueError(f"model must {rule}, got an {type(model).__name__} in {folder}")


def fit_data(data: DataConfig, model: nn.Module, folder: str, *, theirs: bool) -> DataConfig:
    """The same data with the tokens or the preprocessing of the model."""
    description = describe(model)
    if description is not None and description.input == "image":
        if not theirs:
            return data
        size = ImagePreprocessing.load(folder).size
        if size is not None and hasattr(data, "size") and hasattr(data, "n_channels"):  # resized once, not twice
            data = replace(data, size=size, n_channels=3)  # type: ignore[type-var]
        return PreprocessedImages(data=data, folder=folder)
    found: Any = data
    names = [field.name for field in fields(found)] if is_dataclass(found) else []
    if "tokenizer" in names:
        return replace(found, tokenizer=Pretrained(folder=folder))
    if hasattr(found, "text") and hasattr(found.text, "tokenizer"):
        return replace(found, text=replace(found.text, tokenizer=Pretrained(folder=folder)))
    rule = "have a tokenizer to choose, as texts have, to be read by a model of texts"
    raise ValueError(f"data must {rule}, got {type(data).__name__}")


def fit_head(model: nn.Module, data: Dataset, *, pooling: Any = None, like: str | None = None) -> nn.Module:
    """The model with a head for the task of the data."""
    labels, wanted = getattr(data.task, "labels", None), getattr(data.task, "output", None)
    if labels is not None:
        return with_classes(model, len(labels), pooling=pooling, like=like)
    if pooling is not None:
        raise ValueError(f"pooling is for classes, got {pooling} for {type(data.task).__name__}")
    return with_masked_lm(model) if wanted == "masked token" else model


def head_of(model: nn.Module) -> Sequence[str]:
    """The patterns of the parameters of the last layers."""
    names = [name for name, _ in model.named_parameters()]
    return [pattern for pattern in HEADS if any(name.startswith(pattern.removesuffix("*")) for name in names)]


def check_head(model: nn.Module) -> Sequence[str]:
    if found := head_of(model):
        return found
    raise ValueError(
        f"freeze trains the head alone, got a {type(model).__name__} without one: its output is the embedding table"
    )
