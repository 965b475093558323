"""`hw.train`: a model, data and how to train; what comes back is what a person wants next."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

from torch import nn

from headwork.data import DataConfig, Dataset
from headwork.functional.denormals import flush_denormals
from headwork.models import ModelConfig
from headwork.serialise import config_to_dict, flatten
from headwork.storage.models import CONFIG, classes_in
from headwork.training.config import RunConfig, TrainingConfig
from headwork.training.display import Display, Quiet, make_display
from headwork.training.loop import TrainingResult, train_run
from headwork.training.recorder import HEADS, WatchCentres, Watcher
from headwork.training.run import Run, new_run, open_run
from headwork.training.stopping import StopRequest


@flush_denormals()
def train(
    model: ModelConfig | nn.Module,
    data: DataConfig | Dataset,
    training: TrainingConfig,
    *,
    out: Path | str,
    name: str | None = None,
    resume: bool = False,
    display: Display | bool = True,
    stop: StopRequest | None = None,
    watchers: Sequence[Watcher] = (),
) -> TrainingResult:
    """Train a model in the folder `out`, which becomes the folder of the run; its best checkpoint is given back.

    A config is built with weights from the seed; a model keeps the weights it has. With `resume` a run that is in the
    folder already goes on, bit for bit; otherwise the folder must be new or empty. What was found in the data, an
    estimate of time and memory, and the progress go to stderr; `display=False` is silent, a `Display` shows its own.
    Where Gaussian heads look is kept at every evaluation, for TensorBoard and for `hw.figures.animate_centres`.

    >>> config = hw.models.ResNetConfig(n_classes=10, n_channels=1, n_blocks=1, widths=(4,))
    >>> import tempfile
    >>> done = hw.train(config, hw.data.Digits(), TrainingConfig(steps=1, batch_size=8), out=tempfile.mkdtemp())
    >>> sorted(done.test), type(done.model).__name__
    (['accuracy', 'loss', 'macro_f1'], 'ResNet')
    """
    folder, given = Path(out), cast(object, data)
    if isinstance(given, type) or not isinstance(given, Dataset | DataConfig):
        raise ValueError(
            "data must be a headwork.data.Dataset (train, valid, test and their task) or a config that loads one, "
            f"got {given if isinstance(given, type) else type(given).__name__}"
        )
    config = RunConfig(
        name=name or folder.resolve().name,
        data=None if isinstance(data, Dataset) else data,
        model=model,
        training=training,
    )
    read = data if isinstance(data, Dataset) else data.load(training.seed)
    goes_on = resume and (folder / CONFIG).exists()
    run = new_run(config, folder, read, check=not goes_on)
    if goes_on:
        begun = open_run(folder, classes_in(run.config) | classes_in(run.task))
        check_same(run, begun)
        begun.check_data(read)
        run = replace(run, run_id=begun.run_id)
    if isinstance(display, bool):
        display = make_display() if display else Quiet()
    return train_run(run, display, stop, (WatchCentres(run.folder / HEADS), *watchers), data=read)


def check_same(run: Run, begun: Run) -> None:
    """Raise if the run in the folder was begun with something else."""
    ours, theirs = (flatten({**config_to_dict(each.config), "name": ""}) for each in (run, begun))
    both = [(name, theirs.get(name, "nothing"), ours.get(name, "nothing")) for name in {**theirs, **ours}]
    if differ := [f"{name} must be {must}, got {got}" for name, must, got in both if must != got]:
        raise ValueError(f"resume goes on with a run as it was begun: {'; '.join(differ)} for {run.folder}")
    for name in ("conversions", "frozen"):
        if getattr(run, name) != getattr(begun, name):
            must, got = (getattr(each, name) or "none" for each in (begun, run))
            raise ValueError(
                f"resume goes on with a run as it was begun: {name} of the model must be {must}, got {got} "
                f"for {run.folder}"
            )
