"""Data sets that everyone knows: where they are on this machine or, if nowhere, fetched from their home.

They are in the folder that is given (`--data-dir`); without one they are looked for in the folder that HEADWORK_DATA
names, and in the cache.
"""

import fcntl
import gzip
import hashlib
import os
import shutil
import sys
import tarfile
import threading
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from headwork.data.found import say_published
from headwork.data.mapped_tokens import cache_folder
from headwork.processes import is_first_process
from headwork.storage.folders import explain_disk_errors

FOLDER = "HEADWORK_DATA"
BLOCK = 2**20
TIMEOUT = 30
SAID_EVERY = 5.0
"""Seconds between the lines about a download."""
_ONE_THREAD = threading.Lock()
"""The system's locks keep out other processes only."""


class WrongFileError(RuntimeError):
    """What came is not the file that was asked for."""


@dataclass(frozen=True)
class Remote:
    """A file at its home: what its checksum is ("md5:..." or "sha256:..."), and its size in bytes.

    Of an archive, `members` are kept, each under its own name; any other file is kept as it comes, unpacked if it is a
    .gz whose checksum and size are those of its contents.
    """

    url: str
    checksum: str
    n_bytes: int | None = None
    members: tuple[str, ...] = ()
    unpacked: bool = False

    @property
    def name(self) -> str:
        name = self.url.rpartition("/")[2]
        return name.removesuffix(".gz") if self.unpacked else name


