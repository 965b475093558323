"""What nearly every claim needs beside the functions it is about.

What it draws with is in `plots`, rarer measurements are in `measuring`, small classifiers in `digits`.
"""

from headwork.lab.claim import Claim as Claim
from headwork.lab.claim import Erratum as Erratum
from headwork.lab.claim import Experiment as Experiment
from headwork.lab.claim import seeded as seeded
from headwork.lab.verdict import N_SD as N_SD
from headwork.lab.verdict import ROUNDING as ROUNDING
from headwork.lab.verdict import Check as Check
from headwork.lab.verdict import Verdict as Verdict
from headwork.lab.verdict import about as about
from headwork.lab.verdict import at_least as at_least
from headwork.lab.verdict import at_most as at_most
from headwork.lab.verdict import exact as exact
from headwork.lab.verdict import largest_difference as largest_difference
from headwork.lab.verdict import same as same
