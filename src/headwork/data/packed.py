"""Files that may be packed by gzip: their first bytes say so, whatever they are called."""

import gzip
import io
import zlib
from pathlib import Path
from typing import Any

PACKED = ".gz"
GZIP = b"\x1f\x8b"
LARGEST_UNPACKED, MOST_UNPACKED = 2**30, 1000
"""Bytes in a packed file: so many, or so many times those of the file."""


def ending_of(path: Path) -> str:
    """How the name of a file ends, in lower case; of a packed one, how it ends without that.

    >>> [ending_of(Path(name)) for name in ("reviews.CSV", "reviews.csv.gz", "reviews.gz")]
    ['.csv', '.csv', '']
    """
    ending = path.suffix.lower()
    return Path(path.stem).suffix.lower() if ending == PACKED else ending


def open_bytes(path: Path) -> io.BufferedReader:
    """The bytes of a file; of one that gzip has packed, those in it."""
    with path.open("rb") as file:
        is_packed = file.read(2) == GZIP
    return io.BufferedReader(_Unpacked(path)) if is_packed else path.open("rb")


class _Unpacked(io.RawIOBase):
    """The bytes in a packed file; raise if it is broken, or if what is in it would never end."""

    def __init__(self, path: Path) -> None:
        self.path, self.n_packed, self.n_read = path, path.stat().st_size, 0
        self.most = max(LARGEST_UNPACKED, MOST_UNPACKED * self.n_packed)
        self.file = gzip.GzipFile(path)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            n = self.file.readinto(buffer)
        except (OSError, EOFError, zlib.error) as error:
            raise ValueError(f"data must be a gzip file that can be read, got {self.path} ({error})") from None
        self.n_read += n
        if self.n_read > self.most:
            raise ValueError(
                f"data must have at most {self.most:,} bytes when it is unpacked, got more in {self.path}, "
                f"which has {self.n_packed:,}"
            )
        return n

    def close(self) -> None:
        self.file.close()
        super().close()
