"""Whole networks, there and back: same answers, honest bounds, and all of it in the state dict."""

import copy
import json
import math

import pytest
import torch
from torch import Tensor, nn

import headwork as hw
from headwork import choices
from headwork.convert import (
    AttentionAsConvolution,
    ConvolutionAsAttention,
    ToAttention,
    ToConvolution,
    conversions_of,
    to_attention,
    to_convolution,
)
from headwork.layers import GaussianAttention
from headwork.serialise import config_from_dict, config_to_dict


def pixels(*shape: int) -> Tensor:
    return 2 * torch.rand(*shape) - 1


def resnet() -> nn.Module:
    model = hw.models.ResNet(hw.models.ResNetConfig(n_classes=5, n_blocks=1, widths=(4, 8, 12)))
    for _ in range(3):  # running statistics of its own
        model(torch.randn(8, 3, 16, 12))
    return model.eval()


def image_encoder(alpha: float = 1.0, n_layers: int = 2, **heads: object) -> hw.models.GaussianImageEncoder:
    """Nine heads near a 3 x 3 window, as sharp as asked."""
    config = hw.models.GaussianImageEncoderConfig(
        n_classes=7,
        image=(10, 14),
        n_channels=2,
        d_model=12,
        n_layers=n_layers,
        heads=choices.GaussianHeads(n_heads=9, **heads),
        feed_forward=choices.FeedForward(d_ff=11),
    )
    model = hw.models.GaussianImageEncoder(config).double().eval()
    window = torch.cartesian_prod(torch.arange(-1, 2), torch.arange(-1, 2)).double()
    for layer in model.layers:
        near = window + 0.2 * (2 * torch.rand(9, 2).double() - 1)
        layer.attention.set_centres(near, torch.full(layer.attention.alpha.shape, alpha).double())
    return model


# to attention


def test_a_resnet_converted_whole_gives_the_same_predictions():
    model = resnet()
    before = copy.deepcopy(model.state_dict())
    converted = to_attention(model).model
    assert not any(isinstance(module, nn.Conv2d) for module in converted.modules())
    assert sum(isinstance(module, ConvolutionAsAttention) for module in converted.modules()) == 9
    assert not any(module.training for module in converted.modules())
    image = torch.randn(7, 3, 16, 12)
    logits, expected = converted(image), model(image)
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-4)
    assert torch.equal(logits.argmax(1), expected.argmax(1))
    assert sum(isinstance(module, nn.Conv2d) for module in model.modules()) == 9
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])


def test_a_converted_model_shares_nothing_with_the_original():
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3))
    converted = to_attention(model).model
    storages = {p.data_ptr() for p in (*model.parameters(), *model.buffers())}
    assert storages.isdisjoint(p.data_ptr() for p in (*converted.parameters(), *converted.buffers()))


@pytest.mark.parametrize("training", [True, False])
def test_a_bare_convolution_is_converted_itself(training):
    conv = nn.Conv2d(2, 3, 3, padding=1).train(training)
    converted, image = to_attention(conv).model, pixels(1, 2, 5, 7)
    assert isinstance(converted, ConvolutionAsAttention)
    assert all(module.training is training for module in converted.modules())
    torch.testing.assert_close(converted(image), conv(image), rtol=0, atol=1e-5)


def test_nested_modules_are_converted_and_keep_their_mode():
    inner = nn.Sequential(nn.Conv2d(3, 5, 3, padding=1), nn.ReLU()).eval()
    model = nn.ModuleDict({"first": nn.Conv2d(2, 3, 3, padding=1), "then": nn.Sequential(inner, nn.Flatten())})
    model["first"].train()
    model["then"][0].eval()
    converted, image = to_attention(model).model, pixels(1, 2, 5, 7)
    assert isinstance(converted["first"], ConvolutionAsAttention)
    assert isinstance(converted["then"][0][0], ConvolutionAsAttention)
    assert all(module.training for module in converted["first"].modules())
    assert not any(module.training for module in converted["then"][0][0].modules())
    expected = model["then"](model["first"](image))
    torch.testing.assert_close(converted["then"](converted["first"](image)), expected, rtol=0, atol=1e-5)


def test_a_convolution_used_twice_is_converted_once_for_both():
    conv = nn.Conv2d(2, 2, 3, padding=1)
    model = nn.Sequential(conv, nn.ReLU(), conv)
    converted, image = to_attention(model).model, pixels(1, 2, 5, 7)
    torch.testing.assert_close(converted(image), model(image), rtol=0, atol=1e-5)
    assert not any(isinstance(module, nn.Conv2d) for module in converted.modules())
    assert converted[0] is converted[2]


