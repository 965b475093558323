"""The files of a folder."""

import os
from collections.abc import Iterator, Sequence
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
    for path in sorted(_visible_files(folder)):
        (below.found if path.suffix.lower() in endings else below.others).append(path)
    return below


def _visible_files(folder: Path) -> Iterator[Path]:
    """All files below a folder, through links too, but into no folder twice."""
    seen = set[tuple[int, int]]()
    for root, folders, files in os.walk(folder, followlinks=True):
        about = Path(root).stat()
        if (about.st_dev, about.st_ino) in seen:
            folders.clear()
            continue
        seen.add((about.st_dev, about.st_ino))
        folders[:] = [name for name in folders if not name.startswith(".")]
        paths = (Path(root, name) for name in files if not name.startswith("."))
        yield from (path for path in paths if path.is_file())
