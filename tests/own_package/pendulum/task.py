from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from headwork.metric import LOSS, Metric, MetricSum, MetricSums
from headwork.tasks import Evaluation


@dataclass(frozen=True)
class Frequency:
    """Least squares; a prediction within the tolerance counts as a hit."""

    tolerance: float = 0.1

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return LOSS, Metric("hits", percent=True)

    def n_targets(self, batch: tuple[Tensor, Tensor]) -> int:
        return len(batch[1])

    def score(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> dict[str, MetricSum]:
        series, frequency = batch
        error = model(series) - frequency
        hits = (error.detach().abs() < self.tolerance).float().sum()
        return {"loss": MetricSum(error.square().sum(), len(error)), "hits": MetricSum(hits, len(error))}

    @torch.no_grad()
    def evaluate(self, model: nn.Module, batches: Iterable[tuple[Tensor, Tensor]]) -> Evaluation:
        sums = MetricSums()
        for batch in batches:
            sums.add(self.score(model, batch))
        return Evaluation(sums.means())
