from headwork.training import AdamW, RunConfig, TrainingConfig
from pendulum.data import Oscillations
from pendulum.model import FilterBank


def pendulum() -> RunConfig:
    """FilterBank on oscillations; a second on any laptop."""
    training = TrainingConfig(batch_size=12, epochs=4, optimiser=AdamW(lr=0.02), save_every=3)
    return RunConfig(
        name="pendulum", data=Oscillations(), model=FilterBank(n_filters=6, dropout=0.1), training=training
    )
