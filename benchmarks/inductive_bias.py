"""A convolutional network against a Vision Transformer on more and more of CIFAR-10, for the same processor seconds.

    OMP_NUM_THREADS=1 python -m benchmarks.inductive_bias --data-dir DATA --out runs/bias --seconds 150

The recipes `cifar10-resnet` and `cifar10-vit`, each as it is but for the number of images and of steps; that is what
takes so many processor seconds, by a trial of a few steps. 5,000 of the 50,000 training images are held out, as
always, so that 45,000 are all there are. Test accuracy at the end, of the averaged weights; nothing is chosen by it.
What is in the file already is not trained again.
"""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from benchmarks.processor_seconds import Rows, Training, lasting

from headwork.recipes import find_recipe

RECIPES = ("cifar10-resnet", "cifar10-vit")


def train(recipe: str, n_train: int, seed: int, seconds: float, directory: str | None) -> dict[str, Any]:
    config = find_recipe(recipe)
    config = replace(config, data=replace(config.data, directory=directory, n_train=n_train))  # type: ignore[type-var]
    config = replace(config, training=replace(config.training, seed=seed))
    assert config.data is not None
    data = config.data.load(seed)
    training = Training(lasting(config, data, seconds), data)
    training.go_on(float("inf"))
    return {
        "recipe": recipe,
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
        for recipe, marker, name in zip(RECIPES, "so", ("ResNet", "ViT"), strict=True):
            own = sorted((each for each in done if each["recipe"] == recipe), key=lambda each: each["n_train"])
            sizes, accuracy = [each["n_train"] for each in own], [100 * each["accuracy"] for each in own]
            ax.semilogx(sizes, accuracy, marker=marker, label=f"{name}, {own[0]['n_weights']:,} weights")
        sizes = sorted({each["n_train"] for each in done})
        ax.set_xticks(sizes, [f"{size:,}" for size in sizes])
        ax.minorticks_off()
        seconds = sum(each["seconds"] for each in done) / len(done)
        ax.set(xlabel=f"training images, for {seconds:.0f} processor seconds each", ylabel="test accuracy (%)")
        ax.legend(frameon=False)
        figure.savefig(file, dpi=150)


def show(done: list[dict[str, Any]]) -> None:
    print("| images | network | steps (epochs) | processor seconds | test accuracy |\n|---|---|---|---|---|")
    for each in sorted(done, key=lambda each: (each["n_train"], each["recipe"], each["seed"])):
        steps = f"{each['steps']:,} ({each['epochs']:g})"
        accuracy = f"{100 * each['accuracy']:.1f} %"
        print(f"| {each['n_train']:,} | {each['recipe']} | {steps} | {each['seconds']:.0f} | {accuracy} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", help="where CIFAR-10 is")
    parser.add_argument("--out", type=Path, required=True, help="a folder for the results and the figure")
    parser.add_argument("--seconds", type=float, default=150.0)
    parser.add_argument("--sizes", type=int, nargs="+", default=[500, 2000, 10_000, 45_000])
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    done = Rows(arguments.out / "runs.jsonl")
    print(f"{torch.get_num_threads()} threads")
    for n_train in arguments.sizes:
        for recipe in RECIPES:
            if not done.have(recipe=recipe, n_train=n_train, seed=arguments.seed):
                done.add(train(recipe, n_train, arguments.seed, arguments.seconds, arguments.data_dir))
    draw(done, arguments.out / "inductive-bias.png")
    show(done)


if __name__ == "__main__":
    main()
