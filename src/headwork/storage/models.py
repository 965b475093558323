"""A model as a folder: its weights in safetensors, its config in JSON, and a manifest that says both are whole."""

import errno
import inspect
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import BuiltinFunctionType, FunctionType
from typing import Any, get_args

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.modules.module import register_module_module_registration_hook

from headwork.checks import check_type, with_article
from headwork.convert import Conversion, conversions_of
from headwork.layers.int8 import check_saved
from headwork.models import CLASSES
from headwork.serialise import check_classes, config_from_dict, config_to_dict
from headwork.storage.folders import MANIFEST, new_folder, verify
from headwork.storage.sealed_json import SEAL, DamagedError, read_json, sealed, unsealed

CONFIG, WEIGHTS, BEST = "config.json", "model.safetensors", "checkpoints/best.json"
CHECKPOINT = re.compile(r"step-[0-9]{8,}(-part-[0-9]{4,})?")
"""The names of checkpoints."""
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
MODULES_FOR_EACH_TENSOR, FEWEST_MODULES = 20, 1000
"""So many at most are built for a file of weights: no model of ours comes near it."""
CONVERTED = 100
"""A model has at most so many times the weights that it has after its conversions, which need real numbers."""


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
    is_sealed = about.pop(SEAL, None) is not None
    about |= with_names_of_ours(model, CLASSES)
    conversions = [config_to_dict(conversion) for conversion in conversions_of(model)]
    if conversions:
        about["conversions"] = conversions
    check_rebuilds(model, about)
    check_finite(model.state_dict(), "model")
    with new_folder(folder, n_bytes(model.state_dict())) as staging:
        for name, text in files.items():
            (staging / name).write_text(text, encoding="utf-8")
        if is_sealed:
            (staging / CONFIG).write_text(sealed(about, indent=2) + "\n", encoding="utf-8")
        else:
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
    verify(folder, (CONFIG, WEIGHTS))
    # First the precision, then the numbers: through float32 those of float64 would lose digits.
    if model is not None:
        return fill(model.to(device=device, dtype=dtype), folder).eval()
    return fill(rebuild_for(folder, classes).to(dtype=dtype), folder).to(device=device).eval()


def rebuild_for(folder: Path, classes: Iterable[type]) -> nn.Module:
    """The model that the config of a folder describes, without numbers: first, to see if it fits.

    It is built once more, with fresh weights, if the file has not all of its numbers or a class of a user's own may
    want to see them.
    """
    about, stored = read_json(folder / CONFIG), read_shapes(folder / WEIGHTS)
    most, n_stored = MODULES_FOR_EACH_TENSOR * len(stored) + FEWEST_MODULES, sum(map(math.prod, stored.values()))
    with explain_config(folder / CONFIG), at_most_modules(most), torch.device("meta"):
        check_passed(about, CLASSES, classes)
        empty = rebuild({"model": about.get("model")}, classes)
    if not about.get("conversions"):
        check_shapes(stored, empty.state_dict(), folder / WEIGHTS)
    elif (n_before := sum(tensor.numel() for tensor in empty.state_dict().values())) > CONVERTED * n_stored:
        raise ValueError(
            f"{folder / CONFIG}: the model must be the one of the weights beside it, got {n_before:,} weights"
        )
    if about.get("conversions", []) == [] and not list(classes) and has_all_numbers(empty):
        return empty
    with explain_config(folder / CONFIG), at_most_modules(most):
        return rebuild(about, classes)


def has_all_numbers(empty: nn.Module) -> bool:
    """Whether the state dict of a model that was built without numbers has a place for each of them."""
    stored = empty.state_dict()
    kept = [value for module in empty.modules() for value in vars(module).values()]
    return all(name in stored for name, _ in empty.named_buffers()) and not any(isinstance(v, Tensor) for v in kept)


def rebuild(about: Mapping[str, object], classes: Iterable[type] = ()) -> nn.Module:
    """The model that a `config.json` describes, with fresh weights."""
    found: Any = config_from_dict(about.get("model"), CLASSES, classes)
    model: nn.Module = found if isinstance(found, nn.Module) else found.build()
    conversions = about.get("conversions", [])
    if not isinstance(conversions, list):
        raise ValueError(f"conversions must be a list, got {conversions!r}")
    for conversion in conversions:
        model = config_from_dict(conversion, get_args(Conversion)).apply(model).model
    return model


