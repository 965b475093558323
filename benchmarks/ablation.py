"""What each choice of the recipe `shakespeare-gpt` brings: it is taken away, or added, for the same processor seconds.

    OMP_NUM_THREADS=1 python -m benchmarks.ablation --data-dir DATA --out runs/ablation.jsonl --seconds 45

Each row is trained with each seed; the number of its steps is what takes so many processor seconds, by a trial of a few
steps, so that a choice that makes a step slower has fewer. The loss is that of the 5 % for validation, at the end. What
is in the file already is not trained again.
"""

import argparse
import statistics
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.processor_seconds import Rows, Training, lasting

from headwork import choices
from headwork.models import DecoderConfig
from headwork.recipes import find_recipe
from headwork.training.config import AdamW, Cosine, RunConfig

Change = Callable[[RunConfig], RunConfig]


def of_model(**changes: object) -> Change:
    return lambda config: replace(config, model=replace(decoder(config), **changes))  # type: ignore[arg-type]


def of_training(**changes: object) -> Change:
    return lambda config: replace(config, training=replace(config.training, **changes))  # type: ignore[arg-type]


def decoder(config: RunConfig) -> DecoderConfig:
    assert isinstance(config.model, DecoderConfig)
    return config.model


def with_qk_norm(config: RunConfig) -> RunConfig:
    heads = decoder(config).heads
    assert isinstance(heads, choices.Heads)
    return replace(config, model=replace(decoder(config), heads=replace(heads, qk_norm=choices.QKNorm())))


ROWS: dict[str, Change] = {
    "as it is": lambda config: config,
    "AdamW instead of Muon": of_training(optimiser=AdamW(lr=3e-3, betas=(0.9, 0.95), weight_decay=0.1)),
    "GELU instead of squared ReLU": of_model(feed_forward=choices.FeedForward(d_ff=512, activation="gelu", bias=False)),
    "outputs that do not start at zero": of_training(zero_init_outputs=False),
    "with normalised queries and keys": with_qk_norm,
    "with value residuals": of_model(value_residual=True),
    "cosine instead of warm-up, stable, decay": of_training(schedule=Cosine(warmup=0.02)),
    "learned positions instead of rotary": of_model(position=choices.LearnedPositions(max_tokens=128)),
}


def train(name: str, seed: int, seconds: float, directory: str | None) -> dict[str, Any]:
    config = find_recipe("shakespeare-gpt")
    config = replace(config, data=replace(config.data, directory=directory))  # type: ignore[type-var]
    config = ROWS[name](replace(config, training=replace(config.training, seed=seed)))
    assert config.data is not None
    data = config.data.load(seed)
    training = Training(lasting(config, data, seconds), data)
    training.go_on(float("inf"))
    return {
        "row": name,
        "seed": seed,
        "seconds": round(training.seconds, 1),
        "steps": training.progress.step,
        "loss": round(training.valid()["loss"], 4),
    }


def show(done: list[dict[str, Any]]) -> None:
    print("| | steps | processor seconds | loss of each seed | mean | against the recipe |\n|---|---|---|---|---|---|")
    base = statistics.mean([each["loss"] for each in done if each["row"] == "as it is"] or [float("nan")])
    for name in ROWS:
        own = [each for each in done if each["row"] == name]
        if own:
            losses = [each["loss"] for each in own]
            mean = statistics.mean(losses)
            steps, seconds = (statistics.mean(each[key] for each in own) for key in ("steps", "seconds"))
            each = ", ".join(f"{loss:.3f}" for loss in losses)
            print(f"| {name} | {steps:.0f} | {seconds:.0f} | {each} | {mean:.3f} | {mean - base:+.3f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", help="where tiny Shakespeare is")
    parser.add_argument("--out", type=Path, required=True, help="a file of JSON lines, one for each run")
    parser.add_argument("--seconds", type=float, default=45.0)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS))
    arguments = parser.parse_args()
    done = Rows(arguments.out, planned=arguments.seconds)
    for seed in arguments.seeds:
        for name in arguments.rows:
            if not done.have(row=name, seed=seed):
                done.add(train(name, seed, arguments.seconds, arguments.data_dir))
    show(done)


if __name__ == "__main__":
    main()
