"""A model as a folder: its weights in safetensors, its config in JSON, and a manifest that says both are whole."""

import errno
import inspect
import json
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, cast, get_args

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from headwork.checks import LARGEST_JSON, check_file, check_type, naming, with_article
from headwork.convert import Conversion, conversions_of
from headwork.models import CLASSES
from headwork.serialise import check_classes, config_from_dict, config_to_dict
from headwork.storage.folders import MANIFEST, DamagedError, new_folder, verify

CONFIG, WEIGHTS, BEST = "config.json", "model.safetensors", "checkpoints/best.json"


def save(model: nn.Module, folder: Path | str) -> None:
    """Write a model into a new folder: `config.json`, `model.safetensors`, and the manifest that verifies them.

    The model is one of `hw.models`, also if it has parts of your own or `hw.convert` has changed it; or a
    module of your own whose constructor's arguments are attributes of the same names.
    """
    check_type(str | Path, "a path", folder=folder)
    save_with(model, Path(folder), {})


def save_with(model: nn.Module, folder: Path, files: Mapping[str, str]) -> None:
    """`save`, with the files of the run that a model comes from, so that it can be evaluated as the run can."""
    about = {**json.loads(files.get(CONFIG, "{}")), "model": config_to_dict(model)}
    conversions = [config_to_dict(conversion) for conversion in conversions_of(model)]
    if conversions:
        about["conversions"] = conversions
    check_rebuilds(model, about)
    with new_folder(folder, n_bytes(model.state_dict())) as staging:
        for name, text in files.items():
            (staging / name).write_text(text, encoding="utf-8")
        write_json(about, staging / CONFIG)
        write_tensors(model.state_dict(), staging / WEIGHTS)


def load(
    folder: Path | str,
    *,
    classes: Iterable[type] = (),
    model: nn.Module | None = None,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> nn.Module:
    """The model in a folder, in `eval` mode; the folder of a run gives the best of its checkpoints.

    `classes` are your own, which a folder may name and only you can pass; `model` is filled instead of building one.
    """
    check_type(str | Path, "a path", folder=folder)
    check_classes(classes)
    if dtype is not None and not isinstance(dtype, torch.dtype):
        raise ValueError(f"dtype must be one of PyTorch's, such as torch.float16, got {dtype!r}")
    folder = find_model(Path(folder))
    if (folder / MANIFEST).exists():
        verify(folder)
    if model is None:
        with naming(folder / CONFIG):
            model = rebuild(read_json(folder / CONFIG), classes)
    # First the precision, then the numbers: through float32 those of float64 would lose digits.
    return fill(model.to(device=device, dtype=dtype), folder).eval()


def rebuild(about: Mapping[str, object], classes: Iterable[type] = ()) -> nn.Module:
    """The model that a `config.json` describes, with fresh weights."""
    found: Any = config_from_dict(about.get("model"), CLASSES, classes)
    model: nn.Module = found if isinstance(found, nn.Module) else found.build()
    for conversion in cast(list[object], about.get("conversions", [])):
        model = config_from_dict(conversion, get_args(Conversion)).apply(model).model
    return model


def check_rebuilds(model: nn.Module, about: Mapping[str, object]) -> None:
    """Raise if the model is not what its config describes: it was changed after it was built."""
    # A conversion computes new weights from the old ones, which needs real numbers.
    with torch.device("cpu" if "conversions" in about else "meta"), torch.random.fork_rng(devices=[]):
        fresh = rebuild(about, classes_in(model))
    ours, theirs = dict(model.named_modules()), dict(fresh.named_modules())
    for name, module in model.named_modules(remove_duplicate=False):
        if name not in ours and name in theirs:
            first = next(other for other, same in ours.items() if same is module)
            raise ValueError(
                f"model must have a module of its own at each place to be saved, got the same {type(module).__name__} "
                f"at {first!r} and {name!r}: a class of yours can share it"
            )
    for name in dict.fromkeys([*theirs, *ours]):
        here, there = (type(of.get(name)).__name__ if name in of else "nothing" for of in (ours, theirs))
        if here != there:
            raise ValueError(
                f"model must be what its config describes, got {with_article(here)} at {name!r}, "
                f"where {there} would be built: "
                "pass a module of your own to the model's constructor, so that it can be saved"
            )
    shapes = [{name: tensor.shape for name, tensor in each.state_dict().items()} for each in (model, fresh)]
    for name in dict.fromkeys([*shapes[1], *shapes[0]]):
        if shapes[0].get(name) != shapes[1].get(name):
            here, there = (str(tuple(of[name])) if name in of else "no such weight" for of in shapes)
            raise ValueError(
                f"model must be what its config describes, got {here} for {name!r}, where {there} would be built"
            )
    for name, module in ours.items():
        if module is not model and type(module).__module__.startswith(("headwork.", "torch.")):
            built = _settings(theirs[name])
            for key, value in _settings(module).items():
                if value != built.get(key):
                    raise ValueError(
                        f"model must be what its config describes, got {key}={value} at {name!r}, "
                        f"where {built.get(key)} would be built: change the config instead"
                    )


def _settings(module: nn.Module) -> dict[str, object]:
    """The numbers and words that a module was made with, such as `n_heads` or `eps`."""
    plain = {name: value for name, value in vars(module).items() if isinstance(value, int | float | str)}
    return {name: value for name, value in plain.items() if name != "training" and not name.startswith("_")}


def classes_in(thing: object) -> set[type]:
    """The classes of a user's own in a config or model and in what it is made of."""
    if isinstance(thing, list | tuple):
        return {kind for item in thing for kind in classes_in(item)}
    if is_dataclass(thing):
        names = [field.name for field in fields(thing)]
    elif isinstance(thing, nn.Module):
        names = ["config", *inspect.signature(type(thing)).parameters]
    else:
        return set()
    parts = [*(getattr(thing, name, None) for name in names), *dict(getattr(thing, "parts", {})).values()]
    own = set() if type(thing).__module__.startswith("headwork.") else {type(thing)}
    return own | classes_in(parts)


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
    check_file(path, path.name, LARGEST_JSON)
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
