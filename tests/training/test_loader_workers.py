"""Loader workers that fail, are killed or hang: said as it is, and none is left behind."""

import multiprocessing
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from torch.utils.data import get_worker_info

import headwork as hw
from headwork.batches import Batch
from headwork.data import Dataset, Examples
from headwork.training import TrainingConfig
from headwork.training.plan import WorkerDiedError

MODEL = hw.models.ResNetConfig(n_classes=10, n_channels=1, n_blocks=1, widths=(4,))


class OddError(Exception):
    """Cannot go from process to process."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(one + two)


@dataclass(frozen=True)
class Faulty:
    """Fails in the first worker; meanwhile the others are busy for a long time."""

    examples: Examples
    fault: str

    def __len__(self) -> int:
        return len(self.examples)

    def batch(self, indices: Sequence[int], epoch: int | None = None) -> Batch:
        worker = get_worker_info()
        if worker is not None:
            if worker.id:
                time.sleep(60)
            time.sleep(0.3)  # while the loader hands out its first work, PyTorch itself says that a worker is gone
            if self.fault == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.fault == "gone":
                os._exit(3)
            if self.fault == "odd":
                raise OddError("five ", "is odd")
            raise ValueError("example 5 is broken")
        return self.examples.batch(indices, epoch)


@pytest.mark.parametrize(
    ("fault", "kind", "message"),
    [
        ("wrong", ValueError, "^example 5 is broken"),
        ("odd", RuntimeError, "^OddError: five is odd"),
        ("killed", WorkerDiedError, "a loader worker was killed .SIGKILL., as .* memory runs out"),
        ("gone", WorkerDiedError, "a loader worker ended with the exit code 3"),
    ],
)
@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_a_failing_worker_is_explained_and_none_is_left(
    fault: str, kind: type[Exception], message: str, tmp_path: Path
) -> None:
    data = hw.data.Digits().load()
    faulty = Dataset(Faulty(data.train, fault), data.valid, data.test, data.task)
    n = len(data.train)
    before = set(multiprocessing.active_children())
    with pytest.raises(kind, match=message) as caught:
        hw.train(MODEL, faulty, TrainingConfig(steps=9, batch_size=n // 3, workers=3), out=tmp_path / "run")
    assert set(multiprocessing.active_children()) == before
    if kind is WorkerDiedError:
        assert f"go on with `headwork train --resume {tmp_path / 'run'}`" in str(caught.value)
    else:
        assert "Traceback" not in str(caught.value)
        assert "in batch" in "".join(caught.value.__notes__)
