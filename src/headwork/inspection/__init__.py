"""Look inside and write into a model: what passes, what shape it has, what it costs, what happens without it."""

from headwork.inspection import position_costs as position_costs
from headwork.inspection.ablation import ablate as ablate
from headwork.inspection.activation_patching import Effect as Effect
from headwork.inspection.activation_patching import patching_effects as patching_effects
from headwork.inspection.costs import Cost as Cost
from headwork.inspection.costs import CostRow as CostRow
from headwork.inspection.costs import cost as cost
from headwork.inspection.heads import Snapshot as Snapshot
from headwork.inspection.heads import attention_layers as attention_layers
from headwork.inspection.heads import attention_weights_of as attention_weights_of
from headwork.inspection.heads import gaussian_layers as gaussian_layers
from headwork.inspection.heads import half_radius as half_radius
from headwork.inspection.heads import snapshot_centres as snapshot_centres
from headwork.inspection.logit_lens import Lens as Lens
from headwork.inspection.logit_lens import lens as lens
from headwork.inspection.patching import patch as patch
from headwork.inspection.recording import Recording as Recording
from headwork.inspection.recording import record as record
from headwork.inspection.tracing import Row as Row
from headwork.inspection.tracing import Trace as Trace
from headwork.inspection.tracing import trace as trace
from headwork.public import PublicNames

__dir__ = PublicNames(__name__, ("position_costs",))
