"""A run is a folder: what it is (`config.json`), how it goes (`metrics.jsonl`), what it has learned (`checkpoints`)."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast, get_args
from uuid import uuid4

import torch
from torch import nn

from headwork.convert import Conversion, conversions_of
from headwork.data import DATA_CONFIGS, AnyTokenizer, Dataset, Tokenizer
from headwork.hub import PretrainedTokenizer
from headwork.hub.tokenizer import OF_RUN
from headwork.metric import SPLITS
from headwork.models import CLASSES
from headwork.seeds import unchanged_rng_states
from headwork.serialise import config_from_dict, config_to_dict
from headwork.storage.folders import MANIFEST, is_leftover, replace_file
from headwork.storage.models import (
    BEST,
    CONFIG,
    check_passed,
    check_rebuilds,
    explain_config,
    read_own_config,
    with_names_of_ours,
)
from headwork.storage.sealed_json import SEAL, DamagedError, read_json, read_text, sealed
from headwork.tasks import TASKS, Task
from headwork.training.config import RunConfig
from headwork.training.fit import check_parts, fit_to_data, task_for

TOKENIZER = "tokenizer.json"
FROZEN, PRETRAINED = "frozen", OF_RUN
"""Keys of `config.json`: the parameters that are not trained, and whether the tokenizer is one of Hugging Face's."""
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
    tokenizer: AnyTokenizer | None = None
    own_weights: bool = False
    """The model was given with its weights, and not built from the seed."""
    fingerprint: str | None = None
    """Of the data, so that a run does not go on with other data for the same task."""
    run_id: str | None = None
    """Tells two runs apart that were begun in one folder at the same time."""
    conversions: tuple[Conversion, ...] = ()
    """What was done to the model that was given, after it was built: low-rank adaptation, say."""
    frozen: tuple[str, ...] = ()
    """The parameters of the model that was given which are not trained."""

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
        changed = self.newer_file()
        since = "" if changed is None else f": {changed} was written after the run was last started"
        raise ValueError(f"data must be what the run was begun with, got {what} for {self.folder}{since}")

    def newer_file(self) -> Path | None:
        """The newest of the user's files, if it was written after the run was last started."""
        configs = [self.config.data, *(getattr(self.config.data, name, None) for name in ("text", "data"))]
        given = [getattr(config, name, None) for config in configs for name in ("path", "target_path")]
        roots = [Path(path) for path in given if isinstance(path, str)]
        files = [file for root in roots for file in (root, *root.rglob("*")) if file.is_file()]
        newest = max(files, key=lambda file: file.stat().st_mtime, default=None)
        begun = self.folder / CONFIG
        if newest is None or not begun.exists() or newest.stat().st_mtime <= begun.stat().st_mtime:
            return None
        return newest

    def files(self) -> dict[str, str]:
        """What the folder of a run holds beside its weights, and each checkpoint too, so that it can stand alone."""
        about = {
            "model": config_to_dict(self.config.model),
            "run": config_to_dict(self.config),
            "task": config_to_dict(self.task),
            "own_weights": self.own_weights,
            "fingerprint": self.fingerprint,
            "run_id": self.run_id,
            **with_names_of_ours([self.config, self.task], RUN_CLASSES),
            **({"conversions": [config_to_dict(each) for each in self.conversions]} if self.conversions else {}),
            **({FROZEN: list(self.frozen)} if self.frozen else {}),
            **({PRETRAINED: True} if isinstance(self.tokenizer, PretrainedTokenizer) else {}),
        }
        text = _tokenizer_json(self.tokenizer)
        if text is None:
            return {CONFIG: sealed({**about, TOKENIZER: None}, indent=2) + "\n"}
        return {TOKENIZER: text, CONFIG: sealed({**about, TOKENIZER: _digest(text)}, indent=2) + "\n"}

    def write(self) -> None:
        """The config comes last: where there is one, everything is there."""
        for name, text in self.files().items():
            replace_file(self.folder / name, text)

    def check_folder(self) -> None:
        """Raise unless the folder holds this run or nothing yet; what a start left that failed early is nothing."""
        if (self.folder / CONFIG).exists() and read_own_config(self.folder / CONFIG).get("run_id") == self.run_id:
            return
        check_free(self.folder, _tokenizer_json(self.tokenizer))


def new_run(config: RunConfig, folder: Path, data: Dataset | None = None, *, check: bool = True) -> Run:
    """A run that is about to begin; its folder must not hold anything yet (of many processes, one has to check).

    The data is read from the config unless it is given.
    """
    if data is None:
        assert config.data is not None
        data = config.data.load(config.training.seed)
    if check:
        check_free(folder, _tokenizer_json(data.tokenizer))
    check_parts(data)
    config = replace(config, name=config.name or folder.name, model=fit_to_data(config.model, data))
    conversions, frozen = tuple[Conversion, ...](), tuple[str, ...]()
    if isinstance(config.model, nn.Module):  # better now than when the trained model cannot be loaded
        conversions = conversions_of(config.model)
        frozen = tuple(name for name, parameter in config.model.named_parameters() if not parameter.requires_grad)
        about: dict[str, object] = {"model": config_to_dict(config.model)}
        if conversions:
            about["conversions"] = [config_to_dict(each) for each in conversions]
        check_rebuilds(config.model, about)
    own_weights = isinstance(config.model, nn.Module)
    task = task_for(config.training, data)
    begun = fingerprint(data), uuid4().hex
    return Run(folder, config, task, data.tokenizer, own_weights, *begun, conversions, frozen)


