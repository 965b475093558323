"""Texts from the user: read, and what a model does not know of them is said, not dropped in silence."""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwork.data import Tokenizer


def lines_of_stdin() -> Iterator[str]:
    """Line by line as they come, without their ends."""
    try:
        for line in sys.stdin:
            line.encode()  # some locales let through what is not a character
            yield line.rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise _not_utf8(error.object[error.start]) from None
    except UnicodeEncodeError as error:
        raise _not_utf8(ord(error.object[error.start]) & 0xFF) from None


def _not_utf8(byte: int) -> ValueError:
    return ValueError(f"stdin must be UTF-8, got the byte 0x{byte:02x}")


def warn_of_unknown(tokenizer: "Tokenizer", text: str) -> None:
    """Name the characters or words of a text that the model was never shown."""
    n_unknown = tokenizer.encode(text).count(tokenizer.unknown)
    if n_unknown:
        print(f"headwork: {n_unknown} tokens of {text[:40]!r} are not known to the model", file=sys.stderr)
