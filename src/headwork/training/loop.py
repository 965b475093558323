"""The training loop: one function, short enough to read, and the step it repeats."""

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, NoReturn, cast

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from headwork.batches import Batch, to_device
from headwork.convert import Conversion
from headwork.data import Dataset, Examples
from headwork.functional.denormals import flush_denormals
from headwork.metric import MetricSum
from headwork.models import describe
from headwork.seeds import derive_seed, seed_everything, seed_torch, unchanged_rng_states
from headwork.storage import load
from headwork.tasks import Evaluation, Task
from headwork.training.checkpoints import Progress
from headwork.training.config import RunConfig
from headwork.training.display import Display, Quiet
from headwork.training.estimate import estimate
from headwork.training.fit import check_fit
from headwork.training.gradient_checkpointing import checkpointed_layers
from headwork.training.learner import Learner
from headwork.training.machine import (
    check_same_step,
    clip_in_all_processes,
    keep_memory,
    make_fabric,
    make_learner,
    raise_if_asked,
    sum_over_processes,
    sum_scores_over_processes,
)
from headwork.training.nonfinite import NonFiniteError, first_nonfinite
from headwork.training.optimiser import learning_rate, set_learning_rate
from headwork.training.plan import Plan, WorkerDiedError, ordered_batches, training_batches
from headwork.training.recorder import Watcher
from headwork.training.run import Run
from headwork.training.session import Clock, Session
from headwork.training.stopping import StoppedError, StopRequest


@dataclass(frozen=True)
class TrainingResult:
    """What came of a run: the metrics of its best checkpoint, and the model of that checkpoint in eval mode."""

    best_step: int
    valid: dict[str, float]
    test: dict[str, float]
    seconds: float
    folder: Path
    model: nn.Module = field(repr=False, compare=False)
    evaluation: Evaluation = field(repr=False, compare=False)
    """Of the test set: its predictions beside its targets, if the task has such."""


@unchanged_rng_states()
@flush_denormals()
def train_run(
    run: Run,
    display: Display | None = None,
    stop: StopRequest | None = None,
    watchers: Sequence[Watcher] = (),
    *,
    data: Dataset | None = None,
) -> TrainingResult:
    """Train to the end from where the run stands; the best checkpoint is chosen on validation data, never on test."""
    display, stop = display or Quiet(), stop or StopRequest()
    training, data, task = run.config.training, data or run.load_data(), run.task
    keep_memory()
    fabric = make_fabric(training)
    plan = Plan.of(data.train, training, fabric.global_rank, fabric.world_size)
    fabric.launch()
    model = build_model(run.config, run.conversions, run.frozen)
    check_fit(model, data)
    learner = make_learner(model, training, fabric)
    checkpointing = checkpointed_layers(model) if training.gradient_checkpointing else nullcontext()
    with Session(run, learner, plan, display, fabric.barrier) as session, stop.listening(), checkpointing:
        say_what_was_found(display, run, data)
        progress = session.resume(watchers)
        say_what_comes(display, run.task, model, data, plan, progress.step, fabric)
        check_same_step(fabric, progress.step)
        clock, how = Clock(progress, fabric.world_size), f"go on with `headwork train --resume {run.folder}`"
        try:
            for parts in training_batches(plan, data.train, progress.step):
                if training.patience is not None and progress.n_worse >= training.patience:
                    break
                step = take_step(fabric, learner, task, parts, plan, progress, stop)
                progress.at(clock.seconds)
                display.stepped(progress.step, step.loss, training.batch_size * clock.steps_per_second(progress.step))
                if plan.logs(progress.step):
                    session.stepped(progress, step._asdict() | clock.speed(training.batch_size, parts))
                if plan.evaluates(progress.step):
                    valid = evaluate(fabric, learner, task, data.valid, training.batch_size, progress.step)
                    session.evaluated(progress, valid.metrics)
                if plan.saves(progress.step):
                    session.save(progress)
                raise_if_asked(fabric, stop)
                clock.next_step()
        except StoppedError as error:
            session.save(progress)
            where = f" and saved at step {progress.step} of {plan.n_steps}; {how}"
            raise StoppedError(error.signal_number, where) from None
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f" at once, without saving; {how}") from None
        except WorkerDiedError as error:
            raise WorkerDiedError(f"{error}; the run is kept as it was at its last checkpoint; {how}") from None
        if not session.has_best(progress):  # it was lost, and no evaluation has come since
            valid = evaluate(fabric, learner, task, data.valid, training.batch_size, progress.step)
            session.make_best(progress, valid.metrics)
        assert progress.best_step is not None
        display.say(f"evaluating the best checkpoint, of step {progress.best_step}")
        session.restore_best()
        valid, test = (
            evaluate(fabric, learner, task, split, training.batch_size, progress.best_step)
            for split in (data.valid, data.test)
        )
        session.record("test", progress.best_step, test.metrics, progress.seconds)
    # What is sharded over processes is no model that anybody could use.
    best = (
        load(run.folder, model=build_model(run.config, run.conversions, run.frozen))
        if training.strategy == "fsdp"
        else learner.model.eval()
    )
    return TrainingResult(
        progress.best_step, valid.metrics, test.metrics, progress.seconds, run.folder, best, evaluation=test
    )


def say_what_was_found(display: Display, run: Run, data: Dataset) -> None:
    for line in (f"{run.config.name} in {run.folder}", *data.found):
        display.say(line)


