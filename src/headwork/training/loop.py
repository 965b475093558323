"""The training loop: one function, short enough to read, and the step it repeats."""

import math
import signal
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, NoReturn, cast

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from headwork.data import Batch, Examples
from headwork.tasks import AnyTask, Share, Shares, Sums, add_to, means
from headwork.training.checkpoints import Progress
from headwork.training.config import RunConfig
from headwork.training.data_order import Plan, derive_seed, seed_everything, training_batches
from headwork.training.display import Display, Quiet
from headwork.training.evaluation import batches, measure_all, on_device
from headwork.training.keeper import Clock, Keeper
from headwork.training.learner import Learner
from headwork.training.log import Watcher
from headwork.training.machine import keep_memory, make_fabric
from headwork.training.nonfinite import NonFiniteError, first_nonfinite
from headwork.training.optimisation import EMA, gradient_norm, learning_rate, make_optimiser
from headwork.training.run import Run
from headwork.training.stopping import StoppedError, StopRequest


class Outcome(NamedTuple):
    """What came of a run: the figures of its best checkpoint."""

    best_step: int
    valid: dict[str, float]
    test: dict[str, float]
    seconds: float


def train(
    run: Run, display: Display | None = None, stop: StopRequest | None = None, watchers: Sequence[Watcher] = ()
) -> Outcome:
    """Train to the end from where the run stands; the best checkpoint is chosen on validation data, never on test."""
    display, stop = display or Quiet(), stop or StopRequest()
    training, data, task = run.config.training, run.load_data(), run.task
    keep_memory()
    fabric = make_fabric(training)
    plan = Plan(len(data.train), training, fabric.global_rank, fabric.world_size)
    fabric.launch()
    learner = make_learner(run.config, fabric)
    with Keeper(run, learner, plan, display, watchers, fabric.barrier) as keeper, stop.listening():
        progress = keeper.resume()
        check_same_step(fabric, progress)
        clock = Clock(progress)
        try:
            for parts in training_batches(plan, data.train, progress.step):
                if training.patience is not None and progress.n_worse >= training.patience:
                    break
                loss = take_step(fabric, learner, task, parts, plan, progress, stop)
                progress.seconds = clock.seconds
                display.stepped(progress.step, loss, training.batch_size * clock.steps_per_second(progress.step))
                if plan.evaluates(progress.step):
                    valid = evaluate(fabric, learner, task, data.valid, training.batch_size, progress.step)
                    keeper.evaluated(progress, valid)
                if plan.saves(progress.step):
                    keeper.save(progress)
                raise_if_asked(fabric, stop)
        except StoppedError as error:
            keeper.save(progress)
            how = f"go on with `headwork train --resume {run.folder}`"
            where = f" and saved at step {progress.step} of {plan.n_steps}; {how}"
            raise StoppedError(error.signal_number, where) from None
        assert progress.best_step is not None
        keeper.restore_best()
        valid, test = (
            evaluate(fabric, learner, task, split, training.batch_size, progress.best_step)
            for split in (data.valid, data.test)
        )
        keeper.finish(progress, test)
    return Outcome(progress.best_step, valid, test, progress.seconds)


def take_step(
    fabric: Fabric,
    learner: Learner,
    task: AnyTask,
    parts: Sequence[Batch],
    plan: Plan,
    progress: Progress,
    stop: StopRequest,
) -> float:
    """One step down the gradient of the mean loss over all targets, in all parts and processes; that loss."""
    training = plan.training
    parts = [on_device(part, fabric.device) for part in parts]
    n_targets = total(fabric, float(sum(task.n_targets(part) for part in parts)))

    def score(model: nn.Module, number: int) -> Shares:
        torch.manual_seed(derive_seed(training.seed, "dropout", progress.step, number, fabric.global_rank))
        return task.score(model, parts[number], training.label_smoothing)

    seen: Sums = {}
    for number in range(progress.part, len(parts)):  # from 0, unless some were accumulated before the run was stopped
        is_last = number == len(parts) - 1
        with fabric.no_backward_sync(learner.called, enabled=not is_last):  # type: ignore[arg-type]
            shares = score(learner.called, number)
            fabric.backward(shares["loss"].total * (fabric.world_size / n_targets))
        shares = sum_over_processes(fabric, shares)
        add_to(seen, shares)
        add_to(progress.shares, shares)
        progress.part += 1
        if not is_last and fabric.world_size == 1:
            raise_if_asked(fabric, stop)

    loss, norm = means(seen)["loss"], clip(fabric, learner, training.clip)
    if not math.isfinite(loss) or (not math.isfinite(norm) and training.precision != "float16"):
        losses = [lambda number=number: score(learner.model, number)["loss"].total for number in range(len(parts))]
        what = f"step {progress.step + 1} has the loss {loss} and a gradient of norm {norm}"
        raise_nonfinite(fabric, learner, what, losses)
    for group in learner.optimiser.param_groups:
        group["lr"] = (
            group.get("pace", 1.0)
            * training.optimiser.lr
            * learning_rate(training.schedule, progress.step, plan.n_steps)
        )
    learner.optimiser.step()
    learner.optimiser.zero_grad()
    if learner.average is not None:
        learner.average.update(learner.model, progress.step)
    progress.step, progress.part = progress.step + 1, 0
    return loss


