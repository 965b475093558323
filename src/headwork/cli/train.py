"""`headwork train`."""

import json
import os
import shlex
import sys
from dataclasses import dataclass, fields
from datetime import datetime
from inspect import cleandoc
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import Positional, arg

if TYPE_CHECKING:
    from headwork.data import DataConfig
    from headwork.recipes import Changes
    from headwork.training import Run


@dataclass(frozen=True)
class Train:
    """Train a model by a recipe, evaluate it, and write a report; or go on with a run that was stopped."""

    recipe: Annotated[Positional[str | None], arg(help="Which one (see --list); digits-vit unless given.")] = None
    out: Annotated[Path | None, arg(help="A new folder for the run; runs/RECIPE unless given.")] = None
    resume: Annotated[Path | None, arg(help="Go on with the run in this folder, as it was begun.")] = None
    list: Annotated[bool, arg(help="List the recipes, and what to expect of them.")] = False
    epochs: Annotated[int | None, arg(help="How often every example is seen.")] = None
    steps: Annotated[int | None, arg(help="How many steps, instead of epochs.")] = None
    batch_size: Annotated[int | None, arg(help="Examples in a step, over all processes.")] = None
    accumulate: Annotated[int | None, arg(help="Parts into which a step is split, to save memory.")] = None
    lr: Annotated[float | None, arg(help="Learning rate at its height.")] = None
    seed: Annotated[int | None, arg(help="Of the weights, the order, dropout and augmentation.")] = None
    device: Annotated[Literal["auto", "cpu", "cuda", "mps"] | None, arg(help="Where to compute.")] = None
    precision: Annotated[Literal["float32", "bfloat16", "float16"] | None, arg(help="Of the products.")] = None
    strategy: Annotated[Literal["auto", "ddp", "fsdp"] | None, arg(help="Of many processes (torchrun).")] = None
    compile: Annotated[bool, arg(help="Compile the model first (torch.compile).")] = False
    workers: Annotated[int | None, arg(help="Processes that prepare batches ahead.")] = None
    evaluate_every: Annotated[int | None, arg(help="Steps between evaluations; an epoch unless given.")] = None
    patience: Annotated[int | None, arg(help="Stop after so many evaluations that bring nothing better.")] = None
    text: Annotated[Path | None, arg(help="For text-gpt: learn to write like this UTF-8 file.")] = None
    pooling: Annotated[Literal["cls", "gap", "map"] | None, arg(help="What is read for a label.")] = None
    position: Annotated[
        Literal["none", "learned", "sinusoidal", "rotary", "alibi", "buckets", "relative"] | None,
        arg(help="How tokens know where they are."),
    ] = None
    norm: Annotated[Literal["pre", "post"] | None, arg(help="Where the norm stands.")] = None
    json: Annotated[bool, arg(help="Print the outcome as JSON for a program to read.")] = False

    def run(self) -> None:
        if self.list:
            print(json.dumps(describe_recipes(), indent=2) if self.json else list_recipes())
            return
        from headwork.reports.adapter import evaluate_test
        from headwork.reports.of_run import report_run
        from headwork.reports.watching import animate_places, make_watchers
        from headwork.storage import load
        from headwork.training import train
        from headwork.training.display import Quiet, make_display, show

        run = self.find_run()
        display = make_display() if is_first_process() else Quiet()
        display.say(f"{run.config.name} in {run.folder}")
        data = run.load_data()
        outcome = train(run, display, watchers=make_watchers(run, data))
        if not is_first_process():
            return
        baseline = measure_baseline(run.config.data)
        model = load(run.folder)
        report = report_run(
            run,
            data,
            model,
            evaluate_test(run, model, data.test, outcome.test),
            baseline,
            date=f"{datetime.now():%d %B %Y}",
            seconds=outcome.seconds,
            command=shlex.join(["headwork", *sys.argv[1:]]),
        )
        animate_places(run)
        if self.json:
            about = {"run": str(run.folder), "report": str(report), "baseline": baseline, **outcome._asdict()}
            print(json.dumps(about, indent=2))
        else:
            print(f"test: {', '.join(show(name, value) for name, value in outcome.test.items())}")
            if baseline is not None:
                print(f"test, by counting words: {show('accuracy', baseline)}")
            print(f"look at {report}, or compare runs with `headwork compare`")

    def find_run(self) -> "Run":
        from headwork.recipes import change, find_recipe
        from headwork.training import new_run, open_run

        if self.resume is not None:
            given = {**self.changes().given, "recipe": self.recipe, "out": self.out}
            for name, value in given.items():
                if value is not None:
                    raise ValueError(f"resume goes on with a run as it was begun: leave out {name}, got {value}")
            return open_run(self.resume)
        config = change(find_recipe(self.recipe or "digits-vit"), self.changes())
        if self.out is None and "WORLD_SIZE" in os.environ:
            raise ValueError("out must be given when many processes work on one run, got none")
        out = self.out or free_folder(Path("runs"), config.name)
        return new_run(config, out, check=is_first_process())

    def changes(self) -> "Changes":
        from headwork.recipes import Changes

        asked = {field.name: getattr(self, field.name) for field in fields(Changes)}
        return Changes(**asked | {"compile": self.compile or None})


def measure_baseline(data: "DataConfig") -> float | None:
    """What counting words reaches on the test data, if there are words and labels."""
    from headwork.data import Reviews, bag_of_words_accuracy, read_reviews

    if not isinstance(data, Reviews):
        return None
    texts = read_reviews(data)
    return bag_of_words_accuracy(texts.train, texts.test)


def is_first_process() -> bool:
    return os.environ.get("RANK", "0") == "0"


def free_folder(folder: Path, name: str) -> Path:
    """The first of NAME, NAME-2, NAME-3 ... that does not exist yet."""
    path, number = folder / name, 1
    while path.exists():
        number += 1
        path = folder / f"{name}-{number}"
    return path


def describe_recipes() -> dict[str, str]:
    from headwork.recipes import RECIPES

    return {name: cleandoc(recipe.__doc__ or "") for name, recipe in RECIPES.items()}


def list_recipes() -> str:
    return "\n\n".join(f"{name}\n{indent(text, '    ')}" for name, text in describe_recipes().items())
