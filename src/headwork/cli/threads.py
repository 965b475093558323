"""How PyTorch's threads wait for each other: decided before PyTorch is imported, where OpenMP reads it."""

import os
import sys
import time
from pathlib import Path

BUSY = 0.25  # of all processors: half of one of two


def share_processors(seconds: float = 0.1) -> None:
    """Where other programs keep the processors busy, let threads that wait sleep instead of spinning.

    The threads of an operation wait for the last of them. If that one has to wait for a processor, those that spin
    keep the very processor it waits for: two threads were seen to be 30 to 300 times slower than they need to be. On
    a quiet machine spinning is the faster way, by up to 40 % for small models. OMP_WAIT_POLICY, if set, decides.
    """
    if "torch" in sys.modules or "OMP_WAIT_POLICY" in os.environ or "GOMP_SPINCOUNT" in os.environ:
        return
    if busy_share(seconds) > BUSY:
        os.environ["OMP_WAIT_POLICY"] = "PASSIVE"


def busy_share(seconds: float, clock: Path = Path("/proc/stat")) -> float:
    """The part of all processors' time that is used while this program sleeps; 0 where the system does not say."""
    try:
        before = _used_and_all(clock)
        time.sleep(seconds)
        after = _used_and_all(clock)
    except (OSError, ValueError, IndexError):  # not Linux
        return 0.0
    return (after[0] - before[0]) / max(after[1] - before[1], 1)


def _used_and_all(clock: Path) -> tuple[int, int]:
    """Ticks since the start of the machine; the first line is "cpu user nice system idle iowait ..."."""
    with clock.open() as lines:
        ticks = [int(number) for number in lines.readline().split()[1:9]]
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)
