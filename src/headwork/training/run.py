"""A run is a folder: what it is (`config.json`), how it goes (`metrics.jsonl`), what it has learned (`checkpoints`)."""

import json
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from headwork.data import DataConfig, Dataset, Tokenizer, load_data
from headwork.models.decoder import DecoderConfig
from headwork.models.encoder import EncoderConfig
from headwork.models.encoder_decoder import EncoderDecoderConfig
from headwork.models.published import AnyConfig as ModelConfig
from headwork.serialise import config_from_dict, config_to_dict
from headwork.storage.folders import DamagedError, replace_file
from headwork.storage.models import CONFIG, read_json
from headwork.tasks import AnyTask, make_task
from headwork.training.config import RunConfig

TOKENIZER = "tokenizer.json"
TextModelConfig = EncoderConfig | DecoderConfig | EncoderDecoderConfig


@dataclass(frozen=True)
class Run:
    """A folder, what is in its `config.json`, and the words the model speaks: labels or tokens."""

    folder: Path
    config: RunConfig
    labels: tuple[str, ...] | None = None
    tokenizer: Tokenizer | None = None

    @property
    def task(self) -> AnyTask:
        return make_task(self.config.model, self.labels, self.tokenizer)

    def load_data(self) -> Dataset:
        """The data of the run, which must still speak its words: a text file, say, may have changed."""
        data = _read(self.config.data, self.config.training.seed)
        if data.labels != self.labels or _tokenizer_json(data.tokenizer) != _tokenizer_json(self.tokenizer):
            raise ValueError(f"data must be what the run was begun with, got other labels or tokens for {self.folder}")
        return data

    def files(self) -> dict[str, str]:
        """What the folder of a run holds beside its weights, and each checkpoint too, so that it can stand alone."""
        about = {"model": config_to_dict(self.config.model), "run": config_to_dict(self.config), "labels": self.labels}
        texts = {CONFIG: json.dumps(about, indent=2) + "\n"}
        return texts if self.tokenizer is None else texts | {TOKENIZER: self.tokenizer.to_json()}

    def write(self) -> None:
        for name, text in self.files().items():
            replace_file(self.folder / name, text)


def new_run(config: RunConfig, folder: Path, *, check: bool = True) -> Run:
    """A run that is about to begin; its folder must not hold anything yet (of many processes, one has to check)."""
    if check and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        what = "another run; continue it with --resume" if is_run(folder) else "something else"
        raise ValueError(f"out must be a new or an empty folder, got {folder}, which holds {what}")
    data = _read(config.data, config.training.seed)
    return Run(folder, replace(config, model=fit_to_data(config.model, data)), data.labels, data.tokenizer)


def open_run(folder: Path) -> Run:
    """The run in a folder."""
    about = read_json(folder / CONFIG) if (folder / CONFIG).is_file() else {}
    if "run" not in about:
        raise ValueError(f"run must be the folder of a run (with {CONFIG}, written by `headwork train`), got {folder}")
    config, labels, path = config_from_dict(about["run"], [RunConfig]), about.get("labels"), folder / TOKENIZER
    reads_text = isinstance(config.model, TextModelConfig)
    if reads_text and not path.is_file():
        raise DamagedError(f"{path} is missing")
    return Run(
        folder,
        config,
        tuple(map(str, labels)) if isinstance(labels, list) else None,
        Tokenizer.from_json(path.read_text(encoding="utf-8")) if reads_text else None,
    )


def is_run(folder: Path) -> bool:
    try:
        return "run" in read_json(folder / CONFIG)
    except (OSError, DamagedError):
        return False


@lru_cache(maxsize=1)
def _read(config: DataConfig, seed: int) -> Dataset:
    """The newest is kept: who trains, judges and reports on a run asks for the same data each time."""
    return load_data(config, seed)


def _tokenizer_json(tokenizer: Tokenizer | None) -> str | None:
    return None if tokenizer is None else tokenizer.to_json()


def fit_to_data(model: ModelConfig, data: Dataset) -> ModelConfig:
    """The model with as many words as the data has."""
    if isinstance(model, TextModelConfig) and data.tokenizer is not None:
        return replace(model, vocab=len(data.tokenizer))
    return model
