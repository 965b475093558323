"""What the tests of this package share: when two functions are the same, and the masks they are compared under."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from headwork import masks

N_QUERY, N_KEY = 5, 7


@pytest.fixture
def assert_same() -> Callable[..., None]:
    """Equal to 1e-10 in the value and in the gradient of every input."""

    def compare(ours: Callable[..., Tensor], theirs: Callable[..., Tensor], *inputs: Tensor) -> None:
        mine, yours = ([t.detach().clone().requires_grad_() for t in inputs] for _ in range(2))
        value, expected = ours(*mine), theirs(*yours)
        torch.testing.assert_close(value, expected, rtol=1e-10, atol=1e-10)
        upstream = torch.randn_like(expected)
        gradients, wanted = torch.autograd.grad(value, mine, upstream), torch.autograd.grad(expected, yours, upstream)
        for gradient, want in zip(gradients, wanted, strict=True):
            torch.testing.assert_close(gradient, want, rtol=1e-10, atol=1e-10)

    return compare


MASKS = {
    "everything": lambda: None,
    "causal": lambda: masks.causal(N_QUERY, N_KEY),
    "padding right": lambda: masks.padding(torch.tensor([2, 7]), N_KEY),
    "padding left": lambda: masks.padding(torch.tensor([3, 6]), N_KEY, "left"),
    "window": lambda: masks.window(N_QUERY, N_KEY, 1),
    "chunked": lambda: masks.chunked(N_QUERY, N_KEY, 3, n_past_chunks=1),
    "causal and padding right": lambda: masks.causal(N_QUERY, N_KEY) & masks.padding(torch.tensor([2, 7]), N_KEY),
    "one for each head": lambda: masks.window(N_QUERY, N_KEY, 1) | (torch.rand(3, N_QUERY, N_KEY) > 0.5),
    "one for each query of each head": lambda: masks.window(N_QUERY, N_KEY, 0) | (torch.rand(2, 3, N_QUERY, 7) > 0.5),
}


@pytest.fixture(params=MASKS.values(), ids=MASKS.keys())
def visible(request: pytest.FixtureRequest) -> Tensor | None:
    """For 2 batch entries, 3 heads, 5 queries and 7 keys; every query sees something."""
    return request.param()
