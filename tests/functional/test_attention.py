"""Attention against torch and NumPy loops; its laws; and what may never come out of it, on both paths."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from headwork import masks
from headwork.functional import (
    attention_scores,
    attention_weights,
    fused_attention,
    scaled_dot_product_attention,
    softargmax,
)

BATCH, HEAD, QUERY, KEY, D_HEAD, D_VALUE = 2, 3, 5, 7, 11, 13

both_paths = pytest.mark.parametrize(
    "attend", [scaled_dot_product_attention, fused_attention], ids=["readable", "fused"]
)
every_dtype = pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
few = settings(max_examples=50, deadline=None)


def random_qkv(n_query=QUERY, n_key=KEY, dtype=torch.float64):
    return (
        torch.randn(BATCH, HEAD, n_query, D_HEAD, dtype=dtype),
        torch.randn(BATCH, HEAD, n_key, D_HEAD, dtype=dtype),
        torch.randn(BATCH, HEAD, n_key, D_VALUE, dtype=dtype),
    )


def seeded(seed, *shape, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def softargmax_by_loops(scores, beta, visible):
    """One row at a time, straight from the equation."""
    weights = np.zeros_like(scores)
    for i in range(scores.shape[0]):
        seen = [j for j in range(scores.shape[1]) if visible[i, j]]
        total = sum(math.exp(beta * scores[i, j]) for j in seen)
        for j in seen:
            weights[i, j] = math.exp(beta * scores[i, j]) / total
    return weights


def attention_by_loops(q, k, v, beta, visible):
    scores = np.array([[sum(a * b for a, b in zip(q_i, k_j, strict=True)) for k_j in k] for q_i in q])
    weights = softargmax_by_loops(scores, beta, visible)
    output = np.zeros((len(q), v.shape[1]))
    for i in range(len(q)):
        for j in range(len(k)):
            output[i] += weights[i, j] * v[j]
    return weights, output


# What torch and plain loops say


@pytest.mark.parametrize("beta", [None, 0.0, 0.3, 2.0])
def test_equals_torch_in_value_and_gradient(assert_same, visible, beta):
    assert_same(
        lambda q, k, v: scaled_dot_product_attention(q, k, v, visible=visible, beta=beta),
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=visible, scale=beta),
        *random_qkv(),
    )


def test_causal_equals_torch_in_value_and_gradient(assert_same):
    assert_same(
        lambda q, k, v: scaled_dot_product_attention(q, k, v, causal=True),
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        *random_qkv(n_query=KEY),
    )


@pytest.mark.parametrize("shape", [(QUERY, KEY), (HEAD, QUERY, 1), (BATCH, 1, 1, KEY), (BATCH, HEAD, QUERY, KEY)])
def test_bias_equals_torch_in_value_and_gradient(assert_same, shape):
    assert_same(
        lambda q, k, v, bias: scaled_dot_product_attention(q, k, v, bias=bias),
        lambda q, k, v, bias: F.scaled_dot_product_attention(q, k, v, attn_mask=bias),
        *random_qkv(),
        torch.randn(shape, dtype=torch.float64),
    )


def test_bias_and_mask_equal_torch_in_value_and_gradient(assert_same, visible):
    def theirs(q, k, v, bias):
        hidden = bias if visible is None else bias.masked_fill(~visible, -math.inf)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=hidden, scale=0.3)

    assert_same(
        lambda q, k, v, bias: scaled_dot_product_attention(q, k, v, bias=bias, visible=visible, beta=0.3),
        theirs,
        *random_qkv(),
        torch.randn(HEAD, QUERY, KEY, dtype=torch.float64),
    )


def test_weights_equal_torch_softmax_in_value_and_gradient(assert_same, visible):
    def theirs(q, k):
        scores = torch.einsum("bhqd,bhkd->bhqk", q, k) / D_HEAD**0.5
        return (scores if visible is None else scores.masked_fill(~visible, -math.inf)).softmax(-1)

    q, k, _ = random_qkv()
    assert_same(lambda q, k: attention_weights(q, k, visible=visible), theirs, q, k)


def test_softargmax_equals_torch_softmax_in_value_and_gradient(assert_same):
    scores = torch.randn(BATCH, QUERY, KEY, dtype=torch.float64)
    assert_same(lambda s: softargmax(s, 1.7), lambda s: torch.softmax(1.7 * s, -1), scores)


@both_paths
@pytest.mark.parametrize("beta", [0.0, 0.3, 1.0])
def test_equals_loops_over_queries_and_keys(attend, beta):
    q, k, v = (t[0, 0] for t in random_qkv())
    visible = torch.rand(QUERY, KEY) > 0.4
    visible[2] = False
    weights, output = attention_by_loops(q.numpy(), k.numpy(), v.numpy(), beta, visible.numpy())
    np.testing.assert_allclose(attention_weights(q, k, visible=visible, beta=beta), weights, atol=1e-10)
    np.testing.assert_allclose(attend(q, k, v, visible=visible, beta=beta), output, atol=1e-10)


def test_gradient_agrees_with_finite_differences():
    q, k, v = (t[:1, :1].requires_grad_() for t in random_qkv(3, 5))
    visible = masks.causal(3, 5) & masks.padding(torch.tensor([3]), 5, "left")
    assert torch.autograd.gradcheck(lambda q, k, v: scaled_dot_product_attention(q, k, v, visible=visible), (q, k, v))


def test_output_is_the_weights_times_the_values(visible):
    q, k, v = random_qkv()
    weights = attention_weights(q, k, visible=visible)
    torch.testing.assert_close(scaled_dot_product_attention(q, k, v, visible=visible), weights @ v)


def test_default_beta_is_one_over_the_root_of_the_width():
    q, k, _ = random_qkv()
    assert torch.equal(attention_weights(q, k), attention_weights(q, k, beta=1 / math.sqrt(D_HEAD)))


def test_scores_are_not_scaled():
    q, k, _ = random_qkv()
    torch.testing.assert_close(attention_scores(q, k), torch.einsum("bhqd,bhkd->bhqk", q, k))


# What True means, and which corner


@both_paths
def test_true_means_may_attend(attend):
    """pytorch PR#120668, rasbt#1061: True blocks in one place and keeps in another."""
    q, k, v = random_qkv()
    only_key_4 = torch.arange(KEY) == 4
    torch.testing.assert_close(attend(q, k, v, visible=only_key_4[None]), v[..., 4:5, :].expand(-1, -1, QUERY, -1))


