"""Folders of sentence-transformers: an encoder, and in `modules.json` what makes one vector of its tokens."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from headwork import choices
from headwork.hub.weights import read_json
from headwork.models import EncoderConfig
from headwork.storage import DamagedError
from headwork.storage.sealed_json import parse_list, read_text

MODULES = "modules.json"
POOLINGS: dict[str, choices.TextPooling] = {"cls": choices.FirstToken(), "mean": choices.MeanPooling()}
MODES = {"pooling_mode_cls_token": "cls", "pooling_mode_mean_tokens": "mean"}
"""The settings of older folders, each true or false."""


def with_pooling(config: Any, folder: Path) -> Any:
    """The config with the pooling that stands beside the encoder; the same one if there is none."""
    if not (folder / MODULES).is_file():
        return config
    if not isinstance(config, EncoderConfig) or not isinstance(config.head, choices.NoHead):
        raise ValueError(f"{folder / MODULES} must stand beside an encoder without a head")
    kinds = read_modules(folder)
    names = [kind for kind, _ in kinds]
    if names not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise ValueError(
            f"{folder / MODULES} must name Transformer, Pooling and perhaps Normalize, got {', '.join(names)}"
        )
    pooling = read_pooling(folder / kinds[1][1] / "config.json", config.d_model)
    return replace(config, head=choices.EmbeddingHead(pooling=pooling, normalised=len(kinds) == 3))


def read_modules(folder: Path) -> list[tuple[str, str]]:
    """The kind of each module, and its folder."""
    path = folder / MODULES
    modules = parse_list(read_text(path), path)
    try:
        found = [(str(module["type"]).rpartition(".")[2], str(module["path"])) for module in modules]
    except (TypeError, KeyError) as error:
        raise DamagedError(f"{path} is damaged: {type(error).__name__}, {error}") from None
    for _, below in found:
        if below != Path(below).name:
            raise DamagedError(f"{path} names the folder {below!r}, which is not in this one")
    return found


def read_pooling(path: Path, d_model: int) -> choices.TextPooling:
    settings = read_json(path)
    width = settings.get("word_embedding_dimension", settings.get("embedding_dimension", d_model))
    if width != d_model:
        raise ValueError(f"{path}: word_embedding_dimension must be that of the encoder, {d_model}, got {width!r}")
    if settings.get("include_prompt", True) is not True:
        raise ValueError(f"{path}: include_prompt must be True, the one that Headwork has")
    modes: list[object] = [
        MODES.get(name, name) for name, on in settings.items() if name.startswith("pooling_mode_") and on is True
    ]
    said = settings.get("pooling_mode")
    modes = modes if said is None else said if isinstance(said, list) else [said]
    if len(modes) != 1 or str(modes[0]) not in POOLINGS:
        raise ValueError(f"{path}: the pooling must be one of {', '.join(POOLINGS)}, got {', '.join(map(str, modes))}")
    return POOLINGS[str(modes[0])]
