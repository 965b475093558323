"""What a run writes down as it goes: `metrics.jsonl`, TensorBoard's files, and where its heads attend."""

import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from torch import nn

from headwork.extras import need
from headwork.inspection.heads import Snapshot, snapshot_centres
from headwork.metric import MetricRow
from headwork.storage.folders import explain_disk_errors
from headwork.storage.log_lines import append_lines, keep_lines, read_lines
from headwork.storage.metrics_log import MetricsLog
from headwork.storage.sealed_json import DamagedError
from headwork.training.plan import Plan

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

    from headwork.figures import Figure

Watcher = Callable[["SummaryWriter", nn.Module, int], None]
"""Looks at the model after each evaluation, and may add what it finds to TensorBoard."""
HEADS = "heads.jsonl"
N_DRAWINGS = 4
"""Figures of attention over a run at most: each takes as long as an epoch of the smallest models."""


class Recorder:
    """Rows of metrics for both, and what watchers find for TensorBoard."""

    def __init__(self, folder: Path, step: int, watchers: Sequence[Watcher] = ()) -> None:
        need("tensorboard")
        from torch.utils.tensorboard import SummaryWriter

        self.log, self.watchers = MetricsLog(folder, step), watchers
        if (folder / HEADS).exists():
            read_centres(folder)
            keep_lines(folder / HEADS, lambda row: row["step"] <= step)
        self.waiting: list[MetricRow] = []
        """Not written yet: to wait for the disk after every step would take longer than small steps."""
        self.board_folder = folder / "tensorboard"
        with explain_disk_errors(self.board_folder):
            join_events(self.board_folder)
            self.board = SummaryWriter(str(self.board_folder), purge_step=step + 1)

    def record(self, row: MetricRow) -> None:
        self.waiting.append(row)
        if row.split != "step":
            self.write_waiting()
        with explain_disk_errors(self.board_folder):
            for name, value in row.values.items():
                self.board.add_scalar(f"{name}/{row.split}", value, row.step)

    def write_waiting(self) -> None:
        if self.waiting:
            rows, self.waiting = self.waiting, []
            self.log.write(*rows)

    def watch(self, model: nn.Module, step: int) -> None:
        with explain_disk_errors(self.board_folder):
            for watcher in self.watchers:
                watcher(self.board, model, step)

    def close(self) -> None:
        self.write_waiting()
        with explain_disk_errors(self.board_folder):
            self.board.close()


def join_events(folder: Path) -> None:
    """Make one file of TensorBoard's, so that a run that is resumed often does not leave one for each start."""
    files = sorted(path for path in folder.glob("events.out.tfevents.*") if path.is_file())
    if len(files) < 2:
        return
    joined = files[0].with_name(f".{files[0].name}.part")
    joined.write_bytes(b"".join(_whole_records(path.read_bytes()) for path in files))
    joined.replace(files[0])
    for path in files[1:]:
        path.unlink()


def _whole_records(data: bytes) -> bytes:
    """Without a record that was cut off at the end, behind which TensorBoard would read nothing."""
    place = 0  # each record is its length in 8 bytes, their check in 4, itself, and its check in 4
    while place + 12 <= len(data):
        end = place + 16 + int.from_bytes(data[place : place + 8], "little")
        if end > len(data):
            break
        place = end
    return data[:place]


def make_watchers(folder: Path, plan: Plan, draw: Callable[[nn.Module], Iterable["Figure"]]) -> list[Watcher]:
    """Of Gaussian heads the centres at every evaluation; of all others a figure of their attention now and then."""
    return [WatchCentres(folder / HEADS), WatchAttention(draw, math.ceil(max(plan.n_evaluations, 1) / N_DRAWINGS))]


class WatchCentres:
    """Writes the centres of Gaussian heads to TensorBoard and, for the animation, to a file of JSON lines."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, writer: "SummaryWriter", model: nn.Module, step: int) -> None:
        centres = snapshot_centres(model)
        if centres:
            from headwork.figures import log_heads

            log_heads(writer, model, step)
            append_lines(self.path, {"step": step, "centres": centres})


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
    history = {}
    for place, row in read_lines(folder / HEADS):
        if row.keys() != {"step", "centres"} or not isinstance(row["step"], int):
            raise DamagedError(f"{place} is damaged: it must have a step and centres")
        history[row["step"]] = row["centres"]
    return [history[step] for step in sorted(history)]
