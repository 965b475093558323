"""Every claim of the five documents: predicted, measured, judged and drawn.

>>> from headwork.lab import find
>>> claim = find("temperature")
>>> claim.examine(claim.small).verdict.holds
True
"""

from headwork.lab.catalogue import find as find
from headwork.lab.catalogue import labels as labels
from headwork.public import PublicNames

__dir__ = PublicNames(__name__)