@contextmanager
def explain_config(path: Path) -> Iterator[None]:
    """Let an error say which file it is about; PyTorch raises its own for a model larger than any memory."""
    try:
        yield
    except DamagedError:
        raise
    except (ValueError, TypeError, RuntimeError, OverflowError, MemoryError, RecursionError) as error:
        raise ValueError(str(error) if str(path) in str(error) else f"{path}: {error}") from error


@contextmanager
def at_most_modules(most: int) -> Iterator[None]:
    """Raise as soon as more modules are built."""
    n_built = 0

    def count(*_: object) -> None:
        nonlocal n_built
        n_built += 1
        if n_built > most:
            raise ValueError(f"the model must be the one of the weights beside it, got more than {most:,} modules")

    hook = register_module_module_registration_hook(count)
    try:
        yield
    finally:
        hook.remove()


def check_rebuilds(model: nn.Module, about: Mapping[str, object]) -> None:
    """Raise if the model is not what its config describes: it was changed after it was built."""
    check_saved(model)
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
        if type(ours.get(name)) is not type(theirs.get(name)):
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
        kept, built = ({} if module is model else _settings(each) for each in (module, theirs[name]))
        for key in dict.fromkeys([*kept, *built]):
            if kept.get(key) != built.get(key):
                raise ValueError(
                    f"model must be what its config describes, got {key}={kept.get(key)} at {name!r}, "
                    f"where {built.get(key)} would be built: change the config instead"
                )


def _settings(module: nn.Module) -> dict[str, object]:
    """What a module was made with, such as `n_heads`, `eps` or an activation; of a user's own, the arguments only.

    The rest of what a user's own module keeps may change as it is used.
    """
    if not type(module).__module__.startswith(("headwork.", "torch.")):
        try:
            return config_to_dict(module)
        except ValueError:  # it is a part of another one, which is built again as a whole
            return {}
    found = {name: value for name, value in vars(module).items() if name != "training" and not name.startswith("_")}
    plain = {
        name: value
        for name, value in found.items()
        if all(isinstance(each, int | float | str | None) for each in (value if isinstance(value, tuple) else (value,)))
    }
    functions = {
        name: f"{value.__module__}.{value.__qualname__}"
        for name, value in found.items()
        if isinstance(value, FunctionType | BuiltinFunctionType)
    }
    return plain | functions


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


OWN = "own_classes"


def with_names_of_ours(thing: object, ours: Iterable[type]) -> dict[str, list[str]]:
    """For a config.json: which classes in it are a user's own though they are called like one of ours, if any are."""
    same = {kind.__name__ for kind in classes_in(thing)} & {kind.__name__ for kind in ours}
    return {OWN: sorted(same)} if same else {}


def check_passed(about: Mapping[str, object], ours: Iterable[type], classes: Iterable[type]) -> None:
    """Raise if one of ours would be built in the place of a user's own that has its name and was not passed."""
    listed, passed = about.get(OWN, []), {kind.__name__ for kind in classes}
    for name in listed if isinstance(listed, list) else [listed]:
        if name not in passed and name in {kind.__name__ for kind in ours}:
            raise ValueError(
                f"{name} is a class of your own here, with the name of one of ours: pass it, classes=[{name}], "
                "or --import my_module on the command line"
            )


def find_model(folder: Path) -> Path:
    """The folder itself, or the best checkpoint of the run in it."""
    if (folder / BEST).exists():
        name = unsealed(read_json(folder / BEST), folder / BEST).get("checkpoint")
        if not isinstance(name, str) or not CHECKPOINT.fullmatch(name):
            raise DamagedError(f"{folder / BEST} is damaged: it must name a checkpoint, got {name!r}")
        best = folder / "checkpoints" / name
        if not best.is_dir() or best.is_symlink():
            raise DamagedError(f"{folder / BEST} names {best}, which is not there")
        return best
    if not folder.exists():
        hub = "" if len(folder.parts) > 1 else f" (a model on the Hub has its owner in its name: owner/{folder})"
        raise ValueError(f"folder must be one that exists, got {folder}{hub}")
    if folder.is_file():
        kinds = "a folder, or a file *.gguf"
        raise ValueError(f"a model is {kinds}, got the file {folder}: build the model, then model.load_state_dict(...)")
    if (folder / CONFIG).is_file() and not (folder / MANIFEST).exists():
        read_json(folder / CONFIG)  # if it is damaged, that is said, and not that there is no manifest
    if (folder / CONFIG).is_file() and not (folder / WEIGHTS).is_file() and "run" in read_json(folder / CONFIG):
        rule = "have a checkpoint that was evaluated"
        raise ValueError(f"run must {rule}, got {folder}, which has none: `headwork train --resume {folder}` goes on")
    if not (folder / CONFIG).is_file() or not (folder / WEIGHTS).is_file():
        missing = " and no ".join(name for name in (CONFIG, WEIGHTS) if not (folder / name).is_file())
        raise ValueError(f"folder must hold a model ({CONFIG} and {WEIGHTS}), got {folder} with no {missing}")
    return folder


