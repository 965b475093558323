"""A run is a folder: what it is (`config.json`), how it goes (`metrics.jsonl`), what it has learned (`checkpoints`)."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import torch
from torch import nn

from headwork.checks import LARGEST_JSON, check_file, naming
from headwork.data import DATA_CONFIGS, Dataset, Tokenizer
from headwork.metric import SPLITS
from headwork.models import CLASSES
from headwork.seeds import unchanged_rng_states
from headwork.serialise import config_from_dict, config_to_dict
from headwork.storage.folders import LOCK, DamagedError, replace_file
from headwork.storage.models import CONFIG, check_rebuilds, read_json
from headwork.tasks import TASKS, Task
from headwork.training.config import RunConfig
from headwork.training.fit import check_parts, fit_to_data, task_for

TOKENIZER = "tokenizer.json"
N_HASHED = 8
"""Examples of each part that the fingerprint of the data sees."""
RUN_CLASSES = (RunConfig, *DATA_CONFIGS, *CLASSES, *TASKS)
"""What the file of a run may name without being passed."""


@dataclass(frozen=True)
class Run:
    """A folder, what is in its `config.json`, and the tokenizer beside it."""

    folder: Path
    config: RunConfig
    task: Task
    tokenizer: Tokenizer | None = None
    own_weights: bool = False
    """The model was given with its weights, and not built from the seed."""
    fingerprint: str | None = None
    """Of the data, so that a run does not go on with other data for the same task."""

    def load_data(self) -> Dataset:
        """Read the data of the run, which must still have its task and tokens: a text file, say, may have changed."""
        if self.config.data is None:
            raise ValueError(
                f"data must be passed again for {self.folder}, which was trained on a Dataset from Python: "
                "hw.train(model, data, training, out=folder, resume=True)"
            )
        data = self.config.data.load(self.config.training.seed)
        self.check_data(data)
        return data

    def check_data(self, data: Dataset) -> None:
        """Raise if the run was begun with other data."""
        same_task = task_for(self.config.training, data) == self.task
        same_tokens = _tokenizer_json(data.tokenizer) == _tokenizer_json(self.tokenizer)
        if same_task and same_tokens and self.fingerprint in (None, fingerprint(data)):
            return
        what = "other examples" if same_task and same_tokens else "another task or tokenizer"
        raise ValueError(f"data must be what the run was begun with, got {what} for {self.folder}")

    def files(self) -> dict[str, str]:
        """What the folder of a run holds beside its weights, and each checkpoint too, so that it can stand alone."""
        about = {
            "model": config_to_dict(self.config.model),
            "run": config_to_dict(self.config),
            "task": config_to_dict(self.task),
            "own_weights": self.own_weights,
            "fingerprint": self.fingerprint,
            "has_tokenizer": self.tokenizer is not None,
        }
        texts = {CONFIG: json.dumps(about, indent=2) + "\n"}
        return texts if self.tokenizer is None else texts | {TOKENIZER: self.tokenizer.to_json()}

    def write(self) -> None:
        for name, text in self.files().items():
            replace_file(self.folder / name, text)


def new_run(config: RunConfig, folder: Path, data: Dataset | None = None, *, check: bool = True) -> Run:
    """A run that is about to begin; its folder must not hold anything yet (of many processes, one has to check).

    The data is read from the config unless it is given.
    """
    if check and folder.exists() and (not folder.is_dir() or any(path.name != LOCK for path in folder.iterdir())):
        what = "another run; go on with it by --resume (resume=True)" if is_run(folder) else "something else"
        raise ValueError(f"out must be a new or an empty folder, got {folder}, which holds {what}")
    if data is None:
        assert config.data is not None
        data = config.data.load(config.training.seed)
    check_parts(data)
    config = replace(config, model=fit_to_data(config.model, data))
    if isinstance(config.model, nn.Module):  # better now than when the trained model cannot be loaded
        check_rebuilds(config.model, {"model": config_to_dict(config.model)})
    own_weights = isinstance(config.model, nn.Module)
    return Run(folder, config, task_for(config.training, data), data.tokenizer, own_weights, fingerprint(data))


def open_run(folder: Path, classes: Iterable[type] = ()) -> Run:
    """The run in a folder; `classes` are a user's own that its file may name."""
    about = read_json(folder / CONFIG) if (folder / CONFIG).is_file() else {}
    if "run" not in about:
        raise ValueError(f"run must be the folder of a run (with {CONFIG}, written by `headwork train`), got {folder}")
    if "task" not in about:
        raise ValueError(
            f"{folder} was written by headwork 0.1, which this version cannot read: names in models have changed. "
            "Train the model again, or use it with headwork 0.1"
        )
    with naming(folder / CONFIG):
        config: object = config_from_dict(about["run"], RUN_CLASSES, classes)
        task: object = config_from_dict(about["task"], RUN_CLASSES, classes)
    if not isinstance(config, RunConfig) or not isinstance(task, Task):
        raise DamagedError(f"{folder / CONFIG} is damaged: it must hold a RunConfig and a task")
    path = folder / TOKENIZER
    if about.get("has_tokenizer") and not path.is_file():
        raise DamagedError(f"{path} is missing")
    tokenizer = None
    if about.get("has_tokenizer"):
        check_file(path, TOKENIZER, LARGEST_JSON)
        with naming(path):
            tokenizer = Tokenizer.from_json(path.read_text(encoding="utf-8"))
    found = cast(str | None, about.get("fingerprint"))
    return Run(folder, config, task, tokenizer, bool(about.get("own_weights")), found)


@unchanged_rng_states()
def fingerprint(data: Dataset) -> str:
    """A hash of how many examples each part has and of the first of them: enough to notice that it is other data."""
    found = hashlib.sha256()
    for name in SPLITS:
        part = getattr(data, name)
        found.update(f"{name} {len(part)}".encode())
        for tensor in part.batch(range(min(N_HASHED, len(part)))):
            found.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
            found.update(tensor.cpu().contiguous().flatten().view(torch.uint8).numpy())
    return found.hexdigest()


def is_run(folder: Path) -> bool:
    try:
        return "run" in read_json(folder / CONFIG)
    except (OSError, ValueError, DamagedError):
        return False


def _tokenizer_json(tokenizer: Tokenizer | None) -> str | None:
    return None if tokenizer is None else tokenizer.to_json()