@both_paths
def test_one_causal_query_sees_all_keys(attend):
    """pytorch#103082, #108108, #144858: aligned to the first key, it would see that one alone."""
    q, k, v = random_qkv(1, 8)
    torch.testing.assert_close(attend(q, k, v, causal=True), F.scaled_dot_product_attention(q, k, v))


@both_paths
@pytest.mark.parametrize("n_query", [1, 2, 5, 6, 7])
def test_fewer_causal_queries_are_the_last_rows_of_the_full_table(attend, n_query):
    """pytorch#103082: what a cache needs."""
    q, k, v = random_qkv(KEY, KEY)
    full = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    torch.testing.assert_close(attend(q[..., -n_query:, :], k, v, causal=True), full[..., -n_query:, :])


@both_paths
def test_causal_hides_in_addition_to_the_mask(attend):
    q, k, v = random_qkv(KEY, KEY)
    real = masks.padding(torch.tensor([7, 4]), KEY)
    past = torch.ones(KEY, KEY, dtype=torch.bool).tril()
    expected = F.scaled_dot_product_attention(q, k, v, attn_mask=real & past)
    torch.testing.assert_close(attend(q, k, v, visible=real, causal=True), expected)


@both_paths
def test_one_causal_query_still_obeys_the_mask(attend):
    q, k, v = random_qkv(1, KEY)
    real = masks.padding(torch.tensor([7, 4]), KEY, "left")
    expected = F.scaled_dot_product_attention(q, k, v, attn_mask=real)
    torch.testing.assert_close(attend(q, k, v, visible=real, causal=True), expected)


# Laws


@st.composite
def tables(draw, elements=st.floats(-1e30, 1e30)):
    """Scores and a mask of the same shape; rows in which nothing is visible included."""
    n_query, n_key = draw(st.integers(1, 5)), draw(st.integers(1, 7))
    cells = n_query * n_key
    scores = draw(st.lists(elements, min_size=cells, max_size=cells))
    visible = draw(st.lists(st.booleans(), min_size=cells, max_size=cells))
    return (
        torch.tensor(scores, dtype=torch.float64).reshape(n_query, n_key),
        torch.tensor(visible).reshape(n_query, n_key),
    )


any_beta = st.sampled_from([0.0, 0.3, 1.0, 50.0, 1e30, 1e300, math.inf])
any_float = st.sampled_from([torch.float32, torch.float64])


@few
@given(tables(), any_beta, any_float)
def test_rows_sum_to_1_or_are_0_and_hidden_keys_get_exactly_0(table, beta, dtype):
    """pytorch#42929: returned weights that do not sum to 1. Neither huge scores nor a huge beta make a NaN."""
    scores, visible = table
    weights = softargmax(scores.to(dtype), beta, visible)
    torch.testing.assert_close(weights.sum(-1), visible.any(-1).to(dtype))
    assert torch.all(weights[~visible] == 0)
    assert torch.all(weights >= 0)


