"""What every task has: a loss to learn from, and figures to judge by."""

from collections.abc import Mapping
from typing import Literal, NamedTuple, Protocol, TypeVar, runtime_checkable

from torch import Tensor, nn

from headwork.data import Batch

B_contra = TypeVar("B_contra", bound=Batch, contravariant=True)


class Share(NamedTuple):
    """A mean that is not divided yet, so that shares of many batches and processes can be added."""

    total: Tensor
    weight: float


Shares = Mapping[str, Share]


@runtime_checkable
class Task(Protocol[B_contra]):
    """A task knows its batches: how to score them, how to count them, and which figure says who is best."""

    @property
    def metric(self) -> str:
        """The figure by which the best checkpoint is chosen."""

    @property
    def best(self) -> Literal["highest", "lowest"]:
        """Which of its values is the best."""

    def n_targets(self, batch: B_contra) -> int:
        """How many predictions a batch asks for: the loss is their mean, whatever the batch is split into."""

    def score(self, model: nn.Module, batch: B_contra, label_smoothing: float = 0.0) -> Shares:
        """The summed loss of a batch, to be differentiated, and what can be told beside it at no cost."""

    def measure(self, model: nn.Module, batch: B_contra) -> Shares:
        """All figures of a batch, for evaluation."""


Sums = dict[str, tuple[float, float]]
"""Shares of many batches, added: (total, weight) by name."""


def add_to(sums: Sums, shares: Shares) -> None:
    """Add the shares of one more batch.

    >>> from torch import tensor
    >>> sums = {"loss": (3.0, 2.0)}
    >>> add_to(sums, {"loss": Share(tensor(1.0), 2)})
    >>> means(sums)
    {'loss': 1.0}
    """
    for name, share in shares.items():
        total, weight = sums.get(name, (0.0, 0.0))
        sums[name] = total + float(share.total.detach()), weight + share.weight


def means(sums: Sums) -> dict[str, float]:
    return {name: total / weight for name, (total, weight) in sums.items()}
