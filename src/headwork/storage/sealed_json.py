"""JSON that carries its own check: the manifest of a folder, the config of a run, the lines of a log."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headwork.checks import check_file

SEAL = "sha256"
LARGEST_JSON, LARGEST_TEXT = 2**24, 2**28
"""Bytes that are read at once: no file of ours comes near it, and what a device gives has no end."""


class DamagedError(RuntimeError):
    """A file or a folder is not as it was written."""


def sealed(data: Mapping[str, object], indent: int | None = None) -> str:
    """The object as JSON, with its SHA-256 as the last of its keys.

    There is no newline at the end: whatever is cut off, it is not JSON any more.
    """
    return json.dumps({**data, SEAL: _digest_of(data)}, indent=indent, allow_nan=False)


def unsealed(data: Mapping[str, object], where: object) -> dict[str, Any]:
    """The object without its seal; raise if it is not what was sealed."""
    bare = {key: value for key, value in data.items() if key != SEAL}
    if SEAL not in data:
        raise DamagedError(f"{where} is damaged: it must state its {SEAL}, which is missing")
    try:
        is_whole = data[SEAL] == _digest_of(bare)
    except RecursionError:
        is_whole = False
    if not is_whole:
        raise DamagedError(f"{where} is damaged: its SHA-256 is not the one it states")
    return bare


def read_json(path: Path) -> dict[str, Any]:
    return parse_json(read_text(path, LARGEST_JSON), path)


def parse_json(text: str, where: object) -> dict[str, Any]:
    """The object that a text holds."""
    data = _parse(text, where)
    if not isinstance(data, dict):
        raise DamagedError(f"{where} is damaged: it must hold an object, got {type(data).__name__}")
    return data


def parse_list(text: str, where: object) -> list[Any]:
    """The list that a text holds, in files of others."""
    data = _parse(text, where)
    if not isinstance(data, list):
        raise DamagedError(f"{where} is damaged: it must hold a list, got {type(data).__name__}")
    return data


def _parse(text: str, where: object) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"{where} is damaged: {error}") from None


def read_text(path: Path, most: int = LARGEST_TEXT) -> str:
    """The text of a file on a disk, which must be there; a pipe or a device may never end."""
    try:
        check_file(path, path.name, most)
    except ValueError as error:
        raise DamagedError(str(error)) from None
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise DamagedError(f"{path} is damaged: {error}") from None


def _digest_of(data: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
