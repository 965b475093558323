"""Question 2(e) of the ETH sheet, for a run of `cifar10-gaussian`: where do heads go, do they become a convolution?

    headwork train cifar10-gaussian --precision bfloat16 --out runs/cifar10-gaussian
    python -m benchmarks.heads_on_cifar10 runs/cifar10-gaussian --out runs/heads

Layer by layer: how far the heads have moved, how far from the query they look, how sharply, and how many of the nine
places of a 3 x 3 kernel have a head nearest to them. A place is a patch of 2 x 2 pixels, and so is the unit of all
distances. Then the network with convolutions instead of its heads, by `hw.convert.to_convolution`: the bound of the
error, and the accuracy on the test images. At last the network with the heads of its first layers, one more each time,
moved to their nearest patch and seeing that alone, as the theorem has it. All numbers are of the best checkpoint; the
figures show the heads at every epoch.
"""

import argparse
import json
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from torch import nn

import headwork as hw
from headwork.data import Examples
from headwork.figures import animate_centres, draw_centres
from headwork.inspection.heads import Snapshot, gaussian_layers, half_radius
from headwork.layers import GaussianAttention
from headwork.training.recorder import read_centres
from headwork.training.run import open_run


def layer_rows(history: list[Snapshot], model: nn.Module) -> list[dict[str, Any]]:
    """One row for each layer, from where its heads began and where they are."""
    rows = []
    for name, heads in gaussian_layers(model).items():
        begun = torch.tensor(history[0][name]["centre"])
        centre, alpha = heads.centre.detach(), heads.alpha.detach()
        places = {tuple(place) for place in centre.round().int().tolist()}
        rows.append(
            {
                "layer": name,
                "moved": (centre - begun).norm(dim=1).mean().item(),
                "distance": centre.norm(dim=1).mean().item(),
                "alpha": alpha.median().item(),
                "radius": torch.as_tensor(half_radius(alpha)).median().item(),
                "places of 3 x 3": len({place for place in places if max(map(abs, place)) <= 1}),
            }
        )
    return rows


@torch.no_grad()
def accuracy(model: nn.Module, examples: Examples, n_images: int, batch: int = 200) -> float:
    right = 0
    for first in range(0, n_images, batch):
        images, labels = examples.batch(range(first, min(first + batch, n_images)))
        right += int((model(images).argmax(1) == labels).sum())
    return right / n_images


def changed_models(model: nn.Module, sizes: list[int], layers: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The model with convolutions of each size, then with heads of single patches in more and more layers.

    What the conversion finds out about each layer is written to its row.
    """
    for size in sizes:
        converted = hw.convert.to_convolution(model, kernel_size=(size, size))
        bounds = [layer.error_bound for layer in converted.layers]
        for row, layer in zip(layers, converted.layers, strict=True):
            row["largest weight"] = sum(layer.single_pixel) / layer.n_heads
            row[f"bound {size}"] = layer.error_bound
        yield {"network": f"{size} x {size} convolutions", "bound": max(bounds), "model": converted.model}
    single = hw.convert.to_single_pixels(model)
    names = [name for name, module in model.named_modules() if isinstance(module, GaussianAttention)]
    mixed = deepcopy(model)
    for number, name in enumerate(names, start=1):
        mixed.set_submodule(name, single.get_submodule(name))
        which = "the first layer" if number == 1 else f"the first {number} layers"
        yield {"network": f"heads of single patches in {which}", "model": mixed}


def show(found: dict[str, Any], sizes: list[int]) -> None:
    keys = ("moved", "distance", "alpha", "radius", "largest weight")
    heads = (
        "moved by, mean | distance from the query, mean | alpha, median | radius of half the weight, median | "
        "largest weight of a head, mean | places of 3 x 3 that have a head"
    )
    print(f"| layer | {heads} | " + " | ".join(f"bound, {size} x {size}" for size in sizes) + " |")
    print("|---" * (7 + len(sizes)) + "|")
    for row in found["layers"]:
        numbers = " | ".join(f"{row[key]:.2f}" for key in keys)
        bounds = " | ".join(f"{row[f'bound {size}']:.2g}" for size in sizes)
        print(f"| {row['layer']} | {numbers} | {row['places of 3 x 3']} of 9 | {bounds} |")
    print("\n| network | largest bound of a layer | test accuracy |\n|---|---|---|")
    for row in found["networks"]:
        bound = f"{row['bound']:.2g}" if "bound" in row else ""
        print(f"| {row['network']} | {bound} | {100 * row['accuracy']:.2f} % |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="the folder of the run")
    parser.add_argument("--out", type=Path, required=True, help="a folder for the numbers and the figures")
    parser.add_argument("--sizes", type=int, nargs="+", default=[3, 7, 15], help="of the kernels")
    parser.add_argument("--images", type=int, help="of the test images the first so many; all unless given")
    arguments = parser.parse_args()
    history = read_centres(arguments.run)
    arguments.out.mkdir(parents=True, exist_ok=True)
    draw_centres(history[-1], earlier=history[:-1]).savefig(arguments.out / "heads.png", dpi=150)
    animate_centres(history, arguments.out / "heads.gif")
    test, model = open_run(arguments.run).load_data().test, hw.load(arguments.run).eval()
    n_images = arguments.images or len(test)
    layers = layer_rows(history, model)
    networks: list[dict[str, Any]] = [{"network": "as it was trained", "accuracy": accuracy(model, test, n_images)}]
    for row in changed_models(model, arguments.sizes, layers):
        changed = row.pop("model")
        networks.append({**row, "accuracy": accuracy(changed, test, n_images)})
        print(networks[-1], flush=True)
    found: dict[str, Any] = {"layers": layers, "networks": networks}
    (arguments.out / "heads.json").write_text(json.dumps(found, indent=1), encoding="utf-8")
    show(found, arguments.sizes)


if __name__ == "__main__":
    main()
