"""Folders that are whole or not there at all.

A folder is written under another name, flushed to the disk, and renamed in one step; a manifest with the SHA-256 of
every file is written last and compared when the folder is read. A process that is killed while writing leaves nothing
half done under the folder's name, and one flipped bit is found. Nothing is written through a link.
"""

import errno
import fcntl
import hashlib
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from headwork import __version__
from headwork.storage.sealed_json import DamagedError, read_json, sealed, unsealed

MANIFEST, LOCK = "manifest.json", ".lock"
FORMAT = 2
_held: set[tuple[int, int, int]] = set()
"""The folders that this process has locked, by process, device and inode: the system's locks keep out others only."""


@contextmanager
def new_folder(path: Path, n_bytes: int = 0) -> Iterator[Path]:
    """Write into the folder that is given; when the block ends well it becomes `path`, whole and checked.

    `n_bytes` is about how much will be written: a disk with less space is refused before anything is written.
    """
    if path.exists():
        raise _taken(path)
    staging = staging_path(path)
    try:
        with explain_disk_errors(path, n_bytes):
            make_folder(path.parent)
            check_free_space(path.parent, n_bytes)
            staging.mkdir()
            yield staging
            _seal(staging)
            try:
                staging.rename(path)
            except OSError:
                if path.exists():  # another thread or process was sooner
                    raise _taken(path) from None
                raise
            _flush(path.parent)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _taken(path: Path) -> ValueError:
    return ValueError(f"folder must be a new one, got {path}, which exists")


def staging_path(path: Path) -> Path:
    """A name beside `path` that no other process or thread writes to; if it is left over, `sweep` removes it."""
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")


def make_folder(path: Path) -> None:
    """Make a folder and those above it, and wait until the disk has them; there may be one already."""
    if not path.is_dir():
        make_folder(path.parent)
        path.mkdir(exist_ok=True)
        _flush(path.parent)


def is_leftover(path: Path) -> bool:
    """Whether it is a lock, or what a process that was killed left half written."""
    return path.name == LOCK or (path.name.startswith(".") and path.name.endswith(".part"))


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


def verify(folder: Path, needed: Iterable[str] = ()) -> None:
    """Raise unless every file of the folder is what the manifest says, and those that are needed are among them."""
    files = _read_manifest(folder)
    for name in needed:
        if name not in files:
            raise DamagedError(f"{folder / MANIFEST} is damaged: it must list {name}")
    for name, (n_bytes, sha256) in files.items():
        path = folder / name
        if not path.is_file():
            raise DamagedError(f"{path} is missing")
        size = path.stat().st_size
        if size != n_bytes:
            raise DamagedError(f"{path} is damaged: it has {size:,} bytes, and was written with {n_bytes:,}")
        if digest(path) != sha256:
            raise DamagedError(f"{path} is damaged: its SHA-256 is not that of the manifest")


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def replace_file(path: Path, text: str) -> None:
    """Write a file whole or not at all, over what is there."""
    staging = staging_path(path)
    try:
        with explain_disk_errors(path, len(text)):
            staging.write_bytes(text.encode())
            _flush(staging)
            staging.replace(path)
            _flush(path.parent)
    finally:
        staging.unlink(missing_ok=True)


def append_to_file(path: Path, text: str) -> None:
    """Write behind what is there, in one piece, and wait until the disk has it."""
    with explain_disk_errors(path, len(text)):
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        with os.fdopen(handle, "ab") as file:
            file.write(text.encode())
        _flush(path)


def link_file(source: Path, path: Path) -> None:
    """Let `path` be the same file as `source`, in one step; a copy where the disk knows no links."""
    staging = staging_path(path)
    try:
        with explain_disk_errors(path, source.stat().st_size):
            try:
                os.link(source, staging)
            except OSError:
                shutil.copyfile(source, staging)
            staging.replace(path)
    finally:  # renaming a file to another name of itself does nothing
        staging.unlink(missing_ok=True)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Make the folder if there is none, and let nobody else lock it while the block runs.

    The lock dies with its process, however that ends, and is not inherited by the processes it starts. Nothing is
    written through links, so a folder that holds one is refused.
    """
    with explain_disk_errors(folder):
        make_folder(folder)
        check_no_links(folder)
        key = (os.getpid(), folder.stat().st_dev, folder.stat().st_ino)
        if key in _held:  # before the file is opened: closing it would free the lock
            raise RuntimeError(f"this process is at work on {folder} already")
        handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
    try:
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):
            os.close(handle)
            raise RuntimeError(f"another process is at work on {folder}") from None
        # Some disks know no locks; then everybody is trusted.
    _held.add(key)
    try:
        yield
    finally:
        _held.discard(key)
        os.close(handle)


def check_no_links(folder: Path) -> None:
    """Raise if there is a symbolic link anywhere in the folder."""
    for root, folders, files in os.walk(folder):
        for path in (Path(root, name) for name in (*folders, *files)):
            if path.is_symlink():
                raise ValueError(f"run must hold no symbolic links, so that nothing outside is written, got {path}")


def _seal(folder: Path) -> None:
    files = sorted(path for path in folder.iterdir() if path.is_file())
    stated = {path.name: {"bytes": path.stat().st_size, "sha256": digest(path)} for path in files}
    manifest = {"format": FORMAT, "headwork": __version__, "torch": str(torch.__version__), "files": stated}
    # No newline at the end: whatever is cut off, it is not JSON any more.
    (folder / MANIFEST).write_text(sealed(manifest), encoding="utf-8")
    for path in (*files, folder / MANIFEST, folder):
        _flush(path)


def _read_manifest(folder: Path) -> dict[str, tuple[int, str]]:
    """The number of bytes and the SHA-256 of each file."""
    path = folder / MANIFEST
    if not path.exists():
        raise DamagedError(f"{folder} has no {MANIFEST}: it was not written to its end")
    stated = read_json(path)
    if stated.keys() == {"format", "files"} and stated["format"] == 1 and isinstance(stated["files"], dict):
        raise ValueError(
            f"{folder} was written by headwork 0.1 (format 1), and this version reads format {FORMAT}: names in models "
            "have changed since. Train the model again, or load it with headwork 0.1"
        )
    manifest = unsealed(stated, path)
    if manifest.get("format") != FORMAT:
        raise ValueError(
            f"{folder} was written by headwork {manifest.get('headwork')} in format {manifest.get('format')}, and this "
            f"version reads format {FORMAT}: load it with a newer headwork"
        )
    files = manifest.get("files")
    if not isinstance(files, dict) or not all(map(_is_entry, files.items())):
        raise DamagedError(f"{path} is damaged: it must list names of files in its folder, with their bytes and sha256")
    return {name: (stated["bytes"], stated["sha256"]) for name, stated in files.items()}


def _is_entry(item: tuple[str, object]) -> bool:
    name, stated = item
    is_stated = isinstance(stated, dict) and type(stated.get("bytes")) is int and isinstance(stated.get("sha256"), str)
    return is_stated and name != "" and name == Path(name).name and "\0" not in name


def _flush(path: Path) -> None:
    """Wait until the disk has it."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
