"""One label for an image or for a text."""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from headwork.data import ImageBatch, TextBatch
from headwork.tasks.task import Share, Shares


def score_labels(
    logits: Float[Tensor, "batch class"], label: Int[Tensor, "batch"], label_smoothing: float = 0.0
) -> Shares:
    """Cross-entropy, and how many are right.

    >>> scores = score_labels(torch.tensor([[2.0, 0.0], [0.0, 3.0], [1.0, 0.0]]), torch.tensor([0, 1, 1]))
    >>> scores["accuracy"].total.item(), scores["accuracy"].weight
    (2.0, 3)
    """
    loss = F.cross_entropy(logits, label, reduction="sum", label_smoothing=label_smoothing)
    right = (logits.detach().argmax(-1) == label).float().sum()
    return {"loss": Share(loss, len(label)), "accuracy": Share(right, len(label))}


@dataclass(frozen=True)
class ImageClassification:
    """Which of the labels an image shows."""

    labels: tuple[str, ...]
    metric: str = "accuracy"
    best: Literal["highest", "lowest"] = "highest"

    def n_targets(self, batch: ImageBatch) -> int:
        return len(batch.label)

    def logits(self, model: nn.Module, batch: ImageBatch) -> Float[Tensor, "batch class"]:
        return model(batch.image)

    def score(self, model: nn.Module, batch: ImageBatch, label_smoothing: float = 0.0) -> Shares:
        return score_labels(self.logits(model, batch), batch.label, label_smoothing)

    def measure(self, model: nn.Module, batch: ImageBatch) -> Shares:
        return self.score(model, batch)


@dataclass(frozen=True)
class TextClassification:
    """Which of the labels a text deserves."""

    labels: tuple[str, ...]
    metric: str = "accuracy"
    best: Literal["highest", "lowest"] = "highest"

    def n_targets(self, batch: TextBatch) -> int:
        return len(batch.label)

    def logits(self, model: nn.Module, batch: TextBatch) -> Float[Tensor, "batch class"]:
        return model(batch.ids, visible=batch.visible)

    def score(self, model: nn.Module, batch: TextBatch, label_smoothing: float = 0.0) -> Shares:
        return score_labels(self.logits(model, batch), batch.label, label_smoothing)

    def measure(self, model: nn.Module, batch: TextBatch) -> Shares:
        return self.score(model, batch)


Classification = ImageClassification | TextClassification


@torch.no_grad()
def probabilities(
    task: Classification, model: nn.Module, batch: ImageBatch | TextBatch
) -> Float[Tensor, "batch class"]:
    """How likely each label is, according to the model."""
    return task.logits(model, batch).softmax(-1)  # type: ignore[arg-type]  # each task has batches of its own
