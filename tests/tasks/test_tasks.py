"""Losses and metrics as PyTorch and scikit-learn have them, however the examples are batched."""

import pytest
import torch
from sklearn import metrics as theirs
from sklearn.utils.class_weight import compute_class_weight
from torch import Tensor, nn
from torch.nn import functional as F

from headwork.batches import IGNORE, TokenBatch
from headwork.data import Dataset, TorchExamples
from headwork.metric import Metric
from headwork.tasks import (
    TASKS,
    Classification,
    LabelTask,
    MaskedTokens,
    MultiLabel,
    NextToken,
    Regression,
    Task,
    Translation,
    macro_f1,
)
from headwork.training import TrainingConfig
from headwork.training.fit import balanced_weights, task_for

LABELS = ("a", "b", "c", "d")


class Echo(nn.Module):
    """Answers with its input."""

    def forward(self, x: Tensor) -> Tensor:
        return x


def split(x: Tensor, y: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Batches of different sizes."""
    return list(zip(x.split([5, 11, 21]), y.split([5, 11, 21]), strict=True))


@pytest.fixture
def classified() -> tuple[Tensor, Tensor]:
    return torch.randn(37, 4), torch.randint(3, (37,))  # nobody has the last label


def test_every_task_keeps_the_protocol() -> None:
    made = [Classification(LABELS), MultiLabel(LABELS), Regression(), NextToken(), MaskedTokens(), Translation(1, 2)]
    assert {type(task) for task in made} == set(TASKS)
    for task in made:
        assert isinstance(task, Task)
        assert all(isinstance(metric, Metric) for metric in task.metrics)


def test_classification_is_that_of_scikit_learn(classified: tuple[Tensor, Tensor]) -> None:
    logits, label = classified
    found = Classification(LABELS, label_smoothing=0.3, class_weights=(1, 2, 3, 4)).evaluate(Echo(), split(*classified))
    predicted = logits.argmax(-1)
    assert found.metrics["accuracy"] == pytest.approx(theirs.accuracy_score(label, predicted))
    assert found.metrics["macro_f1"] == pytest.approx(theirs.f1_score(label, predicted, average="macro"))
    assert found.metrics["loss"] == pytest.approx(
        theirs.log_loss(label, logits.double().softmax(-1), labels=range(4)), abs=1e-6
    )
    torch.testing.assert_close(found.predictions, logits.softmax(-1))
    assert torch.equal(found.targets, label)


def test_a_class_that_nobody_has_or_predicts_does_not_count() -> None:
    predicted, true = torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 1, 2])
    ours = macro_f1(F.one_hot(predicted, 5), F.one_hot(true, 5))
    assert ours == pytest.approx(theirs.f1_score(true, predicted, average="macro"))


def test_weights_and_smoothing_are_those_of_torch(classified: tuple[Tensor, Tensor]) -> None:
    logits, label = classified
    weights = (0.5, 2.0, 1.0, 3.0)
    task = Classification(LABELS, label_smoothing=0.2, class_weights=weights)
    scores = task.score(Echo(), (logits, label))
    wanted = F.cross_entropy(logits, label, torch.tensor(weights), reduction="sum", label_smoothing=0.2)
    torch.testing.assert_close(scores["loss"].total, wanted)
    assert scores["loss"].weight == task.n_targets((logits, label)) == 37


def test_balanced_weights_are_those_of_scikit_learn() -> None:
    labels = [0] * 5 + [1] * 20 + [2] * 9 + [3] * 2
    examples = TorchExamples([(torch.zeros(2), label) for label in labels])
    data = Dataset(examples, examples, examples, Classification(LABELS))
    wanted = compute_class_weight("balanced", classes=torch.arange(4).numpy(), y=labels)
    assert balanced_weights(data) == pytest.approx(wanted.tolist(), rel=1e-6)
    task = task_for(TrainingConfig(batch_size=2, steps=1, class_weights="balanced"), data)
    assert task.class_weights == pytest.approx(wanted.tolist(), rel=1e-6)
    assert data.task == Classification(LABELS)
    nobody = Dataset(examples, examples, examples, Classification((*LABELS, "e")))
    with pytest.raises(ValueError, match="needs examples of every class, got none of class 4"):
        balanced_weights(nobody)


@pytest.mark.parametrize("name", ["label_smoothing", "class_weights"])
def test_a_setting_that_the_task_does_not_have_is_refused(name: str) -> None:
    examples = TorchExamples([(torch.zeros(2), 0.0)] * 4)
    value = 0.1 if name == "label_smoothing" else "balanced"
    with pytest.raises(ValueError, match=f"{name} is for tasks that have it, got {value} for Regression"):
        task_for(
            TrainingConfig(batch_size=2, steps=1, **{name: value}), Dataset(examples, examples, examples, Regression())
        )


def test_multi_label_is_that_of_scikit_learn() -> None:
    logits, target = torch.randn(37, 4), torch.randint(2, (37, 4))
    found = MultiLabel(LABELS).evaluate(Echo(), split(logits, target))
    predicted = (logits > 0).long()
    assert found.metrics["macro_f1"] == pytest.approx(theirs.f1_score(target, predicted, average="macro"))
    assert found.metrics["label_accuracy"] == pytest.approx((predicted == target).float().mean().item())
    wanted = F.binary_cross_entropy_with_logits(logits, target.float())
    assert found.metrics["loss"] == pytest.approx(wanted.item(), abs=1e-6)


@pytest.mark.parametrize("shape", [(37,), (37, 3)])
def test_regression_is_that_of_scikit_learn(shape: tuple[int, ...]) -> None:
    output, target = torch.randn(shape), torch.randn(shape)
    found = Regression().evaluate(Echo(), split(output, target))
    assert found.metrics["loss"] == pytest.approx(theirs.mean_squared_error(target, output), abs=1e-6)
    wanted = theirs.mean_absolute_error(target, output)
    assert found.metrics["mean_absolute_error"] == pytest.approx(wanted, abs=1e-6)
    assert torch.equal(found.predictions, output)


def test_regression_names_a_shape_that_does_not_fit() -> None:
    assert Regression().predict(Echo(), (torch.zeros(5, 1), torch.zeros(5))).shape == (5,)
    with pytest.raises(ValueError, match=r"must have the shape of the target, \(5,\), got \(5, 2\)"):
        Regression().score(Echo(), (torch.zeros(5, 2), torch.zeros(5)))


def test_only_what_is_asked_for_is_scored() -> None:
    logits, target = torch.randn(3, 5, 7), torch.randint(7, (3, 5))
    target[0, 1:] = IGNORE
    for task in (NextToken(label_smoothing=0.2), MaskedTokens(label_smoothing=0.2)):
        batch = TokenBatch(logits, target)
        wanted = F.cross_entropy(logits.flatten(0, 1), target.flatten(), label_smoothing=0.2)
        scores = task.score(Echo(), batch)
        torch.testing.assert_close(scores["loss"].total / scores["loss"].weight, wanted)
        assert task.n_targets(batch) == 11
        plain = F.cross_entropy(logits.flatten(0, 1), target.flatten())
        assert task.evaluate(Echo(), [batch]).metrics["loss"] == pytest.approx(plain.item(), abs=1e-6)


@pytest.mark.parametrize("weights", [(1.0, 2.0), (1.0, 2.0, 3.0, -1.0)])
def test_weights_that_do_not_fit(weights: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="class_weights must have one weight of 0 or more for each of the 4 labels"):
        Classification(LABELS, class_weights=weights)


def test_a_task_with_labels_gives_their_probabilities() -> None:
    logits = torch.tensor([[0.0, 2.0, -1.0]])
    one, any_number = Classification(LABELS[:3]), MultiLabel(LABELS[:3])
    torch.testing.assert_close(one.probabilities(logits), logits.softmax(-1))
    torch.testing.assert_close(any_number.probabilities(logits), logits.sigmoid())
    assert isinstance(one, LabelTask)
    assert isinstance(any_number, LabelTask)
    assert not isinstance(NextToken(), LabelTask)
