"""The files of a folder."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from headwork.data.packed import ending_of


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
    for path in sorted(_visible_files(folder, frozenset())):
        is_found = ending_of(path) in endings and path.is_file()  # a link may lead nowhere
        (below.found if is_found else below.others).append(path)
    return below


def _visible_files(folder: Path, above: frozenset[tuple[int, int]]) -> Iterator[Path]:
    """All files below a folder, through links too, but not through one that leads back up."""
    about = folder.stat()
    here = about.st_dev, about.st_ino
    if here in above:
        return
    for path in folder.iterdir():
        if path.name.startswith("."):
            continue
        if path.is_dir():
            yield from _visible_files(path, above | {here})
        else:
            yield path
