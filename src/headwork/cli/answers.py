"""The answers to a whole file: shown as they come, or written to a CSV or JSON file."""

import base64
import csv
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, TextIO

from headwork.tables import one_line

ENDINGS = (".csv", ".json", ".jsonl")
OUT_HELP = "Write the answers to this new file: .csv, .json or .jsonl."
NOTHING: Mapping[str, Any] = MappingProxyType({})


class Answers:
    """Rows for a new file (.csv, .json or .jsonl), which is there when all are; or lines that are printed."""

    def __init__(self, out: Path | None, *, quiet: bool = False) -> None:
        self.out, self.n, self.quiet = out, 0, quiet
        self.file: TextIO | None = None
        if out is not None and out.suffix.lower() not in ENDINGS:
            raise ValueError(f"out must end in one of {', '.join(ENDINGS)}, got {out}")
        if out is not None and out.exists():
            raise ValueError(f"out must be a new file, got {out}, which exists")

    def __enter__(self) -> "Answers":
        if self.out is not None:
            self.out.parent.mkdir(parents=True, exist_ok=True)
            from headwork.storage.folders import staging_path

            self.rows, self.whole = staging_path(self.out), staging_path(self.out)
            self.file = _open(self.rows)
        return self

    def add(self, answer: Mapping[str, Any], line: str, asked: Mapping[str, Any] = NOTHING) -> None:
        """One answer: a row for the file, behind what the user's own table has in that row; or a line to print."""
        if self.file is None:
            print(one_line(line), flush=True)
        else:
            self.file.write(to_json([asked, answer]) + "\n")
        self.n += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self.file is None or self.out is None:
            return
        self.file.close()
        try:
            if kind is None:
                self._write()
                self.whole.replace(self.out)
                if not self.quiet:
                    print(f"{self.n:,} answers in {self.out}")
        finally:
            for path in (self.rows, self.whole):
                path.unlink(missing_ok=True)

    def _write(self) -> None:
        """All rows, now that all columns are known: a row of the user's may lack what another has."""
        assert self.out is not None
        theirs, ours = dict[str, None](), dict[str, None]()
        for asked, answer in self._read():
            theirs |= dict.fromkeys(asked)
            ours |= dict.fromkeys(answer)
        names = names_beside(ours, theirs)
        rows = (asked | {names[name]: value for name, value in answer.items()} for asked, answer in self._read())
        with _open(self.whole) as file:
            match self.out.suffix.lower():
                case ".csv":
                    writer = csv.DictWriter(file, [*theirs, *names.values()])
                    writer.writeheader()
                    writer.writerows({name: _cell(value) for name, value in row.items()} for row in rows)
                case ".jsonl":
                    file.writelines(to_json(row) + "\n" for row in rows)
                case _:
                    file.write("[")
                    file.writelines(f"{',' if number else ''}\n{to_json(row)}" for number, row in enumerate(rows))
                    file.write("\n]\n" if self.n else "]\n")

    def _read(self) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        with self.rows.open(encoding="utf-8", newline="\n") as file:
            for line in file:
                asked, answer = json.loads(line)
                yield asked, answer


def check_finite(what: object, numbers: dict[str, float]) -> None:
    """Raise instead of printing what is no number, and no JSON either."""
    from headwork.training import NonFiniteError

    for name, number in numbers.items():
        if not math.isfinite(number):
            raise NonFiniteError(f"{what} gives {number} for {name}: the numbers in the model grow too large")


def beside(asked: Mapping[str, Any], answer: Mapping[str, Any]) -> dict[str, Any]:
    """A row of the user's and its answer as one."""
    names = names_beside(answer, asked)
    return {**asked, **{names[name]: value for name, value in answer.items()}}


def names_beside(ours: Iterable[str], theirs: Iterable[str]) -> dict[str, str]:
    """What our columns are called beside theirs, of which none is lost.

    >>> names_beside(["predicted", "probability"], ["text", "predicted", "predicted_2"])
    {'predicted': 'predicted_3', 'probability': 'probability'}
    """
    taken, names = set(theirs), dict[str, str]()
    for name in ours:
        number, free = 1, name
        while free in taken:
            number += 1
            free = f"{name}_{number}"
        names[name] = free
        taken.add(free)
    return names


def to_json(value: object) -> str:
    """A line of JSON, whatever a table holds.

    >>> from datetime import date
    >>> to_json({"when": date(2026, 11, 17), "how much": float("nan"), "raw": b"ab"})
    '{"when": "2026-11-17", "how much": null, "raw": "YWI="}'
    """
    return json.dumps(_plain(value), ensure_ascii=False)


def _plain(value: Any) -> Any:
    """A value of a table as JSON has it: no number that is none, bytes in base64, dates in ISO form."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else None
        case Mapping():
            return {str(key): _plain(each) for key, each in value.items()}
        case list() | tuple():
            return [_plain(each) for each in value]
        case bytes():
            return base64.b64encode(value).decode()
        case _:
            return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _cell(value: object) -> object:
    return to_json(value) if isinstance(value, dict | list) else value


def _open(path: Path) -> TextIO:
    # Half of a surrogate pair, which JSON can have, is written as JSON writes it.
    return path.open("w", encoding="utf-8", newline="", errors="backslashreplace")
