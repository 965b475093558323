"""What is wrong with somebody's attention code, in words: `hw.check(thing)`, `headwork check FILE.py`."""

from headwork.checking.entry import check as check
from headwork.checking.entry import check_class as check_class
from headwork.checking.entry import check_file as check_file
from headwork.checking.report import Finding as Finding
from headwork.checking.report import Report as Report
from headwork.checking.runner import Walls as Walls
from headwork.public import PublicNames

__dir__ = PublicNames(__name__)
