"""The report of a run: what training measured, what the model generates, and the attention of its heads."""

import re
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, cast

from torch import Generator, nn

from headwork.batches import to_device
from headwork.data import Dataset, Examples, Tokenizer
from headwork.figures import Mistake, Picture, draw_attention
from headwork.generation import Sample, stream_long, translate
from headwork.models import Decoder, EncoderDecoder, describe
from headwork.reports.page import Part, Passage
from headwork.reports.run_report import Classification, RunReport, list_texts, show_images, write_report
from headwork.storage.metrics_log import METRICS, read_metrics
from headwork.tables import Cell, Table
from headwork.tasks import Evaluation
from headwork.training.run import Run
from headwork.training.starts import RunStart, read_starts

REPORT = "report.html"
N_EXAMPLES = 2
"""Examples whose attention is drawn."""
N_TRANSLATED = 10
N_WRITTEN = 400
HEADING = "Where the heads look"


def report_run(
    run: Run,
    data: Dataset,
    model: nn.Module,
    evaluation: Evaluation,
    baseline: float | None = None,
    *,
    seconds: float | None = None,
) -> Path:
    """Write `report.html` into the folder of a run.

    `baseline` is an accuracy to compare with; it and the `seconds` of training are shown if given.
    """
    given: dict[str, Cell] = {
        "bag-of-words baseline": None if baseline is None else f"{100 * baseline:.1f} %",
        "training time (h:mm:ss)": None if seconds is None else str(timedelta(seconds=round(seconds))),
    }
    starts = read_starts(run.folder)
    if starts:
        given |= describe_start(starts[0])
    report = RunReport(
        title=f"{run.config.name} in {run.folder.name}",
        facts=(*describe_run(run, model), *((name, fact) for name, fact in given.items() if fact is not None)),
        starts=list_starts(starts) if len(starts) > 1 else None,
        rows=read_metrics(run.folder / METRICS),
        metric=run.task.metrics[0],
        label_smoothing=run.config.training.label_smoothing,
        classification=classify(run, data, evaluation),
        samples=tuple(generate_samples(run, model, data.test)),
        pictures=tuple((HEADING, picture) for picture in attention_pictures(run, model, data.test)),
    )
    write_report(report, run.folder / REPORT)
    return run.folder / REPORT


def describe_run(run: Run, model: nn.Module) -> Iterator[tuple[str, Cell]]:
    training = run.config.training
    yield "model", type(model).__name__
    yield "parameters", sum(parameter.numel() for parameter in model.parameters())
    yield from choices_of(run.config.model)
    yield "length", count(training.epochs, "epoch") if training.steps is None else count(training.steps, "step")
    yield "batch size", training.batch_size
    yield "optimiser", f"{type(training.optimiser).__name__}, learning rate {training.optimiser.lr:g}"
    yield "seed", training.seed
    yield "precision", training.precision


def describe_start(start: RunStart) -> dict[str, Cell]:
    """When, how and where a run was begun."""
    date = f"{datetime.fromisoformat(start.date):%d %B %Y}"
    return {"date": date, "command": start.command, "versions": start.versions, "machine": start.machine}


def list_starts(starts: Sequence[RunStart]) -> Table:
    """A row for each start of a run that was resumed."""
    rows = tuple((start.step, start.date, start.versions, start.machine, start.command or "") for start in starts)
    return Table(("from step", "date", "versions", "machine", "command"), rows, "How the run was begun and resumed.")


def count(n: int | None, what: str) -> str:
    """A number of things.

    >>> count(1, "epoch"), count(1200, "step")
    ('1 epoch', '1,200 steps')
    """
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def choices_of(config: object) -> Iterator[tuple[str, Cell]]:
    """What tells one model from another of its kind."""
    shown = {
        "d_model": "d_model",
        "n_layers": "layers",
        "position": "positions",
        "pooling": "pooling",
        "norm_order": "norm order",
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


def classify(run: Run, data: Dataset, evaluation: Evaluation) -> Classification | None:
    """The test predictions, if they are probabilities of labels; what a mistake looks like is in the data."""
    labels, predictions, targets = getattr(run.task, "labels", None), evaluation.predictions, evaluation.targets
    if labels is None or predictions is None or targets is None or targets.ndim != 1:  # 2: several labels at once
        return None

    def show_mistakes(mistakes: Sequence[Mistake]) -> Part:
        batch = data.test.batch([mistake.example for mistake in mistakes])
        images, ids = getattr(batch, "image", None), getattr(batch, "ids", None)
        if images is not None:
            return show_images(mistakes, images)
        if ids is not None and run.tokenizer is not None:
            return list_texts(mistakes, [run.tokenizer.decode(row.tolist()) for row in ids])
        return list_texts(mistakes, [f"example {mistake.example}" for mistake in mistakes])

    return Classification(probabilities=predictions, truth=targets, labels=labels, show_mistakes=show_mistakes)


def generate_samples(run: Run, model: nn.Module, examples: Examples) -> Iterator[Part]:
    """Translations of the first test examples beside the true ones, or a continuation of a test text."""
    about, tokenizer = describe(model), run.tokenizer
    if about is None or about.output != "next token" or tokenizer is None:
        return
    batch = examples.batch(range(min(N_TRANSLATED, len(examples))))
    if about.input == "text pair":
        yield _translations(cast(EncoderDecoder, model), cast(Tokenizer, tokenizer), batch)
    elif about.input == "text":
        prompt = batch[0][:1, : batch[0].shape[1] // 2]
        sampling, generator = Sample(temperature=0.8), Generator().manual_seed(0)
        new = stream_long(
            cast(Decoder, model), prompt, max_new_tokens=N_WRITTEN, sampling=sampling, generator=generator
        )
        yield f"The bold text is from the test data; the model continues it by {N_WRITTEN} tokens (temperature 0.8)."
        yield Passage(tokenizer.decode(prompt[0].tolist()), tokenizer.decode([int(token) for token in new]))


def _translations(model: EncoderDecoder, tokenizer: Tokenizer, batch: Any) -> Table:
    predicted = translate(
        model,
        batch.source,
        max_new_tokens=batch.target.shape[1],
        begin=tokenizer.begin,
        end=tokenizer.end,
        source_visible=batch.source_visible,
    )
    texts = [[tokenizer.decode(ids.tolist()) for ids in each] for each in (batch.source, batch.target, predicted)]
    rows = tuple(
        (source, truth, ours, "" if ours == truth else "wrong") for source, truth, ours in zip(*texts, strict=True)
    )
    return Table(("source", "true", "predicted", ""), rows, "Test examples, translated greedily.")


def attention_pictures(run: Run, model: nn.Module, examples: Examples) -> Iterator[Picture]:
    """The attention of the model on the first examples."""
    batch = to_device(examples.batch(range(min(N_EXAMPLES, len(examples)))), next(model.parameters()).device)
    tokenizer = run.tokenizer
    strings = None if tokenizer is None else lambda ids: tokenizer.strings(ids.tolist())
    return draw_attention(model, batch, strings, N_EXAMPLES)
