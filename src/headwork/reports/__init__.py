"""A run, or several, as a page that a person wants to look at."""

from headwork.public import PublicNames
from headwork.reports.compare import compare as compare
from headwork.reports.page import Facts as Facts
from headwork.reports.page import Page as Page
from headwork.reports.run_report import Classification as Classification
from headwork.reports.run_report import RunReport as RunReport
from headwork.reports.run_report import write_report as write_report
from headwork.tables import Table as Table

__dir__ = PublicNames(__name__)
