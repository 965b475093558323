"""Which part of the data a file or an example belongs to."""

import hashlib
import re
from collections.abc import Hashable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from headwork.checks import nearest
from headwork.data.examples import Split, split_by_label
from headwork.metric import SPLITS

NAMES = {"train": ("train", "training"), "valid": ("valid", "validation", "val", "dev"), "test": ("test", "testing")}
"""What people call the parts, in the names of files and folders."""
T = TypeVar("T")


class HeldOut(NamedTuple):
    """The shares of the examples that are held out, where the data does not say."""

    valid: float = 0.1
    test: float = 0.1


def part_of(path: Path) -> str | None:
    """The part that the name of a file or folder says.

    >>> [part_of(Path(name)) for name in ("train-00000-of-00002.parquet", "test_2016_flickr.en", "dev.tsv", "Trains")]
    ['train', 'test', 'valid', None]
    """
    words = re.split(r"[^a-z]+", path.name.lower())
    found = [part for part, names in NAMES.items() if words[0] in names]
    return found[0] if found else None


def by_part(paths: Iterable[Path], folder: Path) -> dict[str, list[Path]]:
    """The paths of each part, if every one of them names a part; an empty dict if none does."""
    paths = sorted(paths)
    parts = {path: part_of(path) for path in paths}
    named = {path: part for path, part in parts.items() if part is not None}
    if not named:
        return {}
    if len(named) < len(paths):
        other = next(path.name for path in paths if parts[path] is None)
        raise ValueError(
            f"all files of {folder} must name a part (train, valid or dev, test), or none, got "
            f"{next(iter(named)).name} beside {other}"
        )
    found: dict[str, list[Path]] = {}
    for path, part in named.items():
        found.setdefault(part, []).append(path)
    if "train" not in found:
        raise ValueError(f"{folder} must have a part to train on, got {', '.join(found)} only")
    return {part: found[part] for part in SPLITS if part in found}


def share_out(
    labels: Sequence[int], keys: Sequence[Hashable], given: Sequence[str | None], shares: HeldOut, seed: int
) -> Split:
    """The indices of each part: what the data says, and for the rest of `train` a seeded split of the missing parts.

    Each part has each label in the same share, and examples with the same key (duplicates) are all on one side.

    >>> split = share_out([0, 1] * 10, list("aabbcdefghijklmnopqr"), [None] * 20, HeldOut(0.2, 0.2), seed=0)
    >>> [len(part) for part in split], any({0, 1} <= set(part) for part in split)
    ([11, 4, 5], True)
    """
    held_out: dict[str, list[int]] = {
        part: [i for i, each in enumerate(given) if each == part] for part in ("valid", "test")
    }
    rest = [i for i, part in enumerate(given) if part in (None, "train")]
    missing = [part for part in ("valid", "test") if not held_out[part]]
    if not missing:
        return Split(rest, held_out["valid"], held_out["test"])
    members: dict[Hashable, list[int]] = {}
    for i in rest:
        members.setdefault(keys[i], []).append(i)
    groups = list(members.values())
    of_group = [labels[group[0]] for group in groups]
    n_labels = len(set(of_group))
    sizes = {
        part: max(n_labels, round(share * len(groups))) if part in missing else 0
        for part, share in zip(("valid", "test"), shares, strict=True)
    }
    if sum(sizes.values()) + n_labels > len(groups):
        raise ValueError(
            f"there must be {len(missing) + 1} or more different examples of each of the {n_labels} classes, "
            f"one for each part, got {len(groups)} different examples"
        )
    if len(missing) == 2:
        split = split_by_label(of_group, sizes["valid"], sizes["test"], seed)
        chosen = {"valid": split.valid, "test": split.test}
    else:
        chosen = {missing[0]: _take(of_group, sizes[missing[0]], seed)}
    taken = {index for part in chosen.values() for index in part}
    for part, indices in chosen.items():
        held_out[part] = sorted(i for index in indices for i in groups[index])
    train = sorted(i for index, group in enumerate(groups) if index not in taken for i in group)
    return Split(train, held_out["valid"], held_out["test"])


def _take(labels: Sequence[int], n: int, seed: int) -> list[int]:
    """So many of the indices, each label in the same share."""
    from headwork.data.examples import take_apart

    _, taken = take_apart(np.asarray(labels), np.arange(len(labels)), n, seed)
    return sorted(taken.tolist())


def digest_of(files: Iterable[Path], root: Path) -> str:
    """A hash of the names and contents of files, so that a run notices when they change."""
    found = hashlib.sha256()
    for path in sorted(files):
        name = path.relative_to(root).as_posix() if path != root else path.name
        found.update(f"{name} {path.stat().st_size}\n".encode())
        with path.open("rb") as file:
            found.update(hashlib.file_digest(file, "sha256").digest())
    return found.hexdigest()


def check_exists(path: Path, what: str = "data") -> Path:
    if not path.exists():
        beside = [each.name for each in path.parent.iterdir()] if path.parent.is_dir() else []
        hint = nearest(path.name, beside) if beside and len(beside) < 50 else ""
        raise ValueError(f"{what} must be a file or folder that exists, got {path}{hint}")
    return path
