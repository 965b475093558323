"""The model that a command is about, and an input for it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from headwork.cli.run_argument import Imports

if TYPE_CHECKING:
    from torch import Tensor, nn

CONFIG = "config.json"
LARGEST_SIZE = 10**7
MODEL_HELP = (
    "A published model (see `headwork models`), a config.json file, or the folder of a model (ours or Hugging Face's) "
    "or run."
)


@dataclass(frozen=True)
class OfModel(Imports):
    """A model, and the size of its input."""

    model: Annotated[Positional[str], arg(help=MODEL_HELP)] = "digits-vit"
    tokens: Annotated[int | None, arg(help="Length of each sequence (text models; 16 unless given).")] = None
    batch: Annotated[int, arg(help="Sequences or images at once.")] = 1
    json: Annotated[bool, arg(help="Print JSON for a program to read.")] = False


def find_config(name: str, classes: list[type]) -> Any:
    """The config of a published model, or what a file describes: a config, or a model of the user's own."""
    from headwork.hub import is_pretrained, read_config
    from headwork.models import CLASSES, published
    from headwork.serialise import config_from_dict

    path = Path(name)
    if is_pretrained(path):
        return read_config(path)
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
    return config_from_dict(data["model"] if of_folder else data, [*CLASSES, *classes])


@contextmanager
def fake_model(asked: OfModel) -> "Iterator[tuple[nn.Module, list[Tensor]]]":
    """The model and its input without their numbers: shapes and costs need none, so any size fits on a laptop."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    image = image_of(asked)
    with FakeTensorMode():
        config = find_config(asked.model, asked.own_classes)
        yield config.build() if hasattr(config, "build") else config, make_inputs(asked, config, image)


def image_of(asked: OfModel) -> tuple[int, int]:
    """For a model that takes images of any size: those that its run was trained on, or 32 x 32."""
    from headwork.models import describe

    found = describe(find_config(asked.model, asked.own_classes))
    if found is None or found.input != "image" or found.image is not None or not Path(asked.model).is_dir():
        return 32, 32
    from headwork.data import image_size
    from headwork.training.run import is_run, open_run

    if not is_run(Path(asked.model)):
        return 32, 32
    return image_size(open_run(Path(asked.model), asked.own_classes).load_data().test) or (32, 32)


def make_inputs(asked: OfModel, config: object, image: tuple[int, int]) -> "list[Tensor]":
    """Inputs of the right shape: ids of 0, or images of 0."""
    from headwork.checks import check_positive
    from headwork.models import describe, example_inputs

    check_positive(tokens=asked.tokens, batch=asked.batch)
    if max(asked.tokens or 0, asked.batch) > LARGEST_SIZE:
        raise ValueError(f"tokens and batch must be at most {LARGEST_SIZE:,}, got {asked.tokens} and {asked.batch}")
    description = describe(config)
    if description is None:
        raise ValueError(f"model must have a description, which says what it reads, got {asked.model}")
    if asked.tokens is not None and description.input == "image":
        raise ValueError(f"tokens is for text models, got {asked.tokens} for {asked.model}")
    return example_inputs(description, batch=asked.batch, n_tokens=asked.tokens or 16, image=image)
