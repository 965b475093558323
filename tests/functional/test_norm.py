"""Normalisation against torch, in value and gradient, with an epsilon large enough to show where it stands."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from headwork.functional import batch_norm, layer_norm, rms_norm

every_eps = pytest.mark.parametrize("eps", [1e-5, 0.3])


def random(*shape):
    return torch.randn(*shape, dtype=torch.float64) * 3 + 1


@every_eps
@pytest.mark.parametrize("shape", [(7,), (2, 7), (2, 3, 7), (2, 3, 5, 7), (0, 7), (5, 1)])
def test_layer_norm_equals_torch(assert_same, shape, eps):
    """annotated-transformer#92, PR#119: the biased variance, and epsilon inside the root."""
    width = shape[-1:]
    assert_same(
        lambda x, weight, bias: layer_norm(x, weight, bias, eps),
        lambda x, weight, bias: F.layer_norm(x, width, weight, bias, eps),
        random(*shape),
        random(*width),
        random(*width),
    )


def test_layer_norm_without_parameters_has_the_epsilon_of_torch(assert_same):
    assert_same(layer_norm, lambda x: F.layer_norm(x, (7,)), random(5, 7) * 1e-3)


def test_layer_norm_with_a_weight_or_a_bias_alone(assert_same):
    x, parameter = random(5, 7), random(7)
    assert_same(layer_norm, lambda x, w: F.layer_norm(x, (7,), w), x, parameter)
    assert_same(lambda x, b: layer_norm(x, None, b), lambda x, b: F.layer_norm(x, (7,), None, b), x, parameter)


def test_layer_norm_equals_a_loop_over_tokens():
    x, eps = random(5, 7).numpy(), 0.3
    expected = np.empty_like(x)
    for token in range(5):
        mean = sum(x[token]) / 7
        variance = sum((value - mean) ** 2 for value in x[token]) / 7
        expected[token] = (x[token] - mean) / (variance + eps) ** 0.5
    np.testing.assert_allclose(layer_norm(torch.from_numpy(x), eps=eps), expected, atol=1e-10)


@every_eps
@pytest.mark.parametrize("shape", [(7,), (2, 7), (2, 3, 7), (2, 3, 5, 7), (0, 7), (5, 1)])
def test_rms_norm_equals_torch(assert_same, shape, eps):
    width = shape[-1:]
    assert_same(
        lambda x, weight: rms_norm(x, weight, eps),
        lambda x, weight: F.rms_norm(x, width, weight, eps),
        random(*shape),
        random(*width),
    )


def test_rms_norm_has_the_epsilon_of_llama(assert_same):
    assert_same(rms_norm, lambda x: F.rms_norm(x, (7,), eps=1e-6), random(5, 7) * 1e-3)


@every_eps
@pytest.mark.parametrize("shape", [(5, 7), (2, 3, 7), (2, 3, 5, 7)])
def test_batch_norm_equals_torch_with_the_features_last(assert_same, shape, eps):
    def theirs(x, weight, bias):
        return F.batch_norm(x.movedim(-1, 1), None, None, weight, bias, training=True, eps=eps).movedim(1, -1)

    assert_same(lambda x, weight, bias: batch_norm(x, weight, bias, eps), theirs, random(*shape), random(7), random(7))


def test_batch_norm_without_parameters_has_the_epsilon_of_torch(assert_same):
    assert_same(batch_norm, lambda x: F.batch_norm(x, None, None, training=True), random(5, 7) * 1e-3)


@pytest.mark.parametrize("norm", [layer_norm, rms_norm, batch_norm])
def test_a_constant_input_has_finite_values_and_gradients(norm):
    x = torch.full((5, 7), 2.0, requires_grad=True)
    y = norm(x)
    y.square().sum().backward()
    assert y.isfinite().all()
    assert x.grad.isfinite().all()


def test_a_token_does_not_feel_its_neighbours_in_layer_norm_and_does_in_batch_norm():
    x = random(2, 5, 7)
    changed = x.clone()
    changed[1, 3] += 10
    others = torch.ones(2, 5, dtype=torch.bool)
    others[1, 3] = False
    assert torch.equal(layer_norm(x)[others], layer_norm(changed)[others])
    assert torch.equal(rms_norm(x)[others], rms_norm(changed)[others])
    assert (batch_norm(x)[others] != batch_norm(changed)[others]).all()


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [(layer_norm, lambda x: F.layer_norm(x, (7,))), (rms_norm, lambda x: F.rms_norm(x, (7,), eps=1e-6))],
    ids=["layer", "rms"],
)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_squares_that_overflow_half_precision_do_not(ours, theirs, dtype):
    """1000 squared is no number of float16; the kernels of torch compute in float32."""
    x = (random(5, 7) * 1000).to(dtype)
    torch.testing.assert_close(ours(x), theirs(x), rtol=0.02, atol=0.02)
