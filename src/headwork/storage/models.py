"""A model as a folder: its weights in safetensors, its config in JSON, and a manifest that says both are whole."""

import errno
import json
from collections.abc import Mapping
from pathlib import Path
from typing import cast, get_args

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from headwork.convert import Conversion, conversions_of
from headwork.models.description import ModelConfig
from headwork.models.published import MODEL_CONFIGS
from headwork.serialise import config_from_dict, config_to_dict
from headwork.storage.folders import MANIFEST, DamagedError, new_folder, verify

CONFIG, WEIGHTS, BEST = "config.json", "model.safetensors", "checkpoints/best.json"


def save(model: nn.Module, folder: Path | str) -> None:
    """Write a model into a new folder: `config.json`, `model.safetensors`, and the manifest that verifies them.

    The model is one of `hw.models`, also if `hw.convert` has changed it.
    """
    if not isinstance(getattr(model, "config", None), ModelConfig):
        raise ValueError(f"model must be one of headwork.models, which know their config, got {type(model).__name__}")
    about = {"model": config_to_dict(model.config)}
    conversions = [config_to_dict(conversion) for conversion in conversions_of(model)]
    with new_folder(Path(folder), n_bytes(model.state_dict())) as staging:
        write_json(about | ({"conversions": conversions} if conversions else {}), staging / CONFIG)
        write_tensors(model.state_dict(), staging / WEIGHTS)


def load(folder: Path | str) -> nn.Module:
    """The model in a folder, ready to be asked (`eval`); the folder of a run gives the best of its checkpoints."""
    folder = find_model(Path(folder))
    if (folder / MANIFEST).exists():
        verify(folder)
    about = read_json(folder / CONFIG)
    model: nn.Module = config_from_dict(about.get("model"), MODEL_CONFIGS).build()
    for conversion in cast(list[object], about.get("conversions", [])):
        model = config_from_dict(conversion, get_args(Conversion)).apply(model).model
    return fill(model, folder).eval()


def find_model(folder: Path) -> Path:
    """The folder itself, or the best checkpoint of the run in it."""
    if (folder / BEST).is_file():
        best = folder / "checkpoints" / str(read_json(folder / BEST).get("checkpoint"))
        if not best.is_dir():
            raise DamagedError(f"{folder / BEST} names {best}, which is not there")
        return best
    if not (folder / CONFIG).is_file() or not (folder / WEIGHTS).is_file():
        raise ValueError(f"folder must hold a model ({CONFIG} and {WEIGHTS}), got {folder}")
    return folder


def fill(model: nn.Module, folder: Path) -> nn.Module:
    """Give the model the weights in the folder: all of them, and no others."""
    tensors, own = read_tensors(folder / WEIGHTS), model.state_dict()
    for what, names in (("lacks", own.keys() - tensors.keys()), ("has the unknown", tensors.keys() - own.keys())):
        if names:
            raise ValueError(f"{folder / WEIGHTS} {what} {', '.join(sorted(names)[:3])} ({len(names)} in all)")
    for name, tensor in tensors.items():
        if tensor.shape != own[name].shape:
            raise ValueError(
                f"{folder / WEIGHTS}: {name} must have the shape {tuple(own[name].shape)}, got {tuple(tensor.shape)}"
            )
    model.load_state_dict(tensors)
    return model


def write_json(data: object, path: Path) -> None:
    path.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")


def read_json(path: Path) -> dict[str, object]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"{path} is damaged: {error}") from None
    if not isinstance(data, dict):
        raise DamagedError(f"{path} is damaged: it must hold an object, got {type(data).__name__}")
    return data


def write_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    try:
        save_file({name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}, path)
    except SafetensorError as error:
        raise OSError(errno.EIO, str(error), str(path)) from error
    path.chmod(0o644)  # the library makes files that only their owner may read


def read_tensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except SafetensorError as error:
        raise DamagedError(f"{path} is damaged: {error}") from None


def n_bytes(tensors: Mapping[str, Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
