"""The fast form of each equation equals the readable one, in value and gradient, and needs no table of weights."""

import json
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from headwork import functional as hf
from headwork import masks
from headwork.functional import fused_attention, scaled_dot_product_attention

BATCH, HEAD, QUERY, KEY, D_HEAD, D_VALUE = 2, 3, 5, 7, 11, 13

every_beta = pytest.mark.parametrize("beta", [None, 0.0, 1e-320, 0.3, 50.0])
value_width = pytest.mark.parametrize("d_value", [D_HEAD, D_VALUE])


def random_qkv(*batch, n_query=QUERY, n_key=KEY, d_value=D_VALUE):
    return (
        torch.randn(*batch, n_query, D_HEAD, dtype=torch.float64),
        torch.randn(*batch, n_key, D_HEAD, dtype=torch.float64),
        torch.randn(*batch, n_key, d_value, dtype=torch.float64),
    )


def both_forms(**how):
    """Both paths called in the same way."""
    return (lambda q, k, v: fused_attention(q, k, v, **how)), (
        lambda q, k, v: scaled_dot_product_attention(q, k, v, **how)
    )


def biased_twins(**how):
    return (lambda q, k, v, bias: fused_attention(q, k, v, bias=bias, **how)), (
        lambda q, k, v, bias: scaled_dot_product_attention(q, k, v, bias=bias, **how)
    )


# Attention


@every_beta
@value_width
def test_twins_agree_under_every_mask(assert_same, visible, beta, d_value):
    assert_same(*both_forms(visible=visible, beta=beta), *random_qkv(BATCH, HEAD, d_value=d_value))


@every_beta
@value_width
@pytest.mark.parametrize("n_query", [1, 2, 5, 7, 11])
def test_causal_twins_agree_for_fewer_as_many_and_more_queries(assert_same, n_query, beta, d_value):
    """pytorch#103082: fewer queries stand on the last keys. Values as wide as keys take another kernel."""
    assert_same(*both_forms(causal=True, beta=beta), *random_qkv(BATCH, HEAD, n_query=n_query, d_value=d_value))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("beta", [0.0, 1e-320, 1e-42])
def test_a_beta_that_vanishes_takes_the_mean_of_the_past(beta, dtype):
    q, _, v = (t.to(dtype) for t in random_qkv(BATCH, HEAD, n_query=KEY, d_value=D_HEAD))
    mean = v.cumsum(-2) / torch.arange(1, KEY + 1)[:, None]
    torch.testing.assert_close(fused_attention(q, q, v, causal=True, beta=beta), mean)


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("n_query", [1, 5, 7])
def test_causal_twins_agree_under_padding(assert_same, side, n_query):
    real = masks.padding(torch.tensor([3, 6]), KEY, side)
    assert_same(*both_forms(causal=True, visible=real), *random_qkv(BATCH, HEAD, n_query=n_query))


@every_beta
@pytest.mark.parametrize("shape", [(QUERY, KEY), (HEAD, QUERY, KEY), (HEAD, QUERY, 1), (BATCH, 1, 1, KEY)])
def test_biased_twins_agree_down_to_the_gradient_of_the_bias(assert_same, shape, beta):
    assert_same(*biased_twins(beta=beta), *random_qkv(BATCH, HEAD), torch.randn(shape, dtype=torch.float64))


@every_beta
def test_biased_twins_agree_under_every_mask(assert_same, visible, beta):
    bias = torch.randn(HEAD, QUERY, KEY, dtype=torch.float64)
    assert_same(*biased_twins(visible=visible, beta=beta), *random_qkv(BATCH, HEAD), bias)


@pytest.mark.parametrize("n_query", [1, 5, 7])
def test_biased_causal_twins_agree(assert_same, n_query):
    bias = torch.randn(HEAD, n_query, KEY, dtype=torch.float64)
    assert_same(*biased_twins(causal=True), *random_qkv(BATCH, HEAD, n_query=n_query), bias)


def test_twins_agree_when_the_bias_broadcasts_wider_than_the_mask(assert_same):
    real = masks.padding(torch.tensor([3, 6]), KEY)
    bias = torch.randn(1, 1, dtype=torch.float64)
    assert_same(*biased_twins(visible=real), *random_qkv(BATCH, HEAD), bias)


@pytest.mark.parametrize("batch", [(), (2,), (2, 3), (2, 3, 1)], ids=["2-D", "3-D", "4-D", "5-D"])
@pytest.mark.parametrize("how", ["plain", "causal", "mask", "bias"])
@value_width
def test_twins_agree_for_any_number_of_batch_axes(assert_same, batch, how, d_value):
    options = {
        "plain": {},
        "causal": {"causal": True},
        "mask": {"visible": masks.window(KEY, KEY, 2)},
        "bias": {"bias": torch.randn(KEY, KEY, dtype=torch.float64)},
    }[how]
    assert_same(*both_forms(**options), *random_qkv(*batch, n_query=KEY, d_value=d_value))


