"""The encoder layer and its residual connections against torch.nn, BERT and Llama."""

import copy
import math
import pickle
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import headwork as hw
from headwork import choices
from headwork.layers import EncoderLayer, GrowingCache, LayerNorm, RMSNorm, RotaryPositions

BATCH, HEAD, D_HEAD, TOKEN, D_FF = 2, 3, 5, 7, 11
D_MODEL = HEAD * D_HEAD
LENGTHS = torch.tensor([4, 7])


def assert_same(actual: Tensor, expected: Tensor, tolerance: float = 1e-10) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=tolerance)


def some_loss(output: Tensor) -> Tensor:
    return (output * torch.arange(output.numel(), dtype=output.dtype).cos().view_as(output)).sum()


def encoder_layer(norm_order: str = "pre", **changes: object) -> EncoderLayer:
    arguments: dict[str, object] = {
        "d_model": D_MODEL,
        "heads": choices.Heads(n_heads=HEAD),
        "feed_forward": choices.FeedForward(d_ff=D_FF),
        "norm_order": norm_order,
    }
    return EncoderLayer(**{**arguments, **changes})


def random_parameters(layer: nn.Module) -> None:
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)


def names_of_ours(theirs: nn.TransformerEncoderLayer, of: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
    renamed = {
        "attention.out": theirs.self_attn.out_proj,
        "feed_forward.up": theirs.linear1,
        "feed_forward.down": theirs.linear2,
        "attention_norm": theirs.norm1,
        "feed_forward_norm": theirs.norm2,
    }
    parameters = {}
    for kind in ("weight", "bias"):
        joint = of(getattr(theirs.self_attn, f"in_proj_{kind}")).chunk(3)
        parameters |= {f"attention.{p}.{kind}": t for p, t in zip(("query", "key", "value"), joint, strict=True)}
        parameters |= {f"{name}.{kind}": of(getattr(module, kind)) for name, module in renamed.items()}
    return parameters


MASKS: dict[str, tuple[dict[str, object], dict[str, object]]] = {
    "no mask": ({}, {}),
    "causal": ({"causal": True}, {"src_mask": ~hw.masks.causal(TOKEN)}),
    "padding": (
        {"visible": hw.masks.padding(LENGTHS, TOKEN)},
        {"src_key_padding_mask": ~hw.masks.padding(LENGTHS, TOKEN)[:, 0, 0]},
    ),
}


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("norm_order", ["pre", "post"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("mask", MASKS)
def test_equals_torch(norm_order: str, activation: str, mask: str) -> None:
    """annotated-transformer#1: text and code disagree about the order of the norm."""
    theirs = nn.TransformerEncoderLayer(
        D_MODEL, HEAD, D_FF, dropout=0.0, activation=activation, batch_first=True, norm_first=norm_order == "pre"
    )
    random_parameters(theirs)
    ours = encoder_layer(norm_order, feed_forward=choices.FeedForward(d_ff=D_FF, activation=activation))
    ours.load_state_dict(names_of_ours(theirs, lambda p: p.detach().clone()))
    x = torch.randn(BATCH, TOKEN, D_MODEL, requires_grad=True)
    for_us, for_them = MASKS[mask]
    output, wanted = ours(x, **for_us), theirs(x, **for_them)
    assert_same(output, wanted)

    gradients = torch.autograd.grad(some_loss(output), [x, *ours.parameters()])
    some_loss(wanted).backward()
    assert_same(gradients[0], x.grad)
    by_name = names_of_ours(theirs, lambda p: p.grad)
    for gradient, (name, _) in zip(gradients[1:], ours.named_parameters(), strict=True):
        assert_same(gradient, by_name[name])


@pytest.mark.usefixtures("float64")
def test_post_norm_equals_a_layer_of_bert() -> None:
    from transformers import BertConfig
    from transformers.models.bert.modeling_bert import BertLayer

    config = BertConfig(
        hidden_size=D_MODEL, num_attention_heads=HEAD, intermediate_size=D_FF, attn_implementation="eager"
    )
    theirs = BertLayer(config).eval()
    random_parameters(theirs)
    ours = encoder_layer("post", norm=choices.LayerNorm(eps=config.layer_norm_eps))
    renamed = {
        "attention.query": "attention.self.query",
        "attention.key": "attention.self.key",
        "attention.value": "attention.self.value",
        "attention.out": "attention.output.dense",
        "attention_norm": "attention.output.LayerNorm",
        "feed_forward.up": "intermediate.dense",
        "feed_forward.down": "output.dense",
        "feed_forward_norm": "output.LayerNorm",
    }
    names = {f"{ours}.{kind}": f"{of}.{kind}" for ours, of in renamed.items() for kind in ("weight", "bias")}
    ours.load_state_dict({name: theirs.get_parameter(of).detach().clone() for name, of in names.items()})
    x = torch.randn(BATCH, TOKEN, D_MODEL, requires_grad=True)
    visible = hw.masks.padding(LENGTHS, TOKEN)
    output = ours(x, visible)
    wanted = theirs(x, torch.zeros(BATCH, 1, 1, TOKEN).masked_fill(~visible, torch.finfo(torch.float64).min))
    assert_same(output, wanted)
    gradients = torch.autograd.grad(some_loss(output), [x, *(ours.get_parameter(name) for name in names)])
    of_bert = torch.autograd.grad(some_loss(wanted), [x, *(theirs.get_parameter(of) for of in names.values())])
    for gradient, of_them in zip(gradients, of_bert, strict=True):
        assert_same(gradient, of_them)


def test_pre_norm_with_rotation_and_grouped_queries_equals_a_layer_of_llama() -> None:
    """In float32, in which Llama's own norm computes."""
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding

    config = LlamaConfig(
        hidden_size=24,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=10,
        intermediate_size=D_FF,
        rms_norm_eps=1e-3,
        attn_implementation="eager",
    )
    theirs = LlamaDecoderLayer(config, 0).eval()
    random_parameters(theirs)
    ours = encoder_layer(
        d_model=24,
        heads=choices.Heads(n_heads=6, n_kv_heads=2, d_head=10, d_value=10, bias=False),
        feed_forward=choices.GatedFeedForward(d_ff=D_FF),
        norm=choices.RMSNorm(eps=1e-3),
    )
    renamed = {
        "attention.query": "self_attn.q_proj",
        "attention.key": "self_attn.k_proj",
        "attention.value": "self_attn.v_proj",
        "attention.out": "self_attn.o_proj",
        "attention_norm": "input_layernorm",
        "feed_forward.gate": "mlp.gate_proj",
        "feed_forward.up": "mlp.up_proj",
        "feed_forward.down": "mlp.down_proj",
        "feed_forward_norm": "post_attention_layernorm",
    }
    ours.load_state_dict({f"{name}.weight": theirs.get_parameter(f"{of}.weight") for name, of in renamed.items()})
    x, places = torch.randn(BATCH, TOKEN, 24), torch.arange(TOKEN)[None]
    turns = LlamaRotaryEmbedding(config)(x, places)
    hidden = torch.zeros(TOKEN, TOKEN).masked_fill(~hw.masks.causal(TOKEN), -math.inf)[None, None]
    wanted = theirs(x, attention_mask=hidden, position_embeddings=turns)
    output = ours(x, causal=True, rotation=RotaryPositions(10).rotation(places))
    assert_same(output, wanted, 2e-5)


# --- residual connections ------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("float64")
def test_pre_norm_adds_f_of_the_norm() -> None:
    layer, x = encoder_layer("pre"), torch.randn(BATCH, TOKEN, D_MODEL)
    random_parameters(layer)
    middle = x + layer.attention(layer.attention_norm(x))
    assert_same(layer(x), middle + layer.feed_forward(layer.feed_forward_norm(middle)))


@pytest.mark.usefixtures("float64")
def test_post_norm_takes_the_norm_of_the_sum() -> None:
    layer, x = encoder_layer("post"), torch.randn(BATCH, TOKEN, D_MODEL)
    random_parameters(layer)
    middle = layer.attention_norm(x + layer.attention(x))
    assert_same(layer(x), layer.feed_forward_norm(middle + layer.feed_forward(middle)))


def gives_ones(layer: EncoderLayer) -> EncoderLayer:
    """Both branches give nothing but ones, so that the dropout on them is all there is to see."""
    layer.attention.register_forward_hook(lambda module, inputs, output: torch.ones_like(output))
    layer.feed_forward.register_forward_hook(lambda module, inputs, output: torch.ones_like(output))
    return layer


def test_dropout_acts_on_the_branch_and_never_on_the_residual_path() -> None:
    x = torch.randn(BATCH, TOKEN, D_MODEL)
    branches = gives_ones(encoder_layer("pre", dropout=0.5))(x) - x
    assert set(branches.round(decimals=4).unique().tolist()) == {0.0, 2.0, 4.0}
    post = gives_ones(encoder_layer("post", dropout=0.5))
    torch.manual_seed(3)
    output = post(x)
    torch.manual_seed(3)
    middle = post.attention_norm(x + nn.functional.dropout(torch.ones_like(x), 0.5))
    assert_same(output, post.feed_forward_norm(middle + nn.functional.dropout(torch.ones_like(x), 0.5)), 1e-6)


@pytest.mark.parametrize("norm_order", ["pre", "post"])
def test_dropout_acts_in_training_only(norm_order: str) -> None:
    layer = encoder_layer(norm_order, dropout=0.5, attention_dropout=0.5)
    without = encoder_layer(norm_order)
    without.load_state_dict(layer.state_dict())
    x = torch.randn(BATCH, TOKEN, D_MODEL)
    assert not torch.equal(layer(x), layer(x))
    assert torch.equal(layer.eval()(x), without(x))


def test_each_rate_reaches_its_place() -> None:
    layer = encoder_layer(dropout=0.25, attention_dropout=0.125)
    assert layer.attention.dropout == 0.125
    assert layer.dropout.p == 0.25
    assert layer.feed_forward.dropout.p == 0.0


@pytest.mark.parametrize("norm_order", ["pre", "post"])
def test_norm_is_made_as_chosen(norm_order: str) -> None:
    layer = encoder_layer(norm_order, norm=choices.RMSNorm(eps=0.5))
    for norm in (layer.attention_norm, layer.feed_forward_norm):
        assert isinstance(norm, RMSNorm)
        assert norm.eps == 0.5
    assert isinstance(encoder_layer(norm_order).attention_norm, LayerNorm)


def test_the_parts_are_listed_in_the_order_in_which_they_run() -> None:
    parts = ["attention_norm", "attention", "feed_forward_norm", "feed_forward", "dropout"]
    assert [name for name, _ in encoder_layer("pre").named_children()] == parts
    parts = ["attention", "attention_norm", "feed_forward", "feed_forward_norm", "dropout"]
    assert [name for name, _ in encoder_layer("post").named_children()] == parts


# --- what the layer is made of -------------------------------------------------------------------------------------


def test_heads_are_made_as_chosen() -> None:
    heads = choices.Heads(n_heads=6, n_kv_heads=2, d_head=13, d_value=17, bias=False, out_bias=True, beta=0.25)
    attention = encoder_layer(heads=heads).attention
    assert attention.query.weight.shape == (6 * 13, D_MODEL)
    assert attention.key.weight.shape == (2 * 13, D_MODEL)
    assert attention.value.weight.shape == (2 * 17, D_MODEL)
    assert attention.out.weight.shape == (D_MODEL, 6 * 17)
    assert attention.query.bias is attention.key.bias is attention.value.bias is None
    assert attention.out.bias is not None
    assert attention.beta == 0.25


def test_split_heads_are_made_as_chosen() -> None:
    attention = encoder_layer(heads=choices.SplitHeads(n_heads=HEAD, bias=False), attention_dropout=0.5).attention
    assert isinstance(attention, hw.layers.SplitHeadAttention)
    assert attention.query.bias is None
    assert attention.dropout == 0.5


@pytest.mark.parametrize("heads", [choices.Heads(n_heads=HEAD, d_head=13), choices.SplitHeads(n_heads=HEAD)], ids=str)
def test_relative_positions_give_the_attention_its_shifts(heads: choices.AnyHeads) -> None:
    layer = encoder_layer(heads=heads, position=choices.RelativePositions())
    x = torch.randn(BATCH, TOKEN, D_MODEL)
    some_loss(layer(x, causal=True)).backward()
    assert layer.attention.relative.u.shape == (HEAD, layer.attention.d_head)
    assert layer.attention.relative.key.weight.grad.abs().sum() > 0
    assert encoder_layer(heads=heads).attention.relative is None


@pytest.mark.usefixtures("float64")
def test_bias_rotation_and_cache_reach_the_attention() -> None:
    layer = encoder_layer(heads=choices.Heads(n_heads=HEAD, d_head=4))
    x = torch.randn(BATCH, TOKEN, D_MODEL)
    alibi, rotary = hw.layers.AlibiPositions(HEAD), RotaryPositions(4)
    whole = layer(x, causal=True, bias=alibi.bias(x, TOKEN), rotation=rotary.rotation(torch.arange(TOKEN)[None]))
    assert not torch.allclose(whole, layer(x, causal=True, bias=alibi.bias(x, TOKEN)))
    assert not torch.allclose(whole, layer(x, causal=True, rotation=rotary.rotation(torch.arange(TOKEN)[None])))
    cache = GrowingCache()
    parts = [
        layer(
            x[:, a:b],
            causal=True,
            bias=alibi.bias(x[:, a:b], b),
            rotation=rotary.rotation(torch.arange(a, b)[None]),
            cache=cache,
        )
        for a, b in ((0, 2), (2, 3), (3, TOKEN))
    ]
    assert_same(torch.cat(parts, dim=1), whole, 1e-12)


def test_weights_are_shown_by_every_layer_in_eval_mode() -> None:
    """pytorch#64509, #99304: nn.TransformerEncoder cannot return them; #128413: its hooks never fire in eval mode."""
    layer = encoder_layer().eval()
    seen = []
    layer.attention.weights.register_forward_hook(lambda module, inputs, output: seen.append(output))
    x = torch.randn(BATCH, TOKEN, D_MODEL)
    with torch.no_grad():
        looked_at = layer(x, hw.masks.padding(LENGTHS, TOKEN))
    assert seen[0].shape == (BATCH, HEAD, TOKEN, TOKEN)
    assert_same(seen[0].sum(-1), torch.ones(BATCH, HEAD, TOKEN), 1e-6)
    assert looked_at.shape == (BATCH, TOKEN, D_MODEL)


@pytest.mark.parametrize("training", [True, False])
def test_output_keeps_its_length_with_padding(training: bool) -> None:
    """pytorch#97111: in eval mode the padded end of the sequence is cut off."""
    layer = encoder_layer("post").train(training)
    x = torch.randn(BATCH, TOKEN, D_MODEL)
    with torch.no_grad():
        assert layer(x, hw.masks.padding(torch.tensor([3, 4]), TOKEN)).shape == x.shape


# --- how it starts -------------------------------------------------------------------------------------------------

KINDS: dict[str, dict[str, object]] = {
    "plain": {},
    "split heads, gated": {
        "heads": choices.SplitHeads(n_heads=HEAD),
        "feed_forward": choices.GatedFeedForward(d_ff=D_FF),
    },
    "relative": {"position": choices.RelativePositions()},
}


@pytest.mark.parametrize("kind", KINDS)
def test_two_layers_start_from_different_values(kind: str) -> None:
    """pytorch#86274, #72253: the layers of nn.TransformerEncoder are copies of one."""
    one, two = encoder_layer(**KINDS[kind]), encoder_layer(**KINDS[kind])
    for (name, a), b in zip(one.named_parameters(), two.parameters(), strict=True):
        if name.endswith("weight") and "norm" not in name:
            assert not torch.equal(a, b), name
    matrices = [p for name, p in one.named_parameters() if p.shape == (D_MODEL, D_MODEL)]
    assert all(not torch.equal(a, b) for i, a in enumerate(matrices) for b in matrices[:i])


def test_starts_with_glorots_weights_and_bias_zero() -> None:
    layer = encoder_layer(d_model=60, heads=choices.Heads(n_heads=6), feed_forward=choices.FeedForward(d_ff=90))
    for name, parameter in layer.named_parameters():
        if "norm.weight" in name:
            assert (parameter == 1).all(), name
        elif name.endswith("bias"):
            assert (parameter == 0).all(), name
        else:
            bound = math.sqrt(6 / sum(parameter.shape))
            assert 0.95 * bound < parameter.abs().max() <= bound, name


# --- bad input -----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"norm_order": "mid"}, "norm_order must be .*pre.*post.*, got 'mid'"),
        ({"dropout": 1.0}, r"dropout must lie in \[0, 1\), got 1.0"),
        ({"dropout": -0.1}, r"dropout must lie in \[0, 1\), got -0.1"),
        ({"attention_dropout": 1.0}, r"dropout must lie in \[0, 1\), got 1.0"),
        ({"heads": choices.Heads(n_heads=4)}, "n_heads must divide d_model, got n_heads=4 and d_model=15"),
        ({"heads": choices.SplitHeads(n_heads=4)}, "n_heads must divide d_model, got n_heads=4 and d_model=15"),
    ],
)
def test_a_layer_that_cannot_be_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        encoder_layer(**{"norm_order": "pre", **changes})


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize("norm_order", ["pre", "post"])
@pytest.mark.parametrize("shape", [(BATCH, TOKEN, 14), (BATCH, 0, D_MODEL), (TOKEN, D_MODEL)], ids=str)
def test_tokens_of_the_wrong_shape_are_refused(norm_order: str, shape: tuple[int, ...]) -> None:
    got = ", ".join(str(size) for size in shape)
    with pytest.raises(ValueError, match=rf"x must have .*{D_MODEL}.*got shape \({got}\)"):
        encoder_layer(norm_order)(torch.randn(shape))


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize("norm_order", ["pre", "post"])
@pytest.mark.parametrize("shape", [(BATCH, TOKEN, TOKEN), (BATCH, TOKEN), (TOKEN, TOKEN - 1)], ids=str)
def test_a_mask_of_the_wrong_shape_is_refused(norm_order: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="visible must"):
        encoder_layer(norm_order)(torch.randn(BATCH, TOKEN, D_MODEL), torch.ones(shape, dtype=torch.bool))


@pytest.mark.parametrize("norm_order", ["pre", "post"])
def test_an_empty_batch_gives_an_empty_result(norm_order: str) -> None:
    layer, x = encoder_layer(norm_order), torch.randn(0, TOKEN, D_MODEL, requires_grad=True)
    output = layer(x, causal=True)
    assert output.shape == x.shape
    output.sum().backward()
    assert x.grad.shape == x.shape


@pytest.mark.parametrize("norm_order", ["pre", "post"])
def test_gradients_stay_finite_when_a_sentence_is_all_padding(norm_order: str) -> None:
    layer, x = encoder_layer(norm_order), torch.randn(BATCH, TOKEN, D_MODEL, requires_grad=True)
    output = layer(x, hw.masks.padding(torch.tensor([0, 5]), TOKEN))
    assert output.isfinite().all()
    for gradient in torch.autograd.grad(some_loss(output), [x, *layer.parameters()]):
        assert gradient.isfinite().all()


# --- as a module ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_copies_are_the_same(kind: str) -> None:
    layer = encoder_layer(**KINDS[kind])
    x = torch.randn(BATCH, TOKEN, D_MODEL)
    other = encoder_layer(**KINDS[kind])
    assert other.load_state_dict(layer.state_dict()) == ([], [])
    for twin in (other, copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(twin(x), layer(x))


def test_printing_the_layer_shows_where_to_look() -> None:
    shown = str(encoder_layer())
    assert "(weights): LazyHookPoint(batch head query key)" in shown
    assert "(attention_norm): LayerNorm(" in shown
    assert "(hidden): HookPoint(batch token d_ff)" in shown