@few
@given(tables(), any_beta, any_float)
def test_rows_sum_to_1_without_a_mask(table, beta, dtype):
    weights = softargmax(table[0].to(dtype), beta)
    torch.testing.assert_close(weights.sum(-1), torch.ones(len(weights), dtype=dtype))


@few
@given(
    tables(),
    st.sampled_from([(0.3, torch.float32), (1e30, torch.float32), (1.0, torch.float64), (1e300, torch.float64)]),
)
def test_no_score_and_no_finite_beta_makes_a_gradient_nan(table, precision):
    beta, dtype = precision
    scores = table[0].to(dtype).requires_grad_()
    softargmax(scores, beta, table[1])[:, 0].sum().backward()
    assert not scores.grad.isnan().any()
    assert torch.all(scores.grad[~table[1]] == 0)


@few
@given(tables(st.integers(-2, 2)))
def test_hard_attention_is_shared_by_the_best_visible_keys(table):
    scores, visible = table
    weights = softargmax(scores, math.inf, visible)
    for row, seen, got in zip(scores.tolist(), visible.tolist(), weights.tolist(), strict=True):
        best = [
            j for j in range(len(row)) if seen[j] and row[j] == max(s for s, ok in zip(row, seen, strict=True) if ok)
        ]
        assert got == [1 / len(best) if j in best else 0 for j in range(len(row))]


@few
@given(st.permutations(range(7)), st.sampled_from([1e30, 1e300, math.inf]), any_float)
def test_a_unique_best_key_takes_all_under_a_huge_beta(scores, beta, dtype):
    weights = softargmax(torch.tensor([scores], dtype=dtype), beta)
    assert weights.tolist() == [[float(s == 6) for s in scores]]


@few
@given(tables())
def test_beta_0_is_the_mean_over_the_visible_keys(table):
    scores, visible = table
    expected = visible / visible.sum(-1, keepdim=True).clamp(min=1)
    torch.testing.assert_close(softargmax(scores, 0.0, visible), expected.double())


@few
@given(tables(st.floats(-10, 10)), st.floats(-1e4, 1e4), st.sampled_from([0.0, 0.3, 1.0, 50.0]))
def test_a_constant_added_to_all_scores_changes_nothing(table, constant, beta):
    scores, visible = table
    torch.testing.assert_close(
        softargmax(scores + constant, beta, visible), softargmax(scores, beta, visible), rtol=1e-7, atol=1e-7
    )


@both_paths
@few
@given(st.integers(1, 6), st.integers(0, 6), st.integers(0, 2**32))
def test_the_future_cannot_change_the_past(attend, n_query, place, seed):
    q, k, v = seeded(seed, n_query, 3), seeded(seed + 1, 7, 3), seeded(seed + 2, 7, 5)
    before = attend(q, k, v, causal=True)
    k[place], v[place] = seeded(seed + 3, 3), 100 * seeded(seed + 4, 5)
    after = attend(q, k, v, causal=True)
    n_past = max(0, place - (7 - n_query))
    torch.testing.assert_close(after[:n_past], before[:n_past], rtol=0, atol=0)
    assert (after[n_past:] != before[n_past:]).any(-1).all()


@both_paths
@few
@given(
    st.lists(st.integers(0, 7), min_size=2, max_size=2),
    st.sampled_from(["right", "left"]),
    st.booleans(),
    st.floats(-1e6, 1e6),
    st.integers(0, 2**32),
)
def test_the_content_of_padding_changes_nothing(attend, lengths, side, causal, content, seed):
    """transformers#18388, #25790: left padding mispredicts."""
    q, k, v = seeded(seed, 2, 3, 7, 5), seeded(seed + 1, 2, 3, 7, 5), seeded(seed + 2, 2, 3, 7, 5)
    real = masks.padding(torch.tensor(lengths), 7, side)
    before = attend(q, k, v, visible=real, causal=causal)
    k, v = (t.masked_fill(~real.mT, content) for t in (k, v))
    torch.testing.assert_close(attend(q, k, v, visible=real, causal=causal), before, rtol=0, atol=0)


@both_paths
@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("length", [1, 3, 6])
def test_padding_equals_the_shorter_sequence(attend, side, length):
    """transformers#18388: a padded sentence and the sentence alone."""
    q, k, v = random_qkv()
    real = slice(length) if side == "right" else slice(KEY - length, KEY)
    visible = masks.padding(torch.tensor([length] * BATCH), KEY, side)
    torch.testing.assert_close(attend(q, k, v, visible=visible), attend(q, k[..., real, :], v[..., real, :]))


