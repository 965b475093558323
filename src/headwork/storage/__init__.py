"""Models in folders that are whole or not there at all, and checked when they are read."""

from headwork.public import PublicNames
from headwork.storage.folders import new_folder as new_folder
from headwork.storage.folders import verify as verify
from headwork.storage.models import load as load
from headwork.storage.models import save as save
from headwork.storage.sealed_json import DamagedError as DamagedError

__dir__ = PublicNames(__name__)
