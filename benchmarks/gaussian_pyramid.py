"""CIFAR-10 by a network whose only mixing is Gaussian attention, which also halves the grid on the way.

    python -m benchmarks.gaussian_pyramid --data-dir DATA --out runs/gaussian-pyramid --precision bfloat16

`cifar10-gaussian` keeps its 16 x 16 tokens through all layers, as the paper does. Here the first layers have 16 x 16
tokens, then Gaussian heads look from between every four of them, which gives 8 x 8 of twice the width: what a stride is
to a convolution. The model is one's own in the sense of docs/own.md: a config with `build`, and a description.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

import headwork as hw
from headwork import choices
from headwork.checks import Count, Size
from headwork.layers import GaussianAttention, LayerNorm, PatchEmbedding
from headwork.models.gaussian_image_encoder import GaussianImageEncoderConfig, ImageLayer
from headwork.models.model import Description
from headwork.recipes.known_sets import CENTRES
from headwork.serialise import Checked
from headwork.training import AdamW, Muon, TrainingConfig, WarmupStableDecay


@dataclass(frozen=True, kw_only=True)
class GaussianPyramidConfig(Checked):
    """So many layers of each width; between two widths the grid is halved."""

    n_classes: Count
    image: Size = (32, 32)
    n_channels: Count = 3
    patch: Size = (2, 2)
    widths: tuple[int, ...] = (64, 128)
    n_layers: tuple[int, ...] = (2, 4)
    n_heads: Count = 9

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.widths) != len(self.n_layers) or not self.widths:
            raise ValueError(f"n_layers must be as many as widths, got {self.n_layers} and {self.widths}")

    @property
    def description(self) -> Description:
        return Description(
            input="image",
            output="class",
            n_outputs=self.n_classes,
            image=self.image,
            n_channels=self.n_channels,
            layers=tuple(f"stages.{i}.layers.{j}" for i, n in enumerate(self.n_layers) for j in range(n))
            + tuple(f"stages.{i}.halving" for i in range(1, len(self.widths))),
        )

    def build(self) -> "GaussianPyramid":
        return GaussianPyramid(self)


class Stage(nn.Module):
    """Layers of one width; before them heads that look from between every four tokens, if it is not the first."""

    def __init__(self, layer: GaussianImageEncoderConfig, n_layers: int, d_in: int | None) -> None:
        super().__init__()
        self.norm = None if d_in is None else LayerNorm(d_in)
        self.halving = None if d_in is None else GaussianAttention(d_in, layer.heads.n_heads, d_out=layer.d_model)
        self.layers = nn.ModuleList(ImageLayer(layer) for _ in range(n_layers))

    def forward(self, x: Float[Tensor, "batch row column d"]) -> Float[Tensor, "batch lower narrower wider"]:
        if self.halving is not None and self.norm is not None:
            rows, columns = (torch.arange(0.5, n - 1, 2, device=x.device) for n in x.shape[1:3])
            x = self.halving(self.norm(x), (rows, columns))
        grid = (x.shape[1], x.shape[2])
        x = rearrange(x, "batch row column d -> batch (row column) d")
        for layer in self.layers:
            x = layer(x, grid)
        return rearrange(x, "batch (row column) d -> batch row column d", row=grid[0])


class GaussianPyramid(nn.Module):
    """Patches, stages, the mean over all tokens, classes.

    >>> GaussianPyramidConfig(n_classes=10, widths=(4, 6), n_layers=(1, 2)).build()(torch.randn(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """

    def __init__(self, config: GaussianPyramidConfig) -> None:
        super().__init__()
        self.config = config
        self.patches = PatchEmbedding(config.n_channels, config.patch, config.widths[0])
        self.stages = nn.ModuleList()
        before = (None, *config.widths[:-1])
        for d_in, width, n_layers in zip(before, config.widths, config.n_layers, strict=True):
            self.stages.append(Stage(self._layer(width), n_layers, d_in))
        self.norm = LayerNorm(config.widths[-1])
        self.classifier = nn.Linear(config.widths[-1], config.n_classes)

    def _layer(self, width: int) -> GaussianImageEncoderConfig:
        return GaussianImageEncoderConfig(
            n_classes=self.config.n_classes,
            d_model=width,
            heads=choices.GaussianHeads(n_heads=self.config.n_heads),
            feed_forward=choices.FeedForward(d_ff=2 * width),
            norm_order="pre",
            dropout=0.0,
        )

    def forward(self, image: Float[Tensor, "batch channel row column"]) -> Float[Tensor, "batch class"]:
        x = rearrange(
            self.patches(image), "batch (row column) d -> batch row column d", row=self.patches.grid(image)[0]
        )
        for stage in self.stages:
            x = stage(x)
        return self.classifier(self.norm(x).mean((1, 2)))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", help="where CIFAR-10 is")
    parser.add_argument("--out", type=Path, required=True, help="a new folder for the run")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--widths", type=int, nargs="+", default=[64, 128])
    parser.add_argument("--layers", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--resume", action="store_true")
    given = parser.parse_args(arguments)
    data = hw.data.Cifar10(
        directory=given.data_dir, augment=hw.data.Augmentation(crop=4, flip=True, rand_augment=1, magnitude=0.2)
    )
    config = GaussianPyramidConfig(n_classes=10, widths=tuple(given.widths), n_layers=tuple(given.layers))
    training = TrainingConfig(
        batch_size=128,
        epochs=given.epochs,
        seed=given.seed,
        precision=given.precision,
        optimiser=Muon(lr=0.02, weight_decay=0.05, adamw=AdamW(lr=2e-3, weight_decay=0.0), lr_factors=CENTRES),
        schedule=WarmupStableDecay(warmup=0.05, decay=0.6),
        label_smoothing=0.1,
        ema=0.998,
    )
    done = hw.train(
        config, data, training, out=given.out, resume=given.resume, display=hw.training.display.make_display()
    )
    n_weights = sum(parameter.numel() for parameter in done.model.parameters())
    print(f"{n_weights:,} weights; test accuracy {100 * done.test['accuracy']:.2f} % after {done.seconds / 60:.0f} min")


if __name__ == "__main__":
    main()
