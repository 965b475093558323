"""Relative positions against loops over the pairs and the code of T5, Bloom and MPT in Hugging Face."""

import math

import numpy as np
import pytest
import torch
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor
from transformers.models.t5.modeling_t5 import T5Attention

from headwork.functional import (
    alibi_bias,
    alibi_slopes,
    distance,
    relative_index,
    relative_scores,
    softargmax,
    t5_buckets,
)

every_size = pytest.mark.parametrize(("n_query", "n_key"), [(5, 5), (3, 7), (1, 7), (1, 1)])


@pytest.mark.parametrize(("n_query", "n_key"), [(5, 5), (3, 7), (1, 7), (7, 3)])
def test_distance_is_key_minus_query_with_the_last_on_the_last(n_query, n_key):
    table = distance(n_query, n_key)
    for i in range(n_query):
        for j in range(n_key):
            assert table[i, j] == j - (n_key - n_query + i)


# Transformer-XL


@every_size
def test_index_names_the_row_of_the_shift(n_query, n_key):
    shifts = list(range(-(n_key - 1), n_key))
    index = relative_index(n_query, n_key)
    for i in range(n_query):
        for j in range(n_key):
            assert shifts[index[i, j]] == (n_key - n_query + i) - j


def random_relative(n_query, n_key):
    shapes = ((2, 3, n_query, 5), (2, 3, n_key, 5), (3, 2 * n_key - 1, 5), (3, 5), (3, 5))
    return tuple(torch.randn(*shape, dtype=torch.float64) for shape in shapes)


@every_size
def test_scores_equal_loops_over_the_four_terms(n_query, n_key):
    q, k, r, u, v = random_relative(n_query, n_key)
    scores = relative_scores(q, k, r, relative_index(n_query, n_key), u, v)
    for b, h, i, j in np.ndindex(2, 3, n_query, n_key):
        shift = (n_key - n_query + i) - j
        r_shift = r[h, shift + n_key - 1]
        expected = [q[b, h, i] @ k[b, h, j], q[b, h, i] @ r_shift, u[h] @ k[b, h, j], v[h] @ r_shift]
        got = [
            scores.content_content[b, h, i, j],
            scores.content_position[b, h, i, j],
            scores.content_bias[b, h, 0, j],
            scores.position_bias[h, i, j],
        ]
        np.testing.assert_allclose(got, expected, atol=1e-10)
        np.testing.assert_allclose(scores.total()[b, h, i, j], sum(expected), atol=1e-10)


@every_size
def test_scores_equal_the_table_of_all_shifts_in_value_and_gradient(assert_same, n_query, n_key):
    index = relative_index(n_query, n_key)

    def with_the_whole_table(q, k, r, u, v):
        by_pair = r[:, index]
        return torch.einsum("bhqd,bhkd->bhqk", q + u[:, None], k) + torch.einsum(
            "bhqd,hqkd->bhqk", q + v[:, None], by_pair
        )

    assert_same(
        lambda q, k, r, u, v: relative_scores(q, k, r, index, u, v).total(),
        with_the_whole_table,
        *random_relative(n_query, n_key),
    )


@pytest.mark.parametrize("shared", [(slice(0, 1),), (0,)], ids=["axis of size 1", "no axis"])
def test_one_table_of_shifts_may_serve_all_heads(shared):
    q, k, r, u, v = random_relative(3, 7)
    index = relative_index(3, 7)
    expected = relative_scores(q, k, r[:1].expand(3, -1, -1), index, u, v).total()
    torch.testing.assert_close(relative_scores(q, k, r[shared], index, u, v).total(), expected)


def test_one_bias_may_serve_all_heads():
    q, k, r, u, v = random_relative(3, 7)
    index = relative_index(3, 7)
    expected = relative_scores(q, k, r, index, u[:1].expand(3, -1), v[:1].expand(3, -1)).total()
    torch.testing.assert_close(relative_scores(q, k, r, index, u[0], v[0]).total(), expected)


