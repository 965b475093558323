"""The best checkpoint of a run: its folder names it, and holds its weights."""

from pathlib import Path

from headwork.storage.folders import link_file, replace_file, verify
from headwork.storage.models import BEST, WEIGHTS
from headwork.training.checkpoints import at_step
from headwork.training.progress import Progress


def best_checkpoint(run: Path, progress: Progress) -> Path | None:
    return None if progress.best_step is None else at_step(run, progress.best_step)


def keep_best(run: Path, progress: Progress) -> None:
    """Name the best in the run's folder; again when a run is resumed, which may have been killed before this.

    It is missing if a better one came after the checkpoint that the run is resumed from; then that will come again.
    """
    best = best_checkpoint(run, progress)
    if best is not None and best.exists():
        verify(best)
        replace_file(run / BEST, f'{{"checkpoint": "{best.name}"}}\n')
        link_file(best / WEIGHTS, run / WEIGHTS)
