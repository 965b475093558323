"""Norms against PyTorch and the formula."""

import pytest
import torch
from torch import Tensor, nn

from headwork import choices
from headwork.layers import BatchNorm2d, LayerNorm, RMSNorm
from headwork.layers.norm import make_norm

BATCH, TOKEN, D_MODEL = 2, 3, 7


def assert_same(actual: Tensor, expected: Tensor, tolerance: float = 1e-10) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=tolerance)


def some_loss(output: Tensor) -> Tensor:
    return (output * torch.arange(output.numel(), dtype=output.dtype).cos().view_as(output)).sum()


PAIRS = {
    "layer norm": lambda: (LayerNorm(D_MODEL, eps=0.1), nn.LayerNorm(D_MODEL, eps=0.1)),
    "layer norm, default eps": lambda: (LayerNorm(D_MODEL), nn.LayerNorm(D_MODEL)),
    "layer norm without bias": lambda: (
        LayerNorm(D_MODEL, eps=0.1, bias=False),
        nn.LayerNorm(D_MODEL, eps=0.1, bias=False),
    ),
    "rms norm": lambda: (RMSNorm(D_MODEL, eps=0.1), nn.RMSNorm(D_MODEL, eps=0.1)),
    "rms norm, default eps": lambda: (RMSNorm(D_MODEL), nn.RMSNorm(D_MODEL, eps=1e-6)),
}


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("scale", [1.0, 1e-3])
def test_equals_torch(pair: str, scale: float) -> None:
    ours, theirs = PAIRS[pair]()
    for parameter in theirs.parameters():
        nn.init.normal_(parameter)
    ours.load_state_dict(theirs.state_dict())
    x = (scale * torch.randn(BATCH, TOKEN, D_MODEL)).requires_grad_()
    assert_same(ours(x), theirs(x))
    gradients = torch.autograd.grad(some_loss(ours(x)), [x, *ours.parameters()])
    wanted = torch.autograd.grad(some_loss(theirs(x)), [x, *theirs.parameters()])
    for gradient, of_torch in zip(gradients, wanted, strict=True):
        assert_same(gradient, of_torch)


@pytest.mark.usefixtures("float64")
def test_layer_norm_divides_by_the_biased_deviation_with_eps_inside_the_root() -> None:
    """annotated-transformer#92: there the deviation is the unbiased one and eps stands outside."""
    x = torch.randn(TOKEN, D_MODEL)
    wanted = torch.stack([(t - t.sum() / D_MODEL) / (((t - t.mean()) ** 2).sum() / D_MODEL + 0.5).sqrt() for t in x])
    assert_same(LayerNorm(D_MODEL, eps=0.5)(x), wanted)


@pytest.mark.usefixtures("float64")
def test_rms_norm_divides_by_the_root_of_the_mean_square() -> None:
    x = torch.randn(TOKEN, D_MODEL)
    wanted = torch.stack([t / ((t**2).sum() / D_MODEL + 0.5).sqrt() for t in x])
    assert_same(RMSNorm(D_MODEL, eps=0.5)(x), wanted)


@pytest.mark.parametrize("norm", [LayerNorm(D_MODEL), RMSNorm(D_MODEL)], ids=["layer", "rms"])
def test_starts_as_the_plain_norm(norm: nn.Module) -> None:
    assert (norm.weight == 1).all()
    assert getattr(norm, "bias", None) is None or (norm.bias == 0).all()


@pytest.mark.parametrize("norm", [LayerNorm(D_MODEL), RMSNorm(D_MODEL)], ids=["layer", "rms"])
def test_a_token_of_zeros_stays_finite(norm: nn.Module) -> None:
    x = torch.zeros(BATCH, TOKEN, D_MODEL, requires_grad=True)
    output = norm(x)
    assert (output == 0).all()
    (gradient,) = torch.autograd.grad(some_loss(output), x)
    assert gradient.isfinite().all()


@pytest.mark.parametrize("kind", [LayerNorm, RMSNorm])
def test_the_smallest_width(kind: type[nn.Module]) -> None:
    assert kind(1)(torch.randn(BATCH, TOKEN, 1)).isfinite().all()


@pytest.mark.parametrize("kind", [LayerNorm, RMSNorm])
@pytest.mark.parametrize(
    "shape", [(D_MODEL,), (TOKEN, D_MODEL), (0, TOKEN, D_MODEL), (BATCH, 5, TOKEN, D_MODEL)], ids=str
)
def test_any_axes_before_the_features(kind: type[nn.Module], shape: tuple[int, ...]) -> None:
    assert kind(D_MODEL)(torch.randn(shape)).shape == shape


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", [LayerNorm, RMSNorm])
def test_keeps_the_precision_it_is_given(kind: type[nn.Module], dtype: torch.dtype) -> None:
    assert kind(D_MODEL).to(dtype)(torch.randn(BATCH, TOKEN, D_MODEL, dtype=dtype)).dtype == dtype


def test_made_by_choice() -> None:
    layer = make_norm(choices.LayerNorm(eps=0.25, bias=False), D_MODEL)
    assert isinstance(layer, LayerNorm)
    assert (layer.eps, layer.bias) == (0.25, None)
    rms = make_norm(choices.RMSNorm(eps=0.125), D_MODEL)
    assert isinstance(rms, RMSNorm)
    assert rms.eps == 0.125


def test_prints_its_width_and_eps() -> None:
    assert str(LayerNorm(7, eps=0.5, bias=False)) == "LayerNorm(d_model=7, eps=0.5, bias=False)"
    assert str(RMSNorm(7, eps=0.5)) == "RMSNorm(d_model=7, eps=0.5)"


def test_batch_norm_averages_the_first_batches() -> None:
    """And forgets as PyTorch does from the tenth on; what it gives in training is PyTorch's always."""
    ours, theirs = BatchNorm2d(D_MODEL), nn.BatchNorm2d(D_MODEL)
    batches = [100 + 0.01 * torch.randn(BATCH, D_MODEL, 5, 3) for _ in range(12)]
    means = torch.stack([batch.mean((0, 2, 3)) for batch in batches])
    variances = torch.stack([batch.transpose(0, 1).flatten(1).var(1) for batch in batches])
    for n, batch in enumerate(batches, start=1):
        assert_same(ours(batch), theirs(batch), 0.0)
        if n <= 10:
            assert_same(ours.running_mean, means[:n].mean(0), 1e-4)
            assert_same(ours.running_var, variances[:n].mean(0), 1e-6)
    expected = variances[:10].mean(0)
    for variance in variances[10:]:
        expected = 0.9 * expected + 0.1 * variance
    assert_same(ours.running_var, expected, 1e-6)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    before = ours.running_mean.clone()
    ours.eval()(batches[0])
    assert torch.equal(ours.running_mean, before)
