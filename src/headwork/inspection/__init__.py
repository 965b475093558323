"""Look inside: what passes by, what shape it has, what it costs."""

from headwork.inspection.costs import Cost as Cost
from headwork.inspection.costs import CostRow as CostRow
from headwork.inspection.costs import cost as cost
from headwork.inspection.recording import Seen as Seen
from headwork.inspection.recording import record as record
from headwork.inspection.shapes import Ledger as Ledger
from headwork.inspection.shapes import Row as Row
from headwork.inspection.shapes import ledger as ledger