@pytest.mark.parametrize("batch", [(0,), (0, HEAD), (BATCH, 0)])
@pytest.mark.parametrize("how", ["plain", "causal", "mask", "bias"])
def test_an_empty_batch_is_no_special_case(assert_same, batch, how):
    options = {
        "plain": {},
        "causal": {"causal": True},
        "mask": {"visible": masks.window(KEY, KEY, 2)},
        "bias": {"bias": torch.randn(KEY, KEY, dtype=torch.float64)},
    }[how]
    inputs = random_qkv(*batch, n_query=KEY)
    assert_same(*both_forms(**options), *inputs)
    assert fused_attention(*inputs, **options).shape == (*batch, KEY, D_VALUE)


def test_one_token_one_head_one_feature(assert_same):
    one = torch.randn(1, 1, 1, 1, dtype=torch.float64)
    assert_same(*both_forms(causal=True), one, one, one)
    assert torch.equal(fused_attention(one, one, one), one)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_twins_agree_in_half_precision_as_far_as_it_reaches(visible, dtype):
    q, k, v = (t.to(dtype) for t in random_qkv(BATCH, HEAD))
    fused, readable = (attend(q, k, v) for attend in both_forms(visible=visible))
    torch.testing.assert_close(fused, readable, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("how", ["plain", "causal", "visible", "bias"])
def test_half_precision_learns_by_the_table(monkeypatch, dtype, how):
    """On a CPU the kernel's backward pass is slow in half precision; values and gradients are as near as it allows."""
    options = {
        "plain": {},
        "causal": {"causal": True},
        "visible": {"visible": masks.padding(torch.tensor([3, 6]), KEY)},
        "bias": {"bias": torch.randn(HEAD, QUERY, KEY, dtype=torch.float64)},
    }[how]
    exact = [t.requires_grad_() for t in random_qkv(BATCH, HEAD)]
    half = [t.detach().to(dtype).requires_grad_() for t in exact]
    expected = scaled_dot_product_attention(*exact, **options)
    gradients = torch.autograd.grad(expected.square().sum(), exact)
    monkeypatch.delattr(F, "scaled_dot_product_attention")
    found = fused_attention(*half, **options)
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), expected, rtol=0.02, atol=0.05)
    for of_half, of_exact in zip(torch.autograd.grad(found.square().sum(), half), gradients, strict=True):
        torch.testing.assert_close(of_half.double(), of_exact, rtol=0.05, atol=0.15)


@pytest.mark.computes_in(torch.bfloat16)
def test_an_autocast_learns_by_the_table_too(monkeypatch):
    q, k, v = (t.float().requires_grad_() for t in random_qkv(BATCH, HEAD))
    expected = scaled_dot_product_attention(q, k, v)
    monkeypatch.delattr(F, "scaled_dot_product_attention")
    with torch.autocast("cpu", torch.bfloat16):
        found = fused_attention(q, k, v)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), expected, rtol=0.02, atol=0.05)


def test_dropout_keeps_the_mean_and_is_off_unless_asked_for():
    q, k = torch.zeros(1, 1, 2, D_HEAD), torch.zeros(1, 1, KEY, D_HEAD)
    v = torch.ones(1, 1, KEY, D_VALUE)
    torch.testing.assert_close(fused_attention(q, k, v), torch.ones(1, 1, 2, D_VALUE))
    many = fused_attention(
        q.expand(4001, -1, -1, -1), k.expand(4001, -1, -1, -1), v.expand(4001, -1, -1, -1), dropout=0.3
    )
    torch.testing.assert_close(many.mean(), torch.tensor(1.0), rtol=0, atol=0.02)
    survivors = many * KEY * 0.7
    torch.testing.assert_close(survivors, survivors.round(), rtol=0, atol=1e-4)
    assert survivors.round().unique().numel() > 3


