"""Whether model, data and task fit: checked once, before anything is written, and said in a sentence."""

from collections.abc import Sequence
from dataclasses import is_dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from headwork.batches import Batch, to_device
from headwork.checks import with_article
from headwork.data import Dataset, Examples, image_size
from headwork.metric import LOSS, SPLITS
from headwork.models import Description, ModelConfig, describe
from headwork.own_code import own_place
from headwork.seeds import unchanged_rng_states
from headwork.tasks import Task
from headwork.tasks.classification import check_labels
from headwork.training.config import TrainingConfig
from headwork.training.plan import ordered_batches

VOCAB_OF_DATA = 1
"""As the `vocab` of a config: as many as the tokenizer of the data has."""


CLASSES_OF_DATA = 1
"""As the `n_classes` of a config: as many as the data has."""


def fit_to_data(model: ModelConfig | nn.Module, data: Dataset) -> ModelConfig | nn.Module:
    """The config with the vocabulary and the classes of the data, if that is what it asks for."""
    if isinstance(model, nn.Module) or not is_dataclass(model):
        return model
    changes: dict[str, Any] = {}
    if data.tokenizer is not None and getattr(model, "vocab", None) == VOCAB_OF_DATA:
        changes["vocab"] = len(data.tokenizer)
    if (labels := getattr(data.task, "labels", None)) is not None:
        head = getattr(model, "head", None)
        if getattr(model, "n_classes", None) == CLASSES_OF_DATA:
            changes["n_classes"] = len(labels)
        elif getattr(head, "n_classes", None) == CLASSES_OF_DATA:
            changes["head"] = replace(head, n_classes=len(labels))
    return replace(model, **changes) if changes else model


def task_for(training: TrainingConfig, data: Dataset) -> Task:
    """The task of the data with the settings of the training, which it must have."""
    task, settings = data.task, dict[str, Any]()
    if training.label_smoothing:
        settings["label_smoothing"] = training.label_smoothing
    if training.class_weights is not None:
        settings["class_weights"] = training.class_weights
    known = getattr(task, "__dataclass_fields__", {})
    for name, value in settings.items():
        if name not in known:
            raise ValueError(f"{name} is for tasks that have it, got {value} for {type(task).__name__}")
    if settings.get("class_weights") == "balanced":
        settings["class_weights"] = balanced_weights(data)
    return replace(task, **settings) if settings else task  # type: ignore[type-var]


def balanced_weights(data: Dataset) -> tuple[float, ...]:
    """n_examples / (n_classes x n_examples_of_the_class) for each class, as scikit-learn has it."""
    n_classes = len(data.task.labels)  # type: ignore[attr-defined]
    labels = torch.cat([batch[-1] for batch in ordered_batches(data.train, 256)])
    check_labels(labels, n_classes)
    counts = torch.bincount(labels, minlength=n_classes).float()
    if (counts == 0).any():
        missing = int((counts == 0).nonzero()[0])
        raise ValueError(f"class_weights='balanced' needs examples of every class, got none of class {missing}")
    return tuple((counts.sum() / (n_classes * counts)).tolist())


def check_fit(model: ModelConfig | nn.Module, data: Dataset) -> None:
    """Raise if the model cannot learn the task from the data: from its description, then by a trial batch.

    >>> check_fit(hw.models.ResNetConfig(n_classes=3, n_channels=1), hw.data.Digits().load())
    Traceback (most recent call last):
    ValueError: model must have 10 classes, as many as the data has labels (0, 1, 2, ...), got 3
    """
    check_parts(data)
    description = describe(model) or describe(getattr(model, "config", None))
    if description is not None:
        name = with_article(type(model).__name__.removesuffix("Config"))
        _check_kind(name, description, data)
        _check_sizes(description, data)
    if isinstance(model, nn.Module):
        if not any(parameter.requires_grad for parameter in model.parameters()):
            raise ValueError("model must have a parameter that requires a gradient, got none: nothing can be learned")
        _try_batch(model, data)


def check_parts(data: Dataset) -> None:
    """Raise unless every part of the data has examples, in batches of tensors."""
    for name in SPLITS:
        part = getattr(data, name)
        if not isinstance(part, Examples):
            raise ValueError(
                f"data.{name} must have len() and batch(indices, epoch), got {type(part).__name__}: "
                f"a data set of PyTorch's becomes one by headwork.data.TorchExamples(dataset)"
            )
        if not len(part):
            raise ValueError(f"data must have at least one example in each part, got none in {name}")
        first = part.batch([0])[0]
        if first.ndim == 4 and not first.is_floating_point():
            raise ValueError(f"images must be floating-point numbers from 0 to 1, got {first.dtype} in {name}")


