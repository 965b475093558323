"""Look inside, in numbers: what passes by, what shape it has, what it costs, what the heads attend to."""

from headwork.inspection import position_costs as position_costs
from headwork.inspection.attention import attention_layers as attention_layers
from headwork.inspection.attention import attention_weights_of as attention_weights_of
from headwork.inspection.centres import Snapshot as Snapshot
from headwork.inspection.centres import gaussian_layers as gaussian_layers
from headwork.inspection.centres import half_radius as half_radius
from headwork.inspection.centres import snapshot_centres as snapshot_centres
from headwork.inspection.costs import Cost as Cost
from headwork.inspection.costs import CostRow as CostRow
from headwork.inspection.costs import cost as cost
from headwork.inspection.recording import Seen as Seen
from headwork.inspection.recording import record as record
from headwork.inspection.tracing import Row as Row
from headwork.inspection.tracing import Trace as Trace
from headwork.inspection.tracing import trace as trace
