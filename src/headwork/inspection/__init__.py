"""Look inside and write into a model: what passes, what shape it has, what it costs, what happens without it.

The drawings are imported when they are first asked for, so that counting does not wait for Matplotlib.
"""

import importlib
from typing import TYPE_CHECKING

from headwork.inspection import position_costs as position_costs
from headwork.inspection.ablation import ablate as ablate
from headwork.inspection.activation_patching import Effect as Effect
from headwork.inspection.activation_patching import patching_effects as patching_effects
from headwork.inspection.centres import Snapshot as Snapshot
from headwork.inspection.centres import gaussian_layers as gaussian_layers
from headwork.inspection.centres import half_radius as half_radius
from headwork.inspection.centres import snapshot_centres as snapshot_centres
from headwork.inspection.costs import Cost as Cost
from headwork.inspection.costs import CostRow as CostRow
from headwork.inspection.costs import cost as cost
from headwork.inspection.head_log import log_heads as log_heads
from headwork.inspection.logit_lens import Lens as Lens
from headwork.inspection.logit_lens import lens as lens
from headwork.inspection.patching import patch as patch
from headwork.inspection.recording import Recording as Recording
from headwork.inspection.recording import record as record
from headwork.inspection.tracing import Row as Row
from headwork.inspection.tracing import Trace as Trace
from headwork.inspection.tracing import trace as trace

if TYPE_CHECKING:
    from headwork.inspection.centre_figures import animate_centres as animate_centres
    from headwork.inspection.centre_figures import draw_centres as draw_centres
    from headwork.inspection.figures import draw_inside as draw_inside
    from headwork.inspection.head_figures import draw_absolute_codes as draw_absolute_codes
    from headwork.inspection.head_figures import draw_heads as draw_heads
    from headwork.inspection.head_figures import verify_limit as verify_limit

_DRAWINGS = {
    "animate_centres": "centre_figures",
    "draw_absolute_codes": "head_figures",
    "draw_centres": "centre_figures",
    "draw_heads": "head_figures",
    "draw_inside": "figures",
    "verify_limit": "head_figures",
}


def __getattr__(name: str) -> object:
    if name in _DRAWINGS:
        return getattr(importlib.import_module(f"headwork.inspection.{_DRAWINGS[name]}"), name)
    raise AttributeError(f"module 'headwork.inspection' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted((*globals(), *_DRAWINGS))
