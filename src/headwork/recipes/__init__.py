"""Complete, named configurations, each with the time it takes and the result it gives."""

from headwork.public import PublicNames
from headwork.recipes.catalogue import RECIPES as RECIPES
from headwork.recipes.catalogue import find_recipe as find_recipe
from headwork.recipes.catalogue import own_classes as own_classes
from headwork.recipes.other_data import other_examples as other_examples
from headwork.recipes.overrides import override as override
from headwork.recipes.overrides import read_settings as read_settings
from headwork.recipes.own_data import with_data as with_data

__dir__ = PublicNames(__name__)
