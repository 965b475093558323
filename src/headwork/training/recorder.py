"""What a run writes down as it goes: `metrics.jsonl`, and TensorBoard's files."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from torch import nn

from headwork.extras import need
from headwork.metric import MetricRow
from headwork.storage.folders import explain_disk_errors
from headwork.storage.metrics_log import MetricsLog

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

Watcher = Callable[["SummaryWriter", nn.Module, int], None]
"""Looks at the model after each evaluation, and may add what it finds to TensorBoard."""


class Recorder:
    """Rows of metrics for both, and what watchers find for TensorBoard."""

    def __init__(self, folder: Path, step: int, watchers: Sequence[Watcher] = ()) -> None:
        need("tensorboard")
        from torch.utils.tensorboard import SummaryWriter

        self.log, self.watchers = MetricsLog(folder, step), watchers
        self.board_folder = folder / "tensorboard"
        with explain_disk_errors(self.board_folder):
            self.board = SummaryWriter(str(self.board_folder), purge_step=step + 1)

    def record(self, row: MetricRow) -> None:
        self.log.write(row)
        with explain_disk_errors(self.board_folder):
            for name, value in row.values.items():
                self.board.add_scalar(f"{name}/{row.split}", value, row.step)

    def watch(self, model: nn.Module, step: int) -> None:
        with explain_disk_errors(self.board_folder):
            for watcher in self.watchers:
                watcher(self.board, model, step)

    def close(self) -> None:
        with explain_disk_errors(self.board_folder):
            self.board.close()
