"""Complete, named configurations, each with the time it takes and the result it gives."""

from headwork.recipes.catalogue import RECIPES as RECIPES
from headwork.recipes.catalogue import Changes as Changes
from headwork.recipes.catalogue import change as change
from headwork.recipes.catalogue import find_recipe as find_recipe