def evaluate(
    fabric: Fabric, learner: Learner, task: AnyTask, examples: Examples, batch_size: int, step: int
) -> dict[str, float]:
    """All figures on all examples, of the averaged weights if there are such; every process does the whole of it."""
    with learner.evaluating(), fabric.autocast():
        figures = measure_all(task, learner.model, examples, batch_size, fabric.device)
        if not all(map(math.isfinite, figures.values())):
            losses = (
                lambda batch=batch: task.score(learner.model, on_device(batch, fabric.device))["loss"].total
                for batch in batches(examples, batch_size)
            )
            raise_nonfinite(fabric, learner, f"the evaluation at step {step} gives {figures}", losses)
    return figures


def raise_nonfinite(fabric: Fabric, learner: Learner, what: str, losses: Iterable[Callable[[], Tensor]]) -> NoReturn:
    with fabric.autocast():
        where = first_nonfinite(learner.model, losses)
    raise NonFiniteError(
        f"{what}: the first that is not finite is {where}. "
        "The run is kept as it was at its last checkpoint; look at the data, or try a smaller learning rate"
    )


def make_learner(config: RunConfig, fabric: Fabric) -> Learner:
    """The model with fresh weights from the seed, its optimiser and its average, on their device."""
    training = config.training
    seed_everything(training.seed)
    model = config.model.build()
    called = fabric.setup_module(cast(nn.Module, torch.compile(model)) if training.compile else model)
    optimiser = cast(Optimizer, fabric.setup_optimizers(make_optimiser(training.optimiser, model)))
    average = None if training.ema is None else EMA(model, training.ema)
    return Learner(model, called, optimiser, average, getattr(fabric.strategy.precision, "scaler", None))


def clip(fabric: Fabric, learner: Learner, longest: float | None) -> float:
    """Make the gradient no longer than that; how long it was."""
    norm: Tensor | None = (
        gradient_norm(learner.model)
        if longest is None
        else fabric.clip_gradients(learner.called, learner.optimiser, max_norm=longest, error_if_nonfinite=False)
    )
    assert norm is not None
    return float(norm.full_tensor() if isinstance(norm, DTensor) else norm)


def sum_over_processes(fabric: Fabric, shares: Shares) -> Shares:
    """The shares of all processes together."""
    if fabric.world_size == 1:
        return shares
    pairs = torch.tensor([(float(share.total.detach()), share.weight) for share in shares.values()])
    summed = cast(Tensor, fabric.all_reduce(pairs.double(), reduce_op="sum"))
    return {name: Share(both[0], float(both[1])) for name, both in zip(shares, summed, strict=True)}


def total(fabric: Fabric, number: float) -> float:
    """The sum over all processes."""
    if fabric.world_size == 1:
        return number
    return float(cast(Tensor, fabric.all_reduce(torch.tensor(number, dtype=torch.float64), reduce_op="sum")))


def check_same_step(fabric: Fabric, progress: Progress) -> None:
    if total(fabric, progress.step) != progress.step * fabric.world_size:
        raise RuntimeError(
            f"all processes must go on from the same step: the run's folder must be on a disk that all machines share, "
            f"got step {progress.step} in process {fabric.global_rank}"
        )


def raise_if_asked(fabric: Fabric, stop: StopRequest) -> None:
    """All processes stop together, whoever of them was asked."""
    number = int(total(fabric, float(stop.signal_number or 0)))
    if number:
        raise StoppedError(signal.SIGTERM if fabric.world_size > 1 else number)
