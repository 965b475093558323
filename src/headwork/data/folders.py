"""The files of a folder."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple


class FilesBelow(NamedTuple):
    """The files in a folder and in the folders below it that end as asked, and the others."""

    found: list[Path]
    others: list[Path]


def files_below(folder: Path, endings: Sequence[str]) -> FilesBelow:
    """The files that have one of the endings and those that do not, by name; hidden ones are neither.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> for name in ("b.PNG", "a.png", "notes.txt", ".hidden.png"): (folder / name).touch()
    >>> [[path.name for path in paths] for paths in files_below(folder, (".png",))]
    [['a.png', 'b.PNG'], ['notes.txt']]
    """
    below = FilesBelow([], [])
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts):
            (below.found if path.suffix.lower() in endings else below.others).append(path)
    return below
