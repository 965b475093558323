"""Labels for an image, a text or anything else: one of them, or any number."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from headwork.batches import Batch, call_model
from headwork.checks import check_probability
from headwork.metric import Metric, MetricSum
from headwork.serialise import Checked
from headwork.tasks.task import Evaluation, Scores, score_outputs

ACCURACY = Metric("accuracy", percent=True)
MACRO_F1 = Metric("macro_f1", percent=True)
LABEL_ACCURACY = Metric("label_accuracy", percent=True)


@runtime_checkable
class LabelTask(Protocol):
    """A task whose answers are labels, which `headwork predict` can then name; both below are such."""

    @property
    def labels(self) -> tuple[str, ...]: ...

    def probabilities(self, logits: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class Classification(Checked):
    """Which of the labels an example has; the target of a batch is the index of the label.

    The loss is the cross-entropy, with `label_smoothing`, each target weighted by the weight of its class. The loss of
    an evaluation has neither, so that runs can be compared.
    """

    labels: tuple[str, ...]
    label_smoothing: float = 0.0
    class_weights: tuple[float, ...] | None = None

    output: ClassVar[str] = "class"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_distinct(self.labels)
        check_probability(label_smoothing=self.label_smoothing)
        weights = self.class_weights
        if weights is not None and (len(weights) != len(self.labels) or min(weights) < 0):
            raise ValueError(
                f"class_weights must have one weight of 0 or more for each of the {len(self.labels)} labels, "
                f"got {weights}"
            )

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return ACCURACY, MACRO_F1

    def n_targets(self, batch: Batch) -> int:
        return len(batch[-1])

    def score(self, model: nn.Module, batch: Batch) -> Scores:
        return self.score_logits(call_model(model, batch), batch[-1])

    def score_logits(
        self, logits: Float[Tensor, "batch class"], label: Int[Tensor, "batch"] | Float[Tensor, "batch class"]
    ) -> Scores:
        """Cross-entropy, and how many are right; of examples that were mixed, the label with the larger share is.

        >>> logits = torch.tensor([[2.0, 0.0], [0.0, 3.0], [1.0, 0.0]])
        >>> scores = Classification(("cat", "dog")).score_logits(logits, torch.tensor([0, 1, 1]))
        >>> float(scores["accuracy"].total), scores["accuracy"].weight
        (2.0, 3)
        """
        if logits.shape != (len(label), len(self.labels)):
            raise ValueError(
                f"the model must give one score for each of the {len(self.labels)} labels, shape "
                f"{(len(label), len(self.labels))}, got {tuple(logits.shape)}"
            )
        if label.ndim == 2 and label.shape != logits.shape:
            raise ValueError(f"labels must have the shape (batch,), got {tuple(label.shape)}: write labels.squeeze(1)")
        if label.ndim == 1 and label.is_floating_point():
            raise TypeError(f"labels must be whole numbers, got {label.dtype}: write labels.long()")
        hard = label if label.ndim == 1 else label.argmax(-1)
        check_labels(hard, len(self.labels))
        weights = None if self.class_weights is None else logits.new_tensor(self.class_weights)
        loss = F.cross_entropy(logits, label, weights, reduction="sum", label_smoothing=self.label_smoothing)
        right = (logits.detach().argmax(-1) == hard).float().sum()
        return {"loss": MetricSum(loss, len(label)), "accuracy": MetricSum(right, len(label))}

    def probabilities(self, logits: Float[Tensor, "batch class"]) -> Float[Tensor, "batch class"]:
        return logits.float().softmax(-1)

    def evaluate(self, model: nn.Module, batches: Iterable[Batch]) -> Evaluation:
        plain = replace(self, label_smoothing=0.0, class_weights=None)
        metrics, logits, target = score_outputs(call_model, plain.score_logits, model, batches)
        probabilities = self.probabilities(logits)
        predicted, n_classes = probabilities.argmax(-1), len(self.labels)
        right = torch.bincount(target[predicted == target], minlength=n_classes)
        named = torch.bincount(torch.cat([predicted, target]), minlength=n_classes)
        f1 = _mean_f1(right, named)
        return Evaluation(metrics | {"macro_f1": f1}, probabilities, target)


@dataclass(frozen=True)
class MultiLabel(Checked):
    """Which of the labels an example has, any number of them: the target is 0 or 1 for each.

    The loss is the binary cross-entropy of all labels; a label is predicted from a probability of 0.5 on.
    """

    labels: tuple[str, ...]

    output: ClassVar[str] = "class"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_distinct(self.labels)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return MACRO_F1, LABEL_ACCURACY

    def n_targets(self, batch: Batch) -> int:
        return batch[-1].numel()

    def score(self, model: nn.Module, batch: Batch) -> Scores:
        return self.score_logits(call_model(model, batch), batch[-1])

    def score_logits(self, logits: Float[Tensor, "batch class"], target: Tensor) -> Scores:
        wanted = (len(logits), len(self.labels))
        if target.shape != wanted or logits.shape != wanted:
            raise ValueError(
                f"model and data must have a number for each of the {len(self.labels)} labels, shape {wanted}, "
                f"got scores of shape {tuple(logits.shape)} and targets of shape {tuple(target.shape)}"
            )
        outside = target[(target != 0) & (target != 1)]
        if len(outside):
            raise ValueError(f"targets must be 0 or 1 for each label, got {outside[0].item()}")
        loss = F.binary_cross_entropy_with_logits(logits, target.to(logits.dtype), reduction="sum")
        right = ((logits.detach() >= 0) == target.bool()).float().sum()
        return {"loss": MetricSum(loss, target.numel()), "label_accuracy": MetricSum(right, target.numel())}

    def probabilities(self, logits: Float[Tensor, "batch class"]) -> Float[Tensor, "batch class"]:
        return logits.float().sigmoid()

    def evaluate(self, model: nn.Module, batches: Iterable[Batch]) -> Evaluation:
        metrics, logits, target = score_outputs(call_model, self.score_logits, model, batches)
        probabilities = self.probabilities(logits)
        return Evaluation(metrics | {"macro_f1": macro_f1(probabilities >= 0.5, target)}, probabilities, target)


def check_distinct(labels: tuple[str, ...]) -> None:
    if len(set(labels)) < len(labels):
        raise ValueError(f"labels must be different from each other, got {labels}")


def check_labels(label: Int[Tensor, "batch"], n_labels: int) -> None:
    outside = label[(label < 0) | (label >= n_labels)]
    if len(outside):
        raise ValueError(f"labels must lie in 0 .. {n_labels - 1}, got {int(outside[0])}")


def macro_f1(predicted: Tensor, target: Tensor) -> float:
    """The mean over the classes of 2 TP / (2 TP + FP + FN); both have a row for each example and 0 or 1 for each class.

    A class that is neither predicted nor true anywhere has no F1 and is left out of the mean.

    >>> macro_f1(torch.tensor([[1, 0], [1, 0]]), torch.tensor([[1, 0], [0, 1]]))
    0.3333333333333333
    """
    predicted, target = predicted.bool(), target.bool()
    return _mean_f1((predicted & target).sum(0), predicted.sum(0) + target.sum(0))


def _mean_f1(right: Tensor, named: Tensor) -> float:
    """From how often each class was right, and how often it was predicted or true."""
    return float((2 * right.double() / named)[named > 0].mean()) if named.any() else 0.0
