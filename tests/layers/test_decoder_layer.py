"""The decoder layer against torch.nn, in both orders of the norm."""

import copy
import math
import pickle
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import headwork as hw
from headwork import choices
from headwork.layers import DecoderLayer, FixedCache, GrowingCache

BATCH, HEAD, D_HEAD, TOKEN, SOURCE, D_FF = 2, 3, 5, 7, 11, 13
D_MODEL = HEAD * D_HEAD
LENGTHS, SOURCE_LENGTHS = torch.tensor([4, 7]), torch.tensor([11, 6])


def assert_same(actual: Tensor, expected: Tensor, tolerance: float = 1e-10) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=tolerance)


def some_loss(output: Tensor) -> Tensor:
    return (output * torch.arange(output.numel(), dtype=output.dtype).cos().view_as(output)).sum()


def decoder_layer(norm_order: str = "post", **changes: object) -> DecoderLayer:
    arguments: dict[str, object] = {
        "d_model": D_MODEL,
        "heads": choices.Heads(n_heads=HEAD),
        "feed_forward": choices.FeedForward(d_ff=D_FF, activation="relu"),
        "norm_order": norm_order,
    }
    return DecoderLayer(**{**arguments, **changes})


def tokens() -> tuple[Tensor, Tensor]:
    return torch.randn(BATCH, TOKEN, D_MODEL), torch.randn(BATCH, SOURCE, D_MODEL)