def say_what_comes(
    display: Display, task: Task, model: nn.Module, data: Dataset, plan: Plan, step: int, fabric: Fabric
) -> None:
    """If somebody looks, how long the run will take from this step on, and how much memory."""
    is_sharded = isinstance(model, FSDPModule)  # which cannot be copied to try a step
    if type(display) is Quiet or plan.sequential or is_sharded or step >= plan.n_steps:
        return
    try:
        found = str(estimate(model, task, data, plan, step, device=fabric.device, autocast=fabric.autocast))
    except Exception as error:  # of a model that cannot be copied, say; what is wrong with the run it says itself
        found = f"no estimate of time and memory: {type(error).__name__}: {error}"
    display.say(found)


class Step(NamedTuple):
    """The mean loss of a step, its learning rate, and how long the gradient was before it was clipped."""

    loss: float
    lr: float
    gradient_norm: float


def take_step(
    fabric: Fabric,
    learner: Learner,
    task: Task,
    parts: Sequence[Batch],
    plan: Plan,
    progress: Progress,
    stop: StopRequest,
) -> Step:
    """One step down the gradient of the mean loss over all targets, in all parts and processes."""
    training = plan.training
    parts = [to_device(part, fabric.device) for part in parts]
    n_targets = sum_over_processes(fabric, float(sum(task.n_targets(part) for part in parts)))

    def score(model: nn.Module, number: int) -> dict[str, MetricSum]:
        seed_torch(derive_seed(training.seed, "dropout", progress.step, number, fabric.global_rank), fabric.device)
        return task.score(model, parts[number])

    for number in range(progress.part, len(parts)):  # from 0, unless some were accumulated before the run was stopped
        is_last = number == len(parts) - 1
        with fabric.no_backward_sync(learner.wrapped, enabled=not is_last):  # type: ignore[arg-type]
            scores = score(learner.wrapped, number)
            loss_sum = cast(Tensor, scores["loss"].total)
            fabric.backward(loss_sum * (fabric.world_size / n_targets))
        scores = sum_scores_over_processes(fabric, scores)
        progress.after_part(scores)
        if not is_last and fabric.world_size == 1:
            raise_if_asked(fabric, stop)

    loss, norm = progress.of_parts.means()["loss"], clip_in_all_processes(fabric, learner, training.clip)
    if not math.isfinite(loss) or (not math.isfinite(norm) and training.precision != "float16"):
        losses = [
            lambda number=number: cast(Tensor, score(learner.model, number)["loss"].total)
            for number in range(len(parts))
        ]
        what = f"step {progress.step + 1} has the loss {loss} and a gradient of norm {norm}"
        raise_nonfinite(fabric, learner, what, losses)
    lr = training.optimiser.lr * learning_rate(training.schedule, progress.step, plan.n_steps)
    set_learning_rate(learner.optimiser, lr)
    learner.optimiser.step()
    learner.optimiser.zero_grad()
    if learner.ema is not None:
        learner.ema.update(progress.step)
    progress.after_step()
    return Step(loss, lr, norm)


def evaluate(
    fabric: Fabric, learner: Learner, task: Task, examples: Examples, batch_size: int, step: int
) -> Evaluation:
    """All metrics on all examples, of the averaged weights if there are such; every process does the whole of it."""
    with learner.evaluating(), fabric.autocast():
        found = task.evaluate(learner.model, ordered_batches(examples, batch_size, fabric.device))
        if not all(map(math.isfinite, found.metrics.values())):
            losses = (
                lambda batch=batch: cast(Tensor, task.score(learner.model, batch)["loss"].total)
                for batch in ordered_batches(examples, batch_size, fabric.device)
            )
            raise_nonfinite(fabric, learner, f"the evaluation at step {step} gives {found.metrics}", losses)
    return found


def raise_nonfinite(fabric: Fabric, learner: Learner, what: str, losses: Iterable[Callable[[], Tensor]]) -> NoReturn:
    with fabric.autocast():
        where = first_nonfinite(learner.model, losses)
    raise NonFiniteError(
        f"{what}: the first that is not finite is {where}. "
        "The run is kept as it was at its last checkpoint; look at the data, or try a smaller learning rate"
    )


def build_model(config: RunConfig, conversions: Sequence[Conversion] = (), frozen: Collection[str] = ()) -> nn.Module:
    """The model that was given, or one with fresh weights from the seed, converted and frozen as the given one was."""
    seed_everything(config.training.seed)
    if isinstance(config.model, nn.Module):
        return config.model
    model = config.model.build()
    if config.training.zero_init_outputs:
        zero_outputs(model)
    for conversion in conversions:
        model = conversion.apply(model).model
    if conversions or frozen:
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name not in frozen)
    return model


@torch.no_grad()
def zero_outputs(model: nn.Module) -> None:
    """Let every layer that the model's description names be the identity: residual branches end in zeros.

    Zhang, Dauphin and Ma, "Fixup initialization", 2019; Goyal et al. do the same for the norms of a ResNet.
    """
    description = describe(model)
    names = () if description is None else description.layers
    endings = [
        module
        for layer in names
        for name, module in model.get_submodule(layer).named_modules()
        if isinstance(module, nn.Linear) and name.endswith(("attention.out", ".down"))
    ]
    if not endings:
        raise ValueError(
            f"zero_init_outputs is for layers with attention.out or feed_forward.down, got {type(model).__name__}"
        )
    for matrix in endings:
        matrix.weight.zero_()
