"""The answers to a whole file: shown as they come, or written to a CSV or JSON file."""

import csv
import json
import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from torch import nn

    from headwork.tasks import LabelTask
    from headwork.training import Run

ENDINGS = (".csv", ".json", ".jsonl")
N_AT_ONCE = 64


class Answers:
    """Rows for a new file (.csv, .json or .jsonl), which is there when all are; or lines that are printed."""

    def __init__(self, out: Path | None) -> None:
        self.out, self.n = out, 0
        self.file: TextIO | None = None
        self.writer: csv.DictWriter[str] | None = None
        if out is not None and out.suffix.lower() not in ENDINGS:
            raise ValueError(f"out must end in one of {', '.join(ENDINGS)}, got {out}")
        if out is not None and out.exists():
            raise ValueError(f"out must be a new file, got {out}, which exists")

    def __enter__(self) -> "Answers":
        if self.out is not None:
            self.out.parent.mkdir(parents=True, exist_ok=True)
            self.staging = self.out.with_name(f".{self.out.name}.{os.getpid()}.part")
            self.file = self.staging.open("w", encoding="utf-8", newline="")
        return self

    def add(self, row: dict[str, Any], line: str) -> None:
        """One answer: a row for the file, or a line to print."""
        if self.file is None:
            print(line, flush=True)
        elif self.out is not None and self.out.suffix.lower() == ".csv":
            if self.writer is None:
                self.writer = csv.DictWriter(self.file, list(row), extrasaction="ignore")
                self.writer.writeheader()
            self.writer.writerow(row)
        else:
            is_list = self.out is not None and self.out.suffix.lower() == ".json"
            self.file.write(("[\n" if not self.n else ",\n") if is_list else "")
            self.file.write(json.dumps(row, ensure_ascii=False) + ("" if is_list else "\n"))
        self.n += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self.file is None or self.out is None:
            return
        if self.out.suffix.lower() == ".json":
            self.file.write("\n]\n" if self.n else "[]\n")
        self.file.close()
        if kind is None:
            self.staging.replace(self.out)
            print(f"{self.n:,} answers in {self.out}")
        else:
            self.staging.unlink(missing_ok=True)


def label_rows(
    run: "Run", model: "nn.Module", task: "LabelTask", limit: int, path: Path, column: str | None
) -> Iterator[dict[str, Any]]:
    """Each row of a table with what its text is taken for."""
    import torch

    from headwork.batches import TextBatch, call_model
    from headwork.data.reviews import encode_starts
    from headwork.data.table_files import Row, find_column, is_missing, read_rows
    from headwork.data.text_examples import Rows
    from headwork.data.text_table import TEXT_COLUMNS

    tokenizer, of_run = run.tokenizer, getattr(run.config.data, "text", None)
    names = TEXT_COLUMNS if of_run is None else (of_run.strip().lower(), *TEXT_COLUMNS)
    if tokenizer is None:
        raise ValueError(f"run must have a tokenizer to read texts, got {run.folder}, which has none")

    def answer(rows: list[Row], name: str) -> Iterator[dict[str, Any]]:
        for place, values in rows:
            if is_missing(values.get(name)):
                raise ValueError(f"text must not be empty, got {values.get(name)!r} in {place}")
        texts = Rows.of(encode_starts([str(row.values[name]) for row in rows], tokenizer, limit))
        batch = TextBatch(*texts.padded(torch.arange(len(rows))), torch.zeros(len(rows), dtype=torch.long))
        with torch.no_grad():
            probabilities = task.probabilities(call_model(model, batch))
        for row, (best, label) in zip(
            rows, zip(*(t.tolist() for t in probabilities.max(-1)), strict=True), strict=True
        ):
            yield {"place": row.place, **row.values, "predicted": task.labels[label], "probability": best}

    waiting: list[Row] = []
    name: str | None = None
    for row in read_rows(path):
        name = name or find_column(list(row.values), column, names, "column", path)
        waiting.append(row)
        if len(waiting) == N_AT_ONCE:
            yield from answer(waiting, name)
            waiting = []
    if waiting and name is not None:
        yield from answer(waiting, name)
