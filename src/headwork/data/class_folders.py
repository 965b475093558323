"""Images or texts in a folder for each class, or in such folders for each part."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from headwork.data.folders import files_below
from headwork.data.found import say_skipped
from headwork.data.splitting import by_part, part_of


class FilesByClass(NamedTuple):
    """The files of a folder, the class and the part of each, and what belongs to no class."""

    files: list[Path]
    names: list[str]
    given: list[str | None]
    others: list[Path]
    """Files of another kind."""
    without_class: list[Path]
    """Files beside the folders of the classes."""
    kind: str
    """What the files are: images or texts."""

    def skipped(self) -> list[str]:
        """What is left out, in lines to be shown."""
        kinds = (
            (self.others, f"files that are no {self.kind}"),
            (self.without_class, f"{self.kind} that are in no folder of a class"),
        )
        return [line for paths, what in kinds if (line := say_skipped(len(paths), what, str(next(iter(paths), ""))))]


def find_classes(root: Path, endings: Sequence[str], kind: str) -> FilesByClass:
    """The files in the folders of the classes, or of the classes of each part; raise for an empty class."""
    if not root.is_dir():
        raise ValueError(f"data must be a folder with a folder of {kind} for each class, got the file {root}")
    folders = _subfolders(root)
    if not folders:
        raise ValueError(f"data must be a folder with a folder of {kind} for each class, got no folder in {root}")
    files, others = files_below(root, endings)
    parts = _folders_of_parts(root, folders, files, kind)
    inside: dict[Path, list[Path]] = {folder: [] for of_part in parts.values() for folder in of_part}
    found = FilesByClass([], [], [], others, [], kind)
    depth = len(root.parts) + (1 if "" in parts else 2)
    for path in files:
        inside.get(Path(*path.parts[:depth]), found.without_class).append(path)
    for part, classes in parts.items():
        for folder in classes:
            if not inside[folder]:
                raise ValueError(f"every class must have {kind} ({', '.join(endings)}), got none in {folder}")
            found.files.extend(inside[folder])
            found.names.extend([folder.name] * len(inside[folder]))
            found.given.extend([part or None] * len(inside[folder]))
    return found


def _folders_of_parts(root: Path, folders: Sequence[Path], files: Sequence[Path], kind: str) -> dict[str, list[Path]]:
    """The class folders of each part; of the part "", if no part is named; raise if that cannot be told.

    A folder is a part if its name says so and it has folders in it: a class may be called `train`.
    """
    named = [folder for folder in folders if part_of(folder) is not None]
    nested = [folder for folder in named if _subfolders(folder)]
    if not nested and len(named) < len(folders):
        return {"": list(folders)}
    with_files = {Path(*path.parts[: len(root.parts) + 1]) for path in files}
    for folder in folders:
        if folder not in nested and folder in with_files:
            rule = f"the parts (train, valid or dev, test), each with a folder of {kind} for each class, or the classes"
            beside = f" beside {nested[0].name}" if nested else ""
            what = f"has {kind} and no folders" if folder in named else "names no part"
            raise ValueError(f"the folders of {root} must be {rule}, got {folder.name}{beside}, which {what}")
    return {
        part: [each for path in paths for each in _subfolders(path)] for part, paths in by_part(nested, root).items()
    }


def _subfolders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
