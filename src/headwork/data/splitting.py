"""Which part of the data a file or an example belongs to."""

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from headwork.checks import check_not_negative, nearest
from headwork.data.examples import Split, take_apart
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


def part_of_file(path: Path, folder: Path) -> str | None:
    """The part that the name of a file says, or a folder between it and the `folder` of all; raise if they differ.

    >>> files = "train/0000.csv", "reviews_test.csv", "ptb.valid.txt", "trains/0000.csv"
    >>> [part_of_file(Path(name), Path()) for name in files]
    ['train', 'test', 'valid', None]
    """
    inside = path.relative_to(folder)
    said = {_part_in(name) for name in inside.parts} - {None}
    if len(said) > 1:
        which = " and ".join(part for part in SPLITS if part in said)
        raise ValueError(f"a file must name one part, got {inside.as_posix()}, which names {which}")
    return said.pop() if said else None


def _part_in(name: str) -> str | None:
    """The part that the first word says or, if it says none, the only part that is said by any."""
    words = set(re.split(r"[^a-z]+", name.lower()))
    found = [part for part, names in NAMES.items() if words & set(names)]
    return part_of(Path(name)) or (found[0] if len(found) == 1 else None)


def by_part(paths: Iterable[Path], folder: Path, *, leave_out: bool = False) -> dict[str, list[Path]]:
    """The paths of each part, if every one of them names a part; an empty dict if none does.

    Where some name a part and others do not, these are an error, or left out.
    """
    paths = sorted(paths)
    parts = {path: part_of_file(path, folder) for path in paths}
    named = {path: part for path, part in parts.items() if part is not None}
    if not named:
        return {}
    if len(named) < len(paths) and not leave_out:
        one, other = next(iter(named)), next(path for path in paths if parts[path] is None)
        raise ValueError(
            f"all files of {folder} must name a part (train, valid or dev, test), or none, got "
            f"{one.relative_to(folder).as_posix()} beside {other.relative_to(folder).as_posix()}"
        )
    found: dict[str, list[Path]] = {}
    for path, part in named.items():
        found.setdefault(part, []).append(path)
    return {part: found[part] for part in SPLITS if part in found}


def files_by_part(
    files: Sequence[Path], root: Path, *, leave_out: bool = False
) -> tuple[dict[str, list[Path]], list[Path]]:
    """The files of each part (that of files which name none is ""), and those that are left out; `root` may be one."""
    if not root.is_dir():
        return {"": [root]}, []
    parts = by_part(files, root, leave_out=leave_out) or {"": sorted(files)}
    used = {file for of_part in parts.values() for file in of_part}
    return parts, [file for file in files if file not in used]


def share_out(
    labels: Sequence[int], keys: Sequence[Hashable], given: Sequence[str | None], shares: HeldOut, seed: int
) -> Split:
    """The indices of each part: what the data says, and for the rest of `train` a seeded split of the missing parts.

    Each part has each label in the same share as far as that can be, while examples with the same key (duplicates) are
    all on one side: that of training, if they are many. Every label is in the training part.

    >>> split = share_out([0, 1] * 10, list("aabbcdefghijklmnopqr"), [None] * 20, HeldOut(0.2, 0.2), seed=0)
    >>> [len(part) for part in split], any({0, 1} <= set(part) for part in split)
    ([12, 4, 4], True)
    """
    check_not_negative(split_seed=seed)
    held_out = {part: [i for i, each in enumerate(given) if each == part] for part in HeldOut._fields}
    rest = [i for i, part in enumerate(given) if part in (None, "train")]
    missing = [part for part in ("test", "valid") if not held_out[part]]
    if not rest:
        check_part_to_train_on([part for part, indices in held_out.items() if indices])
    if not missing:
        return Split(rest, held_out["valid"], held_out["test"])
    groups = _groups(rest, keys)
    of_group = np.array([Counter(labels[i] for i in group).most_common(1)[0][0] for group in groups])
    n_labels = len({labels[i] for i in rest})
    _check_enough(len(rest), len(groups), n_labels, missing, shares)
    sizes = np.array(list(map(len, groups))) if len(groups) < len(rest) else None
    left, chosen = np.arange(len(groups)), dict[str, list[int]]()
    for n_after, part in zip((len(missing), 1), missing, strict=False):  # parts that are still to be filled
        n_taken = _n_taken(part, shares, len(rest), n_labels)
        left, taken = take_apart(of_group, left, n_taken, seed, sizes, n_after)
        chosen[part] = taken.tolist()
    learned = {labels[i] for group in left for i in groups[group]}
    for part, of_part in chosen.items():
        members = [groups[group] for group in of_part]
        held_out[part] = sorted(i for group in members if learned >= {labels[i] for i in group} for i in group)
    elsewhere = {i for part in missing for i in held_out[part]}
    return Split([i for i in rest if i not in elsewhere], held_out["valid"], held_out["test"])


def check_part_to_train_on(parts: Collection[str]) -> None:
    if "train" not in parts:
        raise ValueError(f"data must have a part to train on, got {' and '.join(parts)} only")


def _groups(indices: Iterable[int], keys: Sequence[Hashable]) -> list[list[int]]:
    """The indices of each key."""
    members: dict[Hashable, list[int]] = {}
    for i in indices:
        members.setdefault(keys[i], []).append(i)
    return list(members.values())


def _n_taken(part: str, shares: HeldOut, n_examples: int, n_labels: int) -> int:
    return max(n_labels, round(getattr(shares, part) * n_examples))


def _check_enough(n_examples: int, n_different: int, n_labels: int, missing: Sequence[str], shares: HeldOut) -> None:
    """Raise if the parts that are missing cannot have examples of each label."""
    for part in missing:
        if not getattr(shares, part):
            raise ValueError(f"{part}_share must be more than 0, since the data has no part {part}, got 0")
    n_parts = len(missing) + 1
    if n_different < n_parts * n_labels:
        of_each = f" of each of the {n_labels} classes" if n_labels > 1 else ""
        raise ValueError(
            f"there must be {n_parts} or more different examples{of_each}, one for each part, "
            f"got {n_different} different examples"
        )
    if n_examples - sum(_n_taken(part, shares, n_examples, n_labels) for part in missing) < n_labels:
        names = " and ".join(f"{part}_share" for part in sorted(missing, reverse=True))
        values = " and ".join(f"{getattr(shares, part):g}" for part in sorted(missing, reverse=True))
        raise ValueError(f"{names} must leave {n_labels} or more of {n_examples} examples to train on, got {values}")


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