@both_paths
@few
@given(st.permutations(range(7)), st.integers(0, 2**32))
def test_permuting_keys_with_their_values_changes_nothing(attend, order, seed):
    q, k, v, bias = (seeded(seed + i, n, 5) for i, n in enumerate((3, 7, 7, 3)))
    bias = torch.cat([bias, bias[:, :2]], -1)
    visible = seeded(seed + 4, 3, 7) > -0.5
    torch.testing.assert_close(
        attend(q, k[order], v[order], visible=visible[:, order], bias=bias[:, order]),
        attend(q, k, v, visible=visible, bias=bias),
    )


def test_hard_attention_returns_the_value_of_the_best_key():
    q, k, v = random_qkv()
    best = attention_scores(q, k).argmax(-1)
    expected = v.gather(-2, best[..., None].expand(-1, -1, -1, D_VALUE))
    assert torch.equal(scaled_dot_product_attention(q, k, v, beta=math.inf), expected)


def test_no_gradient_reaches_the_scores_of_hard_attention():
    q, k, v = (t.requires_grad_() for t in random_qkv())
    scaled_dot_product_attention(q, k, v, beta=math.inf).sum().backward()
    assert q.grad is None
    assert k.grad is None
    assert v.grad.isfinite().all()


@both_paths
@pytest.mark.parametrize("beta", [1e30, 1e38, 1e300])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("with_bias", [False, True], ids=["", "bias"])
def test_a_huge_finite_beta_is_refused_or_picks_the_best_key(as_users_run_it, attend, beta, dtype, with_bias):
    q, k, v = random_qkv(dtype=dtype)
    bias = torch.zeros(QUERY, KEY, dtype=dtype) if with_bias else None
    try:
        output = attend(q, k, v, beta=beta, bias=bias)
    except ValueError as error:
        assert "beta" in str(error)  # noqa: PT017
    else:
        torch.testing.assert_close(output, scaled_dot_product_attention(q, k, v, beta=math.inf))


# Nothing visible


def one_row():
    visible = torch.ones(QUERY, KEY, dtype=torch.bool)
    visible[2] = False
    return visible


NOTHING_VISIBLE = {
    "one row": one_row,
    "all rows": lambda: torch.zeros(1, 1, dtype=torch.bool),
    "one batch entry": lambda: masks.padding(torch.tensor([0, 7]), KEY),
    "causal with padding left": lambda: masks.causal(QUERY, KEY) & masks.padding(torch.tensor([3, 6]), KEY, "left"),
    "one head": lambda: torch.tensor([True, False, True])[:, None, None],
    "padded queries": lambda: masks.cross(torch.tensor([5, 2]), QUERY, torch.tensor([7, 4]), KEY),
    "cross from padding on the left": lambda: masks.cross(
        torch.tensor([4, 2]), QUERY, torch.tensor([5, 4]), KEY, "left"
    ),
}
when_nothing_is_visible = pytest.mark.parametrize("make_visible", NOTHING_VISIBLE.values(), ids=NOTHING_VISIBLE.keys())


@both_paths
@every_dtype
@when_nothing_is_visible
@pytest.mark.parametrize("with_bias", [False, True], ids=["", "bias"])
def test_a_query_that_sees_nothing_returns_zeros_with_finite_gradients(attend, dtype, make_visible, with_bias):
    """pytorch#26098, #41508, #160064: NaN from fully masked rows."""
    visible = make_visible()
    q, k, v = (t.requires_grad_() for t in random_qkv(dtype=dtype))
    bias = torch.randn(HEAD, QUERY, KEY, dtype=dtype, requires_grad=True) if with_bias else None
    output = attend(q, k, v, visible=visible, bias=bias)
    blind = ~visible.expand(BATCH, HEAD, QUERY, KEY).any(-1)
    assert blind.any()
    assert torch.all(output[blind] == 0)
    assert torch.all((output != 0).any(-1) == ~blind)
    (output + 1).square().sum().backward()
    for t in (q, k, v) if bias is None else (q, k, v, bias):
        assert t.grad.isfinite().all()
    assert torch.all(q.grad[blind] == 0)


