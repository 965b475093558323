"""Rows of a table: against a product with one-hot vectors, and ids that are none."""

import pytest
import torch
from torch.nn import functional as F

from headwork.functional import look_up

VOCAB, D_MODEL = 7, 5


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0, 3)])
def test_equals_a_product_with_one_hot_vectors_in_value_and_gradient(assert_same, shape):
    ids = torch.randint(VOCAB, shape)
    table = torch.randn(VOCAB, D_MODEL, dtype=torch.float64)
    assert_same(lambda t: look_up(ids, t), lambda t: F.one_hot(ids, VOCAB).to(t.dtype) @ t, table)


def test_a_row_used_twice_gets_both_gradients():
    table = torch.randn(VOCAB, D_MODEL, requires_grad=True)
    look_up(torch.tensor([3, 3, 6]), table).sum().backward()
    assert table.grad[:, 0].tolist() == [0, 0, 0, 2, 0, 0, 1]


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64], ids=str)
def test_any_whole_numbers_are_ids(dtype):
    table = torch.randn(VOCAB, D_MODEL)
    assert torch.equal(look_up(torch.tensor([0, 6], dtype=dtype), table), table[[0, 6]])


@pytest.mark.parametrize(
    ("ids", "got"), [([0, 7], "0 .. 7"), ([-1, 2], "-1 .. 2"), ([-100], "-100 .. -100"), ([2**40, 0], f"0 .. {2**40}")]
)
def test_ids_out_of_range_are_refused(as_users_run_it, ids, got):
    """The error of torch is "index out of range in self"; -1 is not the last row."""
    with pytest.raises(ValueError, match=rf"token ids must lie in 0 \.\. 6, got {got}"):
        look_up(torch.tensor(ids), torch.randn(VOCAB, D_MODEL))


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64, torch.bool], ids=str)
def test_ids_that_are_no_whole_numbers_are_refused(as_users_run_it, dtype):
    with pytest.raises(TypeError, match=f"token ids must be whole numbers, got dtype {dtype}"):
        look_up(torch.zeros(3, dtype=dtype), torch.randn(VOCAB, D_MODEL))


def test_the_error_calls_the_ids_by_their_name(as_users_run_it):
    with pytest.raises(ValueError, match=r"segments must lie in 0 \.\. 6, got 9 \.\. 9"):
        look_up(torch.tensor([9]), torch.randn(VOCAB, D_MODEL), "segments")
    with pytest.raises(TypeError, match="segments must be whole numbers"):
        look_up(torch.tensor([1.0]), torch.randn(VOCAB, D_MODEL), "segments")