def test_the_tolerance_reaches_every_layer():
    converted = to_attention(nn.Sequential(nn.Conv2d(1, 1, 1), nn.Conv2d(1, 1, 1)), tolerance=1e-3).model
    for module in converted:
        largest = module.attention.out.weight.abs().sum().item()
        assert module.attention.alpha.item() == pytest.approx(math.log1p(8 * largest / 1e-3), rel=1e-5)


@pytest.mark.parametrize("frozen", [("weight", "bias"), ("weight",), ("bias",), ()], ids=str)
def test_what_was_frozen_stays_frozen_there_and_back(frozen):
    conv = nn.Conv2d(2, 3, 3)
    for name in frozen:
        getattr(conv, name).requires_grad_(False)
    heads = to_attention(conv).model.attention
    for parameter in (heads.centre, heads.sharpness, heads.out.weight):
        assert parameter.requires_grad is ("weight" not in frozen)
    assert heads.out.bias.requires_grad is ("bias" not in frozen)
    back = to_convolution(to_attention(conv).model, grid=(5, 7)).model
    assert back.weight.requires_grad is ("weight" not in frozen)
    assert back.bias.requires_grad is ("bias" not in frozen)


def test_the_kernel_learns_if_anything_it_is_made_of_does():
    model = image_encoder(d_value=5)
    heads = [layer.attention for layer in model.layers]
    heads[0].requires_grad_(False)
    heads[1].requires_grad_(False).centre.requires_grad_()
    first, second = (layer.attention.conv for layer in to_convolution(model).model.layers)
    assert [p.requires_grad for p in (first.weight, first.bias, second.weight, second.bias)] == [0, 0, 1, 0]
    heads[0].value.bias.requires_grad_()
    assert to_convolution(model).model.layers[0].attention.conv.bias.requires_grad


# to convolutions


@pytest.mark.parametrize("heads", [{}, {"d_value": 5}, {"precision": "diagonal"}], ids=str)
def test_the_sharper_the_heads_the_nearer_is_the_network_of_convolutions(heads):
    image = torch.randn(3, 2, 10, 14, dtype=torch.float64)
    errors = []
    for alpha in (1.0, 4.0, 16.0, 64.0):
        torch.manual_seed(0)
        model = image_encoder(alpha, **heads)
        converted = to_convolution(model).model
        assert not any(isinstance(module, GaussianAttention) for module in converted.modules())
        errors.append((converted(image) - model(image)).abs().max().item())
    assert errors == sorted(errors, reverse=True)
    assert errors[0] > 1e-3
    assert errors[-1] < 1e-10


@pytest.mark.parametrize("alpha", [0.5, 2.0, 8.0])
def test_no_layer_is_further_from_its_convolution_than_its_bound_says(alpha):
    model = image_encoder(alpha, n_layers=3)
    converted = to_convolution(model, (3, 5)).model
    with hw.record(model) as seen:
        model(torch.randn(3, 2, 10, 14, dtype=torch.float64))
    inputs = [seen["layers.embedded"], *(seen[f"layers.{i}"] for i in range(2))]
    for x, before, after in zip(inputs, model.layers, converted.layers, strict=True):
        image = x.unflatten(1, (5, 7))
        error = (before.attention(image) - after.attention(image)).abs().max()
        bound = after.attention.error_bound * image.abs().max()
        assert bound / 1000 < error <= bound


def test_each_layer_carries_what_its_own_conversion_says():
    model = image_encoder(2.0)
    converted = to_convolution(model, (3, 5)).model
    for before, after in zip(model.layers, converted.layers, strict=True):
        conv, error_bound, single_pixel = hw.convert.convolution_from_attention(before.attention, (3, 5), (5, 7))
        assert torch.equal(after.attention.conv.weight, conv.weight)
        assert after.attention.error_bound.item() == error_bound
        assert torch.equal(after.attention.single_pixel, single_pixel)


def test_a_grid_of_ones_own_is_used():
    layer = GaussianAttention(2, 3)
    bounds = [to_convolution(layer, grid=grid).model.error_bound.item() for grid in ((5, 7), (7, 5))]
    expected = [hw.convert.convolution_from_attention(layer, 3, grid).error_bound for grid in ((5, 7), (7, 5))]
    assert bounds == expected


