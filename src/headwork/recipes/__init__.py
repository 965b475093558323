"""Complete, named configurations, each with the time it takes and the result it gives."""

from headwork.recipes.book import RECIPES as RECIPES
from headwork.recipes.book import Changes as Changes
from headwork.recipes.book import change as change
from headwork.recipes.book import find_recipe as find_recipe
