"""Ctrl-C, SIGTERM and a terminal that closes: finish what is in hand, save, and say how to go on."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

HEARD = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class StoppedError(RuntimeError):
    """The user (SIGINT) or the machine (SIGTERM) asked to stop."""

    def __init__(self, signal_number: int, where: str = "") -> None:
        super().__init__(f"stopped by {signal.Signals(signal_number).name}{where}")
        self.signal_number = signal_number
        self.exit_code = 128 + signal_number


class StopRequest:
    """Remembers that somebody asked to stop; a second Ctrl-C stops at once."""

    def __init__(self) -> None:
        self.signal_number: int | None = None
        self._by_keyboard = False

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Hear the signals while the block runs, but for those that somebody (`nohup`) told us to ignore."""
        heard = [number for number in HEARD if signal.getsignal(number) is not signal.SIG_IGN]
        before = {number: signal.signal(number, self._hear) for number in heard}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _hear(self, number: int, _frame: FrameType | None) -> None:
        # Whoever starts many processes passes a Ctrl-C on as SIGTERM: only a second Ctrl-C is impatience.
        if number == signal.SIGINT and self._by_keyboard:
            raise KeyboardInterrupt
        self._by_keyboard |= number == signal.SIGINT
        self.signal_number = self.signal_number or number


def leave_signals_to_parent(_worker: int = 0) -> None:
    """For loader processes: a signal to the whole group is not for them, but a second SIGTERM is from their parent."""
    for number in HEARD:
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _ignore_once)


def _ignore_once(_number: int, _frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
