"""From tokens to one vector: CLS, GAP, MAP and the first token."""

import copy
import pickle

import pytest
import torch
from torch import Tensor, nn

from headwork import choices
from headwork.layers import AttentionPooling, ClassTokenPooling, FirstTokenPooling, MeanPooling
from headwork.layers.pooling import make_pooling

BATCH, TOKEN, HEAD, D_MODEL = 2, 5, 3, 12
VISIBLE = torch.tensor([[True, True, False, True, False], [True, True, True, True, True]])


def assert_same(actual: Tensor, expected: Tensor, tolerance: float = 1e-10) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=tolerance)


def some_loss(output: Tensor) -> Tensor:
    return (output * torch.arange(output.numel(), dtype=output.dtype).cos().view_as(output)).sum()


# --- CLS -----------------------------------------------------------------------------------------------------------


def test_the_class_token_joins_in_front_and_is_read() -> None:
    pooling, tokens = ClassTokenPooling(D_MODEL), torch.randn(BATCH, TOKEN, D_MODEL)
    joined = pooling.join(tokens)
    assert torch.equal(joined[:, 1:], tokens)
    assert torch.equal(joined[:, 0], pooling.class_token.expand(BATCH, -1))
    assert torch.equal(pooling(joined), pooling.class_token.expand(BATCH, -1))
    some_loss(pooling(joined)).backward()
    assert pooling.class_token.grad.abs().sum() > 0


def test_the_first_token_is_read() -> None:
    tokens = torch.randn(BATCH, TOKEN, D_MODEL)
    assert torch.equal(FirstTokenPooling()(tokens), tokens[:, 0])
    assert torch.equal(FirstTokenPooling()(tokens, VISIBLE), tokens[:, 0])


# --- GAP -----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("float64")
def test_the_mean_of_all_tokens() -> None:
    tokens = torch.randn(BATCH, TOKEN, D_MODEL)
    assert_same(MeanPooling()(tokens), tokens.sum(1) / TOKEN)
    assert MeanPooling().join(tokens) is tokens


@pytest.mark.usefixtures("float64")
def test_the_mean_of_the_visible_tokens() -> None:
    tokens = torch.randn(BATCH, TOKEN, D_MODEL, requires_grad=True)
    pooled = MeanPooling()(tokens, VISIBLE)
    assert_same(pooled[0], (tokens[0, 0] + tokens[0, 1] + tokens[0, 3]) / 3)
    assert_same(pooled[1], tokens[1].mean(0))
    (gradient,) = torch.autograd.grad(pooled.sum(), tokens)
    assert (gradient[~VISIBLE] == 0).all()
    assert_same(gradient[0, 0], torch.full((D_MODEL,), 1 / 3))


# --- MAP -----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("float64")
def test_attention_pooling_equals_the_head_of_siglip() -> None:
    from transformers import SiglipVisionConfig
    from transformers.models.siglip.modeling_siglip import SiglipMultiheadAttentionPoolingHead

    config = SiglipVisionConfig(
        hidden_size=D_MODEL,
        num_attention_heads=HEAD,
        intermediate_size=4 * D_MODEL,
        hidden_act="gelu",
        layer_norm_eps=1e-5,
    )
    theirs = SiglipMultiheadAttentionPoolingHead(config)
    ours = AttentionPooling(D_MODEL, HEAD)
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.normal_(std=0.3)
        ours.probe.copy_(theirs.probe[0, 0])
        for kind in ("weight", "bias"):
            joint = getattr(theirs.attention, f"in_proj_{kind}").chunk(3)
            for name, part in zip(("query", "key", "value"), joint, strict=True):
                ours.attention.get_parameter(f"{name}.{kind}").copy_(part)
    ours.attention.out.load_state_dict(theirs.attention.out_proj.state_dict())
    ours.norm.load_state_dict(theirs.layernorm.state_dict())
    ours.feed_forward.up.load_state_dict(theirs.mlp.fc1.state_dict())
    ours.feed_forward.down.load_state_dict(theirs.mlp.fc2.state_dict())
    tokens = torch.randn(BATCH, TOKEN, D_MODEL, requires_grad=True)
    assert_same(ours(tokens), theirs(tokens))
    gradients = torch.autograd.grad(some_loss(ours(tokens)), [tokens, ours.probe, ours.feed_forward.up.weight])
    of_siglip = torch.autograd.grad(some_loss(theirs(tokens)), [tokens, theirs.probe, theirs.mlp.fc1.weight])
    for gradient, of_them in zip(gradients, of_siglip, strict=True):
        assert_same(gradient, of_them.view_as(gradient))


@pytest.mark.usefixtures("float64")
def test_attention_pooling_does_not_mind_the_order() -> None:
    pooling, tokens = AttentionPooling(D_MODEL, HEAD), torch.randn(BATCH, TOKEN, D_MODEL)
    assert_same(pooling(tokens[:, torch.randperm(TOKEN)]), pooling(tokens))
    assert pooling.join(tokens) is tokens


