"""A training step is what anybody would write with plain PyTorch, however it is split into parts."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import cast

import pytest
import torch
from lightning_fabric import Fabric
from tests.training.small_runs import Kind, small_config
from torch import Tensor, nn
from torch.nn import functional as F

from headwork import choices
from headwork.data import Batch, Dataset, ImageBatch, PairBatch, TextBatch, TokenBatch, Tokenizer
from headwork.data.text_examples import PairExamples, Rows, TextExamples
from headwork.layers import PatchEmbedding
from headwork.metric import MetricSum
from headwork.models import EncoderConfig
from headwork.tasks import Classification, Task, Translation
from headwork.training import SGD, AdamW, Constant, Cosine, RunConfig, StopRequest
from headwork.training.checkpoints import Progress
from headwork.training.fit import fit_to_data, task_for
from headwork.training.learner import Learner
from headwork.training.loop import build_model, make_learner, take_step
from headwork.training.plan import Plan, training_batches

TIGHT = {"rtol": 0, "atol": 1e-10}
pytestmark = pytest.mark.usefixtures("float64")


def double(batch: Batch) -> Batch:
    return type(batch)(*(tensor.double() if tensor.is_floating_point() else tensor for tensor in batch))


class Trainer:
    """The loop's own step, in float64, with no files around it."""

    def __init__(self, config: RunConfig, data: Dataset) -> None:
        self.config = replace(config, model=fit_to_data(config.model, data))
        self.fabric = Fabric(accelerator="cpu", devices=1, precision="64-true")
        self.fabric.launch()
        self.learner: Learner = make_learner(build_model(self.config), config.training, self.fabric)
        self.learner.model.double()
        if self.learner.ema is not None:
            self.learner.ema.start_from(self.learner.model)
        self.task: Task = task_for(config.training, data)
        self.plan = Plan.of(data.train, config.training)
        self.data, self.progress = data, Progress()

    def step(self, parts: Sequence[Batch]) -> float:
        doubled = [double(part) for part in parts]
        return take_step(self.fabric, self.learner, self.task, doubled, self.plan, self.progress, StopRequest()).loss

    def run(self) -> list[float]:
        """All steps, and the loss of each."""
        return [self.step(parts) for parts in training_batches(self.plan, self.data.train, 0)]


def predictions(model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
    """Scores and what is right, a row for each question."""
    match batch:
        case ImageBatch():
            return model(batch.image), batch.label
        case TextBatch():
            return model(batch.ids, visible=batch.visible), batch.label
        case TokenBatch():
            return model(batch.ids).flatten(0, 1), batch.next.flatten()
        case PairBatch():
            scores = model(batch.source, batch.target, source_visible=batch.source_visible)
            return scores.flatten(0, 1), batch.next.flatten()


def whole_batches(plan: Plan, data: Dataset) -> Iterator[Batch]:
    """The same examples, each step in one batch."""
    for step in range(plan.n_steps):
        epochs, parts = zip(*plan.parts(step), strict=True)
        yield double(data.train.batch([index for part in parts for index in part], epochs[0]))


def plain_loop(trainer: Trainer, model: nn.Module) -> list[float]:
    """What a user of PyTorch would write: no parts, no sums, the mean loss of the whole batch."""
    training = trainer.config.training
    how = training.optimiser
    decaying = [m.weight for m in model.modules() if isinstance(m, nn.Linear | nn.Conv2d | PatchEmbedding)]
    others = [p for p in model.parameters() if not any(p is q for q in decaying)]
    groups = [{"params": decaying, "weight_decay": how.weight_decay}, {"params": others, "weight_decay": 0.0}]
    optimiser: torch.optim.Optimizer = (
        torch.optim.AdamW(groups, lr=how.lr, betas=how.betas)
        if isinstance(how, AdamW)
        else torch.optim.SGD(groups, lr=how.lr, momentum=how.momentum, nesterov=how.momentum > 0)
    )
    losses = []
    for batch in whole_batches(trainer.plan, trainer.data):
        loss = F.cross_entropy(*predictions(model, batch), label_smoothing=training.label_smoothing)
        optimiser.zero_grad()
        loss.backward()
        if training.clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), training.clip)
        optimiser.step()
        losses.append(loss.item())
    return losses


def reviews() -> Dataset:
    """Texts of very different lengths, each with a label."""
    chance = torch.Generator().manual_seed(0)
    lengths = torch.randint(1, 23, (97,), generator=chance)
    rows = Rows.of(torch.randint(4, 11, (int(n),), generator=chance).tolist() for n in lengths)
    examples = TextExamples(rows, torch.randint(0, 3, (97,), generator=chance))
    task, tokenizer = Classification(("a", "b", "c")), Tokenizer.characters(["abcdefg"])
    return Dataset(examples, examples, examples, task, tokenizer)


def pairs() -> Dataset:
    """Texts to translate, of very different lengths on both sides."""
    chance, tokenizer = random.Random(0), Tokenizer.characters(["abcdefg"])
    texts = [["".join(chance.choices("abcdefg", k=chance.randrange(1, 19))) for _ in range(2)] for _ in range(97)]
    examples = PairExamples.of([(source, target) for source, target in texts], tokenizer)
    task = Translation(begin=tokenizer.begin, end=tokenizer.end)
    return Dataset(examples, examples, examples, task, tokenizer)


