"""`headwork evaluate`."""

import json
from dataclasses import dataclass
from typing import Annotated, Literal

from tyro.conf import arg

from headwork.cli.run_argument import Imports, OfRun, open_with


@dataclass(frozen=True)
class Evaluate(Imports, OfRun):
    """Measure the best checkpoint of a run on a split of its data."""

    split: Annotated[Literal["train", "valid", "test"], arg(help="Which examples.")] = "test"
    batch_size: Annotated[int, arg(help="Examples at once.")] = 64
    json: Annotated[bool, arg(help="Print JSON for a program to read.")] = False

    def run(self) -> None:
        from headwork.checks import check_positive
        from headwork.training.display import show
        from headwork.training.plan import ordered_batches

        check_positive(batch_size=self.batch_size)
        run, model = open_with(self.run_folder, self.own_classes)
        examples = getattr(run.load_data(), self.split)
        metrics = run.task.evaluate(model, ordered_batches(examples, self.batch_size)).metrics
        if self.json:
            print(json.dumps({"run": str(self.run_folder), "split": self.split, "examples": len(examples), **metrics}))
        else:
            print(f"{run.config.name} on {len(examples)} {self.split} examples: {show(metrics, run.task)}")
