"""What every task has: a loss to learn from, and metrics to judge by."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from headwork.metric import LOSS, Metric, MetricSum, MetricSums

Scores = dict[str, MetricSum]


@dataclass(frozen=True, eq=False)
class Evaluation:
    """A whole split, answered once: its metrics, and predictions beside targets where a task has such."""

    metrics: dict[str, float]
    predictions: Tensor | None = None
    """Probabilities of the classes, or the predicted numbers; one row for each example."""
    targets: Tensor | None = None


@runtime_checkable
class Task(Protocol):
    """What a model is trained for; it comes with the data. A frozen dataclass, so that a run can write it down.

    A task may also say which `output` of a described model it needs ("class", "next token", "masked token").
    """

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """What is measured beside the loss; the first chooses the best checkpoint."""

    def n_targets(self, batch: Any) -> int:
        """How many predictions a batch asks for: the loss is their mean, whatever the batch is split into."""

    def score(self, model: nn.Module, batch: Any) -> Scores:
        """The summed `loss` of a batch, to be differentiated, and metrics that cost nothing more."""

    def evaluate(self, model: nn.Module, batches: Iterable[Any]) -> Evaluation:
        """All metrics over all batches."""


def metrics_by_name(task: Task) -> dict[str, Metric]:
    """The metrics of a task and the loss, which every task has."""
    return {metric.name: metric for metric in (LOSS, *task.metrics)}


@torch.no_grad()
def score_outputs(
    predict: Callable[[nn.Module, Any], Tensor],
    score: Callable[[Tensor, Tensor], Scores],
    model: nn.Module,
    batches: Iterable[Any],
) -> tuple[dict[str, float], Tensor, Tensor]:
    """The means of the scores of all batches, the outputs in float32, and the targets."""
    sums, outputs, targets = MetricSums(), [], []
    for batch in batches:
        output = predict(model, batch)
        sums.add(score(output, batch[-1]))
        outputs.append(output.float().cpu())
        targets.append(batch[-1].cpu())
    return sums.means(), torch.cat(outputs), torch.cat(targets)


@torch.no_grad()
def sum_scores(score: Callable[[nn.Module, Any], Scores], model: nn.Module, batches: Iterable[Any]) -> Evaluation:
    """The means of the scores of all batches, for a task whose metrics are all means."""
    sums = MetricSums()
    for batch in batches:
        sums.add(score(model, batch))
    return Evaluation(sums.means())
