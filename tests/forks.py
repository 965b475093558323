"""Children that start in milliseconds: a process that has imported everything, and does nothing else, forks them.

Each is as fresh as a new process, since nothing was trained in the one it comes from. `python -m tests.forks` is such
a process: it reads a line of JSON for each child, and answers with its process id, or its exit code when asked for it.
"""

import faulthandler
import importlib
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path

IMPORTED_BEFORE = (
    "headwork.cli",
    "headwork.recipes",
    "headwork.reports.of_run",
    "headwork.training.entry",
    "headwork.training.recorder",
    "torch.utils.tensorboard",
)


def hear_signals() -> None:
    """As in a terminal: whatever runs in the background (`&`, `nohup`) is born with some signals ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def start(work: Callable[[], int | None], output: Path, environment: Mapping[str, str] | None = None) -> int:
    """Do the work in a child whose exit code is what it returns, and whose words go to a file; its process id."""
    process = os.fork()
    if process:
        return process
    code = 70
    try:
        os.setsid()
        hear_signals()
        file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(file, 1)
        os.dup2(file, 2)
        os.environ.update(environment or {})
        faulthandler.register(signal.SIGUSR1)
        code = work() or 0
    except BaseException:  # whatever it is, it must not go on in the parent's code
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def wait(process: int, seconds: float = 600) -> int:
    """The exit code of a child; of one that was killed, the signal as a negative number.

    One that takes longer says where it hangs, and is killed.
    """
    end = time.monotonic() + seconds
    while not (status := os.waitpid(process, os.WNOHANG))[0]:
        if time.monotonic() > end:
            os.kill(process, signal.SIGUSR1)
            time.sleep(1)
            os.kill(process, signal.SIGKILL)
            status = os.waitpid(process, 0)
            break
        time.sleep(0.002)
    return os.waitstatus_to_exitcode(status[1])


def answer(request: Mapping[str, object]) -> int:
    if "wait" in request:
        return wait(request["wait"])
    module, function = request["call"].split(":")
    work = getattr(importlib.import_module(module), function)
    return start(lambda: work(*request["arguments"]), Path(request["output"]), request["environment"])


def serve() -> None:
    for name in IMPORTED_BEFORE:
        importlib.import_module(name)
    for line in sys.stdin:
        sys.stdout.write(f"{answer(json.loads(line))}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    serve()
