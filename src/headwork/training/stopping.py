"""Ctrl-C and SIGTERM: finish what is in hand, save, and say how to go on."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StoppedError(RuntimeError):
    """The user (SIGINT) or the machine (SIGTERM) asked to stop."""

    def __init__(self, signal_number: int, where: str = "") -> None:
        super().__init__(f"stopped by {signal.Signals(signal_number).name}{where}")
        self.signal_number = signal_number
        self.exit_code = 128 + signal_number


class StopRequest:
    """Remembers that somebody asked to stop; asked twice, it stops at once."""

    def __init__(self) -> None:
        self.signal_number: int | None = None

    @property
    def asked(self) -> bool:
        return self.signal_number is not None

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Hear Ctrl-C and SIGTERM while the block runs."""
        before = {number: signal.signal(number, self._hear) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _hear(self, number: int, _frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.signal_number = number
