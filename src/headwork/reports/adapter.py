"""What training will hand over itself: its metrics, and the evaluation of the test set. Delete this file then."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from headwork.data import Examples, ImageBatch, TextBatch
from headwork.metric import Metric
from headwork.tasks import AnyTask, ImageClassification, TextClassification, probabilities
from headwork.training.display import is_share
from headwork.training.evaluation import batches
from headwork.training.run import Run


class Evaluated(NamedTuple):
    """The metrics of the test set, and predictions and targets of a classifier."""

    metrics: dict[str, float]
    predictions: Tensor | None = None
    targets: Tensor | None = None


def metrics_of(task: AnyTask) -> tuple[Metric, ...]:
    return (Metric(task.metric, "max" if task.best == "highest" else "min", is_share(task.metric)),)


def evaluate_test(run: Run, model: nn.Module, examples: Examples, metrics: dict[str, float]) -> Evaluated:
    """The probabilities of all labels for all examples, if the task has labels."""
    task = run.task
    if not isinstance(task, ImageClassification | TextClassification):
        return Evaluated(metrics)
    predictions, targets = [], []
    for batch in batches(examples, run.config.training.batch_size):
        assert isinstance(batch, ImageBatch | TextBatch)
        predictions.append(probabilities(task, model, batch))
        targets.append(batch.label)
    return Evaluated(metrics, torch.cat(predictions), torch.cat(targets))
