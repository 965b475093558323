"""Any data set from its config."""

from headwork.data.bundled_text import BundledText, TextFile, load_text
from headwork.data.dates import Dates, load_dates
from headwork.data.digits import Digits, load_digits
from headwork.data.examples import Dataset
from headwork.data.mnist import Mnist5k, load_mnist
from headwork.data.reviews import Reviews, load_reviews

DataConfig = Digits | Mnist5k | Dates | BundledText | TextFile | Reviews


def load_data(config: DataConfig, seed: int = 0) -> Dataset:
    """The data set that a config describes; `seed` drives what varies from epoch to epoch, never the split.

    >>> load_data(Digits()).labels
    ('0', '1', '2', '3', '4', '5', '6', '7', '8', '9')
    """
    if seed < 0:
        raise ValueError(f"seed must be 0 or more, got {seed}")
    match config:
        case Digits():
            return load_digits(config, seed)
        case Mnist5k():
            return load_mnist(config, seed)
        case Dates():
            return load_dates(config)
        case BundledText() | TextFile():
            return load_text(config, seed)
        case Reviews():
            return load_reviews(config)
