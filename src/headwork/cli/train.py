"""`headwork train`."""

import json
import os
import shlex
import sys
from dataclasses import dataclass, replace
from inspect import cleandoc
from itertools import chain, count
from math import ceil
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Annotated, Any, get_args

from tyro.conf import Positional, UseAppendAction, arg

from headwork.cli.arguments import Imports, warnings_in_lines
from headwork.cli.training_flags import TrainingFlags, values_of
from headwork.processes import is_first_process
from headwork.tables import one_line

if TYPE_CHECKING:
    from headwork.data import Dataset
    from headwork.training import Run, RunConfig, TrainingResult
    from headwork.training.recorder import Watcher

DEFAULT = "digits-vit"
FEWEST_STEPS = 400
"""With fewer steps than these a recipe learns little of anyone's data."""
DATA_HELP = (
    "Data of your own for the recipe's model: a folder of images by class, a table with texts and labels, a text or a "
    "folder of texts, a table of translations; or given twice: two files, line by line."
)
SET_HELP = "Set any field of the config by its path: training.optimiser.lr=1e-3, model.position=RotaryPositions."

FROM_HELP = "Train on from this model: a folder of Hugging Face's, a GGUF file, an id of the Hub, or a run."
LORA_HELP = "With --from: adapt these linear maps at low rank, as layers.*.attention.query; can be given again."


