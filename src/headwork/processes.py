"""Which of several processes on one run this is; without PyTorch, since the command line asks before it is there."""

import os


def is_first_process() -> bool:
    """Whether this process speaks for all: the only one, or the first of those that `torchrun` has started."""
    return os.environ.get("RANK", "0") == "0"
