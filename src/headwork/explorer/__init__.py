"""The explorer: a model in the browser, recomputing as you type, draw and drag."""

from headwork.explorer.widget import explore as explore
from headwork.public import PublicNames

__dir__ = PublicNames(__name__)
