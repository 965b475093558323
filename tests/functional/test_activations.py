"""GELU, exact and approximated, against torch and the error function of Python."""

import math

import pytest
import torch
from torch.nn import functional as F
from transformers.activations import ACT2FN

from headwork.functional import gelu, gelu_tanh, relu2

both = pytest.mark.parametrize(("ours", "approximate"), [(gelu, "none"), (gelu_tanh, "tanh")], ids=["exact", "tanh"])


@both
@pytest.mark.parametrize("shape", [(), (0,), (7,), (2, 3, 5)])
def test_equals_torch_in_value_and_gradient(assert_same, ours, approximate, shape):
    assert_same(ours, lambda x: F.gelu(x, approximate=approximate), 3 * torch.randn(shape, dtype=torch.float64))


@both
def test_equals_torch_far_out(assert_same, ours, approximate):
    x = torch.linspace(-50, 50, 997, dtype=torch.float64)
    assert_same(ours, lambda x: F.gelu(x, approximate=approximate), x)


def test_exact_equals_the_normal_distribution_function():
    x = torch.linspace(-5, 5, 101, dtype=torch.float64)
    expected = [value * 0.5 * math.erfc(-value / math.sqrt(2)) for value in x.tolist()]
    torch.testing.assert_close(gelu(x), torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-10)


def test_the_approximation_is_close_and_is_not_the_same():
    x = torch.linspace(-5, 5, 101, dtype=torch.float64)
    apart = (gelu(x) - gelu_tanh(x)).abs().max()
    assert 1e-5 < apart < 1e-3


def test_relu2_is_that_of_transformers() -> None:
    x = torch.randn(50, dtype=torch.float64, requires_grad=True)
    ours, theirs = relu2(x), ACT2FN["relu2"](x)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(*(torch.autograd.grad(y.sum(), x)[0] for y in (ours, theirs)))
