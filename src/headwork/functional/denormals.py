"""Numbers below the smallest normal one (1e-38 in float32): on many processors each product with one takes 100 cycles.

Attention weights far from the best key are such numbers, and so become the averages of Adam where a gradient has
stopped. Training and the command line have the processor take them for 0; HEADWORK_FLUSH_DENORMAL=0 turns that off.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

SWITCH = "HEADWORK_FLUSH_DENORMAL"


@contextmanager
def flush_denormals() -> Iterator[None]:
    """Inside the block, this thread and all that are started from it take denormal numbers for 0, unless switched off.

    PyTorch starts its threads with its first large operation and keeps them: those that run already are not reached.

    >>> with flush_denormals():
    ...     flushes_denormals()
    True
    """
    wanted, before = os.environ.get(SWITCH, "1"), flushes_denormals()
    if wanted not in ("0", "1"):
        raise ValueError(f"{SWITCH} must be 0 or 1, got {wanted!r}")
    torch.set_flush_denormal(wanted == "1")
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


def flushes_denormals() -> bool:
    """Whether this thread takes denormal numbers for 0."""
    return bool(torch.tensor(torch.finfo(torch.float32).tiny) / 2 == 0)
