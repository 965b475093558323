"""What every test and every example in a docstring has at hand."""

import math
from collections.abc import Iterator

import jaxtyping
import pytest
import torch
from hypothesis import HealthCheck, settings

busy = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # machines may be
settings.register_profile("new examples", busy)
settings.register_profile("same examples", busy, derandomize=True)  # a change is not refused by a draw of the dice
settings.load_profile("same examples")
collect_ignore_glob = ["tests/own_package/*"]  # imported by its tests only, from a path of its own
if "fbgemm" not in torch.backends.quantized.supported_engines:  # there, int8 is refused
    collect_ignore_glob += ["src/headwork/*/int8.py", "src/headwork/quantization.py"]
torch.set_num_threads(1)  # the tests run in as many processes as there are cores


@pytest.fixture(autouse=True)
def names_of_the_examples(doctest_namespace: dict[str, object]) -> None:
    import headwork as hw

    doctest_namespace.update(torch=torch, nn=torch.nn, math=math, hw=hw, choices=hw.choices)


@pytest.fixture(autouse=True)
def same_numbers_every_time() -> None:
    torch.default_generator.manual_seed(0)  # not torch.manual_seed, which keeps a list of its calls for other devices


def pytest_runtest_setup(item: pytest.Item) -> None:
    """What this processor cannot do is skipped: `computes_in` marks it, or a parameter that is such a dtype."""
    dtypes = [dtype for mark in item.iter_markers("computes_in") for dtype in mark.args]
    if isinstance(item, pytest.Function) and hasattr(item, "callspec"):
        dtypes += [value for value in item.callspec.params.values() if isinstance(value, torch.dtype)]
    for dtype in dtypes:
        if dtype in (torch.bfloat16, torch.float16):
            from headwork.functional.processor import try_half  # not above: the shape checks must be there before

            problem = try_half(dtype)
            if problem:
                pytest.skip(f"this processor cannot multiply in {dtype}: a trial of it in another process {problem}")


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
