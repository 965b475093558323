"""Products in 4 bits: the kernel says what the equation says, a token at a time."""

import copy
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headwork.functional import int4
from headwork.functional.int4 import GROUP, Int4Matrix, round_groups

pytestmark = pytest.mark.skipif(
    not hasattr(torch.ops.aten, int4.PRODUCT), reason="this build of PyTorch has no product with 4 bits"
)


@settings(max_examples=20)
@given(st.integers(1, 5), st.integers(1, 3), st.integers(0, 10_000))
def test_groups_are_rounded_to_the_nearest(n_rows: int, n_groups: int, seed: int) -> None:
    """A loop from the equation: no other whole number of 0 .. 15 is nearer."""
    w = torch.randn(n_rows, n_groups * GROUP, generator=torch.Generator().manual_seed(seed))
    whole, scale, middle = round_groups(w)
    assert scale.equal(scale.bfloat16().float())
    assert middle.equal(middle.bfloat16().float())
    for row in range(n_rows):
        for group in range(n_groups):
            steps = scale[row, group] * (torch.arange(16) - 8) + middle[row, group]
            inside = slice(group * GROUP, (group + 1) * GROUP)
            found, best = steps[whole[row, inside].long()], (steps[:, None] - w[row, inside]).abs().amin(0)
            torch.testing.assert_close((found - w[row, inside]).abs(), best, rtol=1e-4, atol=1e-6)


def test_weights_of_4_bits_are_kept() -> None:
    """As those of a GGUF file are: 16 equal steps that bfloat16 can say, from the least of a group to the largest."""
    whole = torch.randint(16, (7, 3 * GROUP))
    whole[:, ::GROUP], whole[:, 1::GROUP] = 0, 15
    w = (whole - 8.0) / 64 + 0.25
    torch.testing.assert_close(Int4Matrix(w).dequantised(), w, rtol=0, atol=0)


@pytest.mark.parametrize(("d_out", "d_in"), [(1, 1), (7, 5), (37, 64), (130, 129)])
@pytest.mark.parametrize("n", [1, 2, 11])
def test_the_kernel_and_the_equation(n: int, d_out: int, d_in: int) -> None:
    w, x = torch.randn(d_out, d_in), torch.randn(n, d_in) * torch.logspace(-3, 3, n)[:, None]
    matrix = Int4Matrix(w)
    rounded = matrix.dequantised()
    assert (rounded - w).abs().max() <= 0.6 * 2 * w.abs().max() / 15
    expected = x.bfloat16().double() @ rounded.double().T
    error = (matrix(x) - expected).abs() / (x.abs().double() @ rounded.abs().double().T)
    assert error.max() < 2**-7


@given(st.integers(1, 30), st.integers(1, 70), st.integers(0, 10_000))
def test_a_token_does_not_feel_those_beside_it(n: int, d: int, seed: int) -> None:
    torch.manual_seed(seed)
    matrix, x = Int4Matrix(torch.randn(9, d)), torch.randn(n, d) * torch.logspace(-3, 3, n)[:, None]
    alone = torch.cat([matrix(x[i : i + 1]) for i in range(n)])
    assert torch.equal(matrix(x), alone)


def test_zeros_and_what_is_no_number() -> None:
    matrix = Int4Matrix(torch.cat([torch.zeros(1, 8), torch.ones(1, 8)]))
    assert matrix(torch.zeros(1, 8)).equal(torch.zeros(1, 2))
    assert matrix(torch.ones(1, 8)).equal(torch.tensor([[0.0, 8.0]]))
    assert not matrix(torch.full((1, 8), torch.nan)).isfinite().any()


def test_copies_are_equal() -> None:
    matrix, x = Int4Matrix(torch.randn(7, 40)), torch.randn(3, 40)
    for copied in (copy.deepcopy(matrix), pickle.loads(pickle.dumps(matrix))):
        assert torch.equal(copied(x), matrix(x))


def test_a_build_without_the_kernel_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(int4, "PRODUCT", "product_that_is_gone")
    with pytest.raises(ValueError, match=r"stay in float32 or int8 here: PyTorch .* is without product_that_is_gone"):
        Int4Matrix(torch.randn(3, 8))


def test_weights_of_another_precision() -> None:
    with pytest.raises(ValueError, match=r"must be in float32 on the CPU to become 4 bits, got torch.float64"):
        Int4Matrix(torch.randn(3, 8).double())
