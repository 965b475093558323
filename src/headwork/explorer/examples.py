"""The run's own test data, the worst mistakes first; and how the run went."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from headwork.batches import IGNORE, Batch, call_model
from headwork.explorer.answers import Part, part
from headwork.explorer.encoding import encode_input
from headwork.explorer.questions import Input, Progress, RefusedError
from headwork.explorer.subject import Subject
from headwork.storage.metrics_log import METRICS, read_metrics
from headwork.training.recorder import read_centres

MOST_JUDGED, AT_ONCE, MOST_SHOWN = 512, 64, 96


@torch.inference_mode()
def examples(subject: Subject, n: int, progress: Progress) -> Part:
    """Some of the test data by loss, the largest first: of the first 512."""
    if subject.data is None:
        raise RefusedError("There is no test data: it is read for runs, as long as their data is there.")
    test, rows = subject.data.test, []
    some = range(min(MOST_JUDGED, len(test)))
    for start in range(0, len(some), AT_ONCE):
        progress()
        chosen = list(some[start : start + AT_ONCE])
        rows += _judge(subject, test.batch(chosen), chosen)
    rows.sort(key=lambda row: -row["loss"])
    shown = rows[: min(n, MOST_SHOWN)]
    arrays = {}
    if subject.description.input == "image":
        arrays["pixels"] = torch.stack([test.batch([row["index"]])[0][0] for row in shown])
    else:
        for row in shown:
            encoded = encode_input(subject, Input(example=row["index"]))
            row["text"] = subject.decode(encoded.sequences[0].ids)
    return part({"rows": shown, "n_judged": len(some), "n": len(test)}, **arrays)


def _judge(subject: Subject, batch: Batch, chosen: list[int]) -> list[dict[str, Any]]:
    logits, target = call_model(subject.model, batch).float(), batch[-1]
    if logits.ndim == 2 and target.ndim == 1:
        return [_row(subject, *each) for each in zip(chosen, logits, target, strict=True)]
    if logits.ndim != 3:
        raise RefusedError("Only examples with one label, and texts, can be judged here.")
    losses = F.cross_entropy(logits.transpose(1, 2), target, ignore_index=IGNORE, reduction="none")
    counts = (target != IGNORE).sum(1).clamp(min=1)
    right = ((logits.argmax(-1) == target) | (target == IGNORE)).all(1)
    return [
        {"index": i, "loss": float(loss), "right": bool(ok), "label": None, "predicted": None, "probability": None}
        for i, loss, ok in zip(chosen, losses.sum(1) / counts, right, strict=True)
    ]


def _row(subject: Subject, index: int, logits: Tensor, label: Tensor) -> dict[str, Any]:
    chances, best = logits.softmax(-1), int(logits.argmax())
    return {
        "index": index,
        "loss": float(F.cross_entropy(logits, label)),
        "label": subject.name_of(int(label)),
        "predicted": subject.name_of(best),
        "probability": float(chances[best]),
        "right": best == int(label),
    }


def training(subject: Subject) -> Part:
    """The metrics of the run and, of Gaussian heads, where they looked at each evaluation."""
    if subject.run is None:
        raise RefusedError("This model is not from a run: nothing is known of its training.")
    try:
        rows = read_metrics(subject.run.folder / METRICS)
        centres = read_centres(subject.run.folder)
    except (ValueError, OSError, RuntimeError) as error:
        raise RefusedError(f"The metrics of the run cannot be read: {error}.") from None
    metrics = [{"step": row.step, "epoch": row.epoch, "split": row.split, **row.values} for row in rows]
    return part({"metrics": metrics, "centres": [{"layers": each} for each in centres]})
