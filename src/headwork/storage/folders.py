"""Folders that are whole or not there at all.

A folder is written under another name, flushed to the disk, and renamed in one step; a manifest with the SHA-256 of
every file is written last and compared when the folder is read. A process that is killed while writing leaves nothing
half done under the folder's name, and one flipped bit is found.
"""

import errno
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

from headwork import __version__
from headwork.checks import LARGEST_JSON, check_file

MANIFEST, LOCK = "manifest.json", ".lock"
FORMAT = 2


class DamagedError(RuntimeError):
    """A folder is not as it was written."""


@contextmanager
def new_folder(path: Path, n_bytes: int = 0) -> Iterator[Path]:
    """Write into the folder that is given; when the block ends well it becomes `path`, whole and checked.

    `n_bytes` is about how much will be written: a disk with less space is refused before anything is written.
    """
    if path.exists():
        raise ValueError(f"folder must be a new one, got {path}, which exists")
    staging = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with explain_disk_errors(path, n_bytes):
            path.parent.mkdir(parents=True, exist_ok=True)
            check_free_space(path.parent, n_bytes)
            shutil.rmtree(staging, ignore_errors=True)
            staging.mkdir()
            yield staging
            _seal(staging)
            staging.rename(path)
            _flush(path.parent)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def sweep(folder: Path) -> None:
    """Remove what a process that was killed left half written; nobody else may be writing here."""
    for path in folder.glob(".*.part"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


@contextmanager
def explain_disk_errors(path: Path, n_bytes: int = 0) -> Iterator[None]:
    """Let an error of the disk say what could not be written, and how many bytes that needs."""
    try:
        yield
    except OSError as error:
        needed = f" ({n_bytes:,} bytes are needed)" if n_bytes else ""
        raise OSError(error.errno, f"cannot write {path}{needed}: {error.strerror or error}") from error


def check_free_space(folder: Path, n_bytes: int) -> None:
    """Raise unless the disk has so many bytes free, and a little more."""
    free = shutil.disk_usage(folder).free
    if free < n_bytes + 2**20:
        raise OSError(errno.ENOSPC, f"{free:,} bytes are free", str(folder))


def verify(folder: Path) -> None:
    """Raise unless every file of the folder is what the manifest says."""
    files = _read_manifest(folder)
    for name, stated in files.items():
        path = folder / name
        if not path.is_file():
            raise DamagedError(f"{path} is missing")
        size = path.stat().st_size
        if size != stated["bytes"]:
            raise DamagedError(f"{path} is damaged: it has {size:,} bytes, and was written with {stated['bytes']:,}")
        if digest(path) != stated["sha256"]:
            raise DamagedError(f"{path} is damaged: its SHA-256 is not that of the manifest")


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def replace_file(path: Path, text: str) -> None:
    """Write a file whole or not at all, over what is there."""
    staging = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with explain_disk_errors(path, len(text)):
            staging.write_text(text, encoding="utf-8")
            _flush(staging)
            staging.replace(path)
            _flush(path.parent)
    finally:
        staging.unlink(missing_ok=True)


def append_to_file(path: Path, text: str) -> None:
    """Write behind what is there, and wait until the disk has it."""
    with explain_disk_errors(path, len(text)):
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
        _flush(path)


def link_file(source: Path, path: Path) -> None:
    """Let `path` be the same file as `source`, in one step; a copy where the disk knows no links."""
    staging = path.with_name(f".{path.name}.{os.getpid()}.part")
    staging.unlink(missing_ok=True)
    with explain_disk_errors(path, source.stat().st_size):
        try:
            os.link(source, staging)
        except OSError:
            shutil.copyfile(source, staging)
        staging.replace(path)
        staging.unlink(missing_ok=True)  # renaming a file to another name of itself does nothing


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Make the folder if there is none, and let nobody else lock it while the block runs.

    The lock dies with its process, however that ends, and is not inherited by the processes it starts.
    """
    with explain_disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / LOCK).open("w")
    with file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise RuntimeError(f"another process is at work on {folder}") from None
            # Some disks know no locks; then everybody is trusted.
        yield


def _seal(folder: Path) -> None:
    files = sorted(path for path in folder.iterdir() if path.is_file())
    stated = {path.name: {"bytes": path.stat().st_size, "sha256": digest(path)} for path in files}
    manifest = {"format": FORMAT, "headwork": __version__, "torch": version("torch"), "files": stated}
    # No newline at the end: whatever is cut off, it is not JSON any more.
    (folder / MANIFEST).write_text(json.dumps(manifest | {"sha256": _digest_of(manifest)}), encoding="utf-8")
    for path in (*files, folder / MANIFEST, folder):
        _flush(path)


def _read_manifest(folder: Path) -> dict[str, dict[str, object]]:
    path = folder / MANIFEST
    if path.exists():
        check_file(path, MANIFEST, LARGEST_JSON)
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DamagedError(f"{folder} has no {MANIFEST}: it was not written to its end") from None
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"{path} is damaged: {error}") from None
    is_old = isinstance(manifest, dict) and manifest.keys() == {"format", "files"} and manifest["format"] == 1
    if is_old and isinstance(manifest["files"], dict):
        raise ValueError(
            f"{folder} was written by headwork 0.1 (format 1), and this version reads format {FORMAT}: names in models "
            "have changed since. Train the model again, or load it with headwork 0.1"
        )
    if not isinstance(manifest, dict) or manifest.pop("sha256", None) != _digest_of(manifest):
        raise DamagedError(f"{path} is damaged: its SHA-256 is not the one it states")
    if manifest["format"] != FORMAT:
        raise ValueError(
            f"{folder} was written by headwork {manifest['headwork']} in format {manifest['format']}, and this version "
            f"reads format {FORMAT}: load it with a newer headwork"
        )
    return manifest["files"]


def _digest_of(manifest: dict[str, object]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _flush(path: Path) -> None:
    """Wait until the disk has it."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
