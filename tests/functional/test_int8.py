"""Products in int8: the kernel says what the equation says, a token at a time, and leaves no trace in the process."""

import copy
import pickle
import warnings

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headwork.functional import int8
from headwork.functional.int8 import Int8Matrix, int8_product, largest_of_token, round_rows

pytestmark = pytest.mark.skipif(
    "fbgemm" not in torch.backends.quantized.supported_engines, reason="this build of PyTorch has no FBGEMM"
)


def tokens(n: int, d: int) -> torch.Tensor:
    """Some a million times as large as others."""
    return torch.randn(n, d) * torch.logspace(-3, 3, n)[:, None]


@pytest.mark.parametrize(("d_out", "d_in"), [(1, 1), (7, 5), (37, 64), (130, 129)])
@pytest.mark.parametrize("n", [1, 2, 11])
def test_the_kernel_and_the_equation(n: int, d_out: int, d_in: int) -> None:
    matrix, x = Int8Matrix(torch.randn(d_out, d_in)), tokens(n, d_in)
    expected = int8_product(x, *matrix.unpack(), largest_of_token())
    error = (matrix(x) - expected).abs() / x.abs().amax(1, keepdim=True)
    unit = matrix.unpack()[1].max() * 127 / largest_of_token()  # x / max may fall on the other side of a half
    assert (error > 1e-4).sum() <= n * d_out // 100 + 1
    assert error.max() <= 1.01 * unit


@given(st.integers(1, 9), st.integers(1, 40), st.integers(0, 10_000))
def test_rows_are_rounded_to_the_nearest(rows: int, d: int, seed: int) -> None:
    w = torch.randn(rows, d, generator=torch.Generator().manual_seed(seed))
    whole, scale = round_rows(w)
    assert whole.abs().amax() <= 127
    assert ((whole * scale[:, None] - w).abs() <= 0.501 * scale[:, None]).all()


@given(st.integers(1, 30), st.integers(1, 70), st.integers(0, 10_000))
def test_a_token_does_not_feel_those_beside_it(n: int, d: int, seed: int) -> None:
    torch.manual_seed(seed)
    matrix, x = Int8Matrix(torch.randn(9, d)), tokens(n, d)
    alone = torch.cat([matrix(x[i : i + 1]) for i in range(n)])
    assert torch.equal(matrix(x), alone)


def test_it_is_close_to_the_product_of_real_numbers() -> None:
    w, x = torch.randn(64, 256), torch.randn(5, 256)
    error = Int8Matrix(w)(x) - x @ w.T
    assert error.norm() < (0.02 if largest_of_token() == 127 else 0.04) * (x @ w.T).norm()


def test_zeros_and_what_is_no_number() -> None:
    matrix = Int8Matrix(torch.cat([torch.zeros(1, 8), torch.ones(1, 8)]))
    assert matrix(torch.zeros(1, 8)).equal(torch.zeros(1, 2))
    assert not matrix(torch.full((1, 8), torch.nan)).isfinite().any()
    assert not matrix(torch.full((1, 8), torch.inf))[0, 1].isfinite()


def test_copies_are_equal() -> None:
    matrix, x = Int8Matrix(torch.randn(7, 5)), torch.randn(3, 5)
    for copied in (copy.deepcopy(matrix), pickle.loads(pickle.dumps(matrix))):
        assert torch.equal(copied(x), matrix(x))


@pytest.mark.parametrize("engine", torch.backends.quantized.supported_engines)
def test_the_engine_of_the_process_is_set_back(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if engine == "none":
        pytest.skip("no engine")
    before = torch.backends.quantized.engine
    try:
        torch.backends.quantized.engine = engine
        x, w = torch.randn(2, 8), torch.randn(3, 8)
        with warnings.catch_warnings():
            product = Int8Matrix(w)(x)
        assert torch.backends.quantized.engine == engine
        monkeypatch.setattr(torch, "quantize_per_channel", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            Int8Matrix(w)
        assert torch.backends.quantized.engine == engine
    finally:
        torch.backends.quantized.engine = before
    monkeypatch.undo()
    assert torch.equal(product, Int8Matrix(w)(x))


def test_a_build_without_the_kernel_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(int8, "PRODUCT", "linear_that_is_gone")
    with pytest.raises(ValueError, match=r"must stay in float32 here: PyTorch .* is without linear_that_is_gone"):
        Int8Matrix(torch.randn(3, 8))


def test_processors_that_add_in_16_bits_get_smaller_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    largest_of_token.cache_clear()
    monkeypatch.setattr(torch, "allclose", lambda *_, **__: False)
    w, x = torch.randn(64, 256), torch.randn(5, 256)
    try:
        assert largest_of_token() == 63
        assert (Int8Matrix(w)(x) - x @ w.T).norm() < 0.04 * (x @ w.T).norm()
    finally:
        largest_of_token.cache_clear()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_weights_of_another_precision(dtype: torch.dtype) -> None:
    with pytest.raises(ValueError, match=r"must be in float32 on the CPU .* got torch.float"):
        Int8Matrix(torch.randn(3, 8).to(dtype))
