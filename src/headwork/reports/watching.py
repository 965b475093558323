"""What TensorBoard is shown while a model learns: where its heads look."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from torch import nn

from headwork.data import Dataset, Examples
from headwork.figures import animate_centres, log_heads
from headwork.inspection.centres import Snapshot, snapshot_centres
from headwork.reports.of_run import attention_pictures
from headwork.training.data_order import Plan
from headwork.training.log import Watcher
from headwork.training.run import Run

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

HEADS = "heads.jsonl"
N_DRAWINGS = 8
"""Drawings of attention over a run: each takes as long as an epoch of the smallest models."""


def make_watchers(run: Run, data: Dataset) -> list[Watcher]:
    """Of Gaussian heads the places at every evaluation; of all others a drawing now and then."""
    plan = Plan(len(data.train), run.config.training)
    n_evaluations = max(plan.n_steps // plan.evaluate_every, 1)
    return [WatchPlaces(run.folder / HEADS), WatchAttention(run, data.valid, max(n_evaluations // N_DRAWINGS, 1))]


class WatchPlaces:
    """Writes where Gaussian heads look to TensorBoard and, for the animation, to a file of JSON lines."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, writer: "SummaryWriter", model: nn.Module, step: int) -> None:
        places = snapshot_centres(model)
        if places:
            log_heads(writer, model, step)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"step": step, "places": places}) + "\n")


class WatchAttention:
    """Draws the attention on the first example of a split, at every so many evaluations."""

    def __init__(self, run: Run, examples: Examples, every: int) -> None:
        self.run, self.examples, self.every, self.seen = run, examples, every, 0

    def __call__(self, writer: "SummaryWriter", model: nn.Module, step: int) -> None:
        self.seen += 1
        if self.seen % self.every or snapshot_centres(model):
            return
        picture = next(attention_pictures(self.run, model, self.examples), None)
        if picture is not None:
            writer.add_figure("attention", picture.figure, step)


def read_places(folder: Path) -> list[Snapshot]:
    """Where the heads looked at each evaluation of a run, in order; steps taken twice, after a resume, count once."""
    lines = (folder / HEADS).read_text(encoding="utf-8").splitlines(keepends=True)
    rows = [json.loads(line) for line in lines if line.endswith("\n")]
    history = {row["step"]: row["places"] for row in rows}
    return [history[step] for step in sorted(history)]


def animate_places(run: Run) -> Path | None:
    """The way of the heads over the run as a GIF, if there are heads that have one."""
    if not (run.folder / HEADS).exists():
        return None
    path = (run.folder / HEADS).with_suffix(".gif")
    animate_centres(read_places(run.folder), path)
    return path
