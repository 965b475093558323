"""What is measured: metrics with their direction, sums that become means, and the rows of a run's log.

>>> accuracy = Metric("accuracy", percent=True)
>>> accuracy.show(0.9867), accuracy.is_better(0.9, 0.8)
('98.67 %', True)
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol, get_args, runtime_checkable

from headwork.checks import check_one_of

Split = Literal["train", "valid", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)
Logged = Literal[Split, "step"]
"""What a row is about: a split, or the one batch of a training step."""
LOGGED: tuple[Logged, ...] = get_args(Logged)


@dataclass(frozen=True)
class Metric:
    """A name, which direction is better, and whether people read it in per cent."""

    name: str
    direction: Literal["max", "min"] = "max"
    percent: bool = False

    def is_better(self, value: float, than: float | None) -> bool:
        """Whether the value beats another (None: there is none yet); NaN never does."""
        if than is None or math.isnan(than):
            return not math.isnan(value)
        return value > than if self.direction == "max" else value < than

    def show(self, value: float) -> str:
        return f"{100 * value:.2f} %" if self.percent and math.isfinite(value) else f"{value:.4f}"

    @property
    def label(self) -> str:
        """The name as people say it."""
        return self.name.replace("_", " ")


LOSS = Metric("loss", "min")


@runtime_checkable
class Number(Protocol):
    """A float, or a tensor with one number."""

    def __float__(self) -> float: ...


class MetricSum(NamedTuple):
    """A mean that is not divided yet, so that those of many batches and processes can be added."""

    total: Number
    weight: float


@dataclass
class MetricSums:
    """The sums of many batches by name, and their means.

    >>> sums = MetricSums()
    >>> sums.add({"loss": MetricSum(3.0, 2)})
    >>> sums.add({"loss": MetricSum(1.0, 2)})
    >>> sums.means()
    {'loss': 1.0}
    """

    sums: dict[str, tuple[float, float]] = field(default_factory=dict)

    def add(self, of_batch: Mapping[str, MetricSum]) -> None:
        for name, (total, weight) in of_batch.items():
            before, weight_before = self.sums.get(name, (0.0, 0.0))
            self.sums[name] = before + float(total), weight_before + weight

    def means(self) -> dict[str, float]:
        return {name: total / weight for name, (total, weight) in self.sums.items()}


@dataclass(frozen=True)
class MetricRow:
    """One line of a run's log: the loss and metrics of one split at one step, and the seconds since the run began.

    A row of a training step has the loss of its batch, the learning rate, the norm of the gradient and the speed.
    """

    step: int
    epoch: float
    split: Logged
    values: dict[str, float]
    seconds: float

    def __post_init__(self) -> None:
        check_one_of(LOGGED, split=self.split)

    def value(self, name: str) -> float:
        """The loss or a metric; NaN if it is not there or not finite.

        >>> MetricRow(20, 1, "valid", {"loss": 0.4, "accuracy": 0.9}, 2.5).value("accuracy")
        0.9
        """
        value = self.values.get(name, math.nan)
        return value if math.isfinite(value) else math.nan


def best_row(rows: Iterable[MetricRow], metric: Metric) -> MetricRow | None:
    """The validation row with the best metric, the first of equals; None if none has it.

    >>> rows = [MetricRow(step, 1, "valid", {"loss": loss}, 2.5) for step, loss in ((20, 0.4), (40, 0.3))]
    >>> best_row(rows, LOSS).step
    40
    """
    best: MetricRow | None = None
    for row in rows:
        if row.split == "valid" and metric.is_better(
            row.value(metric.name), None if best is None else best.value(metric.name)
        ):
            best = row
    return best


def last_row(rows: Sequence[MetricRow], split: Split) -> MetricRow | None:
    return next((row for row in reversed(rows) if row.split == split), None)