def _check_kind(name: str, model: Description, data: Dataset) -> None:
    first = data.train.batch([0])
    n_inputs = len(first) - 1 - sum(tensor.dtype == torch.bool for tensor in first[:-1])
    kind = "image" if image_size(data.train) else "text pair" if n_inputs == 2 else "text"
    if kind != "image" and first[0].is_floating_point():
        return  # numbers of another kind, which only a trial can tell
    if model.input != kind:
        raise ValueError(f"model must read {kind}s, as the data has, got {name}, which reads {model.input}s")
    wanted = getattr(data.task, "output", None)
    if wanted is not None and model.output != wanted:
        raise ValueError(
            f"model must give a {wanted}, for the task {type(data.task).__name__}, "
            f"got {name}, which gives a {model.output}"
        )


def _check_sizes(model: Description, data: Dataset) -> None:
    first, labels, size = data.train.batch([0])[0], getattr(data.task, "labels", None), image_size(data.train)
    if labels is not None and model.n_outputs != len(labels):
        some = ", ".join(labels[:3]) + (", ..." if len(labels) > 3 else "")
        raise ValueError(
            f"model must have {len(labels)} classes, as many as the data has labels ({some}), got {model.n_outputs}"
        )
    if size is not None and model.n_channels not in (None, first.shape[1]):
        raise ValueError(f"model must have {first.shape[1]} channels, as the images have, got {model.n_channels}")
    if size is not None and model.image not in (None, size):
        here, there = (" x ".join(map(str, each)) for each in (size, model.image or ()))
        raise ValueError(f"model must be made for images of {here} pixels, as the data has, got {there}")
    if data.tokenizer is not None and model.vocab is not None and model.vocab < len(data.tokenizer):
        raise ValueError(
            f"model must have a vocab of {len(data.tokenizer)} or more, the tokens of the data, got {model.vocab}"
        )
    if model.max_tokens is not None:
        for split in (data.train, data.valid, data.test):
            longest = getattr(split, "max_tokens", split.batch([0])[0].shape[-1])
            if longest > model.max_tokens:
                raise ValueError(
                    f"model must read sequences of {longest} tokens, as the data has, got max_tokens={model.max_tokens}"
                )


def _try_batch(model: nn.Module, data: Dataset) -> None:
    """Score two examples, as the model is now and without changing it."""
    batch: Batch = data.train.batch(range(min(2, len(data.train))))
    parameter = next(model.parameters(), None)
    was_training = model.training
    model.eval()
    try:
        with unchanged_rng_states(), torch.no_grad():
            if parameter is not None:
                batch = to_device(batch, parameter.device)
            _try_task(data.task, model, batch)
    except Exception as error:
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in batch)
        raise ValueError(
            f"model, data and task must fit, got an error when {type(data.task).__name__} scored a "
            f"{type(model).__name__} on a batch of two examples with the shapes {shapes}: "
            f"{_in_a_line(error)}{_remedy(parameter, batch)}"
        ) from error
    finally:
        model.train(was_training)


def _try_task(task: Task, model: nn.Module, batch: Batch) -> None:
    """Ask a task for all that the loop will ask for, and raise if it is not what it must be."""
    if not task.metrics:
        raise ValueError(f"metrics must name the one that chooses the best checkpoint, got {task.metrics!r}")
    n_targets, scores = task.n_targets(batch), task.score(model, batch)
    if n_targets < 1:
        raise ValueError(f"n_targets must be 1 or more, got {n_targets}")
    if "loss" not in scores:
        raise ValueError(f"score must give 'loss', got {', '.join(map(repr, scores)) or 'nothing'}")
    loss = scores["loss"].total
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        raise ValueError(f"the loss must be a tensor with one number, got {loss!r}")
    found = task.evaluate(model, [batch]).metrics
    for metric in (LOSS, task.metrics[0]):
        if metric.name not in found:
            raise ValueError(f"evaluate must give {metric.name!r}, got {', '.join(map(repr, found)) or 'nothing'}")


def _remedy(parameter: Tensor | None, batch: Batch) -> str:
    """What to write if the numbers of the data are of another precision than those of the model."""
    for tensor in batch[:-1]:
        if parameter is not None and tensor.is_floating_point() and tensor.dtype != parameter.dtype:
            return f" (the data are {tensor.dtype}, the model is {parameter.dtype}: write .to({parameter.dtype}))"
    return ""


def _in_a_line(error: Exception) -> str:
    lines: Sequence[str] = str(error).strip().splitlines()
    place = own_place(error)
    return ": ".join([type(error).__name__, *lines[:1]]) + (f" ({place})" if place else "")
