"""The position codes of the ETH sheet: shifts, r, v, and what their product is."""

import torch

from headwork.functional import gaussian_vectors, gaussian_weights, grid_shifts, quadratic_codes
from headwork.layers import AbsolutePositionalEmbedding, RelativePositionalEmbedding

GRID, N_HEADS = (3, 5), 7


def test_shifts_are_query_minus_key():
    shifts = grid_shifts(*GRID)
    assert shifts.shape == (3, 5, 3, 5, 2)
    assert shifts[2, 1, 0, 4].tolist() == [2, -3]


def test_v_times_r_is_the_quadratic_of_equation_12_with_its_constant(float64):
    """-alpha (|delta - Delta|^2 + c) with c = -|Delta|^2, where the sheet's Delta is minus our centre."""
    centre, alpha = torch.randn(N_HEADS, 2), torch.rand(N_HEADS) + 0.1
    shifts = grid_shifts(*GRID)
    scores = torch.einsum("hf,rcijf->hrcij", gaussian_vectors(centre, alpha), quadratic_codes(shifts))
    big_delta = -centre[:, None, None, None, None, :]
    distance = (shifts.double() - big_delta).square().sum(-1)
    expected = -alpha[:, None, None, None, None] * (distance - big_delta.square().sum(-1))
    torch.testing.assert_close(scores, expected, rtol=0, atol=1e-10)


def test_the_softmax_of_the_relative_embedding_are_the_gaussian_weights(float64):
    centre, alpha = torch.randn(N_HEADS, 2), torch.rand(N_HEADS) + 0.1
    scores = RelativePositionalEmbedding(GRID, centre, alpha)()
    weights = scores.flatten(3).softmax(-1).reshape(scores.shape)
    torch.testing.assert_close(weights, gaussian_weights(GRID, centre, alpha), rtol=0, atol=1e-10)


def test_absolute_codes_are_added_and_learned_only_if_asked():
    x = torch.randn(2, *GRID, 8)
    fixed, learned = (AbsolutePositionalEmbedding(GRID, 8, kind) for kind in ("sinusoidal", "learned"))
    torch.testing.assert_close(fixed(x) - x, fixed.table.expand(2, -1, -1, -1), rtol=1e-5, atol=1e-6)
    assert not fixed.table.requires_grad
    assert learned.table.requires_grad
