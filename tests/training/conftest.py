"""Real processes to stop, kill and starve, forked from one that has imported everything."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest
from tests.forks import hear_signals


class Child:
    """A process of its own, and what it said."""

    def __init__(self, server: "Children", process: int, output: Path) -> None:
        self.server, self.process, self.output = server, process, output

    def kill(self, number: signal.Signals, *, group: bool = False) -> None:
        os.killpg(self.process, number) if group else os.kill(self.process, number)

    def wait(self) -> int:
        self.server.alive.remove(self.process)
        return self.server.ask(wait=self.process)

    @property
    def said(self) -> str:
        return self.output.read_text()

    def wait_until(self, done: Callable[[], object], seconds: float = 600) -> None:
        """Until something has happened; if it does not, what the child said."""
        end = time.monotonic() + seconds
        while not done():
            assert time.monotonic() < end, f"waited in vain; the child said: {self.said}"
            time.sleep(0.002)


class Children:
    """The process that forks them."""

    def __init__(self, requests: IO[str], answers: IO[str], folder: Path) -> None:
        self.requests, self.answers, self.folder, self.n = requests, answers, folder, 0
        self.alive: list[int] = []

    def ask(self, **request: object) -> int:
        self.requests.write(json.dumps(request) + "\n")
        self.requests.flush()
        return int(self.answers.readline())

    def start(self, call: str, *arguments: object, **environment: str) -> Child:
        """Call a function (`module:name`) in a child."""
        self.n += 1
        output = self.folder / f"{self.n}.txt"
        output.touch()
        plain = [str(each) if isinstance(each, Path) else each for each in arguments]
        process = self.ask(call=call, arguments=plain, output=str(output), environment=environment)
        self.alive.append(process)
        return Child(self, process, output)

    def headwork(self, *words: object, **environment: str) -> Child:
        """The command line, as a user types it."""
        return self.start("headwork.cli:main", [str(word) for word in words], **environment)


@pytest.fixture
def heard() -> Iterator[None]:
    """Signals to this process are heard, whoever started it, and then as before."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    hear_signals()
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(scope="session")
def children(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Children]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [sys.executable, "-m", "tests.forks"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
        env=environment,
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        children = Children(server.stdin, server.stdout, tmp_path_factory.mktemp("children"))
        yield children
        for process in children.alive:  # of tests that failed
            os.killpg(process, signal.SIGKILL)
        server.stdin.close()