@dataclass(frozen=True, kw_only=True)
class Train(Imports, TrainingFlags):
    """Train a model by a recipe, evaluate it, and write a report; or go on with a run that was stopped."""

    recipe: Annotated[
        Positional[str | None], arg(help=f"One of --list, or your own: my_module:my_recipe; {DEFAULT} unless given.")
    ] = None
    from_: Annotated[str | None, arg(name="from", metavar="MODEL", help=FROM_HELP)] = None
    freeze: Annotated[bool, arg(help="With --from: train the last layers only.")] = False
    lora: Annotated[UseAppendAction[tuple[str, ...]], arg(help=LORA_HELP)] = ()
    lora_rank: Annotated[int | None, arg(help="Of --lora: numbers between the two matrices; 8 unless given.")] = None
    lora_alpha: Annotated[float | None, arg(help="Of --lora: how much it counts, over the rank; else 16.")] = None
    data: Annotated[UseAppendAction[tuple[str, ...]], arg(help=DATA_HELP)] = ()
    data_dir: Annotated[Path | None, arg(help="The folder in which the data set of the recipe is.")] = None
    out: Annotated[Path | None, arg(help="A new folder for the run; runs/RECIPE unless given.")] = None
    resume: Annotated[Path | None, arg(help="Go on with the run in this folder, as it was begun.")] = None
    list: Annotated[bool, arg(help="List the recipes, with their time and result.")] = False
    set: Annotated[UseAppendAction[tuple[str, ...]], arg(help=SET_HELP)] = ()
    json: Annotated[bool, arg(help="Print the result as JSON for a program to read.")] = False

    @property
    def recipe_name(self) -> str:
        return DEFAULT if self.recipe is None else self.recipe

    def run(self) -> None:
        if self.list:
            print(list_recipes(as_json=self.json))
            return
        if is_first_process():  # what follows takes seconds, and a user should not wonder
            what = one_line(str(self.resume or self.recipe_name))
            print(f"loading PyTorch and {what}", file=sys.stderr, flush=True)
        from headwork.training import train_run
        from headwork.training.display import make_display
        from headwork.training.machine import describe_load

        run, data = self.find_run()
        display = make_display()
        if (busy := describe_load(run.config.training)) is not None:
            display.say(busy)
        result = train_run(run, display, watchers=watchers_for(run, data), data=data)
        if is_first_process():
            display.say(f"writing the report of step {result.best_step}, the best")
            self.report(run, data, result)

    def report(self, run: "Run", data: "Dataset", result: "TrainingResult") -> None:
        from headwork.data import HasBagOfWords
        from headwork.reports.of_run import report_run
        from headwork.tasks import metrics_by_name
        from headwork.training.display import show

        if not self.json:
            print(f"test: {show(result.test, run.task)}", flush=True)  # the report takes seconds
        data_config: object = run.config.data
        baseline = None
        if isinstance(data_config, HasBagOfWords):
            try:
                baseline = data_config.bag_of_words_accuracy()
            except ValueError as error:  # texts of one word each, or of a language without spaces
                print(f"no accuracy by counting words: {error}", file=sys.stderr)
        report = report_run(run, data, result.model, result.evaluation, baseline, seconds=result.seconds)
        animate_centres_of(run)
        if self.json:
            numbers = {name: getattr(result, name) for name in ("best_step", "valid", "test", "seconds")}
            about = {"run": str(run.folder), "report": str(report), "baseline": baseline, **numbers}
            print(json.dumps(about, indent=2))
            return
        if baseline is not None:
            print(f"test, by counting words: accuracy {metrics_by_name(run.task)['accuracy'].show(baseline)}")
        print(f"look at {report}, or compare runs with `headwork compare`")

    def find_run(self) -> "tuple[Run, Dataset]":
        from headwork.recipes import find_recipe, override, read_settings
        from headwork.seeds import seed_everything
        from headwork.training import new_run, open_run

        if self.resume is not None:
            given = {**self.given, "set": self.set or None, "recipe": self.recipe, "out": self.out, **self.of_from()}
            given |= {"data": self.data or None, "data-dir": self.data_dir}
            for name, value in given.items():
                if value is not None:
                    longer = f": {self.say_longer(name, value)}" if name in ("epochs", "steps") else ""
                    rule = "goes on with a run as it was begun"
                    raise ValueError(f"resume {rule}: leave out {name}, got {value}{longer}")
            run = open_run(self.resume, self.own_classes)
            return run, run.load_data()
        seed_everything(self.seed or 0)  # for a recipe that builds its model
        config = self.with_data_of(find_recipe(self.recipe_name))
        settings = read_settings(self.set)
        values = self.overrides(config) | settings | self.directory(config, settings)
        if self.out is None and "WORLD_SIZE" in os.environ:
            raise ValueError("out must be given when many processes work on one run, got none")
        out = self.out or free_folder(Path("runs"), config.name)
        if self.from_ is not None:
            config, data = self.start_from(config, values)
            config = self.sized_for(config, data, values)
            return new_run(config, out, data, check=is_first_process()), data
        for name, value in self.of_from().items():
            if value is not None:
                raise ValueError(f"{name} is for a model to train on from, got {value} without --from MODEL")
        config = override(config, values, self.own_classes)
        assert config.data is not None
        data = config.data.load(config.training.seed)
        config = self.sized_for(config, data, values)
        return new_run(config, out, data, check=is_first_process()), data

    def say_longer(self, name: str, value: object) -> str:
        """How the model of the run is trained longer: its learning rate fell to the end of the run, and rises again."""
        from headwork.recipes import RECIPES
        from headwork.training import open_run

        assert self.resume is not None
        config = open_run(self.resume, self.own_classes).config
        path = getattr(config.data, "path", None)
        data = ["--data", path] if isinstance(path, str) else []
        recipe = config.name if config.name in RECIPES else "RECIPE"
        words = ["headwork", "train", recipe, *data, "--from", str(self.resume), f"--{name}", str(value)]
        return f"a new run trains its model longer, `{shlex.join(words)}`"

    def of_from(self) -> "dict[str, object]":
        """What belongs to --from; None if it was not given."""
        return {
            "from": self.from_,
            "freeze": self.freeze or None,
            "lora": self.lora or None,
            "lora-rank": self.lora_rank,
            "lora-alpha": self.lora_alpha,
        }

    def start_from(self, config: "RunConfig", values: dict[str, object]) -> "tuple[RunConfig, Dataset]":
        """The config with another model, as it comes out of its folder, and data that it can read."""
        from headwork import choices
        from headwork.convert import LoRA
        from headwork.recipes import override
        from headwork.serialise import config_from_dict
        from headwork.training import Muon, start_from

        assert self.from_ is not None
        if self.freeze and self.lora:
            raise ValueError(f"give freeze or lora, not both, got lora {' '.join(self.lora)}")
        for name, given in (("lora-rank", self.lora_rank), ("lora-alpha", self.lora_alpha)):
            if given is not None and not self.lora:
                raise ValueError(f"{name} is for --lora, got {given} without it")
        of_model = {path: values.pop(path) for path in list(values) if path.partition(".")[0] == "model"}
        poolings = [of_model.pop(path) for path in ("model.pooling", "model.head.pooling") if path in of_model]
        for path, value in of_model.items():
            raise ValueError(f"{path} is that of the model in --from: leave it out, got {value}")
        has_lr = "training.optimiser.lr" in values
        config = override(config, values, self.own_classes)
        kinds: tuple[type[Any], ...] = get_args(choices.TextPooling | choices.ImagePooling)
        adapt = None
        if self.lora:
            adapt = LoRA(names=self.lora, rank=self.lora_rank or 8, alpha=self.lora_alpha or 16.0)
        assert config.data is not None
        with warnings_in_lines():
            start = start_from(
                self.from_,
                config.data,
                freeze=self.freeze,
                adapt=adapt,
                pooling=config_from_dict(poolings[0], kinds) if poolings else None,
                seed=config.training.seed,
            )
        n_trained = sum(parameter.numel() for parameter in start.model.parameters() if parameter.requires_grad)
        n_all = sum(parameter.numel() for parameter in start.model.parameters())
        said = f"from {self.from_}: {n_trained:,} of {n_all:,} parameters are trained"
        if start.new:
            said += f"; fresh: {', '.join(start.new)}"
        optimiser, others = config.training.optimiser, {path for path in values if path != "training.optimiser.lr"}
        if isinstance(optimiser, Muon) and not any(path.startswith("training.optimiser") for path in others):
            adamw = replace(optimiser.adamw, lr=optimiser.lr)
            config = replace(config, training=replace(config.training, optimiser=adamw))
            said += "; the recipe's AdamW for all weights, without its Muon"
        if not has_lr:
            config = override(config, {"training.optimiser.lr": start.lr})
            said += f"; learning rate {start.lr:g}, unless --lr says another"
        if is_first_process():
            print(said, file=sys.stderr)
        return replace(config, model=start.model, data=start.config), start.data

    def sized_for(self, config: "RunConfig", data: "Dataset", values: "dict[str, object]") -> "RunConfig":
        """Smaller batches and more epochs than those of the recipe for fewer examples, unless they were asked for.

        With fewer examples than a batch has, an epoch gets four steps or more; with data of one's own, all epochs
        together get `FEWEST_STEPS` or more.
        """
        training, n = config.training, len(data.train)
        n_parts = training.accumulate * int(os.environ.get("WORLD_SIZE", "1"))
        said = []
        if training.batch_size > n and "training.batch_size" not in values:
            batch_size = n_parts * max(n // (4 * n_parts), 1)
            said.append(f"batch size {batch_size} instead of {training.batch_size}")
            training = replace(training, batch_size=batch_size)
        epochs = ceil(FEWEST_STEPS / max(n // training.batch_size, 1))
        if self.data and "training.epochs" not in values and (training.epochs or epochs) < epochs:
            said.append(f"{epochs} epochs instead of {training.epochs}")
            training = replace(training, epochs=epochs)
        if said and is_first_process():
            print(f"{' and '.join(said)}, for {n:,} examples", file=sys.stderr)
        return replace(config, training=training)

    def with_data_of(self, config: "RunConfig") -> "RunConfig":
        """The recipe with the data that was given."""
        from headwork.recipes import with_data

        if self.data and self.data_dir is not None:
            raise ValueError(f"give data or data-dir, not both, got {' and '.join(self.data)} and {self.data_dir}")
        return with_data(config, self.data) if self.data else config

    def directory(self, config: "RunConfig", settings: "dict[str, object]") -> "dict[str, object]":
        """Where the data set is, if that was said: of the recipe's own, or of one that is set instead of it."""
        if self.data_dir is None:
            return {}
        if "data.directory" in settings:
            raise ValueError(f"give data-dir or data.directory, not both, got {self.data_dir}")
        if "data" not in settings and not hasattr(config.data, "directory"):
            raise ValueError(f"data-dir is for recipes with a data set of their own, got it for {config.name}")
        return {"data.directory": str(self.data_dir.resolve())}


def with_recipe(name: str) -> Train:
    """The command with the values of a recipe, for its help to show."""
    from headwork.recipes import find_recipe

    return Train(**values_of(find_recipe(name)))


def watchers_for(run: "Run", data: "Dataset") -> "list[Watcher]":
    from headwork.reports.of_run import attention_pictures
    from headwork.training.plan import Plan
    from headwork.training.recorder import make_watchers

    plan = Plan.of(data.train, run.config.training)
    return make_watchers(
        run.folder, plan, lambda model: (picture.figure for picture in attention_pictures(run, model, data.valid))
    )


def animate_centres_of(run: "Run") -> None:
    """The centres of Gaussian heads over the run as a GIF, if there are such heads."""
    from headwork.training.recorder import HEADS, read_centres

    history = read_centres(run.folder)
    if history:
        from headwork.figures import animate_centres

        animate_centres(history, (run.folder / HEADS).with_suffix(".gif"))


def free_folder(folder: Path, name: str) -> Path:
    """The first of NAME, NAME-2, NAME-3 ... that does not exist yet."""
    names = chain([name], (f"{name}-{number}" for number in count(2)))
    return next(folder / each for each in names if not (folder / each).exists())


def list_recipes(*, as_json: bool) -> str:
    from headwork.recipes import RECIPES

    about = {name: cleandoc(recipe.__doc__ or "") for name, recipe in RECIPES.items()}
    as_text = "\n\n".join(f"{name}\n{indent(text, '    ')}" for name, text in about.items())
    return json.dumps(about, indent=2) if as_json else as_text