@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True])
def test_a_program_of_torch_export_keeps_the_dropout(causal):
    class Attention(nn.Module):
        def forward(self, q, visible):
            return fused_attention(q, q, q, visible=visible, causal=causal, dropout=0.5)

    q, visible = torch.randn(1, 2, KEY, D_HEAD), masks.padding(torch.tensor([4]), KEY)
    program = torch.export.export(Attention(), (q, visible)).module()
    mean = torch.stack([program(q, visible) for _ in range(2000)]).mean(0)
    assert not torch.equal(program(q, visible), program(q, visible))
    torch.testing.assert_close(mean, fused_attention(q, q, q, visible=visible, causal=causal), rtol=0, atol=0.5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("learns", [False, True])
def test_nan_that_only_mask_and_future_together_hide_goes_nowhere(dtype, learns):
    """The mask hides the second value from the second query, the future hides it from the first."""
    v = torch.tensor([[[1.0, 1.0], [math.nan, math.nan]]], dtype=dtype)
    visible = torch.tensor([[True, True], [True, False]])
    q = torch.ones(1, 2, 4, dtype=dtype).requires_grad_(learns)
    out = fused_attention(q, q, v, visible=visible, causal=True)
    assert torch.equal(out, torch.ones_like(out))


@pytest.mark.parametrize("dropout", [-0.5, 1.5])
def test_a_dropout_that_is_no_probability_is_refused(as_users_run_it, dropout):
    with pytest.raises(ValueError, match=f"dropout must .*got {dropout}"):
        fused_attention(*random_qkv(BATCH), dropout=dropout)


# Memory


def peak_bytes(tmp_path, attend, n_token):
    """The most that PyTorch's allocator held during the call, beyond what it held before."""
    q, k, v = (torch.randn(1, 2, n_token, 64) for _ in range(3))
    with torch.no_grad(), torch.profiler.profile(profile_memory=True, acc_events=True) as profile:
        attend(q, k, v)
    trace = tmp_path / "trace.json"
    profile.export_chrome_trace(str(trace))
    held, peak = 0, 0
    for event in sorted(memory_events(trace), key=lambda e: e["ts"]):
        held += event["args"]["Bytes"]
        peak = max(peak, held)
    return peak


def memory_events(trace):
    return [event for event in json.loads(trace.read_text())["traceEvents"] if event["name"] == "[memory]"]


def test_fused_causal_attention_builds_no_table(tmp_path):
    """8192 tokens need no more than twice the memory of the kernel alone; the readable path exceeds that at 1024."""
    allowed = 2 * peak_bytes(tmp_path, lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), 8192)
    assert allowed > 0
    assert peak_bytes(tmp_path, lambda q, k, v: fused_attention(q, k, v, causal=True), 8192) <= allowed
    assert peak_bytes(tmp_path, lambda q, k, v: scaled_dot_product_attention(q, k, v, causal=True), 1024) > allowed


def test_one_causal_query_over_a_long_cache_copies_nothing(tmp_path):
    def newest(attend):
        return lambda q, k, v: attend(q[..., -1:, :], k, v)

    alone = peak_bytes(tmp_path, newest(F.scaled_dot_product_attention), 8192)
    ours = peak_bytes(tmp_path, newest(lambda q, k, v: fused_attention(q, k, v, causal=True)), 8192)
    assert ours <= 2 * alone


# Norms and activations


def random_features(*shape):
    return torch.randn(*shape, dtype=torch.float64) * 3 + 1


@pytest.mark.parametrize("shape", [(7,), (2, 7), (2, 3, 7), (0, 7), (5, 1)])
@pytest.mark.parametrize("eps", [1e-5, 0.3])
def test_layer_norm_twins_agree(assert_same, shape, eps):
    weight, bias = random_features(shape[-1]), random_features(shape[-1])
    ours, theirs = (lambda x, w, b, f=f: f(x, w, b, eps) for f in (hf.fused_layer_norm, hf.layer_norm))
    assert_same(ours, theirs, random_features(*shape), weight, bias)
    assert_same(hf.fused_layer_norm, hf.layer_norm, random_features(*shape))


@pytest.mark.parametrize("shape", [(7,), (2, 7), (2, 3, 7), (0, 7), (5, 1)])
@pytest.mark.parametrize("eps", [1e-6, 0.3])
def test_rms_norm_twins_agree(assert_same, shape, eps):
    ours, theirs = (lambda x, w, f=f: f(x, w, eps) for f in (hf.fused_rms_norm, hf.rms_norm))
    assert_same(ours, theirs, random_features(*shape), random_features(shape[-1]))
    assert_same(hf.fused_rms_norm, hf.rms_norm, random_features(*shape))


@pytest.mark.parametrize(
    ("fused", "readable"), [(hf.fused_gelu, hf.gelu), (hf.fused_gelu_tanh, hf.gelu_tanh)], ids=["exact", "tanh"]
)
def test_gelu_twins_agree(assert_same, fused, readable):
    assert_same(fused, readable, torch.linspace(-math.tau, math.tau, 101, dtype=torch.float64))


# Rotation


@pytest.mark.parametrize("layout", ["interleaved", "halves"])
@pytest.mark.parametrize("d_head", [2, 4, 10])
def test_rotated_twins_agree_down_to_the_gradient_of_the_angles(assert_same, layout, d_head):
    x = torch.randn(BATCH, HEAD, QUERY, d_head, dtype=torch.float64)
    angles = torch.randn(BATCH, 1, QUERY, d_head // 2, dtype=torch.float64)
    assert_same(
        lambda x, angles: hf.fused_rotate(x, *hf.rotary_table(angles, layout), layout),
        lambda x, angles: hf.rotate(x, angles, layout),
        x,
        angles,
    )


def test_half_precision_stays_what_it_is():
    x, angles = torch.randn(QUERY, 8).bfloat16(), torch.randn(QUERY, 4, dtype=torch.float64)
    turned = hf.fused_rotate(x, *hf.rotary_table(angles))
    assert turned.dtype == torch.bfloat16
    torch.testing.assert_close(turned, hf.rotate(x, angles), rtol=0.02, atol=0.02)