@every_dtype
@when_nothing_is_visible
@pytest.mark.parametrize("beta", [None, 0.0, 50.0, 1e30, math.inf])
def test_weights_of_a_query_that_sees_nothing_are_zeros_with_finite_gradients(dtype, make_visible, beta):
    """pytorch#152028: NaN only when the weights are asked for, so that looking changes the result."""
    visible = make_visible()
    q, k, _ = (t.requires_grad_() for t in random_qkv(dtype=dtype))
    weights = attention_weights(q, k, visible=visible, beta=beta)
    sees = visible.expand(BATCH, HEAD, QUERY, KEY)
    assert torch.all(weights[~sees] == 0)
    torch.testing.assert_close(weights.float().sum(-1), sees.any(-1).float(), rtol=0, atol=0.02)
    if beta != math.inf:
        (weights + 1).square().sum().backward()
        assert q.grad.isfinite().all()
        assert k.grad.isfinite().all()


@both_paths
def test_more_causal_queries_than_keys_leave_the_first_ones_without_a_view(attend):
    q, k, v = (t.requires_grad_() for t in random_qkv(KEY, QUERY))
    output = attend(q, k, v, causal=True)
    output.square().sum().backward()
    assert torch.all(output[..., :2, :] == 0)
    assert torch.all(output[..., 2:, :] != 0)
    assert all(t.grad.isfinite().all() for t in (q, k, v))


@both_paths
def test_the_blind_query_does_not_disturb_the_others(attend):
    """pytorch#41508: one blind row made the gradients of the whole batch NaN."""
    q, k, v = (t.requires_grad_() for t in random_qkv())
    seeing = [0, 1, 3, 4]
    some = torch.autograd.grad(attend(q, k, v, visible=one_row()).square().sum(), (q, k, v))
    rest = torch.autograd.grad(attend(q[..., seeing, :], k, v).square().sum(), (q, k, v))
    for gradient, expected in zip(some, rest, strict=True):
        torch.testing.assert_close(gradient, expected)


@both_paths
def test_a_bias_of_minus_infinity_hides_as_a_mask_does(assert_same, attend):
    """The float masks of torch: a blind row gives zeros with them too."""
    visible = torch.rand(QUERY, KEY) > 0.3
    visible[2] = False
    bias = torch.zeros(QUERY, KEY, dtype=torch.float64).masked_fill(~visible, -math.inf)
    assert_same(
        lambda q, k, v: attend(q, k, v, bias=bias),
        lambda q, k, v: scaled_dot_product_attention(q, k, v, visible=visible),
        *random_qkv(),
    )


# NaN in the padding


HIDDEN_KEYS = {
    "padding right": lambda: masks.padding(torch.tensor([4, 7]), KEY),
    "padding left": lambda: masks.padding(torch.tensor([4, 6]), KEY, "left"),
    "causal with padding left": lambda: masks.causal(QUERY, KEY) & masks.padding(torch.tensor([4, 6]), KEY, "left"),
    "a key that nobody sees": lambda: (torch.arange(KEY) != 3)[None],
    "out of the window": lambda: masks.window(QUERY, KEY, 1),
    "a whole batch entry": lambda: masks.padding(torch.tensor([0, 7]), KEY),
    "in one head": lambda: torch.ones(HEAD, QUERY, KEY, dtype=torch.bool).index_put(
        (torch.tensor(1), torch.arange(QUERY), torch.tensor(5)), torch.tensor(False)
    ),
}


@both_paths
@every_dtype
@pytest.mark.parametrize("make_visible", HIDDEN_KEYS.values(), ids=HIDDEN_KEYS.keys())
@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf])
def test_nan_in_keys_that_nobody_sees_goes_nowhere(attend, dtype, make_visible, poison):
    """pytorch#101967: NaN in a masked key or value leaks, since 0 * NaN is NaN."""
    visible = make_visible()
    unseen = ~visible.expand(BATCH, HEAD, QUERY, KEY).any(-2)
    q, k, v = random_qkv(dtype=dtype)

    def run(content):
        hidden = [t.masked_fill(unseen[..., None], content).requires_grad_() for t in (k, v)]
        inputs = [q.clone().requires_grad_(), *hidden]
        output = attend(*inputs, visible=visible)
        return output, *torch.autograd.grad(output.square().sum(), inputs)

    assert unseen.any()
    for poisoned, clean in zip(run(poison), run(0.0), strict=True):
        assert poisoned.isfinite().all()
        assert torch.equal(poisoned, clean)


@every_dtype
@pytest.mark.parametrize("make_visible", HIDDEN_KEYS.values(), ids=HIDDEN_KEYS.keys())
def test_nan_in_keys_that_nobody_sees_does_not_reach_the_weights(dtype, make_visible):
    visible = make_visible()
    unseen = ~visible.expand(BATCH, HEAD, QUERY, KEY).any(-2)
    q, k, _ = random_qkv(dtype=dtype)
    k = k.masked_fill(unseen[..., None], math.nan)
    q.requires_grad_()
    k.requires_grad_()
    weights = attention_weights(q, k, visible=visible)
    weights.square().sum().backward()
    assert all(t.isfinite().all() for t in (weights, q.grad, k.grad))