def read_own_config(path: Path) -> dict[str, Any]:
    """What a `config.json` says, which its own seal or the manifest beside it must confirm if it is one of ours."""
    data = read_json(path)
    if SEAL in data or "run" in data:
        return unsealed(data, path)
    if "model" in data:
        verify(path.parent, (path.name,))
    return data


def fill(model: nn.Module, folder: Path) -> nn.Module:
    """Give the model the weights in the folder: all of them, and no others.

    A model without numbers gets the mapped file itself; one that has some keeps its memory, which others may know.
    """
    path = folder / WEIGHTS
    tensors, own = read_tensors(path), model.state_dict()
    check_tensors(tensors, own, path)
    if any(tensor.is_meta for tensor in own.values()):
        own = {name: tensor.to(own[name].dtype) for name, tensor in tensors.items()}
        model.load_state_dict(own, assign=True)
    else:
        model.load_state_dict(tensors)
    converted = {name: tensor for name, tensor in own.items() if tensor.dtype != tensors[name].dtype}
    check_finite(converted, f"{path}, in the precision that was asked for,")
    return model


def check_tensors(tensors: Mapping[str, Tensor], own: Mapping[str, Tensor], path: Path) -> None:
    """Raise unless these can be the weights of a model: the same names, shapes and kinds of numbers, all finite."""
    check_shapes({name: tuple(tensor.shape) for name, tensor in tensors.items()}, own, path)
    for name, tensor in tensors.items():
        if tensor.dtype not in (FLOATS if own[name].is_floating_point() else (own[name].dtype,)):
            raise ValueError(f"{path}: {name} must be of the dtype {own[name].dtype}, got {tensor.dtype}")
    check_finite(tensors, str(path))


def check_shapes(stored: Mapping[str, tuple[int, ...]], own: Mapping[str, Tensor], path: Path) -> None:
    for what, names in (("lacks", own.keys() - stored.keys()), ("has the unknown", stored.keys() - own.keys())):
        if names:
            raise ValueError(f"{path} {what} {', '.join(sorted(names)[:3])} ({len(names)} in all)")
    for name, shape in stored.items():
        if shape != tuple(own[name].shape):
            raise ValueError(f"{path}: {name} must have the shape {tuple(own[name].shape)}, got {shape}")


def check_finite(tensors: Mapping[str, Tensor], what: str) -> None:
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and (tensor.dtype not in FLOATS or not is_finite(tensor)):
            raise ValueError(f"{what} must have finite weights, got a number that is not finite in {name}")


def is_finite(tensor: Tensor) -> bool:
    """Whether all numbers are, from the ends of them: no table of answers is written.

    >>> is_finite(torch.tensor([1.0, math.nan, 2.0]))
    False
    """
    return tensor.numel() == 0 or all(bool(end.isfinite()) for end in tensor.aminmax())


def write_json(data: object, path: Path, indent: int | None = 2) -> None:
    path.write_text(json.dumps(data, indent=indent) + "\n", encoding="utf-8")


def write_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    try:
        save_file({name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}, path)
    except SafetensorError as error:
        raise OSError(errno.EIO, str(error), str(path)) from error
    path.chmod(0o644)  # the library makes files that only their owner may read


def read_tensors(path: Path) -> dict[str, Tensor]:
    with explain_damage(path):
        return load_file(path)


def read_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """The shapes of the tensors in a file, without their numbers."""
    with explain_damage(path), safe_open(path, "pt") as file:
        return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118  # no mapping


@contextmanager
def explain_damage(path: Path) -> Iterator[None]:
    """Let an error say which file it is about; the library raises what it likes for tensors of unknown kinds."""
    try:
        yield
    except (SafetensorError, KeyError, ValueError, TypeError, RuntimeError, OverflowError, AttributeError) as error:
        raise DamagedError(f"{path} is damaged: {error}") from None


def n_bytes(tensors: Mapping[str, Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
