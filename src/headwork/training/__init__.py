"""The loop, what it keeps, and what it shows."""

from typing import TYPE_CHECKING

from headwork.extras import need
from headwork.public import PublicNames
from headwork.training.config import SGD as SGD
from headwork.training.config import AdamW as AdamW
from headwork.training.config import Constant as Constant
from headwork.training.config import Cosine as Cosine
from headwork.training.config import RunConfig as RunConfig
from headwork.training.config import TrainingConfig as TrainingConfig
from headwork.training.fit import VOCAB_OF_DATA as VOCAB_OF_DATA
from headwork.training.fit import check_fit as check_fit
from headwork.training.nonfinite import NonFiniteError as NonFiniteError
from headwork.training.run import Run as Run
from headwork.training.run import new_run as new_run
from headwork.training.run import open_run as open_run
from headwork.training.stopping import StoppedError as StoppedError
from headwork.training.stopping import StopRequest as StopRequest

__dir__ = PublicNames(__name__, ("TrainingResult", "train", "train_run"))

if TYPE_CHECKING:
    from headwork.training.entry import train as train
    from headwork.training.loop import TrainingResult as TrainingResult
    from headwork.training.loop import train_run as train_run


def __getattr__(name: str) -> object:
    """The loop waits for lightning-fabric, 1.5 s, and code that only uses a run should not."""
    if name in ("TrainingResult", "train", "train_run"):
        need("lightning_fabric")
        from headwork.training import entry

        return getattr(entry, name)
    raise AttributeError(f"module 'headwork.training' has no attribute {name!r}")
