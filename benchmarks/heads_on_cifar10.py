"""Question 2(e) of the ETH sheet, for a run of `cifar10-gaussian`: where do heads go, do they become a convolution?

    headwork train cifar10-gaussian --precision bfloat16 --out runs/cifar10-gaussian
    python -m benchmarks.heads_on_cifar10 runs/cifar10-gaussian --out runs/heads

Layer by layer: how far the heads have moved, how far from the query they look, how sharply, and how many of the nine
pixels of a 3 x 3 kernel have a head nearest to them. Then the network with convolutions instead of its heads, by
`hw.convert.to_convolution`: the bound of the error, and the accuracy on the test images; at last the network with every
head moved to its nearest pixel and seeing that alone, as the theorem has it.
"""

import argparse
import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from torch import nn

import headwork as hw
from headwork.data import Examples
from headwork.figures import animate_centres, draw_centres
from headwork.inspection.heads import Snapshot, gaussian_layers, half_radius
from headwork.training.recorder import read_centres
from headwork.training.run import open_run

SINGLE = 100.0
"""The alpha of a head that sees a single pixel."""


def layer_rows(history: list[Snapshot], model: nn.Module) -> list[dict[str, Any]]:
    """One row for each layer, from where its heads began and where they are."""
    rows = []
    for name, heads in gaussian_layers(model).items():
        begun = torch.tensor(history[0][name]["centre"])
        centre, alpha = heads.centre.detach(), heads.alpha.detach()
        pixels = {tuple(pixel) for pixel in centre.round().int().tolist()}
        rows.append(
            {
                "layer": name,
                "way": (centre - begun).norm(dim=1).mean().item(),
                "distance": centre.norm(dim=1).mean().item(),
                "alpha": alpha.median().item(),
                "radius": torch.as_tensor(half_radius(alpha)).median().item(),
                "pixels of 3 x 3": len({pixel for pixel in pixels if max(map(abs, pixel)) <= 1}),
            }
        )
    return rows


@torch.no_grad()
def accuracy(model: nn.Module, examples: Examples, batch: int = 200) -> float:
    right = 0
    for first in range(0, len(examples), batch):
        images, labels = examples.batch(range(first, min(first + batch, len(examples))))
        right += int((model(images).argmax(1) == labels).sum())
    return right / len(examples)


@torch.no_grad()
def rounded(model: nn.Module) -> nn.Module:
    """Every head on its nearest pixel, which it sees alone."""
    model = deepcopy(model)
    for heads in gaussian_layers(model).values():
        heads.set_centres(heads.centre.round(), torch.full_like(heads.alpha, SINGLE))
    return model


def show(found: dict[str, Any]) -> None:
    print(
        "| layer | way, pixels | distance from the query | alpha, median | radius of half the weight "
        "| pixels of 3 x 3 |"
    )
    print("|---|---|---|---|---|---|")
    for row in found["layers"]:
        numbers = " | ".join(f"{row[key]:.2f}" for key in ("way", "distance", "alpha", "radius"))
        print(f"| {row['layer']} | {numbers} | {row['pixels of 3 x 3']} |")
    print(
        "\n| network | largest bound of a layer | largest weight of a head, mean | test accuracy |\n|---|---|---|---|"
    )
    for row in found["networks"]:
        bound, single = (f"{row[key]:.2g}" if key in row else "" for key in ("bound", "single pixel"))
        print(f"| {row['network']} | {bound} | {single} | {100 * row['accuracy']:.2f} % |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="the folder of the run")
    parser.add_argument("--out", type=Path, required=True, help="a folder for the numbers and the figures")
    parser.add_argument("--sizes", type=int, nargs="+", default=[3, 5, 7, 11, 15], help="of the kernels")
    arguments = parser.parse_args()
    run = open_run(arguments.run)
    data, model, history = run.load_data(), hw.load(arguments.run).eval(), read_centres(arguments.run)
    found: dict[str, Any] = {"layers": layer_rows(history, model), "networks": []}
    found["networks"].append({"network": "as it was trained", "accuracy": accuracy(model, data.test)})
    for size in arguments.sizes:
        converted = hw.convert.to_convolution(model, kernel_size=(size, size))
        singles = [share for layer in converted.layers for share in layer.single_pixel]
        found["networks"].append(
            {
                "network": f"{size} x {size} convolutions",
                "bound": max(layer.error_bound for layer in converted.layers),
                "single pixel": sum(singles) / len(singles),
                "accuracy": accuracy(converted.model, data.test),
            }
        )
    found["networks"].append({"network": "heads of single pixels", "accuracy": accuracy(rounded(model), data.test)})
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "heads.json").write_text(json.dumps(found, indent=1), encoding="utf-8")
    draw_centres(history[-1], earlier=history[:-1]).savefig(arguments.out / "heads.png", dpi=150)
    animate_centres(history, arguments.out / "heads.gif")
    show(found)


if __name__ == "__main__":
    main()
