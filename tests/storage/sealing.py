"""Folders that were changed on purpose, with a manifest that is right again: what a hostile folder looks like."""

from pathlib import Path

from headwork.storage.folders import MANIFEST, _seal


def seal_again(folder: Path) -> None:
    (folder / MANIFEST).unlink(missing_ok=True)
    _seal(folder)
