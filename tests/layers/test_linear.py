"""Linear maps of a few tokens: in one product, or in blocks of rows on processors that are faster with them."""

import pytest
import torch
from torch import nn

import headwork as hw
from headwork.generation import generate
from headwork.layers import linear as linear_maps
from headwork.layers.linear import FEW_TOKENS, affine, affine_map, block_map

D_IN, D_OUT = 7, 12


@pytest.fixture
def on_amd(monkeypatch):
    """As on a processor of AMD's, with matrices of this size taken for large ones."""
    monkeypatch.setattr(linear_maps, "is_amd", lambda: True)
    monkeypatch.setattr(linear_maps, "MANY_WEIGHTS", 0)


def assert_same(ours, theirs, x):
    """Equal in value and gradient."""
    results = []
    for function in (ours, theirs):
        given = x.clone().requires_grad_()
        y = function(given)
        results.append((y, *torch.autograd.grad(y.square().sum(), given)))
    torch.testing.assert_close(*results, rtol=1e-10, atol=1e-10)


def random_map(d_out, bias):
    torch.manual_seed(0)
    return nn.Linear(D_IN, d_out, bias=bias).double()


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("n_tokens", [0, 1, 2, FEW_TOKENS, FEW_TOKENS + 1, 9])
@pytest.mark.parametrize("d_out", [1, 11, D_OUT, 37, 3 * 37])
def test_few_tokens_and_many_are_mapped_as_by_torch(on_amd, n_tokens, d_out, bias):
    layer = random_map(d_out, bias)
    assert_same(affine(layer), layer, torch.randn(n_tokens, D_IN, dtype=torch.float64))


@pytest.mark.parametrize("n_blocks", [1, 2, 3, 4, 6, 12])
@pytest.mark.parametrize("n_tokens", [1, 2, 5])
def test_the_number_of_blocks_changes_nothing(n_blocks, n_tokens):
    layer = random_map(D_OUT, bias=True)
    x = torch.randn(n_tokens, D_IN, dtype=torch.float64)
    assert_same(block_map(layer.weight, layer.bias, n_blocks), layer, x)
    assert block_map(layer.weight, layer.bias, n_blocks)(x).is_contiguous()


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("n_tokens", [1, 2, FEW_TOKENS])
def test_every_token_is_given_to_the_product_as_a_column_without_gaps(monkeypatch, n_tokens, bias):
    """Whatever its strides are: by other strides of the same numbers MKL takes five times as long."""
    layer, n_blocks, seen = random_map(D_OUT, bias), 4, []
    product = torch.baddbmm if bias else torch.bmm
    spy = lambda *tensors: seen.append(tensors[-1].stride()) or product(*tensors)  # noqa: E731
    monkeypatch.setattr(torch, product.__name__, spy)
    mapped = block_map(layer.weight, layer.bias, n_blocks)
    x = torch.randn(n_tokens, D_IN, dtype=torch.float64)
    by_columns = torch.empty_strided(x.shape, (1, n_tokens), dtype=x.dtype).copy_(x)  # of one token: (1, 1)
    assert by_columns.stride() == (1, n_tokens)
    for given in (x, by_columns, torch.cat([x, x], dim=1)[:, :D_IN]):
        torch.testing.assert_close(mapped(given), layer(x))
        assert_same(mapped, layer, given)
    assert set(seen) == {(0, 1, D_IN)}


def test_blocks_are_views_of_the_weights(on_amd):
    layer = random_map(D_OUT, bias=True)
    mapped, x = affine(layer), torch.randn(1, D_IN, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.mul_(2)
        torch.testing.assert_close(mapped(x), layer(x))


def test_only_large_matrices_on_amd_are_cut(monkeypatch):
    large = torch.zeros(512, 512)
    x = torch.zeros(1, 512)
    for amd, weight, cut in ((True, large, True), (False, large, False), (True, large[:, :511], False)):
        monkeypatch.setattr(linear_maps, "is_amd", lambda amd=amd: amd)
        used = []
        monkeypatch.setattr(linear_maps, "block_map", lambda *_, used=used: used.append(1) or (lambda x: x))
        affine_map(weight, None)(x[:, : weight.shape[1]])
        assert bool(used) == cut


@pytest.mark.parametrize("n_rows", [1, 3, 6])
def test_text_is_the_same_in_blocks(on_amd, monkeypatch, n_rows):
    torch.manual_seed(0)
    config = hw.models.DecoderConfig(
        vocab=23,
        d_model=8,
        n_layers=2,
        heads=hw.choices.Heads(n_heads=4, n_kv_heads=2),
        feed_forward=hw.choices.GatedFeedForward(d_ff=12),
        position=hw.choices.RotaryPositions(),
    )
    model = hw.models.Decoder(config).double()
    ids = torch.randint(23, (n_rows, 5))
    by_blocks = generate(model, ids, max_new_tokens=9)
    monkeypatch.setattr(linear_maps, "is_amd", lambda: False)
    assert torch.equal(generate(model, ids, max_new_tokens=9), by_blocks)
