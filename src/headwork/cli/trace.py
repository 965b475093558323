"""`headwork trace`."""

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from headwork.cli.model_argument import OfModel, fake_model, find_config, image_of, make_inputs

FIGURE_ENDINGS = (".png", ".svg", ".pdf")
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
        with fake_model(self) as (model, inputs):
            table = trace(model, *inputs)
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
        from headwork.models import describe

        if self.figure is not None and self.batch != 1:
            raise ValueError(f"batch must be 1 with --figure, which draws one example, got {self.batch}")
        if self.figure is not None and self.figure.suffix.lower() not in FIGURE_ENDINGS:
            raise ValueError(f"figure must end in one of {', '.join(FIGURE_ENDINGS)}, got {self.figure}")
        if self.image is None:
            return
        if self.figure is None:
            raise ValueError(f"image is used for the drawing only: give --figure too, got image {self.image} alone")
        found = describe(find_config(self.model, self.own_classes))
        if found is None or found.image is None:
            raise ValueError(f"image is for image models, got {self.model}")


def draw(asked: Trace, path: Path) -> None:
    """Draw the inside of the model on a real example: with the weights in its folder, or with fresh ones."""
    import torch

    from headwork.data import read_image, sample_digit, sample_photo
    from headwork.figures import draw_inside
    from headwork.hub import load
    from headwork.models import describe

    config = find_config(asked.model, asked.own_classes)
    torch.manual_seed(0)
    inputs, description = make_inputs(asked, config, image_of(asked)), describe(config)
    assert description is not None
    if description.image is not None:
        assert description.n_channels is not None
        if asked.image is not None:
            inputs = [read_image(asked.image, description.image, description.n_channels)]
        elif (description.image, description.n_channels) == ((8, 8), 1):
            inputs = [sample_digit(0)]
        else:
            inputs = [sample_photo(description.image, description.n_channels)]
    elif description.vocab is not None:
        inputs = [torch.randint(description.vocab, ids.shape) for ids in inputs]
    is_saved = Path(asked.model).is_dir()
    model = load(asked.model, classes=asked.own_classes) if is_saved else config.build()
    figure = draw_inside(model, *inputs, title=asked.model if is_saved else f"{asked.model}, before training")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    print(f"drawn to {path}", file=sys.stderr)
