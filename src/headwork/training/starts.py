"""By which command, with which versions and on which machine a run was begun and resumed: `starts.jsonl`."""

import os
import platform
import shlex
import sys
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from headwork.functional.processor import processor_name
from headwork.storage.log_lines import append_lines, keep_lines, read_lines
from headwork.storage.sealed_json import DamagedError

STARTS = "starts.jsonl"


@dataclass(frozen=True, kw_only=True)
class RunStart:
    """The first start of a run, or a later one: from which step, when, how and where."""

    step: int
    date: str
    """With the time and its zone, as ISO 8601 writes it."""
    command: str | None
    """As it was typed; None in a notebook or a Python prompt."""
    headwork: str
    pytorch: str
    python: str
    processor: str
    cores: int
    threads: int
    device: str
    processes: int

    @classmethod
    def now(cls, step: int, device: str, n_processes: int = 1) -> "RunStart":
        return cls(
            step=step,
            date=datetime.now().astimezone().isoformat(timespec="seconds"),
            command=command_line(),
            headwork=version("headwork"),
            pytorch=str(torch.__version__),
            python=platform.python_version(),
            processor=processor_name(),
            cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
            threads=torch.get_num_threads(),
            device=torch.cuda.get_device_name() if device == "cuda" else device,
            processes=n_processes,
        )

    @property
    def versions(self) -> str:
        return f"headwork {self.headwork}, PyTorch {self.pytorch}, Python {self.python}"

    @property
    def machine(self) -> str:
        """The machine in words.

        >>> RunStart.now(0, "cpu").machine  # doctest: +ELLIPSIS
        '..., ... core..., ... thread...'
        """
        counts = {"core": self.cores, "thread": self.threads}
        words = [self.processor, *(f"{n} {what}{'s' * (n != 1)}" for what, n in counts.items())]
        if self.device != "cpu":
            words.append(self.device)
        return ", ".join([*words, f"{self.processes} processes"] if self.processes > 1 else words)


def add_start(folder: Path, start: RunStart) -> None:
    """Write a start behind those that are there; a line that was cut off by the end of a process is left out."""
    keep_lines(folder / STARTS, lambda _: True)
    append_lines(folder / STARTS, asdict(start))


def read_starts(folder: Path) -> list[RunStart]:
    """All starts of a run, the first one first; none of a run that an older version began and nobody resumed."""
    path = folder / STARTS
    return [_read(place, data) for place, data in read_lines(path)] if path.exists() else []


def _read(place: str, data: dict[str, Any]) -> RunStart:
    kinds = {field.name: field.type for field in fields(RunStart)}
    if data.keys() != kinds.keys() or not all(isinstance(data[name], kind) for name, kind in kinds.items()):  # type: ignore[arg-type]
        raise DamagedError(f"{place} is damaged: it must say {', '.join(kinds)}")
    return RunStart(**data)


def command_line(main: ModuleType | None = None) -> str | None:
    """The command that started this process, without the path of Python; None if nobody typed one."""
    main = main or sys.modules["__main__"]
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if spec is None and file is None:
        return None
    module = "" if spec is None else spec.name.removesuffix(".__main__")
    if module == "headwork" or (spec is None and Path(sys.argv[0]).name == "headwork"):
        words = ["headwork"]
    else:
        words = ["python", "-m", module] if module else ["python", sys.argv[0]]
    return shlex.join([*words, *sys.argv[1:]])