def test_scores_without_batch_axes():
    q, k, r, u, v = random_relative(3, 7)
    index = relative_index(3, 7)
    alone = relative_scores(q[1, 2], k[1, 2], r[2], index, u[2], v[2]).total()
    torch.testing.assert_close(alone, relative_scores(q, k, r, index, u, v).total()[1, 2])


# T5


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("n_buckets", "max_distance"), [(32, 128), (4, 3), (8, 20), (14, 64), (16, 20), (64, 1000)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_buckets_equal_hugging_face_at_every_distance(n_buckets, max_distance, bidirectional, dtype):
    places = torch.arange(401)
    ahead = places[None, :] - places[:, None]
    theirs = T5Attention._relative_position_bucket(ahead, bidirectional, n_buckets, max_distance)
    torch.set_default_dtype(dtype)
    try:
        ours = t5_buckets(401, 401, n_buckets=n_buckets, max_distance=max_distance, bidirectional=bidirectional)
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(ours, theirs)


def test_buckets_of_fewer_queries_are_the_last_rows():
    assert torch.equal(t5_buckets(3, 7), t5_buckets(7, 7)[-3:])


def test_buckets_stay_inside_their_number():
    table = t5_buckets(997, 997, n_buckets=8, max_distance=16, bidirectional=False)
    assert table.unique().tolist() == list(range(8))


@pytest.mark.parametrize("n_buckets", [7, 33, 2, 0, -4])
def test_an_odd_number_of_buckets_is_refused(as_users_run_it, n_buckets):
    with pytest.raises(ValueError, match=f"n_buckets must be even and 4 or more, got {n_buckets}"):
        t5_buckets(3, 5, n_buckets=n_buckets)


def test_a_maximum_among_the_exact_buckets_is_refused(as_users_run_it):
    with pytest.raises(ValueError, match="max_distance must be more than the 8 exact buckets, got 8"):
        t5_buckets(3, 5, n_buckets=32, max_distance=8)


# ALiBi

every_head_count = pytest.mark.parametrize("n_heads", [1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 17])


@every_head_count
def test_slopes_equal_bloom(n_heads):
    theirs = build_alibi_tensor(torch.ones(1, 2, dtype=torch.long), n_heads, torch.float32)
    torch.testing.assert_close(alibi_slopes(n_heads), theirs[:, 0, 1], rtol=1e-6, atol=0)


@every_head_count
def test_bias_of_the_newest_query_equals_mpt(n_heads):
    torch.testing.assert_close(alibi_bias(n_heads, 1, 7), build_mpt_alibi_tensor(n_heads, 7), rtol=1e-6, atol=0)


@every_head_count
def test_causal_weights_equal_those_of_bloom(n_heads):
    """Bloom's bias differs by a constant in each row, which no softargmax feels."""
    scores = torch.randn(n_heads, 5, 7)
    past = distance(5, 7) <= 0
    theirs = build_alibi_tensor(torch.ones(1, 7, dtype=torch.long), n_heads, torch.float32)
    expected = torch.softmax((scores + theirs).masked_fill(~past, -math.inf), -1)
    torch.testing.assert_close(softargmax(scores + alibi_bias(n_heads, 5, 7), 1.0, past), expected)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("n_heads", [1, 2, 8])
def test_bias_equals_the_formula_in_loops(n_heads):
    bias = alibi_bias(n_heads, 5, 7)
    for h, i, j in np.ndindex(n_heads, 5, 7):
        expected = -(2 ** (-8 * (h + 1) / n_heads)) * abs(j - (i + 2))
        np.testing.assert_allclose(bias[h, i, j], expected, atol=1e-10)


def test_no_heads_are_refused(as_users_run_it):
    with pytest.raises(ValueError, match="n_heads must be 1 or more, got 0"):
        alibi_slopes(0)