def some_run(kind: Kind | str, **training: object) -> tuple[RunConfig, Dataset]:
    settings = {"steps": 3, "schedule": Constant(), **training}
    if kind != "classifier":
        config = small_config(cast(Kind, kind), **settings)
        return config, pairs() if kind == "translator" else config.data.load()
    model = EncoderConfig(
        vocab=1,
        head=choices.ClassificationHead(n_classes=3, pooling=choices.MeanPooling()),
        d_model=8,
        n_layers=1,
        heads=choices.Heads(n_heads=2),
        feed_forward=choices.FeedForward(d_ff=12),
        n_segments=0,
        dropout=0.0,
        attention_dropout=0.0,
    )
    config = small_config("vit", **{"batch_size": 18, **settings})
    return replace(config, model=model), reviews()


def compare(ours: nn.Module, theirs: nn.Module, begun: Sequence[Tensor]) -> None:
    for (name, a), b, start in zip(ours.named_parameters(), theirs.parameters(), begun, strict=True):
        assert not torch.equal(a, start), f"{name} has not moved"
        torch.testing.assert_close(a, b, **TIGHT, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("kind", ["vit", "gaussian", "gpt", "translator", "classifier"])
def test_steps_are_those_of_a_plain_loop(kind: str, accumulate: int) -> None:
    """In parts, too, whose numbers of targets differ: each target counts the same, whatever part it is in."""
    config, data = some_run(kind, accumulate=accumulate, optimiser=AdamW(lr=0.01))
    ours, theirs = Trainer(config, data), Trainer(config, data).learner.model
    begun = [parameter.clone() for parameter in theirs.parameters()]
    torch.testing.assert_close(ours.run(), plain_loop(ours, theirs), **TIGHT)
    compare(ours.learner.model, theirs, begun)


def test_the_parts_really_have_different_numbers_of_targets() -> None:
    config, data = some_run("translator", accumulate=3)
    trainer = Trainer(config, data)
    parts = next(training_batches(trainer.plan, data.train, 0))
    assert len({trainer.task.n_targets(part) for part in parts}) == 3


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("vit", {"optimiser": SGD(lr=0.1)}),
        ("vit", {"optimiser": SGD(lr=0.1, momentum=0.0, weight_decay=0.1)}),
        ("vit", {"optimiser": AdamW(lr=0.02, betas=(0.8, 0.95), weight_decay=0.3)}),
        ("vit", {"label_smoothing": 0.2}),
        ("translator", {"label_smoothing": 0.2}),
        ("vit", {"clip": None}),
        ("translator", {"clip": 0.01}),
    ],
)
def test_every_setting_is_that_of_torch(kind: str, changes: dict[str, object]) -> None:
    config, data = some_run(kind, accumulate=2, **changes)
    ours, theirs = Trainer(config, data), Trainer(config, data).learner.model
    begun = [parameter.clone() for parameter in theirs.parameters()]
    torch.testing.assert_close(ours.run(), plain_loop(ours, theirs), **TIGHT)
    compare(ours.learner.model, theirs, begun)


def test_the_learning_rate_of_each_step_is_used() -> None:
    """With SGD, no momentum, no decay and no clipping, a step is exactly rate x gradient."""
    schedule = Cosine(warmup=0.4, floor=0.1)
    config, data = some_run(
        "vit", steps=5, schedule=schedule, clip=None, optimiser=SGD(lr=1.0, momentum=0.0, weight_decay=0.0)
    )
    trainer = Trainer(config, data)
    model = trainer.learner.model
    sizes = []
    for parts, batch in zip(
        training_batches(trainer.plan, data.train, 0), whole_batches(trainer.plan, data), strict=True
    ):
        loss = F.cross_entropy(*predictions(model, batch))
        gradient = torch.autograd.grad(loss, [model.classifier.bias])[0]
        before = model.classifier.bias.detach().clone()
        trainer.step(parts)
        sizes.append(float((before - model.classifier.bias.detach()).norm() / gradient.norm()))
    assert sizes == pytest.approx([0.5, 1.0, 1.0, 0.775, 0.325], abs=1e-9)


def test_dropout_differs_from_step_to_step_and_part_to_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same examples in every part, and weights that stand still: only dropout can make the losses differ."""
    config, data = some_run("vit", dropout=0.5, accumulate=2, optimiser=SGD(lr=1e-30))
    trainer = Trainer(config, data)
    part, seen = double(data.train.batch(range(9))), []
    after_part = Progress.after_part

    def see(progress: Progress, scores: dict[str, MetricSum]) -> None:
        seen.append(scores["loss"].total.item())
        after_part(progress, scores)

    monkeypatch.setattr(Progress, "after_part", see)
    for _ in range(2):
        trainer.step([part, part])
    assert len(seen) == len(set(seen)) == 4


def test_the_average_is_the_formula() -> None:
    """a <- d a + (1 - d) w with d = min(decay, (1 + step) / (10 + step)), by hand, over all steps."""
    config, data = some_run("resnet", steps=4, ema=0.2)
    trainer = Trainer(config, data)
    wanted = {name: tensor.clone() for name, tensor in trainer.learner.model.state_dict().items()}
    steps = training_batches(trainer.plan, data.train, 0)
    for step, parts in enumerate(steps):
        trainer.step(parts)
        decay = min(0.2, (1 + step) / (10 + step))
        for name, tensor in trainer.learner.model.state_dict().items():
            is_count = name.endswith("num_batches_tracked")
            wanted[name] = tensor.clone() if is_count else decay * wanted[name] + (1 - decay) * tensor
    average = trainer.learner.ema
    assert average is not None
    for name, tensor in wanted.items():
        torch.testing.assert_close(average.state[name], tensor, **TIGHT)
