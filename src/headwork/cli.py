"""The command line: `headwork COMMAND --help`. PyTorch is imported only by a command that needs it.

Exit code 0: done; 1: it failed; 2: you asked wrongly; 130: you stopped it.
"""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro
from tyro.conf import FlagCreatePairsOff, Positional, arg, subcommand

if TYPE_CHECKING:
    from torch import Tensor, nn

    from headwork.models import ModelConfig

FIGURE_ENDINGS = (".png", ".svg", ".pdf")
LARGEST_SIZE = 10**7
LARGEST_DRAWN = 10**9
"""Parameters: a figure needs real weights, and these have to fit into the memory of a laptop."""
MODEL_HELP = "A published model (see `headwork sizes`) or a config.json file."


@dataclass(frozen=True)
class OfModel:
    """Which model, and how large its input."""

    model: Annotated[Positional[str], arg(help=MODEL_HELP)] = "digits-vit"
    tokens: Annotated[int | None, arg(help="Length of each sequence (text models; 16 unless given).")] = None
    batch: Annotated[int, arg(help="Sequences or images at once.")] = 1
    json: Annotated[bool, arg(help="Print JSON for a program to read.")] = False


@dataclass(frozen=True)
class Trace(OfModel):
    """List every intermediate of a model: name, shape, axes."""

    all: Annotated[bool, arg(help="List every layer, also those that are alike (JSON always does).")] = False
    figure: Annotated[Path | None, arg(help="Also draw what happens inside to this file (.png, .svg, .pdf).")] = None
    image: Annotated[Path | None, arg(help="The picture to draw it for (image models).")] = None

    def run(self) -> None:
        from headwork.inspection import ledger

        self.check()
        with fake_model(self) as (model, inputs):
            table = ledger(model, *inputs)
            n_parameters = sum(p.numel() for p in model.parameters())
        if self.figure is not None and n_parameters > LARGEST_DRAWN:
            raise ValueError(f"figure needs the weights of {self.model}, {n_parameters:,} of them: too many")
        if self.figure is not None:
            draw(self, self.figure)
        if self.json:
            print(json.dumps([asdict(row) for row in table], indent=2))
        else:
            print(table.text(fold=not self.all))

    def check(self) -> None:
        """Raise for options that do not go together, before any work is done."""
        from headwork.models import GaussianImageEncoderConfig, VisionTransformerConfig

        if self.figure is not None and self.batch != 1:
            raise ValueError(f"batch must be 1 with --figure, which draws one example, got {self.batch}")
        if self.figure is not None and self.figure.suffix.lower() not in FIGURE_ENDINGS:
            raise ValueError(f"figure must end in one of {', '.join(FIGURE_ENDINGS)}, got {self.figure}")
        if self.image is None:
            return
        if self.figure is None:
            raise ValueError(f"image is used for the drawing only: give --figure too, got image {self.image} alone")
        if not isinstance(find_config(self.model), VisionTransformerConfig | GaussianImageEncoderConfig):
            raise ValueError(f"image is for image models, got {self.model}")


@dataclass(frozen=True)
class Cost(OfModel):
    """Count parameters, FLOPs and memory of a forward pass, and say which term dominates."""

    def run(self) -> None:
        from headwork.inspection import cost

        with fake_model(self) as (model, inputs):
            price = cost(model, *inputs)
        if not self.json:
            print(str(price))
            return
        summary = {
            "flops": price.flops,
            "by_operation": price.by_operation(),
            "crossover_tokens": price.crossover,
            "whole_crossover_tokens": price.whole_crossover,
        }
        print(json.dumps(summary | asdict(price), indent=2))


@dataclass(frozen=True)
class Sizes:
    """List the published models that are known by name."""

    json: Annotated[bool, arg(help="Print JSON for a program to read.")] = False

    def run(self) -> None:
        from headwork.configs import config_to_dict
        from headwork.models import SIZES

        if self.json:
            print(json.dumps({name: config_to_dict(config) for name, config in SIZES.items()}, indent=2))
        else:
            print(
                "\n".join(
                    f"{name:<18} {type(config).__name__.removesuffix('Config')}" for name, config in SIZES.items()
                )
            )


Command = (
    Annotated[Trace, subcommand("trace")] | Annotated[Cost, subcommand("cost")] | Annotated[Sizes, subcommand("sizes")]
)


def main(arguments: list[str] | None = None) -> int:
    """Run one command; the return value is the exit code."""
    command: Trace | Cost | Sizes = tyro.cli(
        Command,
        prog="headwork",
        description="Transformers you can read, run, prove and see.",
        args=arguments,
        config=(FlagCreatePairsOff,),
    )
    try:
        command.run()
        sys.stdout.flush()
    except ValueError as error:
        print(f"headwork: error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # whoever read the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (OSError, RuntimeError) as error:
        print(f"headwork: failed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("headwork: stopped", file=sys.stderr)
        return 130
    return 0


def find_config(name: str) -> "ModelConfig":
    """The config of a published model, or the one in a file."""
    from typing import get_args

    from headwork.configs import config_from_dict
    from headwork.models import ModelConfig, size

    path = Path(name)
    if path.suffix != ".json":
        return size(name)
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"model must be a config file that exists, got {path}") from None
    except IsADirectoryError:
        raise ValueError(f"model must be a config file, got the folder {path}") from None
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"model must be a config file in JSON, got {path} ({error})") from None
    return config_from_dict(data, get_args(ModelConfig))


@contextmanager
def fake_model(asked: OfModel) -> "Iterator[tuple[nn.Module, list[Tensor]]]":
    """The model and its input without their numbers: shapes and costs need none, so any size fits on a laptop."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    from headwork.models import build

    config = find_config(asked.model)
    with FakeTensorMode():
        yield build(config), make_inputs(config, asked)


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
            return [torch.zeros(asked.batch, config.n_channels, 32, 32)]
        case EncoderDecoderConfig():
            return [torch.zeros(asked.batch, n_tokens, dtype=torch.long)] * 2
        case _:
            return [torch.zeros(asked.batch, n_tokens, dtype=torch.long)]


def draw(asked: Trace, path: Path) -> None:
    """Draw the inside of the model, with fresh weights, on a real example."""
    import torch

    from headwork.data import read_image, sample_digit, sample_photo
    from headwork.inspection.figures import draw_inside
    from headwork.models import GaussianImageEncoderConfig, ResNetConfig, VisionTransformerConfig, build

    config = find_config(asked.model)
    torch.manual_seed(0)
    inputs = make_inputs(config, asked)
    if isinstance(config, VisionTransformerConfig | GaussianImageEncoderConfig):
        if asked.image is not None:
            inputs = [read_image(asked.image, config.image, config.n_channels)]
        elif (config.image, config.n_channels) == ((8, 8), 1):
            inputs = [sample_digit(0)]
        else:
            inputs = [sample_photo(config.image, config.n_channels)]
    elif not isinstance(config, ResNetConfig):
        inputs = [torch.randint(config.vocab, ids.shape) for ids in inputs]
    figure = draw_inside(build(config), *inputs, title=f"{asked.model}, before training")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    print(f"drawn to {path}", file=sys.stderr)
