"""How a small Vision Transformer pools its tokens and knows their places: CIFAR-10, equal processor seconds.

    OMP_NUM_THREADS=1 python -m benchmarks.pooling_and_positions --data-dir DATA --out runs/pooling.jsonl --seconds 120

`--precision bfloat16` is faster where the processor has it.

The training of the recipe `fashion-vit` and a smaller model, so that a minute is more than one epoch: 3 layers of width
64, a mean over all tokens, a learned code for each patch of 4 x 4 pixels. It learns the images of CIFAR-10, or with
`--set fashion` those of Fashion-MNIST, and each row changes one thing. The rotary code turns by the number of the
patch, row after row. The last two rows are `GaussianImageEncoder` of the same width and depth: "relative" has a learned
code for each shift of rows and of columns beside the content, "Gaussian" looks by position alone, and each of its heads
passes the whole token on. Each row is trained with each seed for as many steps as take so many processor seconds, by a
trial of a few; test accuracy at the end, of the averaged weights. What is in the file already is not trained again.
"""

import argparse
import statistics
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from benchmarks.processor_seconds import Rows, Training, lasting

import headwork as hw
from headwork import choices
from headwork.data import Cifar10
from headwork.models import GaussianImageEncoderConfig, VisionTransformer, VisionTransformerConfig
from headwork.recipes import find_recipe
from headwork.recipes.known_sets import CENTRES
from headwork.training.config import RunConfig


@dataclass(frozen=True, kw_only=True)
class RotaryViTConfig(VisionTransformerConfig):
    """A ViT that turns its queries and keys by the number of the patch."""

    position: choices.GridPositions = choices.NoPositions()

    def build(self, *, device: Any = None, dtype: torch.dtype | None = None) -> VisionTransformer:
        model = super().build(device=device, dtype=dtype)
        model.layers.positions = hw.layers.RotaryPositions(self.d_head).to(device=device, dtype=dtype)
        return model


def of_grid(config: VisionTransformerConfig, heads: choices.ImageHeads) -> GaussianImageEncoderConfig:
    """The same sizes, with heads that look over the grid of patches."""
    names = ("n_classes", "image", "n_channels", "patch", "d_model", "n_layers", "feed_forward", "norm", "norm_order")
    return GaussianImageEncoderConfig(**{name: getattr(config, name) for name in names}, heads=heads, dropout=0.0)


def rows(base: VisionTransformerConfig) -> dict[str, Any]:
    """The models of all rows, by name."""
    n_heads, shared = base.heads.n_heads, {field.name: getattr(base, field.name) for field in fields(base)}
    return {
        "mean (GAP), learned positions": base,
        "class token (CLS)": replace(base, pooling=choices.ClassToken()),
        "attention (MAP)": replace(base, pooling=choices.AttentionPooling(n_heads=n_heads)),
        "no positions": replace(base, position=choices.NoPositions()),
        "sinusoidal": replace(base, position=choices.SinusoidalGrid()),
        "rotary": RotaryViTConfig(**(shared | {"position": choices.NoPositions()})),
        "relative": of_grid(base, choices.ContentShiftHeads(n_heads=n_heads)),
        "Gaussian": of_grid(base, choices.GaussianHeads(n_heads=n_heads)),
    }


def train(config: RunConfig, model: Any, name: str, seed: int, seconds: float) -> dict[str, Any]:
    config = replace(config, model=model, training=replace(config.training, seed=seed))
    if isinstance(getattr(model, "heads", None), choices.GaussianHeads):
        optimiser = replace(config.training.optimiser, lr_factors=CENTRES)
        config = replace(config, training=replace(config.training, optimiser=optimiser))
    assert config.data is not None
    data = config.data.load(seed)
    training = Training(lasting(config, data, seconds), data)
    training.go_on(float("inf"))
    return {
        "row": name,
        "seed": seed,
        "seconds": round(training.seconds, 1),
        "steps": training.progress.step,
        "n_weights": sum(parameter.numel() for parameter in training.model.parameters()),
        "accuracy": round(training.valid("test")["accuracy"], 4),
    }


def show(done: list[dict[str, Any]], names: list[str]) -> None:
    print("| | weights | steps | processor seconds | test accuracy of each seed | mean and deviation |")
    print("|---|---|---|---|---|---|")
    for name in names:
        own = [each for each in done if each["row"] == name]
        if own:
            accuracy = [100 * each["accuracy"] for each in own]
            steps, seconds = (statistics.mean(each[key] for each in own) for key in ("steps", "seconds"))
            spread = f" ± {statistics.stdev(accuracy):.2f}" if len(accuracy) > 1 else ""
            numbers = ", ".join(f"{a:.2f}" for a in accuracy)
            print(
                f"| {name} | {own[0]['n_weights']:,} | {steps:.0f} | {seconds:.0f} | {numbers} |"
                f" {statistics.mean(accuracy):.2f}{spread} % |"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", help="where the data set is")
    parser.add_argument("--set", choices=("cifar10", "fashion"), default="cifar10")
    parser.add_argument("--out", type=Path, required=True, help="a file of JSON lines, one for each run")
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--precision", default="float32", help="as of `headwork train`")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    arguments = parser.parse_args()
    config = find_recipe("fashion-vit")
    assert isinstance(config.model, VisionTransformerConfig)
    config = replace(
        config, model=replace(config.model, d_model=64, n_layers=3, feed_forward=choices.FeedForward(d_ff=128))
    )
    if arguments.set == "cifar10":
        config = replace(config, data=Cifar10(), model=replace(config.model, image=(32, 32), n_channels=3))
    config = replace(config, data=replace(config.data, directory=arguments.data_dir))  # type: ignore[type-var]
    config = replace(config, training=replace(config.training, precision=arguments.precision))
    assert isinstance(config.model, VisionTransformerConfig)
    models = rows(config.model)
    done = Rows(arguments.out, planned=arguments.seconds, precision=arguments.precision, set=arguments.set)
    for seed in arguments.seeds:
        for name, model in models.items():
            if not done.have(row=name, seed=seed):
                done.add(train(config, model, name, seed, arguments.seconds))
    show(done, list(models))


if __name__ == "__main__":
    main()
