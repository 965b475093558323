"""The loop, what it keeps, and what it shows."""

import importlib
from typing import TYPE_CHECKING

from headwork.extras import need
from headwork.public import PublicNames
from headwork.training.config import SGD as SGD
from headwork.training.config import AdamW as AdamW
from headwork.training.config import Constant as Constant
from headwork.training.config import Cosine as Cosine
from headwork.training.config import Muon as Muon
from headwork.training.config import RunConfig as RunConfig
from headwork.training.config import TrainingConfig as TrainingConfig
from headwork.training.config import WarmupStableDecay as WarmupStableDecay
from headwork.training.fit import CLASSES_OF_DATA as CLASSES_OF_DATA
from headwork.training.fit import VOCAB_OF_DATA as VOCAB_OF_DATA
from headwork.training.fit import check_fit as check_fit
from headwork.training.nonfinite import NonFiniteError as NonFiniteError
from headwork.training.optimiser import clip_gradient as clip_gradient
from headwork.training.optimiser import learning_rate as learning_rate
from headwork.training.optimiser import make_optimiser as make_optimiser
from headwork.training.optimiser import parameter_groups as parameter_groups
from headwork.training.optimiser import set_learning_rate as set_learning_rate
from headwork.training.plan import ordered_batches as ordered_batches
from headwork.training.plan import shuffled_batches as shuffled_batches
from headwork.training.pretrained import Start as Start
from headwork.training.pretrained import start_from as start_from
from headwork.training.run import Run as Run
from headwork.training.run import new_run as new_run
from headwork.training.run import open_run as open_run
from headwork.training.stopping import StoppedError as StoppedError
from headwork.training.stopping import StopRequest as StopRequest

_LATE = {
    "TrainingResult": "headwork.training.loop",
    "train": "headwork.training.entry",
    "train_run": "headwork.training.loop",
    "load_state": "headwork.training.own_loop",
    "save_state": "headwork.training.own_loop",
}
__dir__ = PublicNames(__name__, tuple(_LATE))

if TYPE_CHECKING:
    from headwork.training.entry import train as train
    from headwork.training.loop import TrainingResult as TrainingResult
    from headwork.training.loop import train_run as train_run
    from headwork.training.own_loop import load_state as load_state
    from headwork.training.own_loop import save_state as save_state


def __getattr__(name: str) -> object:
    """The loop waits for lightning-fabric, 1.5 s, and code that only uses a run should not."""
    if name in _LATE:
        if _LATE[name] != "headwork.training.own_loop":
            need("lightning_fabric")
        return getattr(importlib.import_module(_LATE[name]), name)
    raise AttributeError(f"module 'headwork.training' has no attribute {name!r}")
