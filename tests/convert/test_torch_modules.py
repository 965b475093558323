"""PyTorch's attention modules and ours: the same outputs, gradients and masks, and back again to the same weights."""

import copy
import itertools
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import headwork as hw
from headwork.convert.torch_modules import pairs

D, HEADS, FF, BATCH, TOKENS, MEMORY = 12, 3, 17, 2, 5, 7
LENGTHS = torch.tensor([TOKENS, 3])


def varied(module: nn.Module) -> nn.Module:
    """In float64, with no weight left where it started."""
    generator = torch.Generator().manual_seed(1)
    module.double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(0.4 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return module


def some(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def swap(x: Tensor, batch_first: bool) -> Tensor:
    return x if batch_first else x.transpose(0, 1)


def assert_same(ours: nn.Module, theirs: nn.Module, found: Tensor, wanted: Tensor, *inputs: Tensor) -> None:
    """Outputs, gradients of the inputs, and gradients of every parameter."""
    torch.testing.assert_close(found, wanted, atol=1e-12, rtol=0)
    direction = torch.randn_like(found)
    grads = [torch.autograd.grad((y * direction).sum(), inputs, retain_graph=True) for y in (found, wanted)]
    for mine, other in zip(*grads, strict=True):
        torch.testing.assert_close(mine, other, atol=1e-11, rtol=0)
    for y in (found, wanted):
        (y * direction).sum().backward()
    gradients = dict(theirs.named_parameters())
    assert gradients
    for mine, part in pairs(ours, theirs):
        whole = part if part._base is None else part._base
        n_before = part.storage_offset() // max(whole[0].numel(), 1)
        torch.testing.assert_close(mine.grad, whole.grad[n_before : n_before + len(part)], atol=1e-11, rtol=0)


def assert_comes_back(theirs: nn.Module, ours: nn.Module, batch_first: bool) -> None:
    again = hw.to_torch(ours, batch_first=batch_first)
    assert type(again) is type(theirs)
    assert again.state_dict().keys() == theirs.state_dict().keys()
    for name, tensor in theirs.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name
    assert [m.p for m in again.modules() if isinstance(m, nn.Dropout)] == [
        m.p for m in theirs.modules() if isinstance(m, nn.Dropout)
    ]
    once_more = hw.from_torch(again)
    for name, tensor in ours.state_dict().items():
        assert torch.equal(once_more.state_dict()[name], tensor), name


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("widths", [{}, {"kdim": 4, "vdim": 9}, {"kdim": 4}])
def test_attention(batch_first: bool, bias: bool, widths: dict[str, int]) -> None:
    theirs = varied(nn.MultiheadAttention(D, HEADS, bias=bias, batch_first=batch_first, dropout=0.0, **widths))
    ours = hw.from_torch(theirs)
    x, keys = some(BATCH, TOKENS, D), some(BATCH, MEMORY, widths.get("kdim", D))
    values = some(BATCH, MEMORY, widths.get("vdim", D))
    visible = torch.rand(TOKENS, MEMORY) < 0.6
    visible[:, 0] = True
    found = ours(x, keys, visible, values=values)
    wanted, _ = theirs(*(swap(t, batch_first) for t in (x, keys, values)), attn_mask=~visible)
    assert_same(ours, theirs, found, swap(wanted, batch_first), x, keys, values)
    assert_comes_back(theirs, ours, batch_first)


LAYERS = list(itertools.product(("relu", "gelu"), (True, False), (True, False), (True, False)))


@pytest.mark.parametrize(("activation", "norm_first", "bias", "batch_first"), LAYERS)
def test_encoder_layer(activation: str, norm_first: bool, bias: bool, batch_first: bool) -> None:
    options: dict[str, Any] = {"activation": activation, "norm_first": norm_first, "bias": bias}
    theirs = varied(
        nn.TransformerEncoderLayer(D, HEADS, FF, 0.3, batch_first=batch_first, layer_norm_eps=1e-3, **options)
    )
    theirs.eval()
    ours = hw.from_torch(theirs)
    assert not ours.training
    x, causal = some(BATCH, TOKENS, D), hw.masks.causal(TOKENS)
    real = hw.masks.padding(LENGTHS, TOKENS)
    found = ours(x, real & causal)
    wanted = theirs(swap(x, batch_first), src_mask=~causal, src_key_padding_mask=~real[:, 0, 0])
    assert_same(ours, theirs, found, swap(wanted, batch_first), x)
    assert_comes_back(theirs, ours, batch_first)


@pytest.mark.parametrize(("activation", "norm_first", "bias", "batch_first"), LAYERS[::3])
def test_decoder_layer(activation: str, norm_first: bool, bias: bool, batch_first: bool) -> None:
    options: dict[str, Any] = {"activation": activation, "norm_first": norm_first, "bias": bias}
    theirs = varied(nn.TransformerDecoderLayer(D, HEADS, FF, 0.3, batch_first=batch_first, **options)).eval()
    ours = hw.from_torch(theirs)
    x, memory = some(BATCH, TOKENS, D), some(BATCH, MEMORY, D)
    real = hw.masks.padding(torch.tensor([MEMORY, 4]), MEMORY)
    found = ours(x, memory, memory_visible=real)
    wanted = theirs(
        swap(x, batch_first),
        swap(memory, batch_first),
        tgt_mask=~hw.masks.causal(TOKENS),
        memory_key_padding_mask=~real[:, 0, 0],
    )
    assert_same(ours, theirs, found, swap(wanted, batch_first), x, memory)
    assert_comes_back(theirs, ours, batch_first)


@pytest.mark.parametrize("with_norm", [True, False])
@pytest.mark.parametrize("norm_first", [True, False])
def test_encoder(with_norm: bool, norm_first: bool) -> None:
    layer = nn.TransformerEncoderLayer(D, HEADS, FF, batch_first=True, norm_first=norm_first)
    norm = nn.LayerNorm(D, eps=1e-2) if with_norm else None
    theirs = varied(nn.TransformerEncoder(layer, 3, norm=norm, enable_nested_tensor=False)).eval()
    ours = hw.from_torch(theirs)
    x, real = some(BATCH, TOKENS, D), hw.masks.padding(LENGTHS, TOKENS)[:, 0, 0]
    assert_same(ours, theirs, ours(x, visible=real), theirs(x, src_key_padding_mask=~real), x)
    assert_comes_back(theirs, ours, batch_first=True)


@pytest.mark.parametrize("batch_first", [True, False])
def test_decoder(batch_first: bool) -> None:
    layer = nn.TransformerDecoderLayer(D, HEADS, FF, batch_first=batch_first)
    theirs = varied(nn.TransformerDecoder(layer, 2, norm=nn.LayerNorm(D))).eval()
    ours = hw.from_torch(theirs)
    x, memory = some(BATCH, TOKENS, D), some(BATCH, MEMORY, D)
    found = ours(x, causal=True, memory=memory)
    wanted = theirs(swap(x, batch_first), swap(memory, batch_first), tgt_mask=~hw.masks.causal(TOKENS))
    assert_same(ours, theirs, found, swap(wanted, batch_first), x, memory)
    assert_comes_back(theirs, ours, batch_first)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")  # PyTorch's own
@pytest.mark.parametrize("norm_first", [True, False])
def test_the_whole_transformer(norm_first: bool) -> None:
    theirs = nn.Transformer(D, HEADS, 2, 3, FF, batch_first=True, norm_first=norm_first, activation="gelu")
    theirs = varied(theirs).eval()
    ours = hw.from_torch(theirs)
    source, target = some(BATCH, MEMORY, D), some(BATCH, TOKENS, D)
    real = hw.masks.padding(torch.tensor([MEMORY, 4]), MEMORY)[:, 0, 0]
    wanted = theirs(
        source, target, tgt_mask=~hw.masks.causal(TOKENS), memory_key_padding_mask=~real, src_key_padding_mask=~real
    )
    found = ours(source, target, source_visible=real, causal=True)
    assert_same(ours, theirs, found, wanted, source, target)
    assert_comes_back(theirs, ours, batch_first=True)
    assert isinstance(ours, hw.convert.Transformer)
    with hw.record(ours, "encoder_layers.1.attention.weights") as seen:
        ours(source, target)
    assert seen["encoder_layers.1.attention.weights"].shape == (BATCH, HEADS, MEMORY, MEMORY)


@pytest.mark.parametrize("activation", [F.silu, nn.GELU("tanh"), nn.SiLU(), nn.ReLU()])
def test_activations_that_are_passed(activation: Any) -> None:
    theirs = varied(nn.TransformerEncoderLayer(D, HEADS, FF, 0.0, activation, batch_first=True))
    x = some(BATCH, TOKENS, D)
    torch.testing.assert_close(hw.from_torch(theirs)(x), theirs(x), atol=1e-12, rtol=0)
    again = hw.to_torch(hw.from_torch(theirs))
    torch.testing.assert_close(again(x), theirs(x), atol=1e-12, rtol=0)


def test_weights_are_copies_and_what_is_frozen_stays_frozen() -> None:
    theirs = nn.TransformerEncoderLayer(D, HEADS, FF)
    theirs.self_attn.requires_grad_(False)
    before = copy.deepcopy(theirs.state_dict())
    torch.manual_seed(0)
    state = torch.get_rng_state()
    ours = hw.from_torch(theirs)
    assert torch.equal(torch.get_rng_state(), state)
    assert not any(p.requires_grad for p in ours.attention.parameters())
    assert all(p.requires_grad for p in ours.feed_forward.parameters())
    assert not any(p.requires_grad for p in hw.to_torch(ours).self_attn.parameters())
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.zero_()
    for name, tensor in theirs.state_dict().items():
        assert torch.equal(tensor, before[name])
    ours.attention.query.weight.requires_grad_(True)
    with pytest.raises(ValueError, match="frozen together"):
        hw.to_torch(ours)


class Own(nn.TransformerEncoderLayer):
    pass


def changed_layer(**parts: Any) -> nn.Module:
    layer = nn.TransformerEncoderLayer(D, HEADS, FF)
    for name, part in parts.items():
        setattr(layer, name, part)
    return layer


@pytest.mark.parametrize(
    ("module", "said"),
    [
        (nn.Linear(3, 5), r"module must be one of nn.MultiheadAttention, .*, got an? nn.Linear"),
        (Own(D, HEADS, FF), "got an Own"),
        (nn.MultiheadAttention(D, HEADS, add_bias_kv=True), "add_bias_kv must be False"),
        (nn.MultiheadAttention(D, HEADS, add_zero_attn=True), "add_zero_attn must be False"),
        (nn.TransformerEncoderLayer(D, HEADS, FF, activation=torch.tanh), "activation must be one that Headwork has"),
        (changed_layer(norm1=nn.LayerNorm(D, eps=0.1)), "eps of the norms must be the same"),
        (changed_layer(norm1=nn.RMSNorm(D)), "must be nn.LayerNorm"),
        (
            changed_layer(dropout1=nn.Dropout(0.5)),
            r"dropout1, dropout2, ... must be the same everywhere .* got 0.5, 0.1",
        ),
        (changed_layer(linear1=nn.Linear(D, FF, bias=False)), "the biases of linear1 and linear2"),
        (nn.TransformerDecoder(nn.TransformerDecoderLayer(D, HEADS, FF), 1, norm=nn.Identity()), "nn.LayerNorm"),
        (nn.Transformer(D, HEADS, 1, 1, FF, custom_encoder=nn.Linear(1, 1)), "encoder must be nn.TransformerEncoder"),
    ],
)
def test_what_cannot_be_said_here(module: nn.Module, said: str) -> None:
    with pytest.raises((ValueError, TypeError), match=said):
        hw.from_torch(module)


CHOICES: dict[str, Any] = {
    "heads": hw.choices.Heads(n_heads=HEADS),
    "feed_forward": hw.choices.FeedForward(d_ff=FF),
    "norm_order": "pre",
}


def layer(**changes: Any) -> nn.Module:
    return hw.layers.EncoderLayer(D, **{**CHOICES, **changes})


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: hw.models.published("digits-vit").build(), "got a VisionTransformer"),
        (lambda: hw.layers.MultiHeadAttention(D, 6, n_kv_heads=2), "n_kv_heads must be 6 .* got 2"),
        (lambda: hw.layers.MultiHeadAttention(D, HEADS, d_head=2), "d_head must be 4 .* got 2"),
        (lambda: hw.layers.MultiHeadAttention(D, HEADS, d_out=2), "d_out must be 12"),
        (lambda: hw.layers.MultiHeadAttention(D, HEADS, beta=1.0), "beta must be 0.5"),
        (lambda: hw.layers.MultiHeadAttention(D, HEADS, out_bias=False), "out_bias must be True"),
        (lambda: layer(position=hw.choices.RelativePositions()), "relative must be None"),
        (lambda: layer(heads=hw.choices.Heads(n_heads=HEADS, qk_norm=hw.choices.QKNorm())), "qk_norm must be None"),
        (lambda: layer(window=3), "window must be None"),
        (lambda: layer(heads=hw.choices.SplitHeads(n_heads=HEADS)), "attention must be MultiHeadAttention"),
        (lambda: layer(feed_forward=hw.choices.GatedFeedForward(d_ff=FF)), "got a GatedFeedForward"),
        (lambda: layer(norm=hw.choices.RMSNorm()), "norm must be LayerNorm .* got an? RMSNorm"),
        (lambda: layer(norm=hw.choices.LayerNorm(bias=False)), "bias of the norms must be True"),
        (lambda: hw.layers.DecoderLayer(D, **CHOICES, cross_attention=False), "cross_attention must be True"),
        (lambda: hw.layers.Stack([layer()], positions=hw.layers.SinusoidalPositions(D)), "positions must be None"),
        (lambda: hw.layers.Stack([layer()], dropout=0.5), "dropout of the embedded tokens must be 0.0"),
        (lambda: hw.layers.Stack([nn.Identity()]), "must be EncoderLayers or DecoderLayers .* got Identity"),
    ],
)
def test_what_cannot_be_said_there(make: Any, said: str) -> None:
    with pytest.raises((ValueError, TypeError), match=said):
        hw.to_torch(make())


def test_a_layer_from_torch_in_a_model_of_ours_is_saved_with_its_dropouts(tmp_path) -> None:
    theirs = nn.TransformerEncoderLayer(D, HEADS, FF, 0.3, norm_first=True)
    config = hw.models.DecoderConfig(vocab=11, d_model=D, n_layers=1, **CHOICES)
    hw.save(hw.models.Decoder(config, layers=[hw.from_torch(theirs)]), tmp_path / "saved")
    again = hw.load(tmp_path / "saved")
    assert again.layers[0].feed_forward.dropout.p == 0.3
