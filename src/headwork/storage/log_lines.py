"""A log of JSON lines, each with its own check: one flipped bit is found, and the line is named."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from headwork.storage.folders import append_to_file, replace_file
from headwork.storage.sealed_json import DamagedError, parse_json, read_text, sealed, unsealed


def append_lines(path: Path, *lines: Mapping[str, object]) -> None:
    append_to_file(path, "".join(sealed(data) + "\n" for data in lines))


def read_lines(path: Path) -> list[tuple[str, dict[str, Any]]]:
    """The objects of a log, each with what an error about it calls it.

    A last line that was cut off, as by a killed process, is left out.
    """
    *lines, last = read_text(path).split("\n")
    if last and not _is_cut_off(last):
        lines.append(last)
    places = [f"{path}, line {number}" for number in range(1, len(lines) + 1)]
    try:
        return [(place, unsealed(parse_json(line, place), place)) for place, line in zip(places, lines, strict=True)]
    except DamagedError as error:
        raise DamagedError(f"{error}. Without that line, the file can be read again") from None


def keep_lines(path: Path, is_kept: Callable[[dict[str, Any]], bool]) -> None:
    """Write a log again with these of its lines, before a run goes on; an empty one if there is none."""
    lines = [data for _, data in read_lines(path)] if path.exists() else []
    replace_file(path, "".join(sealed(data) + "\n" for data in lines if is_kept(data)))


def _is_cut_off(line: str) -> bool:
    """Whether the object in a line has no end."""
    try:
        json.JSONDecoder().raw_decode(line)
    except (ValueError, RecursionError):
        return True
    return False
