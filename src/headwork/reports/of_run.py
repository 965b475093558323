"""The report of a run, from its folder: the best checkpoint answers the test, and its heads are drawn."""

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from headwork.data import Dataset, Examples, ImageBatch, PairBatch, TextBatch, TokenBatch
from headwork.layers import PositionAttention
from headwork.models import Decoder, Encoder, EncoderDecoder, GaussianImageEncoder, VisionTransformer
from headwork.reports.attention import (
    draw_between_tokens,
    draw_class_token,
    draw_gaussian_heads,
    draw_lower_triangle,
    draw_source_target,
)
from headwork.reports.classification import Classification
from headwork.reports.curves import read_metrics
from headwork.reports.pictures import Picture
from headwork.reports.run_report import RunReport, write_report
from headwork.reports.tables import Cell
from headwork.storage import load
from headwork.tasks import ImageClassification, TextClassification, probabilities
from headwork.training.evaluation import batches, on_device
from headwork.training.log import METRICS
from headwork.training.run import Run

REPORT = "report.html"
N_EXAMPLES = 2
"""Examples whose attention is drawn."""
HEADING = "Where the heads look"


def report_run(run: Run, data: Dataset, baseline: float | None = None) -> Path:
    """Write `report.html` into the folder of a run; `baseline` is an accuracy to stand beside."""
    model = load(run.folder)
    report = RunReport(
        title=run.config.name,
        summary=(*summarise(run, model), *([] if baseline is None else [("by counting words", f"{baseline:.1%}")])),
        rows=tuple(read_metrics(run.folder / METRICS)),
        metric=None if run.task.metric == "loss" else run.task.metric,
        classification=classify(run, model, data.test),
        pictures=tuple((HEADING, picture) for picture in draw_attention(run, model, data.test)),
    )
    write_report(report, run.folder / REPORT)
    return run.folder / REPORT


def summarise(run: Run, model: nn.Module) -> Iterator[tuple[str, Cell]]:
    training = run.config.training
    yield "model", type(model).__name__
    yield "parameters", sum(parameter.numel() for parameter in model.parameters())
    yield "batch size", training.batch_size
    yield "optimiser", f"{type(training.optimiser).__name__}, learning rate {training.optimiser.lr:g}"
    yield "seed", training.seed
    yield "precision", training.precision


@torch.no_grad()
def classify(run: Run, model: nn.Module, examples: Examples) -> Classification | None:
    """The model's answers to all examples, if they are labels."""
    task = run.task
    if not isinstance(task, ImageClassification | TextClassification):
        return None
    answers, truth, images, texts = [], [], [], list[str]()
    for batch in batches(examples, run.config.training.batch_size):
        assert isinstance(batch, ImageBatch | TextBatch)
        answers.append(probabilities(task, model, batch))
        truth.append(batch.label)
        if isinstance(batch, ImageBatch):
            images.append(batch.image)
        elif run.tokens is not None:
            texts += [run.tokens.decode(ids.tolist()) for ids in batch.ids]
    return Classification(
        probabilities=torch.cat(answers),
        truth=torch.cat(truth),
        labels=task.labels,
        images=torch.cat(images) if images else None,
        texts=tuple(texts) if texts else None,
    )


def draw_attention(run: Run, model: nn.Module, examples: Examples) -> Iterator[Picture]:
    """What each kind of model can show of its heads, on the first test examples."""
    batch = on_device(examples.batch(range(N_EXAMPLES)), next(model.parameters()).device)

    def strings(ids: Tensor) -> list[str]:
        assert run.tokens is not None
        return run.tokens.strings(ids.tolist())

    match model, batch:
        case GaussianImageEncoder(), _ if any(isinstance(module, PositionAttention) for module in model.modules()):
            yield from draw_gaussian_heads(model)
        case VisionTransformer() | GaussianImageEncoder(), ImageBatch():
            for image in batch.image:
                yield draw_class_token(model, image)
        case EncoderDecoder(), PairBatch():
            for row in range(N_EXAMPLES):
                source = batch.source[row][batch.source_visible[row]]
                target = batch.target[row][batch.target_visible[row]]
                yield draw_source_target(model, source, target, strings(source), strings(target))
        case Decoder(), TokenBatch():
            for ids in batch.ids:
                yield draw_lower_triangle(model, ids, strings(ids))
        case Encoder(), TextBatch():
            for ids, visible in zip(batch.ids, batch.visible, strict=True):
                yield draw_between_tokens(model, ids, visible, strings(ids))
        case _:  # a residual network has no heads
            return
