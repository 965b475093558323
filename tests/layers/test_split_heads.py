"""Heads that see only their own slice of the token, against the loop of the C182 sheet."""

import copy
import math
import pickle

import pytest
import torch
from torch import Tensor, nn

import headwork as hw
from headwork.layers import MultiHeadAttention, SplitHeadAttention
from headwork.layers.linear import HeadwiseLinear

BATCH, HEAD, D_HEAD, TOKEN = 2, 3, 5, 7
D_MODEL = HEAD * D_HEAD


def assert_same(actual: Tensor, expected: Tensor, tolerance: float = 1e-10) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=tolerance)


def some_loss(output: Tensor) -> Tensor:
    return (output * torch.arange(output.numel(), dtype=output.dtype).cos().view_as(output)).sum()


def filled(bias: bool) -> SplitHeadAttention:
    layer = SplitHeadAttention(D_MODEL, HEAD, bias=bias)
    for name, parameter in layer.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(parameter)
    return layer


def of_the_sheet(layer: SplitHeadAttention, tokens: Tensor, visible: Tensor | None) -> Tensor:
    """X_i = X[:, i*d_k:(i+1)*d_k], head_i = Attention(X_i Wq_i, X_i Wk_i, X_i Wv_i), Concat(head_1 .. head_h) Wo."""
    sentences = []
    for x in tokens:
        heads = []
        for i in range(HEAD):
            own = slice(i * D_HEAD, (i + 1) * D_HEAD)
            q, k, v = (
                x[:, own] @ part.weight[i].T + (0 if part.bias is None else part.bias[own])
                for part in (layer.query, layer.key, layer.value)
            )
            scores = q @ k.T / math.sqrt(D_HEAD)
            weights = (scores if visible is None else scores.masked_fill(~visible, -math.inf)).softmax(-1)
            heads.append(weights @ v)
        sentences.append(
            torch.cat(heads, dim=-1) @ layer.out.weight.T + (0 if layer.out.bias is None else layer.out.bias)
        )
    return torch.stack(sentences)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("causal", [True, False])
def test_equals_the_loop_of_the_c182_sheet(bias: bool, causal: bool) -> None:
    layer = filled(bias)
    x = torch.randn(BATCH, TOKEN, D_MODEL, requires_grad=True)
    output = layer(x, x, causal=causal)
    wanted = of_the_sheet(layer, x, hw.masks.causal(TOKEN) if causal else None)
    assert_same(output, wanted)
    everything = [x, *layer.parameters()]
    wanted_gradients = torch.autograd.grad(some_loss(wanted), everything)
    for gradient, of_sheet in zip(torch.autograd.grad(some_loss(output), everything), wanted_gradients, strict=True):
        assert_same(gradient, of_sheet)


@pytest.mark.usefixtures("float64")
def test_equals_whole_heads_with_block_diagonal_weights() -> None:
    split = filled(bias=True)
    whole = MultiHeadAttention(D_MODEL, HEAD)
    for name in ("query", "key", "value"):
        ours, theirs = split.get_submodule(name), whole.get_submodule(name)
        theirs.load_state_dict({"weight": torch.block_diag(*ours.weight), "bias": ours.bias})
    whole.out.load_state_dict(split.out.state_dict())
    x = torch.randn(BATCH, TOKEN, D_MODEL)
    assert_same(split(x, x), whole(x, x))


def test_a_head_does_not_see_the_slice_of_another() -> None:
    layer = filled(bias=True)
    seen = []
    layer.heads.register_forward_hook(lambda module, inputs, output: seen.append(output))
    x = torch.randn(BATCH, TOKEN, D_MODEL)
    other = x.clone()
    other[..., D_HEAD : 2 * D_HEAD] = torch.randn(BATCH, TOKEN, D_HEAD)
    layer(x, x)
    layer(other, other)
    before, after = seen
    assert torch.equal(before[:, :, [0, 2]], after[:, :, [0, 2]])
    assert not torch.allclose(before[:, :, 1], after[:, :, 1])


def test_projections_are_as_many_times_smaller_as_there_are_heads() -> None:
    split, whole = SplitHeadAttention(D_MODEL, HEAD), MultiHeadAttention(D_MODEL, HEAD)
    for name in ("query.weight", "key.weight", "value.weight"):
        assert split.get_parameter(name).numel() * HEAD == whole.get_parameter(name).numel() == D_MODEL**2
    assert split.out.weight.numel() == D_MODEL**2


def test_shows_its_weights_like_any_other_attention() -> None:
    layer = SplitHeadAttention(D_MODEL, HEAD, dropout=0.5)
    seen = []
    layer.weights.register_forward_hook(lambda module, inputs, output: seen.append(output))
    x = torch.randn(BATCH, TOKEN, D_MODEL)
    layer(x, x, causal=True)
    assert seen[0].shape == (BATCH, HEAD, TOKEN, TOKEN)
    assert_same(seen[0].sum(-1), torch.ones(BATCH, HEAD, TOKEN), 1e-6)


def test_each_head_starts_in_its_own_glorot_range_and_differs() -> None:
    layer = HeadwiseLinear(3 * 40, 3)
    bound = math.sqrt(6 / (40 + 40))
    for of_head in layer.weight:
        assert 0.95 * bound < of_head.abs().max() <= bound
        assert of_head.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.1)
    assert (layer.bias == 0).all()
    assert not torch.equal(layer.weight[0], layer.weight[1])


def test_beta_and_relative_shifts_reach_it() -> None:
    x = torch.randn(BATCH, TOKEN, D_MODEL)
    shifts = hw.layers.RelativeShifts(D_MODEL, HEAD, D_HEAD)
    layer = SplitHeadAttention(D_MODEL, HEAD, beta=0.5, relative=shifts)
    assert layer.beta == 0.5
    some_loss(layer(x, x)).backward()
    assert shifts.v.grad.abs().sum() > 0


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize(
    ("n_heads", "message"),
    [(4, "n_heads must divide d_model, got n_heads=4 and d_model=15"), (0, "n_heads must be 1 or more, got 0")],
)
def test_heads_that_cannot_be_are_refused(n_heads: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SplitHeadAttention(D_MODEL, n_heads)


@pytest.mark.usefixtures("as_users_run_it")
def test_tokens_of_the_wrong_width_are_refused() -> None:
    with pytest.raises(ValueError, match=r"x must have the axes \(batch, token, 15\).*14\)"):
        SplitHeadAttention(D_MODEL, HEAD)(torch.randn(BATCH, TOKEN, 14), torch.randn(BATCH, TOKEN, D_MODEL))


def test_an_empty_batch_gives_an_empty_result() -> None:
    x = torch.randn(0, TOKEN, D_MODEL)
    assert SplitHeadAttention(D_MODEL, HEAD)(x, x).shape == x.shape


def test_copies_are_the_same() -> None:
    layer = filled(bias=True)
    x = torch.randn(BATCH, TOKEN, D_MODEL)
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(twin(x, x), layer(x, x))
    other = filled(bias=True)
    assert other.load_state_dict(layer.state_dict()) == ([], [])
    assert torch.equal(other(x, x), layer(x, x))
