"""The loop, what it keeps, and what it shows."""

from typing import TYPE_CHECKING

from headwork.training.config import SGD as SGD
from headwork.training.config import AdamW as AdamW
from headwork.training.config import Constant as Constant
from headwork.training.config import Cosine as Cosine
from headwork.training.config import RunConfig as RunConfig
from headwork.training.config import TrainingConfig as TrainingConfig
from headwork.training.nonfinite import NonFiniteError as NonFiniteError
from headwork.training.run import Run as Run
from headwork.training.run import new_run as new_run
from headwork.training.run import open_run as open_run
from headwork.training.stopping import StoppedError as StoppedError
from headwork.training.stopping import StopRequest as StopRequest

if TYPE_CHECKING:
    from headwork.training.loop import Outcome as Outcome
    from headwork.training.loop import train as train


def __getattr__(name: str) -> object:
    """The loop waits for lightning-fabric, 1.5 s, and whoever only uses a run should not."""
    if name in ("Outcome", "train"):
        from headwork.training import loop

        return getattr(loop, name)
    raise AttributeError(f"module 'headwork.training' has no attribute {name!r}")
