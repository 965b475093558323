"""A convolutional network against a Vision Transformer on more and more of CIFAR-10, for the same processor seconds.

    OMP_NUM_THREADS=1 python -m benchmarks.inductive_bias --data-dir DATA --out runs/bias --precision bfloat16

The recipes `cifar10-resnet` and `cifar10-vit` with smaller networks, batches of 128, and crops and mirror images only:
a ResNet of eight layers, and a ViT whose patches are mapped by one matrix, without the convolutions in front that would
give it the other's inductive bias. Each takes as many steps as fit into so many processor seconds, by a trial of a few.
5,000 of the 50,000 training images are held out, as always, so that 45,000 are all there are. Test accuracy at the end,
of the averaged weights; nothing is chosen by it. What is in the file already is not trained again.
"""

import argparse
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.processor_seconds import Rows, Training, lasting

from headwork import choices
from headwork.data import Augmentation, Cifar10
from headwork.recipes import find_recipe

NETWORKS: dict[str, tuple[str, dict[str, Any]]] = {
    "ResNet": ("cifar10-resnet", {"widths": (24, 48, 96)}),
    "ViT": (
        "cifar10-vit",
        {
            "embedding": choices.LinearPatches(),
            "d_model": 96,
            "n_layers": 4,
            "heads": choices.Heads(n_heads=4, bias=False),
            "feed_forward": choices.FeedForward(d_ff=192, activation="relu2", bias=False),
        },
    ),
}
"""The recipe of each, and what is smaller."""


def train(network: str, n_train: int, arguments: argparse.Namespace) -> dict[str, Any]:
    recipe, smaller = NETWORKS[network]
    config, seed = find_recipe(recipe), arguments.seed
    data_config = Cifar10(directory=arguments.data_dir, n_train=n_train, augment=Augmentation(crop=4, flip=True))
    training_config = replace(config.training, seed=seed, batch_size=128, precision=arguments.precision)
    model = replace(config.model, **smaller)  # type: ignore[type-var]
    config = replace(config, data=data_config, model=model, training=training_config)
    assert config.data is not None
    data = config.data.load(seed)
    training = Training(lasting(config, data, arguments.seconds), data)
    training.go_on(float("inf"))
    return {
        "network": network,
        "n_train": n_train,
        "seed": seed,
        "seconds": round(training.seconds, 1),
        "steps": training.progress.step,
        "epochs": round(training.progress.step * config.training.batch_size / n_train, 1),
        "accuracy": round(training.valid("test")["accuracy"], 4),
        "n_weights": sum(parameter.numel() for parameter in training.model.parameters()),
    }


def draw(done: list[dict[str, Any]], file: Path) -> None:
    from headwork.figures import Figure, plot_style

    with plot_style():
        figure = Figure(figsize=(4.8, 3.4), layout="constrained")
        ax = figure.subplots()
        sizes = sorted({each["n_train"] for each in done})
        for name, marker in zip(NETWORKS, "so", strict=True):
            own = [each for each in done if each["network"] == name]
            accuracy = [
                statistics.mean(100 * each["accuracy"] for each in own if each["n_train"] == size) for size in sizes
            ]
            ax.semilogx(sizes, accuracy, marker=marker, label=f"{name}, {own[0]['n_weights']:,} weights")
        ax.set_xticks(sizes, [f"{size:,}" for size in sizes])
        ax.minorticks_off()
        seconds = sum(each["seconds"] for each in done) / len(done)
        ax.set(xlabel=f"training images, for {seconds:.0f} processor seconds each", ylabel="test accuracy (%)")
        ax.legend(frameon=False)
        figure.savefig(file, dpi=150)


def show(done: list[dict[str, Any]]) -> None:
    print("| images | network | steps (epochs) | processor seconds | test accuracy |\n|---|---|---|---|---|")
    for each in sorted(done, key=lambda each: (each["n_train"], each["network"], each["seed"])):
        steps = f"{each['steps']:,} ({each['epochs']:g})"
        accuracy = f"{100 * each['accuracy']:.1f} %"
        print(f"| {each['n_train']:,} | {each['network']} | {steps} | {each['seconds']:.0f} | {accuracy} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", help="where CIFAR-10 is")
    parser.add_argument("--out", type=Path, required=True, help="a folder for the results and the figure")
    parser.add_argument("--seconds", type=float, default=240.0)
    parser.add_argument("--precision", default="float32", help="as of `headwork train`")
    parser.add_argument("--sizes", type=int, nargs="+", default=[500, 2000, 10_000, 45_000])
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    done = Rows(arguments.out / "runs.jsonl", planned=arguments.seconds, precision=arguments.precision)
    for n_train in arguments.sizes:
        for network in NETWORKS:
            if not done.have(network=network, n_train=n_train, seed=arguments.seed):
                done.add(train(network, n_train, arguments))
    draw(done, arguments.out / "inductive-bias.png")
    show(done)


if __name__ == "__main__":
    main()
