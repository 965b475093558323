"""One process at a time writes into a folder."""

import errno
import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headwork.storage.folders import explain_disk_errors

LOCK = ".lock"


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