@dataclass(frozen=True)
class KnownSet:
    """A data set: the names of its folder, the files that must be there, and where they come from."""

    name: str
    folders: tuple[str, ...]
    files: tuple[str, ...]
    remotes: tuple[Remote, ...]
    packed: bool = False
    """Whether its files are read as they are packed, NAME.gz."""

    def find(self, directory: str | None = None) -> Path:
        """The folder with its files, fetched if there is none."""
        here = self.find_here(directory)
        return here if here is not None else self.fetch(directory)

    def find_here(self, directory: str | None) -> Path | None:
        for root in self._roots(directory):
            for folder in (root, *(root / name for name in self.folders), *root.glob(f"*/{self.folders[0]}")):
                if all(self._is_there(folder / name) for name in self.files):
                    return folder
        return None

    def fetch(self, directory: str | None) -> Path:
        """Bring the files to the last of the places where they are looked for."""
        if directory is not None:
            raise ValueError(
                f"data-dir must be a folder with {self.name}, in it or in its folder {' or '.join(self.folders)}, "
                f"got {self._why_not(Path(directory))}"
            )
        folder = list(self._roots(None))[-1] / self.folders[0]
        homes = ", ".join(remote.url for remote in self.remotes)
        what_to_do = (
            f"Bring {homes} to {folder} (unpacked, if it is an archive), or say where it is by --data-dir or {FOLDER}"
        )
        try:
            with _alone(folder):
                for remote in self.remotes:
                    if not all(self._is_there(folder / name) for name in remote.members or (remote.name,)):
                        fetch(remote, folder, self.name)
        except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
            reason = getattr(error, "reason", error)
            raise ConnectionError(
                f"{self.name} is not on this machine, and cannot be fetched ({reason}). {what_to_do}"
            ) from None
        except WrongFileError as error:
            raise WrongFileError(f"{self.name} is not on this machine, and {error}. {what_to_do}") from None
        return folder

    def _roots(self, directory: str | None) -> Iterator[Path]:
        if directory is not None:
            yield Path(directory)
            return
        if os.environ.get(FOLDER):
            yield Path(os.environ[FOLDER])
        yield cache_folder() / "data"

    def _why_not(self, root: Path) -> str:
        if not root.is_dir():
            return f"{root}, which is no folder"
        folder = next((root / name for name in self.folders if (root / name).is_dir()), root)
        return f"{folder}, which has no {next(name for name in self.files if not self._is_there(folder / name))}"

    def say_differences(self, folder: Path) -> list[str]:
        """The files that are not as long as those at their home, where these come one by one and unpacked."""
        sizes = {remote.name: remote.n_bytes for remote in self.remotes if not remote.members and not self.packed}
        notes = (
            say_published("bytes", n_bytes, (folder / name).stat().st_size, name)
            for name, n_bytes in sizes.items()
            if n_bytes is not None
        )
        return [note for note in notes if note]

    def _is_there(self, path: Path) -> bool:
        return path.is_file() or (self.packed and path.with_name(f"{path.name}.gz").is_file())


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Wait until no other process and no other thread fetches to the folder."""
    with _ONE_THREAD:
        with explain_disk_errors(folder.parent):
            folder.parent.mkdir(parents=True, exist_ok=True)
            handle = folder.with_name(f".{folder.name}.lock").open("w", encoding="utf-8")
        with handle:
            with suppress(OSError):  # some disks know no locks
                fcntl.lockf(handle, fcntl.LOCK_EX)
            yield


def fetch(remote: Remote, folder: Path, what: str = "") -> None:
    """Fetch a file into a folder: go on where an earlier try ended, verify it, and only then give it its name."""
    with explain_disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    part = folder / f".{remote.url.rpartition('/')[2]}.part"
    unpacked = part.with_suffix(".unpacked")
    _download(remote, part, what or remote.name)
    try:
        if remote.members:
            _check(part, remote)
            _unpack_members(part, remote, folder)
        else:
            if remote.unpacked:
                _unpack(part, remote, unpacked)
            done = unpacked if remote.unpacked else part
            _check(done, remote)
            done.replace(folder / remote.name)
    finally:  # what is whole and wrong must not be continued
        part.unlink(missing_ok=True)
        unpacked.unlink(missing_ok=True)


def _download(remote: Remote, part: Path, what: str) -> None:
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(remote.url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        answer = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code == 416:  # all of it was there
            return
        raise
    with answer:
        goes_on = have and answer.status == 206
        length = answer.headers.get("Content-Length")
        wanted = None if length is None else int(length) + (have if goes_on else 0)
        _say(f"fetching {what} from {remote.url}{'' if wanted is None else f', {_megabytes(wanted)}'}")
        with part.open("ab" if goes_on else "wb") as file:
            said = time.monotonic()
            while block := answer.read(BLOCK):
                file.write(block)
                if time.monotonic() - said > SAID_EVERY:
                    said = time.monotonic()
                    _say(f"{_megabytes(file.tell())}{'' if wanted is None else f' of {_megabytes(wanted)}'}")
    if wanted is not None and part.stat().st_size < wanted:
        raise ConnectionError(f"the connection ended after {part.stat().st_size:,} of {wanted:,} bytes; try again")


def _say(text: str) -> None:
    """To whoever waits for the download, once if many processes do."""
    if is_first_process():
        print(text, file=sys.stderr, flush=True)  # noqa: T201


def _megabytes(n_bytes: int) -> str:
    """The size of a file.

    >>> _megabytes(170_052_171), _megabytes(4_542)
    ('170.1 MB', '0.0 MB')
    """
    return f"{n_bytes / 1e6:,.1f} MB"


def _check(path: Path, remote: Remote) -> None:
    """Raise unless the file is what it must be."""
    kind, _, wanted = remote.checksum.partition(":")
    if remote.n_bytes is not None and path.stat().st_size != remote.n_bytes:
        raise WrongFileError(
            f"{remote.url} must have {remote.n_bytes:,} bytes, got {path.stat().st_size:,}: nothing is kept of it"
        )
    with path.open("rb") as file:
        found = hashlib.file_digest(file, kind).hexdigest()
    if found != wanted:
        raise WrongFileError(f"{remote.url} must have the {kind} {wanted}, got {found}: nothing is kept of it")


def _unpack(packed: Path, remote: Remote, path: Path) -> None:
    """The contents of a .gz; raise if it is none, or ends too early."""
    try:
        with gzip.open(packed, "rb") as content, path.open("wb") as file:
            shutil.copyfileobj(content, file)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        with packed.open("rb") as file:
            beginning = file.read(20)
        raise WrongFileError(
            f"{remote.url} must be a whole .gz file, got one that begins with {beginning!r} and cannot be unpacked "
            f"({error}): nothing is kept of it"
        ) from None


def _unpack_members(archive: Path, remote: Remote, folder: Path) -> None:
    """Only the files that are wanted, each whole or not at all."""
    with tarfile.open(archive, "r:gz") as tar:
        members = {member.name.rpartition("/")[2]: member for member in tar.getmembers() if member.isfile()}
        for name in remote.members:
            source: IO[bytes] | None = tar.extractfile(members[name])
            assert source is not None
            staging = folder / f".{name}.part"
            with source, staging.open("wb") as file:
                shutil.copyfileobj(source, file, BLOCK)
            staging.replace(folder / name)
