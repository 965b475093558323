"""What a run writes down as it goes: `metrics.jsonl`, and TensorBoard's files."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    pass

METRICS = "metrics.jsonl"
Split = Literal["train", "valid", "test"]


class Log:
    """One line for each evaluation of each split; a run that goes on forgets what came after its checkpoint."""

    def __init__(self, run: Path, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.path = run / METRICS
        kept = [line for line in _lines(self.path) if _step_of(line) <= step]
        self.path.write_text("".join(kept), encoding="utf-8")
        self.board: SummaryWriter = SummaryWriter(str(run / "tensorboard"), purge_step=step + 1)

    def write(self, split: Split, step: int, epoch: float, figures: Mapping[str, float], seconds: float) -> None:
        row = {"step": step, "epoch": round(epoch, 4), "split": split, **figures, "seconds": round(seconds, 3)}
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        for name, figure in figures.items():
            self.board.add_scalar(f"{name}/{split}", figure, step)

    def close(self) -> None:
        self.board.close()


def _lines(path: Path) -> list[str]:
    """Whole lines only: the last may have been cut when the process was killed."""
    if not path.exists():
        return []
    return [line for line in path.read_text(encoding="utf-8").splitlines(keepends=True) if line.endswith("\n")]


def _step_of(line: str) -> int:
    return int(json.loads(line)["step"])