# --- padding -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pooling", [MeanPooling(), AttentionPooling(D_MODEL, HEAD)], ids=["mean", "attention"])
@pytest.mark.parametrize("content", [100.0, torch.nan, torch.inf])
def test_content_of_the_padding_changes_nothing(pooling: nn.Module, content: float) -> None:
    tokens = torch.randn(BATCH, TOKEN, D_MODEL)
    results = []
    for filling in (0.0, content):
        filled = tokens.masked_fill(~VISIBLE[..., None], filling).requires_grad_()
        pooled = pooling(filled, VISIBLE)
        results.append([pooled, *torch.autograd.grad(some_loss(pooled), [filled, *pooling.parameters()])])
    for clean, changed in zip(*results, strict=True):
        assert torch.equal(clean, changed)


@pytest.mark.parametrize("pooling", [MeanPooling(), AttentionPooling(D_MODEL, HEAD)], ids=["mean", "attention"])
def test_a_sentence_pools_as_it_does_alone(pooling: nn.Module) -> None:
    tokens = torch.randn(BATCH, TOKEN, D_MODEL)
    alone = pooling(tokens[:1, VISIBLE[0]])
    assert_same(pooling(tokens, VISIBLE)[:1], alone, 1e-6)
    everything = torch.ones(BATCH, TOKEN, dtype=torch.bool)
    assert_same(pooling(tokens, everything), pooling(tokens), 1e-6)


@pytest.mark.parametrize("pooling", [MeanPooling(), AttentionPooling(D_MODEL, HEAD)], ids=["mean", "attention"])
def test_a_sentence_of_padding_alone_stays_finite(pooling: nn.Module) -> None:
    tokens = torch.randn(BATCH, TOKEN, D_MODEL, requires_grad=True)
    nothing = torch.zeros(BATCH, TOKEN, dtype=torch.bool)
    pooled = pooling(tokens, nothing)
    assert pooled.isfinite().all()
    for gradient in torch.autograd.grad(some_loss(pooled), [tokens, *pooling.parameters()]):
        assert gradient.isfinite().all()
    assert (MeanPooling()(tokens, nothing) == 0).all()


# --- all -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pooling",
    [ClassTokenPooling(D_MODEL), FirstTokenPooling(), MeanPooling(), AttentionPooling(D_MODEL, HEAD)],
    ids=lambda pooling: type(pooling).__name__,
)
def test_an_empty_batch_gives_an_empty_result(pooling: nn.Module) -> None:
    assert pooling(torch.randn(0, TOKEN, D_MODEL)).shape == (0, D_MODEL)


@pytest.mark.usefixtures("as_users_run_it")
def test_heads_that_do_not_divide_the_width_are_refused() -> None:
    with pytest.raises(ValueError, match="n_heads must divide d_model, got n_heads=5 and d_model=12"):
        AttentionPooling(D_MODEL, 5)


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize("pooling", [MeanPooling(), AttentionPooling(D_MODEL, HEAD)], ids=["mean", "attention"])
@pytest.mark.parametrize("dtype", [torch.int64, torch.float32])
def test_a_mask_that_is_not_boolean_is_refused(pooling: nn.Module, dtype: torch.dtype) -> None:
    with pytest.raises(TypeError, match=f"must be boolean .* got {dtype}"):
        pooling(torch.randn(BATCH, TOKEN, D_MODEL), VISIBLE.to(dtype))


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize("pooling", [MeanPooling(), AttentionPooling(D_MODEL, HEAD)], ids=["mean", "attention"])
@pytest.mark.parametrize("shape", [(BATCH, TOKEN + 1), (BATCH + 1, TOKEN), (TOKEN,)], ids=str)
def test_a_mask_of_the_wrong_shape_is_refused(pooling: nn.Module, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="must"):
        pooling(torch.randn(BATCH, TOKEN, D_MODEL), torch.ones(shape, dtype=torch.bool))


@pytest.mark.usefixtures("as_users_run_it")
def test_a_mask_without_tokens_does_not_turn_the_mean_into_the_sum() -> None:
    """A mask of shape (batch, 1) would divide the sum of all tokens by 1."""
    with pytest.raises(ValueError, match="must"):
        MeanPooling()(torch.randn(BATCH, TOKEN, D_MODEL), torch.ones(BATCH, 1, dtype=torch.bool))


def test_made_by_choice() -> None:
    assert isinstance(make_pooling(choices.ClassToken(), D_MODEL), ClassTokenPooling)
    assert isinstance(make_pooling(choices.MeanPooling(), D_MODEL), MeanPooling)
    assert make_pooling(choices.AttentionPooling(n_heads=HEAD), D_MODEL).attention.n_heads == HEAD
    assert isinstance(make_pooling(choices.FirstToken(), D_MODEL), FirstTokenPooling)


def test_the_probe_starts_in_glorots_range() -> None:
    probe = AttentionPooling(120, 3).probe
    assert 0 < probe.abs().max() <= (6 / 121) ** 0.5


def test_copies_are_the_same() -> None:
    pooling, tokens = AttentionPooling(D_MODEL, HEAD), torch.randn(BATCH, TOKEN, D_MODEL)
    for twin in (copy.deepcopy(pooling), pickle.loads(pickle.dumps(pooling))):
        assert torch.equal(twin(tokens), pooling(tokens))
