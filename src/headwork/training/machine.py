"""The machine of a run: device, precision, memory, and what several processes do together."""

import ctypes
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import cast

import torch
from lightning_fabric import Fabric
from lightning_fabric.strategies.ddp import DDPStrategy
from lightning_fabric.strategies.model_parallel import ModelParallelStrategy
from lightning_fabric.strategies.strategy import Strategy
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from headwork.functional.processor import say_problem, try_half
from headwork.metric import MetricSum
from headwork.models.model import describe
from headwork.training.config import Precision, TrainingConfig
from headwork.training.learner import EMA, Learner
from headwork.training.optimiser import gradient_norm, make_optimiser
from headwork.training.stopping import StoppedError, StopRequest

OLDEST_FSDP = "2.10"
QUIET = 0.7
"""The share of the processors that the threads of a run get at least, on a machine that does little else."""
PRECISIONS = {"float32": "32-true", "bfloat16": "bf16-mixed", "float16": "16-mixed"}


def make_fabric(training: TrainingConfig) -> Fabric:
    """One process, or as many as `torchrun` has started."""
    device = find_device(training)
    check_device(device)
    check_precision(training.precision, device)
    n_processes = int(os.environ.get("WORLD_SIZE", "1"))
    n_here = int(os.environ.get("LOCAL_WORLD_SIZE", str(n_processes)))
    if n_processes == 1 and training.strategy != "auto":
        raise ValueError(f"strategy is for many processes: start with torchrun, got {training.strategy} in one")
    if training.strategy == "fsdp" and torch.__version__ < OLDEST_FSDP:
        raise ValueError(
            f"strategy must be ddp with PyTorch {torch.__version__}, got fsdp, by which it trains weights that are "
            f"used twice (an embedding that is the output too) wrongly; {OLDEST_FSDP} is right"
        )
    return Fabric(
        accelerator=device,
        devices=n_here,
        num_nodes=n_processes // n_here,
        strategy=_strategy(training, n_processes),
        precision=PRECISIONS[training.precision],  # type: ignore[arg-type]
    )


def find_device(training: TrainingConfig) -> str:
    if training.device != "auto":
        return training.device
    return "cuda" if torch.cuda.is_available() else "cpu"


def describe_load(training: TrainingConfig) -> str | None:
    """A sentence for the user if other programs keep this machine busy; None if not, or if it does not matter.

    Threads that share the work of every operation wait for the last of them: if one has to wait for a processor, all
    do, and two threads can be several times slower than one. Measured is the processor time that the threads get.
    """
    n_threads = torch.get_num_threads()
    sleeping = os.environ.get("OMP_WAIT_POLICY", "").upper() == "PASSIVE"
    if n_threads == 1 or sleeping or find_device(training) != "cpu":
        return None
    work = torch.ones(2**22)
    nn.functional.gelu(work)  # starts the threads
    begun, used = time.monotonic(), time.process_time()
    for _ in range(8):
        nn.functional.gelu(work)
    seconds, used = time.monotonic() - begun, time.process_time() - used
    if used >= QUIET * n_threads * seconds:
        return None
    return (
        f"this machine is busy: {n_threads} threads get the time of {used / seconds:.1f} processors and wait for each "
        "other. With OMP_WAIT_POLICY=PASSIVE before the command, training may be much faster"
    )


def _strategy(training: TrainingConfig, n_processes: int) -> Strategy | str:
    if n_processes == 1:
        return "auto"
    if training.strategy == "fsdp":
        return ModelParallelStrategy(shard_layers, data_parallel_size=n_processes, tensor_parallel_size=1)
    return DDPStrategy()


def shard_layers(model: nn.Module, mesh: DeviceMesh) -> nn.Module:
    """Each layer of the stack by itself, then what is left: a process holds one whole layer at a time."""
    description = describe(model)
    for name in () if description is None else description.layers:
        fully_shard(model.get_submodule(name), mesh=mesh["data_parallel"])
    fully_shard(model, mesh=mesh["data_parallel"])
    return model


