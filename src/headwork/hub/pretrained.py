"""Models out of folders of Hugging Face's, and into such folders."""

import json
import shutil
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from headwork import choices
from headwork.convert import has_lora, merge_lora
from headwork.hub.download import find_folder
from headwork.hub.families import FAMILIES, find_family, with_model_type
from headwork.hub.family import NO_PLACE, Family
from headwork.hub.gguf_file import GgufFile, is_gguf
from headwork.hub.names import Names, Same
from headwork.hub.sentences import with_pooling
from headwork.hub.settings import class_name, split_class
from headwork.hub.weights import SAFETENSORS, Stored, has_weights, open_weights, read_json
from headwork.models import Description, describe
from headwork.storage import new_folder, sealed_json, verify
from headwork.storage.models import CONFIG, explain_config, has_all_numbers, is_finite

MANIFEST = "manifest.json"
OLD_HEADS = {"WithLMHeadModel": "ForConditionalGeneration"}
"""What T5's class was called."""
ALONG = (
    *("tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab*", "merges.txt", "*.model", "*.spm"),
    *("chat_template*", "generation_config.json", "preprocessor_config.json"),
)
"""Files beside the model that go along when it is saved like another one."""


class LeftOutWarning(UserWarning):
    """A folder has weights beside those of the model that was loaded, or says that it is another model."""


def is_pretrained(folder: Path | str) -> bool:
    """Whether it is a folder of Hugging Face's or a GGUF file.

    Such a `config.json` names a type or a class of models. An old one may not, but stands beside weights, and has none
    of the words of ours.
    """
    if is_gguf(folder):
        return True
    folder = Path(folder)
    try:
        keys = sealed_json.read_json(folder / CONFIG).keys()
    except (OSError, sealed_json.DamagedError):
        return False
    if not keys.isdisjoint({"model_type", "architectures"}):
        return True
    is_ours = not keys.isdisjoint({"model", "run", sealed_json.SEAL}) or (folder / MANIFEST).exists()
    return not is_ours and has_weights(folder)


def read_config(folder: Path | str, *, families: Sequence[Family] = FAMILIES) -> Any:
    """Our config of the model in a folder of Hugging Face's or a GGUF file, without its weights."""
    with open_checkpoint(Path(folder), families) as opened:
        with explain_config(opened.path):
            config = opened.family.read(opened.settings, opened.tensors.keys())
        return with_pooling(config, Path(folder))


def labels_of(folder: Path | str, n_classes: int) -> tuple[str, ...]:
    """The names of the classes in a folder of Hugging Face's; their numbers where it has none."""
    named = read_json(Path(folder) / CONFIG).get("id2label")
    names = named if isinstance(named, dict) else {}
    return tuple(str(names.get(str(i), i)) for i in range(n_classes))


@dataclass(frozen=True)
class Opened:
    """What stands in a folder or a file: whose family it is, its settings, and its tensors, which are not read yet."""

    path: Path
    """The file with the settings."""
    family: Family
    settings: Mapping[str, object]
    tensors: Mapping[str, Stored]


@contextmanager
def open_checkpoint(folder: Path, families: Sequence[Family]) -> Iterator[Opened]:
    """A folder of Hugging Face's or a GGUF file, as long as the block lasts."""
    if is_gguf(folder):
        file = GgufFile(folder)
        yield Opened(folder, file.family, file.settings, file.tensors)
        return
    settings = read_settings(folder, families)
    family = find_family(settings, families)
    with open_weights(folder) as tensors:
        yield Opened(folder / CONFIG, family, settings, tensors)


def read_settings(folder: Path, families: Sequence[Family] = FAMILIES) -> dict[str, object]:
    """What config.json says, with the model_type that old ones leave to the names of the tensors."""
    settings = read_json(folder / CONFIG)
    if settings.get("model_type") is not None:
        return settings
    with open_weights(folder) as tensors, explain_config(folder / CONFIG):
        return with_model_type(settings, tensors.keys(), families)


# --- load ------------------------------------------------------------------------------------------------------------


