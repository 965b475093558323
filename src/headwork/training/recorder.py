"""What a run writes down as it goes: `metrics.jsonl`, TensorBoard's files, and where its heads attend."""

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from torch import nn

from headwork.checks import check_file
from headwork.extras import need
from headwork.inspection.heads import Snapshot, snapshot_centres
from headwork.metric import MetricRow
from headwork.storage.folders import explain_disk_errors
from headwork.storage.metrics_log import LARGEST_METRICS, MetricsLog
from headwork.training.plan import Plan

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

    from headwork.figures import Figure

Watcher = Callable[["SummaryWriter", nn.Module, int], None]
"""Looks at the model after each evaluation, and may add what it finds to TensorBoard."""
HEADS = "heads.jsonl"
N_DRAWINGS = 8
"""Figures of attention over a run: each takes as long as an epoch of the smallest models."""


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


def make_watchers(folder: Path, plan: Plan, draw: Callable[[nn.Module], Iterable["Figure"]]) -> list[Watcher]:
    """Of Gaussian heads the centres at every evaluation; of all others a figure of their attention now and then."""
    return [WatchCentres(folder / HEADS), WatchAttention(draw, max(plan.n_evaluations // N_DRAWINGS, 1))]


class WatchCentres:
    """Writes the centres of Gaussian heads to TensorBoard and, for the animation, to a file of JSON lines."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, writer: "SummaryWriter", model: nn.Module, step: int) -> None:
        centres = snapshot_centres(model)
        if centres:
            from headwork.figures import log_heads

            log_heads(writer, model, step)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"step": step, "centres": centres}) + "\n")


class WatchAttention:
    """Draws the attention of the model at every so many evaluations; the first figure is shown."""

    def __init__(self, draw: Callable[[nn.Module], Iterable["Figure"]], every: int) -> None:
        self.draw, self.every, self.n_calls = draw, every, 0

    def __call__(self, writer: "SummaryWriter", model: nn.Module, step: int) -> None:
        self.n_calls += 1
        if self.n_calls % self.every or snapshot_centres(model):
            return
        for figure in self.draw(model):
            writer.add_figure("attention", figure, step)
            return


def read_centres(folder: Path) -> list[Snapshot]:
    """The centres at each evaluation of a run, in order; steps taken twice, after a resume, count once."""
    if not (folder / HEADS).exists():
        return []
    check_file(folder / HEADS, HEADS, LARGEST_METRICS)
    lines = (folder / HEADS).read_text(encoding="utf-8").splitlines(keepends=True)
    rows = [json.loads(line) for line in lines if line.endswith("\n")]
    history = {row["step"]: row["centres"] for row in rows}
    return [history[step] for step in sorted(history)]