def check_device(device: str) -> None:
    is_there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not is_there[device]:
        here = ", ".join(name for name, is_here in is_there.items() if is_here)
        raise ValueError(f"device must be one that this machine has ({here}), got {device}")


def check_precision(precision: Precision, device: str) -> None:
    """Raise if this machine cannot compute so: some processors announce what then kills the process."""
    if precision == "float16" and device == "cpu":
        raise ValueError("precision must be float32 or bfloat16 on a processor, got float16")
    if precision == "bfloat16" and device == "cpu":
        problem = try_half(torch.bfloat16)
        if problem:
            raise ValueError(say_problem("precision", torch.bfloat16, problem))


def keep_memory() -> bool:
    """Ask the C library to keep the memory of freed tensors for the next ones; True if it will.

    By default glibc gives large blocks back to the kernel at once, and every operation then pays for fresh pages. If
    every batch has another shape, what is kept comes in pieces and grows for some epochs, but to give some of it back
    costs more than it saves. The allocations of 80 steps of the recipe multi30k in bfloat16 with batches of 16 and
    AdamW, replayed without the arithmetic and eight times as large, as for its 128, on an AMD EPYC: 0.03 s a step
    and 3.8 GB so, 0.23 s and 3.0 GB by default, 0.18 s and 3.1 GB with blocks of 32 MB or more given back, 0.06 s and
    3.4 GB with malloc_trim every 20 steps, 0.17 s and 2.8 GB every 5; one step needs 1 GB at most.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # not glibc
        return False
    trim_threshold, top_pad, mmap_threshold = -1, -2, -3
    kept = any(mallopt(mmap_threshold, size) for size in (2**30, 2**25))  # older ones refuse the larger
    return bool(kept and mallopt(trim_threshold, 2**31 - 1) and mallopt(top_pad, 2**26))


def resident_bytes(status: Path = Path("/proc/self/statm")) -> int:
    """The memory that this process has now; where the system does not say, the most that it has had.

    What an earlier run has freed is given back first: the next one takes it again.
    """
    with suppress(AttributeError, OSError, TypeError):  # not glibc
        ctypes.CDLL(None).malloc_trim(0)
    try:
        return int(status.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):  # not Linux
        if sys.platform == "win32":
            return 0
        import resource

        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024


def make_learner(model: nn.Module, training: TrainingConfig, fabric: Fabric) -> Learner:
    """The model with its optimiser and its EMA, on their device."""
    model.train()
    wrapped = fabric.setup_module(cast(nn.Module, torch.compile(model)) if training.compile else model)
    optimiser = cast(Optimizer, fabric.setup_optimizers(make_optimiser(training.optimiser, model)))
    ema = None if training.ema is None else EMA(model, training.ema)
    return Learner(model, wrapped, optimiser, ema, getattr(fabric.strategy.precision, "scaler", None))


def clip_in_all_processes(fabric: Fabric, learner: Learner, longest: float | None) -> float:
    """`clip_gradient` of what may be scaled, or sharded over processes."""
    norm: Tensor | None = (
        gradient_norm(learner.model)
        if longest is None
        else fabric.clip_gradients(learner.wrapped, learner.optimiser, max_norm=longest, error_if_nonfinite=False)
    )
    assert norm is not None
    return float(norm.full_tensor() if isinstance(norm, DTensor) else norm)


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


def check_same_step(fabric: Fabric, step: int) -> None:
    if sum_over_processes(fabric, step) != step * fabric.world_size:
        raise RuntimeError(
            f"all processes must go on from the same step: the run's folder must be on a disk that all machines share, "
            f"got step {step} in process {fabric.global_rank}"
        )


def raise_if_asked(fabric: Fabric, stop: StopRequest) -> None:
    """All processes stop together, whoever of them was asked."""
    number = int(sum_over_processes(fabric, float(stop.signal_number or 0)))
    if number:
        raise StoppedError(signal.SIGTERM if fabric.world_size > 1 else number)
