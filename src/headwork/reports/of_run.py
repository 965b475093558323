"""The report of a run, from its folder: the best checkpoint answers the test, and its heads are drawn."""

import re
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from headwork import tasks
from headwork.batches import IGNORE, to_device
from headwork.data import Dataset, Examples, ImageBatch, PairBatch, TextBatch, TokenBatch
from headwork.generation import Sample, stream_long, translate
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
from headwork.reports.page import Part, Passage
from headwork.reports.pictures import Picture
from headwork.reports.run_report import RunReport, write_report
from headwork.reports.tables import Cell, Table
from headwork.storage.metrics_log import METRICS
from headwork.tasks import Evaluation
from headwork.training.evaluation import batches
from headwork.training.run import Run

REPORT = "report.html"
N_EXAMPLES = 2
"""Examples whose attention is drawn."""
N_TRANSLATED = 10
N_WRITTEN = 400
HEADING = "Where the heads look"


def report_run(
    run: Run, data: Dataset, model: nn.Module, evaluation: Evaluation, baseline: float | None = None
) -> Path:
    """Write `report.html` into the folder of a run; `baseline` is an accuracy to stand beside."""
    metric = run.task.metrics[0].name
    report = RunReport(
        title=f"{run.config.name} in {run.folder.name}",
        summary=(*summarise(run, model), *([] if baseline is None else [("by counting words", f"{baseline:.1%}")])),
        rows=tuple(read_metrics(run.folder / METRICS)),
        metric=None if metric == "loss" else metric,
        classification=classify(run, evaluation, data.test),
        samples=tuple(say_something(run, model, data.test)),
        pictures=tuple((HEADING, picture) for picture in draw_attention(run, model, data.test)),
    )
    write_report(report, run.folder / REPORT)
    return run.folder / REPORT


def summarise(run: Run, model: nn.Module) -> Iterator[tuple[str, Cell]]:
    training = run.config.training
    yield "model", type(model).__name__
    yield "parameters", sum(parameter.numel() for parameter in model.parameters())
    yield from choices_of(run.config.model)
    yield "length", f"{training.epochs} epochs" if training.steps is None else f"{training.steps} steps"
    yield "batch size", training.batch_size
    yield "optimiser", f"{type(training.optimiser).__name__}, learning rate {training.optimiser.lr:g}"
    yield "seed", training.seed
    yield "precision", training.precision


def choices_of(config: object) -> Iterator[tuple[str, Cell]]:
    """What tells one model from another of its kind."""
    shown = {"d_model": "d_model", "n_layers": "layers", "position": "positions"} | {
        "pooling": "pooling",
        "norm_order": "norm",
    }
    for name, words in shown.items():
        value = getattr(config, name, None)
        if value is not None:
            yield words, value if isinstance(value, int | str) else _in_words(type(value).__name__)


def _in_words(name: str) -> str:
    """The name of a choice as people say it.

    >>> _in_words("LearnedPositions"), _in_words("ClassToken")
    ('learned positions', 'class token')
    """
    return re.sub(r"(?<!^)(?=[A-Z])", " ", name).lower()


def classify(run: Run, evaluation: Evaluation, examples: Examples) -> Classification | None:
    """The answers that the model gave to all examples, if they are labels."""
    task = run.task
    if not isinstance(task, tasks.Classification) or evaluation.predictions is None or evaluation.targets is None:
        return None
    images, texts = [], list[str]()
    for batch in batches(examples, run.config.training.batch_size):
        if isinstance(batch, ImageBatch):
            images.append(batch.image)
        elif isinstance(batch, TextBatch) and run.tokenizer is not None:
            texts += [run.tokenizer.decode(ids.tolist()) for ids in batch.ids]
    return Classification(
        probabilities=evaluation.predictions,
        truth=evaluation.targets,
        labels=task.labels,
        images=torch.cat(images) if images else None,
        texts=tuple(texts) if texts else None,
    )


def say_something(run: Run, model: nn.Module, examples: Examples) -> Iterator[Part]:
    """Translations of the first test examples beside the true ones, or how a text of the test goes on."""
    if run.tokenizer is None:
        return
    tokens, batch = run.tokenizer, examples.batch(range(min(N_TRANSLATED, len(examples))))
    match model, batch:
        case EncoderDecoder(), PairBatch():
            said = translate(
                model,
                batch.source,
                max_new_tokens=batch.target.shape[1],
                begin=tokens.begin,
                end=tokens.end,
                source_visible=batch.source_visible,
            )
            texts = [[tokens.decode(ids.tolist()) for ids in each] for each in (batch.source, batch.target, said)]
            rows = tuple(
                (source, truth, ours, "" if ours == truth else "wrong")
                for source, truth, ours in zip(*texts, strict=True)
            )
            yield Table(("source", "true", "the model", ""), rows, "Examples of the test, translated greedily.")
        case Decoder(), TokenBatch():
            sampling, generator = Sample(temperature=0.8), torch.Generator().manual_seed(0)
            prompt = batch.ids[:1, : batch.ids.shape[1] // 2]
            new = stream_long(model, prompt, max_new_tokens=N_WRITTEN, sampling=sampling, generator=generator)
            yield f"The beginning is from the test; the model adds {N_WRITTEN} tokens (temperature 0.8, seed 0)."
            yield Passage(tokens.decode(prompt[0].tolist()), tokens.decode([int(token) for token in new]))
        case _:
            return


def draw_attention(run: Run, model: nn.Module, examples: Examples) -> Iterator[Picture]:
    """What each kind of model can show of its heads, on the first test examples."""
    batch = to_device(examples.batch(range(min(N_EXAMPLES, len(examples)))), next(model.parameters()).device)

    def strings(ids: Tensor) -> list[str]:
        assert run.tokenizer is not None
        return run.tokenizer.strings(ids.tolist())

    match model, batch:
        case GaussianImageEncoder(), _ if any(isinstance(module, PositionAttention) for module in model.modules()):
            yield from draw_gaussian_heads(model)
        case VisionTransformer() | GaussianImageEncoder(), ImageBatch():
            for image in batch.image:
                yield draw_class_token(model, image)
        case EncoderDecoder(), PairBatch():
            for row in range(N_EXAMPLES):
                source = batch.source[row][batch.source_visible[row]]
                target = batch.target[row][batch.next[row] != IGNORE]
                yield draw_source_target(model, source, target, strings(source), strings(target))
        case Decoder(), TokenBatch():
            for ids in batch.ids:
                yield draw_lower_triangle(model, ids, strings(ids))
        case Encoder(), TextBatch():
            for ids, visible in zip(batch.ids, batch.visible, strict=True):
                yield draw_between_tokens(model, ids, visible, strings(ids))
        case _:  # a residual network has no heads
            return