def load_pretrained(
    folder: Path | str,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    families: Sequence[Family] = FAMILIES,
) -> nn.Module:
    """The model in a folder of Hugging Face's or a GGUF file, in `eval` mode, with the same numbers as there.

    Weights in 16 bits become float32 unless `dtype` says otherwise. Nothing in the folder is executed, and what is not
    understood is refused: a setting by its name, tensors that are missing, unknown or of another shape all in one list.
    A folder with a manifest, as those that `save_pretrained` writes, is verified.
    """
    folder = find_folder(folder)
    if (folder / MANIFEST).is_file():
        verify(folder)
    with open_checkpoint(folder, families) as opened:
        files = opened.tensors
        with explain_config(opened.path):
            config = opened.family.read(opened.settings, files.keys())
        note = note_of_class(opened, config)
        config = with_pooling(config, folder)
        with explain_config(opened.path):
            empty = config.build(device="meta")
        names, ours = opened.family.names(config).of_files(files), empty.state_dict()
        check_tensors(names, ours, files, folder)
        dtype = widest(files.values()) if dtype is None else dtype
        model = with_buffers(config, empty, dtype)
        model.load_state_dict(read_tensors(names, ours, files, dtype, folder), assign=True)
    if note:
        warnings.warn(f"{folder} {note}", LeftOutWarning, stacklevel=2)
    return model.to(device=device).eval()


def note_of_class(opened: Opened, config: Any) -> str | None:
    """What a folder holds or is said to be beside the model that is loaded from it; None if that is all."""
    names = opened.family.names(config).of_files(opened.tensors)
    left_out = [name for name in opened.tensors if names.is_left_out(name)]
    loaded, said = class_name(opened.family.config_to(config)) or opened.family.name, class_name(opened.settings)
    head = split_class(said or "")[1]
    same = bool(head) and split_class(loaded)[1].startswith(OLD_HEADS.get(head, head))
    if is_gguf(opened.path) or (same and not left_out):
        return None
    why = "" if same else ", as its tensors are" + (f", not as {said}" if said is not None else "")
    without = f", without the tensors {', '.join(left_out)}" if left_out else ""
    return f"is loaded as {loaded}{why}{without}"


def check_tensors(names: Names, ours: Mapping[str, Tensor], files: Mapping[str, Stored], folder: Path) -> None:
    """Raise unless the files hold what the model needs, and nothing else; nothing is read for it but the headers."""
    problems = []
    left = {name for name in files if not names.is_ignored(name) and not names.is_left_out(name)}
    for match in names.matches(ours):
        wanted = match.rule.write([ours[name] for name in match.ours])
        for name, tensor in zip(match.theirs, wanted, strict=True):
            found = names.find(name, files)
            if found is None:
                problems.append(f"{name} is missing")
                continue
            left -= {found, *names.copies_in(name, files)}
            if files[found].shape != tuple(tensor.shape):
                problems.append(f"{found} must have the shape {tuple(tensor.shape)}, got {files[found].shape}")
            if files[found].dtype is None:
                problems.append(f"{found} must hold real numbers of 16 bits or more")
    problems += [f"{name} is unknown" for name in sorted(left)]
    if problems:
        raise ValueError(f"{folder}: the tensors do not fit the settings: " + "; ".join(problems))


def widest(tensors: Iterable[Stored]) -> torch.dtype:
    return torch.float64 if any(tensor.dtype == torch.float64 for tensor in tensors) else torch.float32


def with_buffers(config: Any, empty: nn.Module, dtype: torch.dtype) -> nn.Module:
    """A model that waits for its weights: the empty one, or a whole one if it computes tables that no file has."""
    if has_all_numbers(empty):
        return empty
    default = torch.get_default_dtype()
    with torch.random.fork_rng(devices=[]):
        try:
            torch.set_default_dtype(torch.promote_types(dtype, torch.float32))  # tables are rounded once
            return config.build(dtype=dtype)
        finally:
            torch.set_default_dtype(default)


def read_tensors(
    names: Names, ours: Mapping[str, Tensor], files: Mapping[str, Stored], dtype: torch.dtype, folder: Path
) -> dict[str, Tensor]:
    """Our tensors, one after the other, each in this precision; those that are the same in the file are not copied."""
    read: dict[str, Tensor] = {}
    kept: set[str] = set()
    problems = []
    for match in names.matches(ours):
        found = [names.find(name, files) or name for name in match.theirs]
        keep = isinstance(match.rule, Same) and files[found[0]].dtype == dtype and found[0] not in kept
        kept |= {*found} if keep else set()
        theirs = [files[name].read(keep=keep) for name in found]
        for name, in_file, tensor in zip(match.theirs, found, theirs, strict=True):
            for copy in names.copies_in(name, files):
                if not torch.equal(files[copy].read(), tensor):
                    problems.append(f"{copy} must be equal to {in_file}, which the model has in its place")
        made = match.rule.read(theirs, [ours[name] for name in match.ours])
        for name, tensor in zip(match.ours, made, strict=True):
            # A transposed view of the file would save the copy, and make every token slower.
            read[name] = tensor if keep else tensor.to(dtype, copy=True, memory_format=torch.contiguous_format)
        if not all(is_finite(read[name]) for name in match.ours):
            problems.append(f"{', '.join(found)} must be finite in {str(dtype).removeprefix('torch.')}")
    if problems:
        raise ValueError(f"{folder}: " + "; ".join(problems))
    return read


