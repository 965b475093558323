"""A run is a folder: what it is (`config.json`), how it goes (`metrics.jsonl`), what it has learned (`checkpoints`)."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

from headwork.configs import config_from_dict, config_to_dict
from headwork.data import Dataset, Tokens, load_data
from headwork.models.decoder import DecoderConfig
from headwork.models.encoder import EncoderConfig
from headwork.models.encoder_decoder import EncoderDecoderConfig
from headwork.models.sizes import ModelConfig
from headwork.storage.folders import replace_file
from headwork.storage.models import CONFIG, read_json
from headwork.tasks import AnyTask, make_task
from headwork.training.config import RunConfig

TOKENS = "tokens.json"


@dataclass(frozen=True)
class Run:
    """A folder, what is in its `config.json`, and the words the model speaks: labels or tokens."""

    folder: Path
    config: RunConfig
    labels: tuple[str, ...] | None = None
    tokens: Tokens | None = None

    @property
    def task(self) -> AnyTask:
        return make_task(self.config.model, self.labels, self.tokens)

    def load_data(self) -> Dataset:
        return load_data(self.config.data, self.config.training.seed)

    def files(self) -> dict[str, str]:
        """What the folder of a run holds beside its weights, and each checkpoint too, so that it can stand alone."""
        about = {"model": config_to_dict(self.config.model), "run": config_to_dict(self.config), "labels": self.labels}
        texts = {CONFIG: json.dumps(about, indent=2) + "\n"}
        return texts if self.tokens is None else texts | {TOKENS: self.tokens.to_json()}

    def write(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        for name, text in self.files().items():
            replace_file(self.folder / name, text)


def new_run(config: RunConfig, folder: Path, data: Dataset, *, check: bool = True) -> Run:
    """A run that is about to begin; its folder must not hold anything yet (of many processes, one has to check)."""
    if check and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        what = "another run; continue it with --resume" if is_run(folder) else "something else"
        raise ValueError(f"out must be a new or an empty folder, got {folder}, which holds {what}")
    model = fit_to_data(config.model, data)
    return Run(folder, replace(config, model=model), data.labels, data.tokens)


def open_run(folder: Path) -> Run:
    """The run in a folder."""
    if not is_run(folder):
        raise ValueError(f"run must be the folder of a run (with {CONFIG}, written by `headwork train`), got {folder}")
    about = read_json(folder / CONFIG)
    labels = about.get("labels")
    tokens = folder / TOKENS
    return Run(
        folder,
        config_from_dict(about["run"], [RunConfig]),
        tuple(map(str, labels)) if isinstance(labels, list) else None,
        Tokens.from_json(tokens.read_text(encoding="utf-8")) if tokens.exists() else None,
    )


def is_run(folder: Path) -> bool:
    return (folder / CONFIG).is_file() and "run" in read_json(folder / CONFIG)


def fit_to_data(model: ModelConfig, data: Dataset) -> ModelConfig:
    """The model with as many words as the data has."""
    match model:
        case EncoderConfig() | DecoderConfig() | EncoderDecoderConfig() if data.tokens is not None:
            return replace(model, vocab=len(data.tokens))
        case _:
            return model
