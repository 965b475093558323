"""Each example of an evaluation: its label or target, and what the model makes of it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn

    from headwork.data import AnyTokenizer, Examples
    from headwork.tasks import Evaluation, Task

Row = dict[str, Any]


def judged(
    task: "Task", model: "nn.Module", examples: "Examples", evaluation: "Evaluation", translations: Sequence[str] | None
) -> Iterator[Row]:
    """For each example its label and the predicted one; of a translator the translation; of others their metrics."""
    if translations is not None:
        yield from ({"translation": text} for text in translations)
    elif evaluation.predictions is not None and evaluation.targets is not None:
        labels: tuple[str, ...] | None = getattr(task, "labels", None)
        for prediction, target in zip(evaluation.predictions, evaluation.targets, strict=True):
            yield _numbers(prediction, target) if labels is None else _labels(prediction, target, labels)
    else:
        for index in range(len(examples)):
            yield dict(task.evaluate(model, [examples.batch([index])]).metrics)


def _numbers(prediction: "Tensor", target: "Tensor") -> Row:
    return {"target": target.tolist(), "predicted": prediction.tolist()}


def _labels(probabilities: "Tensor", target: "Tensor", labels: Sequence[str]) -> Row:
    """One label and the probability of the predicted one; or all labels that are true, and the probability of each."""
    if target.ndim == 0:
        best = int(probabilities.argmax())
        return {"label": labels[int(target)], "predicted": labels[best], "probability": float(probabilities[best])}
    chances = dict(zip(labels, probabilities.tolist(), strict=True))
    true = [label for label, is_true in zip(labels, target.tolist(), strict=True) if is_true >= 0.5]
    likely = [label for label, chance in chances.items() if chance >= 0.5]
    return {"label": true, "predicted": likely, "probability": chances}


def about_examples(examples: "Examples", tokenizer: "AnyTokenizer | None") -> Iterator[Mapping[str, str]]:
    """Where each example is or, of a text, how the model reads it."""
    from headwork.batches import PairBatch

    files = getattr(examples, "files", None) or getattr(getattr(examples, "examples", None), "files", None)
    if files is not None:
        yield from ({"file": file} for file in files)
        return
    for index in range(len(examples)):
        batch = examples.batch([index])
        if tokenizer is None or batch[0].is_floating_point():
            yield {}
        elif isinstance(batch, PairBatch):
            yield {name: tokenizer.decode(getattr(batch, name)[0].tolist()) for name in ("source", "target")}
        else:
            yield {"text": tokenizer.decode(batch[0][0].tolist())}
