"""Where a run stands: the one thing that its steps, evaluations and checkpoints share."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from headwork.metric import Metric, MetricSum, MetricSums


@dataclass
class Progress:
    """Changed by its own methods only."""

    step: int = 0
    part: int = 0
    """How many parts of the next step have been accumulated already."""
    metrics: MetricSums = field(default_factory=MetricSums)
    """On the training data, since the last evaluation."""
    best_step: int | None = None
    best_value: float | None = None
    n_worse: int = 0
    """Evaluations since the best one."""
    seconds: float = 0.0

    def after_part(self, scores: Mapping[str, MetricSum]) -> None:
        self.metrics.add(scores)
        self.part += 1

    def after_step(self) -> None:
        self.step, self.part = self.step + 1, 0

    def after_evaluation(self, metric: Metric, value: float) -> tuple[bool, dict[str, float]]:
        """Whether it is the best so far, and the training metrics since the last evaluation, which start again."""
        train, self.metrics = self.metrics.means(), MetricSums()
        if metric.is_better(value, self.best_value):
            self.best_step, self.best_value, self.n_worse = self.step, value, 0
            return True, train
        self.n_worse += 1
        return False, train

    def at(self, seconds: float) -> None:
        self.seconds = seconds

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"metrics": self.metrics.sums}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Progress":
        sums = {name: (float(total), float(weight)) for name, (total, weight) in data["metrics"].items()}
        return cls(**{**data, "metrics": MetricSums(sums)})