def test_a_network_comes_back_with_its_own_kernels():
    model = resnet()
    back = to_convolution(to_attention(model, 1e-8).model, grid=(16, 12)).model
    assert list(back.state_dict()) == list(model.state_dict())
    for name, value in model.state_dict().items():
        torch.testing.assert_close(back.state_dict()[name], value, rtol=0, atol=1e-6)
    image = torch.randn(7, 3, 16, 12)
    torch.testing.assert_close(back(image), model(image), rtol=0, atol=1e-4)


def test_heads_go_to_convolutions_and_these_to_attention_again():
    model = image_encoder(64.0)
    once = to_convolution(model).model
    twice = to_attention(once, 1e-12).model
    assert isinstance(twice.layers[0].attention, AttentionAsConvolution)
    assert isinstance(twice.layers[0].attention.conv, ConvolutionAsAttention)
    image = torch.randn(3, 2, 10, 14, dtype=torch.float64)
    torch.testing.assert_close(twice(image), once(image), rtol=0, atol=1e-10)
    assert conversions_of(model) == ()
    assert conversions_of(twice) == (ToConvolution(), ToAttention(tolerance=1e-12))
    assert conversions_of(copy.deepcopy(twice)) == conversions_of(twice)


# built again from data


def built_again(model: nn.Module, device: str) -> nn.Module:
    """As a file would: the config and the conversions through JSON, fresh weights, then the state dict."""
    data = json.loads(json.dumps([config_to_dict(model.config), *map(config_to_dict, conversions_of(model))]))
    config, *conversions = data
    torch.manual_seed(1)
    with torch.device(device):
        again = config_from_dict(config, [type(model.config)]).build()
        for step in conversions:
            again = config_from_dict(step, [ToAttention, ToConvolution]).apply(again).model
    again.load_state_dict(model.state_dict(), assign=True)
    return again.eval()


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("precision", ["isotropic", "diagonal"])
def test_a_network_of_convolutions_is_built_again_bit_for_bit(device, precision):
    converted = to_convolution(image_encoder(2.0, precision=precision), (3, 5)).model
    again, image = built_again(converted, device), torch.randn(3, 2, 10, 14, dtype=torch.float64)
    assert torch.equal(again(image), converted(image))
    for name, value in converted.state_dict().items():
        assert torch.equal(again.state_dict()[name], value), name
    for before, after in zip(converted.layers, again.layers, strict=True):
        assert torch.equal(after.attention.error_bound, before.attention.error_bound)
    assert conversions_of(again) == conversions_of(converted)


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize(
    "conversions", [(ToAttention(tolerance=1e-3),), (ToAttention(), ToConvolution(grid=(16, 12)))], ids=str
)
def test_a_network_of_attention_is_built_again_bit_for_bit(device, conversions):
    """Alpha comes from the weights that were converted, so it has to be loaded, not computed again."""
    converted = resnet()
    for step in conversions:
        converted = step.apply(converted).model
    again, image = built_again(converted, device), torch.randn(7, 3, 16, 12)
    assert torch.equal(again(image), converted(image))
    for name, value in converted.state_dict().items():
        assert torch.equal(again.state_dict()[name], value), name


# bad input


@pytest.mark.parametrize(
    ("model", "conversion", "message"),
    [
        (nn.Linear(2, 3), ToAttention(), "model must have an nn.Conv2d for to_attention, got Linear without any"),
        (
            nn.Conv2d(2, 3, 3),
            ToConvolution(grid=(5, 7)),
            "model must have Gaussian heads for to_convolution, got Conv2d",
        ),
        (
            GaussianAttention(2, 3),
            ToConvolution(),
            "grid must be given for a model whose description names none, got Gauss",
        ),
        (GaussianAttention(2, 3), ToConvolution(grid=(2, 7)), "the grid must be as large as the kernel"),
    ],
    ids=str,
)
def test_what_cannot_be_converted_is_refused(model, conversion, message):
    with pytest.raises(ValueError, match=message):
        conversion.apply(model)


@pytest.mark.parametrize("tolerance", [0.0, 1.0, -1.0, math.nan, math.inf])
def test_a_tolerance_outside_of_0_to_1_is_refused(tolerance):
    with pytest.raises(ValueError, match=r"tolerance must lie in \(0, 1\), got"):
        to_attention(nn.Conv2d(2, 3, 3), tolerance)


def test_sizes_without_pixels_are_refused():
    with pytest.raises(ValueError, match="kernel_columns must be 1 or more, got 0"):
        to_convolution(image_encoder(), kernel_size=(3, 0))
    with pytest.raises(ValueError, match="grid_rows must be 1 or more, got 0"):
        to_convolution(image_encoder(), grid=(0, 3))
