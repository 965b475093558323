"""`headwork evaluate`."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg


@dataclass(frozen=True)
class Evaluate:
    """Measure the best checkpoint of a run on a split of its data."""

    run_folder: Annotated[Positional[Path], arg(name="run", help="The folder of a run.")]
    split: Annotated[Literal["train", "valid", "test"], arg(help="Which examples.")] = "test"
    batch_size: Annotated[int, arg(help="Examples at once.")] = 64
    json: Annotated[bool, arg(help="Print JSON for a program to read.")] = False

    def run(self) -> None:
        from headwork.checks import check_positive
        from headwork.storage import load
        from headwork.training import open_run
        from headwork.training.display import show
        from headwork.training.evaluation import measure_all

        check_positive(batch_size=self.batch_size)
        run = open_run(self.run_folder)
        examples = getattr(run.load_data(), self.split)
        figures = measure_all(run.task, load(self.run_folder), examples, self.batch_size)
        if self.json:
            print(json.dumps({"run": str(self.run_folder), "split": self.split, "examples": len(examples), **figures}))
        else:
            figure_words = ", ".join(show(name, value) for name, value in figures.items())
            print(f"{run.config.name} on {len(examples)} {self.split} examples: {figure_words}")