def names_of_ours(theirs: nn.TransformerDecoderLayer, of: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
    renamed = {
        "attention.out": theirs.self_attn.out_proj,
        "cross_attention.out": theirs.multihead_attn.out_proj,
        "feed_forward.up": theirs.linear1,
        "feed_forward.down": theirs.linear2,
        "attention_norm": theirs.norm1,
        "cross_attention_norm": theirs.norm2,
        "feed_forward_norm": theirs.norm3,
    }
    parameters = {}
    for kind in ("weight", "bias"):
        for name, attention in (("attention", theirs.self_attn), ("cross_attention", theirs.multihead_attn)):
            joint = of(getattr(attention, f"in_proj_{kind}")).chunk(3)
            parameters |= {f"{name}.{p}.{kind}": t for p, t in zip(("query", "key", "value"), joint, strict=True)}
        parameters |= {f"{name}.{kind}": of(getattr(module, kind)) for name, module in renamed.items()}
    return parameters


def masks_for(kind: str) -> tuple[dict[str, object], dict[str, object]]:
    blocked = ~hw.masks.causal(TOKEN)
    target, source = hw.masks.padding(LENGTHS, TOKEN), hw.masks.padding(SOURCE_LENGTHS, SOURCE)
    return {
        "causal": ({}, {"tgt_mask": blocked}),
        "not causal": ({"causal": False}, {}),
        "padding on both sides": (
            {"visible": target, "memory_visible": source},
            {
                "tgt_mask": blocked,
                "tgt_key_padding_mask": ~target[:, 0, 0],
                "memory_key_padding_mask": ~source[:, 0, 0],
            },
        ),
    }[kind]


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("norm_order", ["pre", "post"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("mask", ["causal", "not causal", "padding on both sides"])
def test_equals_torch(norm_order: str, activation: str, mask: str) -> None:
    theirs = nn.TransformerDecoderLayer(
        D_MODEL, HEAD, D_FF, dropout=0.0, activation=activation, batch_first=True, norm_first=norm_order == "pre"
    )
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    ours = decoder_layer(norm_order, feed_forward=choices.FeedForward(d_ff=D_FF, activation=activation))
    ours.load_state_dict(names_of_ours(theirs, lambda p: p.detach().clone()))
    x, memory = (t.requires_grad_() for t in tokens())
    for_us, for_them = masks_for(mask)
    output, wanted = ours(x, memory, **for_us), theirs(x, memory, **for_them)
    assert_same(output, wanted)

    gradients = torch.autograd.grad(some_loss(output), [x, memory, *ours.parameters()])
    some_loss(wanted).backward()
    assert_same(gradients[0], x.grad)
    assert_same(gradients[1], memory.grad)
    by_name = names_of_ours(theirs, lambda p: p.grad)
    for gradient, (name, _) in zip(gradients[2:], ours.named_parameters(), strict=True):
        assert_same(gradient, by_name[name])


@pytest.mark.parametrize("norm_order", ["pre", "post"])
def test_nobody_sees_the_future_unless_allowed(norm_order: str) -> None:
    """darts#672: no target mask at all."""
    layer, (x, memory) = decoder_layer(norm_order), tokens()
    other = torch.cat([x[:, :4], torch.randn(BATCH, TOKEN - 4, D_MODEL)], dim=1)
    assert_same(layer(x, memory)[:, :4], layer(other, memory)[:, :4], 1e-6)
    assert not torch.allclose(layer(x, memory, causal=False)[:, :4], layer(other, memory, causal=False)[:, :4])


def test_the_whole_memory_is_seen_by_every_token() -> None:
    layer, (x, memory) = decoder_layer(), tokens()
    for j in range(SOURCE):
        other = memory.clone()
        other[:, j] += 1
        changed = (layer(x, memory) - layer(x, other)).abs().amax(-1)
        assert (changed > 0).all()


def test_content_of_the_memory_padding_reaches_nothing() -> None:
    layer, (x, memory) = decoder_layer(), tokens()
    visible = hw.masks.padding(SOURCE_LENGTHS, SOURCE)
    results = []
    for content in (0.0, math.nan):
        filled = memory.masked_fill(~visible[:, 0, 0, :, None], content).requires_grad_()
        output = layer(x, filled, memory_visible=visible)
        results.append([output, *torch.autograd.grad(some_loss(output), [filled, *layer.parameters()])])
    for clean, poisoned in zip(*results, strict=True):
        assert torch.equal(clean, poisoned)


@pytest.mark.parametrize("norm_order", ["pre", "post"])
@pytest.mark.usefixtures("float64")
def test_word_by_word_with_both_caches_equals_the_whole(norm_order: str) -> None:
    layer, (x, memory) = decoder_layer(norm_order), tokens()
    source = hw.masks.padding(SOURCE_LENGTHS, SOURCE)
    cache, memory_cache = GrowingCache(), FixedCache()
    words = [
        layer(x[:, i : i + 1], memory, memory_visible=source, cache=cache, memory_cache=memory_cache)
        for i in range(TOKEN)
    ]
    assert_same(torch.cat(words, dim=1), layer(x, memory, memory_visible=source), 1e-12)
    assert cache.n_tokens == TOKEN


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("norm_order", ["pre", "post"])
def test_without_cross_attention_it_is_a_causal_encoder_layer(norm_order: str) -> None:
    layer, (x, memory) = decoder_layer(norm_order, cross_attention=False), tokens()
    settings = {"heads": choices.Heads(n_heads=HEAD), "feed_forward": choices.FeedForward(d_ff=D_FF, activation="relu")}
    encoder = hw.layers.EncoderLayer(D_MODEL, **settings, norm_order=norm_order)
    encoder.load_state_dict(layer.state_dict())
    visible = hw.masks.padding(LENGTHS, TOKEN)
    assert torch.equal(layer(x, visible=visible), encoder(x, visible, causal=True))
    with pytest.raises(ValueError, match="memory must be None without cross-attention, got shape"):
        layer(x, memory)
    with pytest.raises(ValueError, match="memory must be given to a layer with cross-attention, got None"):
        decoder_layer(norm_order)(x)


@pytest.mark.parametrize("norm_order", ["pre", "post"])
def test_the_parts_are_listed_in_the_order_in_which_they_run(norm_order: str) -> None:
    parts = ["attention", "cross_attention", "feed_forward"]
    pairs = [(f"{part}_norm", part) if norm_order == "pre" else (part, f"{part}_norm") for part in parts]
    assert [name for name, _ in decoder_layer(norm_order).named_children()] == [*sum(pairs, ()), "dropout"]


@pytest.mark.usefixtures("float64")
def test_bias_and_rotation_change_the_self_attention_alone() -> None:
    layer, (x, memory) = decoder_layer(heads=choices.Heads(n_heads=HEAD, d_head=4)), tokens()
    seen = []
    for attention in (layer.attention, layer.cross_attention):
        attention.weights.register_forward_hook(lambda module, inputs, output: seen.append(output))
    layer(x, memory)
    layer.attention_norm.register_forward_hook(lambda module, inputs, output: torch.ones_like(output))
    layer(x, memory)
    plain_self, _, _, plain_cross = seen
    seen.clear()
    bias = hw.layers.AlibiPositions(HEAD).bias(x, TOKEN)
    rotation = hw.layers.RotaryPositions(4).rotation(torch.arange(TOKEN)[None])
    for extra in ({"bias": bias}, {"rotation": rotation}):
        layer(x, memory, **extra)
        changed_self, changed_cross = seen
        assert not torch.allclose(plain_self, changed_self)
        assert torch.equal(plain_cross, changed_cross)
        seen.clear()


def test_relative_shifts_belong_to_the_self_attention_alone() -> None:
    layer = decoder_layer(position=choices.RelativePositions())
    assert layer.attention.relative is not None
    assert layer.cross_attention.relative is None


def test_weights_of_both_attentions_are_shown() -> None:
    layer, (x, memory) = decoder_layer(attention_dropout=0.5), tokens()
    seen = {}
    for name in ("attention", "cross_attention"):
        layer.get_submodule(name).weights.register_forward_hook(
            lambda module, inputs, output, name=name: seen.update({name: output})
        )
    layer(x, memory)
    assert seen["attention"].shape == (BATCH, HEAD, TOKEN, TOKEN)
    assert seen["cross_attention"].shape == (BATCH, HEAD, TOKEN, SOURCE)
    for weights in seen.values():
        assert_same(weights.sum(-1), torch.ones(BATCH, HEAD, TOKEN), 1e-6)


def test_each_rate_reaches_its_place() -> None:
    layer, (x, memory) = decoder_layer(dropout=0.25, attention_dropout=0.125), tokens()
    assert layer.attention.dropout == layer.cross_attention.dropout == 0.125
    assert layer.dropout.p == 0.25
    assert not torch.equal(layer(x, memory), layer(x, memory))
    layer.eval()
    assert torch.equal(layer(x, memory), layer(x, memory))


def test_two_layers_start_from_different_values() -> None:
    """pytorch#86274."""
    one, two = decoder_layer(), decoder_layer()
    for (name, a), b in zip(one.named_parameters(), two.parameters(), strict=True):
        if name.endswith("weight") and "norm" not in name:
            assert not torch.equal(a, b), name
    assert not torch.equal(one.attention.query.weight, one.cross_attention.query.weight)


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"norm_order": "none"}, "norm_order must be .*pre.*post.*, got 'none'"),
        ({"dropout": 1.0}, r"dropout must lie in \[0, 1\), got 1.0"),
        ({"attention_dropout": 2.0}, r"dropout must lie in \[0, 1\), got 2.0"),
        ({"heads": choices.Heads(n_heads=2)}, "n_heads must divide d_model, got n_heads=2 and d_model=15"),
    ],
)
def test_a_layer_that_cannot_be_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        decoder_layer(**{"norm_order": "pre", **changes})


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize("norm_order", ["pre", "post"])
@pytest.mark.parametrize(
    ("x", "memory", "message"),
    [
        ((BATCH, TOKEN, 14), (BATCH, SOURCE, D_MODEL), r"x must have .*15.*14\)"),
        ((BATCH, TOKEN, D_MODEL), (BATCH, SOURCE, 14), r"memory must have the axes \(batch, token, 15\).*14\)"),
        ((BATCH, 0, D_MODEL), (BATCH, SOURCE, D_MODEL), r"x must have .* at least one token"),
        ((BATCH, TOKEN, D_MODEL), (BATCH, 0, D_MODEL), r"memory must have .* at least one token"),
        ((BATCH, TOKEN, D_MODEL), (1, SOURCE, D_MODEL), "batch"),
    ],
)
def test_tokens_of_the_wrong_shape_are_refused(
    norm_order: str, x: tuple[int, ...], memory: tuple[int, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        decoder_layer(norm_order)(torch.randn(x), torch.randn(memory))


@pytest.mark.parametrize("norm_order", ["pre", "post"])
def test_an_empty_batch_gives_an_empty_result(norm_order: str) -> None:
    output = decoder_layer(norm_order)(torch.randn(0, TOKEN, D_MODEL), torch.randn(0, SOURCE, D_MODEL))
    assert output.shape == (0, TOKEN, D_MODEL)


def test_copies_are_the_same() -> None:
    layer, other, (x, memory) = decoder_layer(), decoder_layer(), tokens()
    assert other.load_state_dict(layer.state_dict()) == ([], [])
    for twin in (other, copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(twin(x, memory), layer(x, memory))
