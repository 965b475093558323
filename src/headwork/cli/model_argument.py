"""Which model a command is about, and an input for it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

if TYPE_CHECKING:
    from torch import Tensor, nn

    from headwork.models import AnyConfig as ModelConfig

CONFIG = "config.json"
LARGEST_SIZE = 10**7
MODEL_HELP = "A published model (see `headwork models`), a config.json file, or the folder of a model or run."


@dataclass(frozen=True)
class OfModel:
    """Which model, and how large its input."""

    model: Annotated[Positional[str], arg(help=MODEL_HELP)] = "digits-vit"
    tokens: Annotated[int | None, arg(help="Length of each sequence (text models; 16 unless given).")] = None
    batch: Annotated[int, arg(help="Sequences or images at once.")] = 1
    json: Annotated[bool, arg(help="Print JSON for a program to read.")] = False


def find_config(name: str) -> "ModelConfig":
    """The config of a published model, or the one in a file."""

    from headwork.models import MODEL_CONFIGS, published
    from headwork.serialise import config_from_dict

    path = Path(name)
    if (path / CONFIG).is_file():
        path = path / CONFIG
    elif path.suffix != ".json":
        return published(name)
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"model must be a config file that exists, got {path}") from None
    except IsADirectoryError:
        raise ValueError(f"model must be a config file, got the folder {path}") from None
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"model must be a config file in JSON, got {path} ({error})") from None
    of_folder = isinstance(data, dict) and "model" in data
    return config_from_dict(data["model"] if of_folder else data, MODEL_CONFIGS)  # type: ignore[return-value]


@contextmanager
def fake_model(asked: OfModel) -> "Iterator[tuple[nn.Module, list[Tensor]]]":
    """The model and its input without their numbers: shapes and costs need none, so any size fits on a laptop."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    config = find_config(asked.model)
    with FakeTensorMode():
        yield config.build(), make_inputs(config, asked)


def image_of_run(folder: Path) -> tuple[int, int]:
    """The images that a run was trained on; 32 x 32 for a model without one."""
    from headwork.data import Digits, Mnist5k
    from headwork.training.run import is_run, open_run

    data = open_run(folder).config.data if is_run(folder) else None
    return data.image if isinstance(data, Digits | Mnist5k) else (32, 32)


def make_inputs(config: "ModelConfig", asked: OfModel) -> "list[Tensor]":
    """Inputs of the right shape: ids of 0, or images of 0."""
    import torch

    from headwork.checks import check_positive
    from headwork.models import (
        DecoderConfig,
        EncoderConfig,
        EncoderDecoderConfig,
        GaussianImageEncoderConfig,
        ResNetConfig,
        VisionTransformerConfig,
    )

    check_positive(tokens=asked.tokens, batch=asked.batch)
    if max(asked.tokens or 0, asked.batch) > LARGEST_SIZE:
        raise ValueError(f"tokens and batch must be at most {LARGEST_SIZE:,}, got {asked.tokens} and {asked.batch}")
    is_text = isinstance(config, EncoderConfig | DecoderConfig | EncoderDecoderConfig)
    if asked.tokens is not None and not is_text:
        raise ValueError(f"tokens is for text models, got {asked.tokens} for {asked.model}")
    n_tokens = asked.tokens or 16
    match config:
        case VisionTransformerConfig() | GaussianImageEncoderConfig():
            return [torch.zeros(asked.batch, config.n_channels, *config.image)]
        case ResNetConfig():
            return [torch.zeros(asked.batch, config.n_channels, *image_of_run(Path(asked.model)))]
        case EncoderDecoderConfig():
            return [torch.zeros(asked.batch, n_tokens, dtype=torch.long)] * 2
        case _:
            return [torch.zeros(asked.batch, n_tokens, dtype=torch.long)]