@pytest.mark.parametrize("beta", [0.0, 1.0, 1e30, math.inf])
@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf])
def test_nan_in_hidden_scores_does_not_reach_the_weights(beta, poison):
    scores = torch.randn(QUERY, KEY, dtype=torch.float64)
    visible = masks.causal(QUERY, KEY)
    poisoned = scores.masked_fill(~visible, poison).requires_grad_()
    weights = softargmax(poisoned, beta, visible)
    assert torch.equal(weights, softargmax(scores, beta, visible))
    if beta != math.inf:
        weights.square().sum().backward()
        assert poisoned.grad.isfinite().all()


@both_paths
@every_dtype
def test_nan_in_a_query_that_sees_nothing_goes_nowhere(attend, dtype):
    """A padded token is query, key and value at once; as a query that sees nothing it returns zeros."""
    inputs = random_qkv(n_query=KEY, dtype=dtype)
    lengths = torch.tensor([4, 7])
    padded = torch.arange(KEY) >= lengths[:, None]
    q, k, v = (t.masked_fill(padded[:, None, :, None], math.nan).requires_grad_() for t in inputs)
    output = attend(q, k, v, visible=masks.cross(lengths, KEY, lengths, KEY))
    assert torch.all(output[0, :, 4:] == 0)
    output.square().sum().backward()
    assert all(t.isfinite().all() for t in (output, q.grad, k.grad, v.grad))


# Half precision


@both_paths
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_products_that_overflow_half_precision_stay_finite(attend, dtype):
    """q . k reaches 2.56 million; float16 ends at 65504."""
    q, k = torch.full((1, 3, 64), 200.0), torch.full((1, 5, 64), 200.0)
    k[:, 0] = 199
    v = torch.randn(1, 5, 7)
    q, k, v = (t.to(dtype).requires_grad_() for t in (q, k, v))
    assert (q.double() @ k.double().mT).min() > 65504
    exact = torch.softmax(q.double() @ k.double().mT / 8, -1)
    weights, output = attention_weights(q, k), attend(q, k, v)
    torch.testing.assert_close(weights.double(), exact, rtol=0.01, atol=0.01)
    torch.testing.assert_close(output.double(), exact @ v.double(), rtol=0.02, atol=0.02)
    output.sum().backward()
    assert all(t.grad.isfinite().all() for t in (q, k, v))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("beta", [0.3, 50.0, 1e30, 1e300, math.inf])
def test_weights_in_half_precision_are_those_of_float32_rounded_once(dtype, beta):
    scores = torch.randn(QUERY, KEY).to(dtype)
    assert torch.equal(softargmax(scores, beta), softargmax(scores.float(), beta).to(dtype))


@both_paths
@every_dtype
def test_dtype_in_is_dtype_out(attend, dtype):
    q, k, v = random_qkv(dtype=dtype)
    bias = torch.randn(QUERY, KEY)
    assert attend(q, k, v).dtype == dtype
    assert attend(q, k, v, bias=bias).dtype == dtype
    assert attention_weights(q, k).dtype == attention_weights(q, k, bias=bias).dtype == dtype


# Bad input


@both_paths
@pytest.mark.parametrize("shape", [(KEY,), (QUERY, 6), (KEY, QUERY), (3, 1, 1, KEY), (BATCH, KEY), (1, 1, 1, 1, 1)])
def test_a_mask_of_the_wrong_shape_is_refused(as_users_run_it, attend, shape):
    """pytorch#131254: a mask of the wrong shape, dropped without a word."""
    q, k, v = random_qkv()
    with pytest.raises(ValueError, match=r"visible must broadcast to the scores .* \(2, 3, 5, 7\), got \("):
        attend(q, k, v, visible=torch.ones(shape, dtype=torch.bool))


@pytest.mark.parametrize("shape", [(KEY,), (KEY, QUERY), (BATCH, HEAD, 1, QUERY, KEY)])
def test_softargmax_and_weights_refuse_a_mask_of_the_wrong_shape(as_users_run_it, shape):
    q, k, _ = random_qkv()
    visible = torch.ones(shape, dtype=torch.bool)
    with pytest.raises(ValueError, match="visible must broadcast"):
        attention_weights(q, k, visible=visible)
    with pytest.raises(ValueError, match="visible must broadcast"):
        softargmax(attention_scores(q, k), 1.0, visible)


