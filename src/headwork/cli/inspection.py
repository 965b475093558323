"""`headwork trace`, `headwork cost` and `headwork models`: what is inside a model, without training it."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from headwork.cli.arguments import OfModel, check_figure, save_figure

LARGEST_DRAWN = 10**9
"""Parameters: a figure needs real weights, and these have to fit into the memory of a laptop."""


@dataclass(frozen=True)
class Trace(OfModel):
    """List every intermediate of a model: name, shape, axes."""

    all: Annotated[bool, arg(help="List every layer, also those that are alike (JSON always does).")] = False
    figure: Annotated[Path | None, arg(help="Also draw what happens inside to this file (.png, .svg, .pdf).")] = None
    image: Annotated[Path | None, arg(help="The picture to draw it for (image models).")] = None

    def run(self) -> None:
        from headwork.inspection import trace

        self.check()
        with self.fake_model() as (model, inputs):
            table = trace(model, *inputs)
            n_parameters = sum(p.numel() for p in model.parameters())
        if self.figure is not None and n_parameters > LARGEST_DRAWN:
            raise ValueError(f"figure needs the weights of {self.model}, {n_parameters:,} of them: too many")
        if self.figure is not None:
            self.draw(self.figure)
        if self.json:
            print(json.dumps([asdict(row) for row in table], indent=2))
        else:
            print(table.text(fold=not self.all))

    def check(self) -> None:
        """Raise for options that do not go together, before any work is done."""
        from headwork.models import describe

        check_figure(self.figure)
        if self.figure is not None and self.batch != 1:
            raise ValueError(f"batch must be 1 with --figure, which draws one example, got {self.batch}")
        if self.image is None:
            return
        if self.figure is None:
            raise ValueError(f"image is used for the drawing only: give --figure too, got image {self.image} alone")
        found = describe(self.find_config())
        if found is None or found.image is None:
            raise ValueError(f"image is for image models, got {self.model}")

    def draw(self, path: Path) -> None:
        """Draw the inside of the model on a real example: with the weights in its folder, or with fresh ones."""
        import torch

        from headwork.data import read_image, sample_digit, sample_photo
        from headwork.figures import draw_inside
        from headwork.hub import load
        from headwork.models import describe

        config = self.find_config()
        torch.manual_seed(0)
        inputs, description = self.make_inputs(config, self.find_image_size(config)), describe(config)
        assert description is not None
        if description.image is not None:
            assert description.n_channels is not None
            if self.image is not None:
                inputs = [read_image(self.image, description.image, description.n_channels)]
            elif (description.image, description.n_channels) == ((8, 8), 1):
                inputs = [sample_digit(0)]
            else:
                inputs = [sample_photo(description.image, description.n_channels)]
        elif description.vocab is not None:
            inputs = [torch.randint(description.vocab, ids.shape) for ids in inputs]
        is_saved = Path(self.model).is_dir()
        model = load(self.model, classes=self.own_classes) if is_saved else config.build()
        title = self.model if is_saved else f"{self.model}, before training"
        save_figure(draw_inside(model, *inputs, title=title), path)


@dataclass(frozen=True)
class Cost(OfModel):
    """Count parameters, FLOPs and memory of a forward pass, and say which term dominates."""

    def run(self) -> None:
        from headwork.inspection import cost

        with self.fake_model() as (model, inputs):
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
class Models:
    """List the published models that are known by name."""

    json: Annotated[bool, arg(help="Print JSON for a program to read.")] = False

    def run(self) -> None:
        from headwork.models import PUBLISHED
        from headwork.serialise import config_to_dict

        if self.json:
            print(json.dumps({name: config_to_dict(config) for name, config in PUBLISHED.items()}, indent=2))
            return
        for name, config in PUBLISHED.items():
            print(f"{name:<18} {type(config).__name__.removesuffix('Config')}")
