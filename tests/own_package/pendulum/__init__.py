"""What a user writes: a model that is no Transformer, a task, streaming data and a recipe.

The frequency of a noisy oscillation, from 32 samples of it.
"""

from pendulum.data import Oscillations as Oscillations
from pendulum.model import FilterBank as FilterBank
from pendulum.recipe import pendulum as pendulum
from pendulum.task import Frequency as Frequency