def check_free(folder: Path, tokenizer: str | None = None) -> None:
    """Raise unless a run can begin in the folder, which loses nothing: at most the same tokenizer is there already."""
    found = [folder] if folder.exists() and not folder.is_dir() else list(folder.iterdir()) if folder.exists() else []
    taken = [path for path in found if path == folder or not is_leftover(path)]
    if [path.name for path in taken] == [TOKENIZER] and read_text(taken[0]) == tokenizer:
        return
    if taken:
        what = "another run; go on with it by --resume (resume=True)" if is_run(folder) else "something else"
        raise ValueError(f"out must be a new or an empty folder, got {folder}, which holds {what}")


def open_run(folder: Path | str, classes: Iterable[type] = (), *, edited: bool = False) -> Run:
    """The run in a folder; `classes` are a user's own that its file may name.

    What is not as the run wrote it is refused, unless it was `edited` on purpose.
    """
    folder = Path(folder)
    path = folder / CONFIG
    about = read_json(path) if path.is_file() else {}
    if "run" in about and "task" not in about and SEAL not in about:
        raise ValueError(
            f"{folder} was written by headwork 0.1, which this version cannot read: names in models have changed. "
            "Train the model again, or use it with headwork 0.1"
        )
    if "run" not in about and SEAL not in about:
        raise ValueError(f"run must be the folder of a run (with {CONFIG}, written by `headwork train`), got {folder}")
    can_accept = not edited and not (folder / MANIFEST).exists()
    remedy = f"; if you edited it, say so: `headwork accept {folder}`" if can_accept else ""
    try:
        tokenizer = _read_tokenizer(folder, about if edited else read_own_config(path), edited=edited)
    except DamagedError as error:
        raise DamagedError(f"{error}{remedy}") from None
    with explain_config(path):
        check_passed(about, RUN_CLASSES, classes)
        config: object = config_from_dict(about.get("run"), RUN_CLASSES, classes)
        task: object = config_from_dict(about.get("task"), RUN_CLASSES, classes)
        conversions = tuple(config_from_dict(each, get_args(Conversion)) for each in about.get("conversions", []))
    if not isinstance(config, RunConfig) or not isinstance(task, Task):
        raise DamagedError(f"{path} is damaged: it must hold a RunConfig and a task")
    if about.get("model") != about["run"]["model"]:
        raise ValueError(f"{path} must say the same in model and in run.model, got two different models")
    found = {name: cast(str | None, about.get(name)) for name in ("fingerprint", "run_id")}
    frozen = tuple(map(str, about.get(FROZEN, [])))
    own_weights = bool(about.get("own_weights"))
    return Run(folder, config, task, tokenizer, own_weights, **found, conversions=conversions, frozen=frozen)


def _read_tokenizer(folder: Path, about: dict[str, Any], *, edited: bool) -> AnyTokenizer | None:
    path = folder / TOKENIZER
    if TOKENIZER not in about:
        raise DamagedError(f"{folder / CONFIG} is damaged: it must say whether there is a {TOKENIZER}")
    if about[TOKENIZER] is None:
        return None
    if not path.exists():
        raise DamagedError(f"{path} is missing")
    text = read_text(path)
    if not edited and _digest(text) != about[TOKENIZER]:
        raise DamagedError(f"{path} is damaged: its SHA-256 is not that of {CONFIG}")
    with explain_config(path):
        return PretrainedTokenizer.from_json(text) if about.get(PRETRAINED) else Tokenizer.from_json(text)


@unchanged_rng_states()
def fingerprint(data: Dataset) -> str:
    """A hash of how many examples each part has and of the first of them, and of the user's own files."""
    found = hashlib.sha256((data.digest or "").encode())
    for name in SPLITS:
        part = getattr(data, name)
        found.update(f"{name} {len(part)}".encode())
        for tensor in part.batch(range(min(N_HASHED, len(part)))):
            found.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
            found.update(tensor.cpu().contiguous().flatten().view(torch.uint8).numpy())
    return found.hexdigest()


def is_run(folder: Path) -> bool:
    """Whether the folder is that of a run, also of one whose config is not as it was written."""
    try:
        about = read_json(folder / CONFIG)
    except DamagedError:
        return (folder / BEST).parent.is_dir()
    return "run" in about or SEAL in about


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _tokenizer_json(tokenizer: AnyTokenizer | None) -> str | None:
    return None if tokenizer is None else tokenizer.to_json()
