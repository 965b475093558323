"""What several processes do together: sums over all of them, and stopping at the same step."""

import signal
from typing import cast

import torch
from lightning_fabric import Fabric
from torch import Tensor

from headwork.metric import MetricSum
from headwork.training.progress import Progress
from headwork.training.stopping import StoppedError, StopRequest


def sum_scores_over_processes(fabric: Fabric, scores: dict[str, MetricSum]) -> dict[str, MetricSum]:
    """The detached scores of all processes together."""
    detached = {name: MetricSum(torch.as_tensor(total).detach(), weight) for name, (total, weight) in scores.items()}
    if fabric.world_size == 1:
        return detached
    pairs = torch.tensor([(float(total), weight) for total, weight in detached.values()])
    summed = cast(Tensor, fabric.all_reduce(pairs.double(), reduce_op="sum"))
    return {name: MetricSum(both[0], float(both[1])) for name, both in zip(scores, summed, strict=True)}


def sum_over_processes(fabric: Fabric, number: float) -> float:
    if fabric.world_size == 1:
        return number
    return float(cast(Tensor, fabric.all_reduce(torch.tensor(number, dtype=torch.float64), reduce_op="sum")))


def check_same_step(fabric: Fabric, progress: Progress) -> None:
    if sum_over_processes(fabric, progress.step) != progress.step * fabric.world_size:
        raise RuntimeError(
            f"all processes must go on from the same step: the run's folder must be on a disk that all machines share, "
            f"got step {progress.step} in process {fabric.global_rank}"
        )


def raise_if_asked(fabric: Fabric, stop: StopRequest) -> None:
    """All processes stop together, whoever of them was asked."""
    number = int(sum_over_processes(fabric, float(stop.signal_number or 0)))
    if number:
        raise StoppedError(signal.SIGTERM if fabric.world_size > 1 else number)
