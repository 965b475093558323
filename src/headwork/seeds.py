"""Seeds: every random number of a run is a function of the run's seed and of where it is drawn."""

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


def derive_seed(*words: int | str) -> int:
    """A seed for one purpose, unrelated to the seeds of all others.

    >>> derive_seed(0, "order", 1) != derive_seed(0, "order", 2)
    True
    """
    return int.from_bytes(hashlib.sha256(repr(words).encode()).digest()[:8], "big") >> 1


def seed_everything(seed: int) -> None:
    """Seed every generator: PyTorch's for the weights, Python's and NumPy's for what a user's data may draw."""
    torch.manual_seed(derive_seed(seed, "weights"))
    random.seed(derive_seed(seed, "python"))
    np.random.seed(derive_seed(seed, "numpy") % 2**32)  # noqa: NPY002


def seed_torch(seed: int, device: torch.device) -> None:
    """What `torch.manual_seed` does, for one device.

    On a machine without others it writes the whole stack down at every call, for the day that one is found, which takes
    longer than the numbers of a small step.
    """
    if device.type == "cpu":
        torch.default_generator.manual_seed(seed)
    else:
        torch.manual_seed(seed)


def rng_states() -> dict[str, Any]:
    """The states of Python's and NumPy's generators for JSON: nothing here draws from them, but a user's data may."""
    numpy_state: Any = np.random.get_state(legacy=True)  # noqa: NPY002
    kind, keys, *more = numpy_state
    return {"python": random.getstate(), "numpy": [kind, keys.tolist(), *more]}


def set_rng_states(states: dict[str, Any]) -> None:
    version, words, gauss = states["python"]
    random.setstate((version, tuple(words), gauss))
    kind, keys, *more = states["numpy"]
    np.random.set_state((kind, np.array(keys, dtype=np.uint32), *more))  # noqa: NPY002


@contextmanager
def unchanged_rng_states() -> Iterator[None]:
    """Whatever the block draws, the generators go on afterwards as if it had not."""
    numpy_state = np.random.get_state()  # noqa: NPY002
    python_state = random.getstate()
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)  # noqa: NPY002