# --- save ------------------------------------------------------------------------------------------------------------


def save_pretrained(
    model: nn.Module,
    folder: Path | str,
    *,
    like: Path | str | None = None,
    labels: Sequence[str] | None = None,
    families: Sequence[Family] = FAMILIES,
) -> None:
    """Write a model into a new folder that Hugging Face's `from_pretrained` opens.

    The first of the families that can say all that the model is gets it. `like` is a folder of the family you want: its
    tokenizer, its labels and the ids of its special tokens go along. `labels` are names for the classes. What was
    adapted by `hw.lora` is written merged.
    """
    model = merge_lora(model) if has_lora(model) else model
    also: dict[str, object] = {} if like is None else read_settings(Path(like), families)
    config = getattr(model, "config", None)
    if parts := getattr(model, "parts", {}):
        raise ValueError(f"model must be without parts of your own to be written for others, got {parts}")
    if isinstance(head := getattr(config, "head", None), choices.EmbeddingHead):
        raise ValueError(f"model must have a head that Hugging Face has, got {head}; save it with format='headwork'")
    candidates = families if like is None else [find_family(also, families)]
    candidates = [family for family in candidates if isinstance(config, family.config_class)]
    tensors = model.state_dict()
    settings, written = write_with(candidates, config, tensors, also, type(model).__name__)
    settings |= {} if labels is None else named_labels(labels, describe(model))
    dtypes = {tensor.dtype for tensor in written.values()}
    settings["dtype"] = str(next(iter(dtypes))).removeprefix("torch.")
    if len(dtypes) > 1:
        raise ValueError(f"model must be in one precision to be written for others, got {sorted(map(str, dtypes))}")
    with new_folder(Path(folder), sum(tensor.nbytes for tensor in written.values())) as staging:
        if like is not None:
            copy_along(Path(like), staging)
        (staging / CONFIG).write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        owned = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in written.items()}
        save_file(owned, staging / SAFETENSORS, metadata={"format": "pt"})
        (staging / SAFETENSORS).chmod(0o644)  # the library makes files that only their owner may read


def write_with(
    families: Iterable[Family], config: Any, tensors: Mapping[str, Tensor], also: Mapping[str, object], kind: str
) -> tuple[dict[str, object], dict[str, Tensor]]:
    """The settings and tensors of the first family that has a place for everything."""
    names: dict[str, list[str]] = {}
    for family in families:
        try:
            return write_as(family, config, tensors, also)
        except ValueError as error:
            names.setdefault(str(error).removeprefix(f"{family.name} {NO_PLACE} "), []).append(family.name)
    reasons = [
        f"{', '.join(those)} {NO_PLACE.replace('has', 'have') if len(those) > 1 else NO_PLACE} {why}"
        for why, those in names.items()
    ]
    raise ValueError(f"model must be of a family that others know, got {kind}: {'; '.join(reasons) or 'there is none'}")


def write_as(
    family: Family, config: Any, tensors: Mapping[str, Tensor], also: Mapping[str, object]
) -> tuple[dict[str, object], dict[str, Tensor]]:
    """The settings and tensors of this family; raise, with the settings first, for what it has no place for."""
    names = family.names(config)
    lost = names.without_rule(tensors)
    written = names.write({name: tensor for name, tensor in tensors.items() if name not in lost})
    settings = family.write(config, written.keys(), also)
    if lost:
        raise ValueError(f"{family.name} {NO_PLACE} {', '.join(lost)}")
    return settings, written


def named_labels(labels: Sequence[str], description: Description | None) -> dict[str, object]:
    """The names of the classes in a config.json."""
    has_classes = description is not None and description.output in ("class", "token class")
    n_classes = description.n_outputs if description is not None and has_classes else 0
    if len(labels) != n_classes or len(set(labels)) != n_classes:
        raise ValueError(f"labels must be {n_classes} different names, one for each class, got {list(labels)}")
    return {
        "id2label": {str(i): name for i, name in enumerate(labels)},
        "label2id": {n: i for i, n in enumerate(labels)},
    }


def copy_along(like: Path, folder: Path) -> None:
    for path in {path for pattern in ALONG for path in like.glob(pattern) if path.is_file()}:
        shutil.copyfile(path, folder / path.name)