@both_paths
@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.float32], ids=str)
def test_a_mask_that_is_not_boolean_is_refused_with_what_to_write_instead(as_users_run_it, attend, dtype):
    """pytorch's SDPA adds a float mask of 0 and 1 to the scores without a word."""
    q, k, v = random_qkv()
    with pytest.raises(TypeError, match=rf"visible must be boolean.*{dtype}.*visible\.bool\(\).*visible == 0"):
        attend(q, k, v, visible=torch.ones(QUERY, KEY, dtype=dtype))


def test_scores_that_are_no_tensor_are_refused(as_users_run_it):
    with pytest.raises(TypeError, match=r"scores must be a tensor, got \[\[1.0\]\]"):
        softargmax([[1.0]])


@both_paths
def test_keys_and_values_of_different_number_are_refused(as_users_run_it, attend):
    q, k, v = random_qkv()
    with pytest.raises(ValueError, match="k and v must have the same number of keys, got 7 and 6"):
        attend(q, k, v[..., 1:, :])


@both_paths
def test_queries_and_keys_of_different_width_are_refused(as_users_run_it, attend):
    q, k, v = random_qkv()
    with pytest.raises(ValueError, match="q and k must have the same width d_head, got 11 and 10"):
        attend(q, k[..., 1:], v)
    with pytest.raises(ValueError, match="same width d_head"):
        attention_weights(q, k[..., 1:])


@both_paths
@pytest.mark.parametrize(("n_query", "n_key", "name"), [(0, 7, "q"), (5, 0, "k")])
def test_an_empty_sequence_is_refused(as_users_run_it, attend, n_query, n_key, name):
    with pytest.raises(ValueError, match=rf"{name} must have .* at least one token, got shape \(2, 3, 0, 11\)"):
        attend(*random_qkv(n_query, n_key))


@both_paths
def test_a_single_axis_is_refused(as_users_run_it, attend):
    _, k, v = random_qkv()
    with pytest.raises(ValueError, match=r"q must have the axes \(..., token, d\)"):
        attend(torch.zeros(D_HEAD), k, v)


@both_paths
@pytest.mark.parametrize("beta", [math.nan, -1.0, -math.inf])
@pytest.mark.parametrize("with_bias", [False, True], ids=["", "bias"])
def test_a_beta_outside_0_to_infinity_is_refused(as_users_run_it, attend, beta, with_bias):
    q, k, v = random_qkv()
    bias = torch.zeros(QUERY, KEY, dtype=torch.float64) if with_bias else None
    with pytest.raises(ValueError, match=f"beta must lie in 0 .. inf, got {beta}"):
        attend(q, k, v, beta=beta, bias=bias)
    with pytest.raises(ValueError, match=f"beta must lie in 0 .. inf, got {beta}"):
        softargmax(torch.zeros(1, 1), beta)


def test_hard_attention_with_a_bias_is_refused(as_users_run_it):
    q, k, v = random_qkv()
    with pytest.raises(ValueError, match=r"beta must be at most 1e.06 with a bias.*got inf"):
        scaled_dot_product_attention(q, k, v, beta=math.inf, bias=torch.zeros(QUERY, KEY))


def test_fused_hard_attention_is_refused_with_what_to_use_instead(as_users_run_it):
    q, k, v = random_qkv()
    with pytest.raises(ValueError, match=r"beta must be at most.*got inf: use scaled_dot_product_attention"):
        fused_attention(q, k, v, beta=math.inf)


@both_paths
@pytest.mark.parametrize("shape", [(KEY, QUERY), (KEY,), (2, QUERY, KEY)])
def test_a_bias_of_the_wrong_shape_is_refused(as_users_run_it, attend, shape):
    q, k, v = random_qkv()
    with pytest.raises(ValueError, match=r"bias must broadcast to the scores \(2, 3, 5, 7\), got"):
        attend(q, k, v, bias=torch.zeros(shape, dtype=torch.float64))


@both_paths
def test_a_mask_without_heads_is_refused_with_what_to_write_instead(as_users_run_it, attend):
    q, k, v = random_qkv()
    visible = torch.ones(BATCH, QUERY, KEY, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"got \(2, 5, 7\): write visible\[:, None\] for a mask \(batch, query, key\)"):
        attend(q, k, v, visible=visible)
    torch.testing.assert_close(attend(q, k, v, visible=visible[:, None]), attend(q, k, v))


@both_paths
def test_a_padding_mask_is_refused_with_what_to_write_instead(as_users_run_it, attend):
    visible = torch.ones(BATCH, KEY, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"got \(2, 7\): write visible\[:, None, None\] for a mask \(batch, key\)"):
        attend(*random_qkv(), visible=visible)
    q, k, v = random_qkv()
    torch.testing.assert_close(attend(q, k, v, visible=visible[:, None, None]), attend(q, k, v))


