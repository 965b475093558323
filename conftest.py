"""What every test and every example in a docstring has at hand."""

import math
from collections.abc import Iterator

import jaxtyping
import pytest
import torch

collect_ignore_glob = ["tests/own_package/*"]  # imported by its tests only, from a path of its own
torch.set_num_threads(1)  # the tests run in as many processes as there are cores


@pytest.fixture(autouse=True)
def names_of_the_examples(doctest_namespace: dict[str, object]) -> None:
    import headwork as hw

    doctest_namespace.update(torch=torch, nn=torch.nn, math=math, hw=hw, choices=hw.choices)


@pytest.fixture(autouse=True)
def same_numbers_every_time() -> None:
    torch.manual_seed(0)


@pytest.fixture
def as_users_run_it() -> Iterator[None]:
    """Without the shape checks of the test run, which would catch bad input before the library's own errors."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture
def float64() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)
