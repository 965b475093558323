"""One process that has imported PyTorch, for all programs of a test file."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headwork.checking import Report, Walls, check_file
from headwork.checking.runner import ForkServer


@pytest.fixture(scope="session")
def server() -> Iterator[ForkServer]:
    with ForkServer() as started:
        yield started


@pytest.fixture
def check(server: ForkServer, tmp_path: Path) -> Callable[..., list[Report]]:
    """The reports about a program that is given as text."""

    def run(program: str, name: str | None = None, **options: object) -> list[Report]:
        path = tmp_path / str(options.pop("file", "program.py"))
        path.write_text(program, encoding="utf-8")
        walls = Walls(
            **{key: options.pop(key) for key in ("untrusted", "without", "seconds", "memory") if key in options}
        )  # type: ignore[arg-type]
        return check_file(path, name, server=server, walls=walls, seed=3, **options)  # type: ignore[arg-type]

    return run
