"""What a run writes down as it goes: `metrics.jsonl`, and TensorBoard's files."""

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from torch import nn

from headwork.storage.folders import append_to_file, explain_disk_errors, replace_file

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

Watcher = Callable[["SummaryWriter", nn.Module, int], None]
"""Looks at the model after each evaluation, and may add what it saw to TensorBoard."""
METRICS = "metrics.jsonl"
Split = Literal["train", "valid", "test"]


class Log:
    """One line for each evaluation of each split; a run that goes on forgets what came after its checkpoint."""

    def __init__(self, run: Path, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.path = run / METRICS
        replace_file(self.path, "".join(line for line in _lines(self.path) if _is_before(line, step)))
        self.board_folder = run / "tensorboard"
        with explain_disk_errors(self.board_folder):
            self.board = SummaryWriter(str(self.board_folder), purge_step=step + 1)

    def write(self, split: Split, step: int, epoch: float, figures: Mapping[str, float], seconds: float) -> None:
        row = {"step": step, "epoch": round(epoch, 4), "split": split, **figures, "seconds": round(seconds, 3)}
        append_to_file(self.path, json.dumps(row, allow_nan=False) + "\n")
        with explain_disk_errors(self.board_folder):
            for name, figure in figures.items():
                self.board.add_scalar(f"{name}/{split}", figure, step)

    def show(self, watchers: Iterable[Watcher], model: nn.Module, step: int) -> None:
        """Let others look at the model, and add what they see to TensorBoard."""
        with explain_disk_errors(self.board_folder):
            for watcher in watchers:
                watcher(self.board, model, step)

    def close(self) -> None:
        with explain_disk_errors(self.board_folder):
            self.board.close()


def _lines(path: Path) -> list[str]:
    """Whole lines only: the last may have been cut when the process was killed."""
    if not path.exists():
        return []
    return [line for line in path.read_text(encoding="utf-8").splitlines(keepends=True) if line.endswith("\n")]


def _is_before(line: str, step: int) -> bool:
    """Whether the line stays: the test comes last of all, so a run that goes on will write it again."""
    row = json.loads(line)
    return int(row["step"]) <= step and row["split"] != "test"