@both_paths
def test_a_boolean_bias_is_refused_with_what_to_write_instead(as_users_run_it, attend):
    with pytest.raises(TypeError, match=r"bias must hold real numbers.* got torch.bool: a mask is passed as visible="):
        attend(*random_qkv(), bias=torch.ones(QUERY, KEY, dtype=torch.bool))


# Numbers at the ends of their range

TINY = torch.finfo(torch.float32).tiny
LARGE = 3e38


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("beta", [0.0, 1e-300, 0.3, 1.0, 1e30, math.inf])
@pytest.mark.parametrize(
    ("scores", "hard", "mean"),
    [
        ([1.0, -math.inf, 2.0], [0.0, 0.0, 1.0], [0.5, 0.0, 0.5]),
        ([-math.inf, -math.inf, -math.inf], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]),
        ([LARGE, -LARGE, LARGE], [0.5, 0.0, 0.5], [1 / 3, 1 / 3, 1 / 3]),
        ([-LARGE, -LARGE, -math.inf], [0.5, 0.5, 0.0], [0.5, 0.5, 0.0]),
    ],
)
def test_scores_at_the_ends_of_float32_make_no_nan(scores, hard, mean, beta, masked):
    """-inf hides its key under every beta."""
    x = torch.tensor([scores], requires_grad=True)
    weights = softargmax(x, beta, torch.ones(1, 3, dtype=torch.bool) if masked else None)
    weights.square().sum().backward() if weights.requires_grad else None
    assert x.grad is None or x.grad.isfinite().all()
    if beta < 1e-30:
        torch.testing.assert_close(weights, torch.tensor([mean]))
    elif beta >= 1e30 or LARGE in scores or -LARGE in scores:
        torch.testing.assert_close(weights, torch.tensor([hard]))
    else:
        torch.testing.assert_close(weights, x.detach().mul(beta).softmax(-1).nan_to_num(0.0))


@pytest.mark.parametrize("beta", [0.0, 0.3, 1.0, 1e30])
def test_a_score_of_plus_infinity_makes_its_own_row_nan_as_torch_does(beta):
    scores = torch.tensor([[1.0, math.inf], [1.0, 2.0]])
    weights = softargmax(scores, beta)
    assert weights[0].isnan().all()
    assert torch.equal(weights[1:], softargmax(scores[1:], beta))


def test_scores_of_plus_infinity_share_under_hard_attention():
    assert softargmax(torch.tensor([[1.0, math.inf, math.inf]]), math.inf).tolist() == [[0.0, 0.5, 0.5]]


def fading_scores(n_key=401):
    """Weights from nearly 1 down through the numbers that are not normal to 0."""
    return torch.stack([-torch.linspace(0, 120, n_key), torch.linspace(-110, 3, n_key)])


@pytest.mark.parametrize("masked", [False, True])
def test_weights_below_the_smallest_normal_number_are_exactly_zero_with_no_gradient(masked):
    scores = fading_scores().requires_grad_()
    visible = torch.ones_like(scores, dtype=torch.bool) if masked else None
    weights, exact = softargmax(scores, visible=visible), softargmax(scores.detach().double())
    assert ((exact > 0) & (exact < TINY)).any()
    assert not ((weights > 0) & (weights < TINY)).any()
    assert (weights[exact < 0.999 * TINY] == 0).all()
    assert (weights[exact > 1.001 * TINY] > 0).all()
    torch.testing.assert_close(weights.double(), exact, rtol=1e-4, atol=1e-37)
    weights.sum(0).square().sum().backward()
    assert (scores.grad[weights == 0] == 0).all()
    assert (scores.grad[weights > 1e-30] != 0).all()


def test_gradients_where_weights_fade_are_those_of_torch():
    scores, theirs = fading_scores().requires_grad_(), fading_scores().double().requires_grad_()
    for weights in (softargmax(scores), theirs.softmax(-1)):
        (weights * torch.linspace(-1, 1, scores.shape[-1])).sum().backward()
    torch.testing.assert_close(scores.grad.double(), theirs.grad, rtol=1e-3, atol=1e-7)


def test_both_paths_agree_where_weights_fade(assert_same):
    q, k, v = random_qkv(n_query=KEY)
    v = v[..., : q.shape[-1]]
    weights = attention_weights(q.float(), k.float(), beta=60.0)
    assert (weights == 0).any()
    assert_same(
        lambda q, k, v: scaled_dot_product_attention(q, k, v, beta=60.0),
        lambda q, k, v: fused_attention(q, k, v, beta=60.0),
        *(q, k, v),
    )
