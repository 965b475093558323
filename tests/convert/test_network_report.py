"""The report of a conversion and the comparison of two models, against numbers worked out by hand."""

import json
import math
from dataclasses import asdict

import pytest
import torch
from torch import nn

from headwork import choices
from headwork.convert import (
    ToAttention,
    ToConvolution,
    compare,
    convolution_from_attention,
    possible_directions,
    to_attention,
    to_convolution,
)
from headwork.layers import GaussianAttention
from headwork.models import GaussianImageEncoderConfig, ResNetConfig, VisionTransformerConfig

pytestmark = pytest.mark.filterwarnings("ignore::headwork.functional.gaussian.SlowPathWarning")


def two_convolutions() -> nn.Sequential:
    """The sums of absolute weights of an output are 5 and 0.5."""
    model = nn.Sequential(nn.Conv2d(1, 1, (1, 2)), nn.ReLU(), nn.Sequential(nn.Conv2d(1, 2, 1))).double()
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([2.0, -3.0]).reshape(1, 1, 1, 2))
        model[2][0].weight.copy_(torch.tensor([0.5, -0.25]).reshape(2, 1, 1, 1))
    return model


# to attention


def test_each_convolution_is_reported_by_its_name_in_order():
    converted = to_attention(two_convolutions(), tolerance=1e-3)
    assert [layer.name for layer in converted.layers] == ["0", "2.0"]
    assert [layer.before for layer in converted.layers] == [
        "1 x 2 convolution (1 to 1 channels)",
        "1 x 1 convolution (1 to 2 channels)",
    ]
    assert [layer.after for layer in converted.layers] == ["2 Gaussian heads", "1 Gaussian head"]
    assert [layer.n_heads for layer in converted.layers] == [2, 1]
    assert converted.conversion == ToAttention(tolerance=1e-3)


def test_alpha_and_bound_are_those_of_the_formula():
    first, second = to_attention(two_convolutions(), tolerance=1e-3).layers
    assert first.alpha == pytest.approx([math.log(1 + 8 * 5 / 1e-3)] * 2)
    assert second.alpha == pytest.approx([math.log(1 + 8 * 0.5 / 1e-3)])
    assert first.error_bound == second.error_bound == 1e-3
    assert first.grid is None


@pytest.mark.parametrize("tolerance", [1e-6, 0.5])
def test_the_largest_weight_is_the_product_of_those_along_the_axes(tolerance):
    for layer in to_attention(two_convolutions(), tolerance).layers:
        along_an_axis = 1 / sum(math.exp(-layer.alpha[0] * m**2) for m in range(-20, 21))
        assert layer.single_pixel == pytest.approx([along_an_axis**2] * layer.n_heads, rel=1e-12)


def test_a_dilated_kernel_does_not_reach_the_border_of_the_report():
    layer = to_attention(nn.Conv2d(1, 1, 3, dilation=(5, 7)).double(), 0.5).layers[0]
    assert max(layer.single_pixel) == pytest.approx(min(layer.single_pixel), rel=1e-12)


def test_a_layer_used_twice_is_reported_once():
    conv = nn.Conv2d(2, 2, 3, padding=1)
    assert [layer.name for layer in to_attention(nn.Sequential(conv, conv)).layers] == ["0"]


# to convolution


@pytest.mark.parametrize("precision", ["isotropic", "diagonal", "full"])
def test_each_layer_of_heads_is_reported_with_its_bound(precision):
    config = GaussianImageEncoderConfig(
        n_classes=3,
        image=(10, 14),
        d_model=6,
        n_layers=2,
        heads=choices.GaussianHeads(n_heads=4, precision=precision),
    )
    model = config.build()
    for layer in model.layers:
        nn.init.normal_(layer.attention.sharpness)
    converted = to_convolution(model, kernel_size=(3, 5))
    assert [layer.name for layer in converted.layers] == ["layers.0.attention", "layers.1.attention"]
    for layer, before in zip(converted.layers, model.layers, strict=True):
        nearest = convolution_from_attention(before.attention, (3, 5), grid=(5, 7))
        assert layer.error_bound == nearest.error_bound
        assert layer.single_pixel == tuple(nearest.single_pixel.tolist())
        assert (layer.before, layer.after) == ("4 Gaussian heads", "3 x 5 convolution (6 to 6 channels)")
        assert layer.grid == (5, 7)
    assert converted.conversion == ToConvolution(kernel_size=(3, 5))


def test_the_alpha_of_an_ellipse_is_the_root_of_its_determinant():
    heads = GaussianAttention(2, 2, precision="diagonal").double()
    heads.set_centres(torch.zeros(2, 2).double(), torch.tensor([[4.0, 9.0], [2.0, 2.0]]).double())
    assert to_convolution(heads, grid=(5, 7)).layers[0].alpha == pytest.approx([6.0, 2.0])
    heads = GaussianAttention(2, 1, precision="full").double()
    heads.set_centres(torch.zeros(1, 2).double(), torch.tensor([[[5.0, 4.0], [4.0, 5.0]]]).double())
    assert to_convolution(heads, grid=(5, 7)).layers[0].alpha == pytest.approx([3.0], rel=1e-5)


def test_convolutions_that_come_back_are_reported_too():
    there = to_attention(two_convolutions(), tolerance=1e-8)
    back = to_convolution(there.model, grid=(5, 7))
    assert [layer.name for layer in back.layers] == ["0", "2.0"]
    assert [layer.after for layer in back.layers] == [layer.before for layer in there.layers]
    assert [layer.alpha for layer in back.layers] == [layer.alpha for layer in there.layers]
    for layer, attention in zip(back.layers, (there.model[0], there.model[2][0]), strict=True):
        assert layer.error_bound == convolution_from_attention(attention, grid=(5, 7)).error_bound < 1e-6


# the forms of the report


def test_the_report_in_words():
    converted = to_attention(two_convolutions(), tolerance=1e-3)
    assert str(converted).splitlines() == [
        "0: 1 x 2 convolution (1 to 1 channels) -> 2 Gaussian heads; alpha 10.60; "
        "off by at most 0.001 for inputs in [-1, 1]; largest weight of a head 1.00",
        "2.0: 1 x 1 convolution (1 to 2 channels) -> 1 Gaussian head; alpha 8.29; "
        "off by at most 0.001 for inputs in [-1, 1]; largest weight of a head 1.00",
    ]


def test_the_report_of_one_layer_of_different_heads_in_words():
    heads = GaussianAttention(2, 2)
    heads.set_centres(torch.zeros(2, 2), torch.tensor([0.5, 40.0]))
    said = str(to_convolution(heads, grid=(11, 13)))
    assert said.startswith(
        "the model: 2 Gaussian heads -> 3 x 3 convolution (2 to 2 channels); alpha 0.50 to 40.00; off"
    )
    assert "for inputs in [-1, 1] on 11 x 13 positions; largest weight of a head 0.16 to 1.00" in said


def test_the_report_as_json():
    converted = to_attention(two_convolutions(), tolerance=1e-3)
    data = json.loads(json.dumps(converted.to_dict()))
    assert data["conversion"] == {"kind": "ToAttention", "tolerance": 1e-3}
    assert [layer["name"] for layer in data["layers"]] == ["0", "2.0"]
    assert data["layers"][0]["alpha"] == list(converted.layers[0].alpha)
    assert data["layers"][1]["error_bound"] == 1e-3


def test_a_model_without_numbers_has_a_report_without_numbers():
    with torch.device("meta"):
        converted = to_attention(nn.Conv2d(2, 3, 3))
        back = to_convolution(converted.model, grid=(5, 7))
    for layer in (converted.layers[0], back.layers[0]):
        assert layer.n_heads == len(layer.alpha) == 9
        assert all(map(math.isnan, layer.alpha + layer.single_pixel))


# two models on images


def test_two_models_are_compared_by_hand():
    first, second = nn.Flatten().eval(), nn.Sequential(nn.Flatten(), nn.Linear(3, 3, bias=False)).eval()
    with torch.no_grad():
        second[1].weight.copy_(torch.diag(torch.tensor([0.75, 0.5, 1.0])))
    images = torch.tensor([[0.5, 2.0, 0.0], [1.0, 3.0, 2.0], [-4.0, 0.0, 1.0]]).reshape(3, 3, 1, 1)
    comparison = compare(first, second, images)
    assert comparison.largest_difference == 1.5
    assert comparison.largest_output == 4.0
    assert comparison.same_predictions == 2  # of the second image, 3 was the largest and is now 1.5
    assert comparison.n_images == 3
    assert str(comparison) == "the outputs differ by at most 1.5, of up to 4; 2 of 3 predictions are the same"
    assert json.loads(json.dumps(asdict(comparison)))["largest_output"] == 4.0


def test_nothing_is_compared_on_no_image():
    with pytest.raises(ValueError, match="images must be 1 or more, got none"):
        compare(nn.Flatten().eval(), nn.Flatten().eval(), torch.zeros(0, 3, 1, 1))


def test_models_that_are_being_trained_are_not_compared():
    model = nn.Sequential(nn.Dropout(0.5), nn.Flatten())
    with pytest.raises(ValueError, match="both models must be in eval mode"):
        compare(model, model, torch.zeros(2, 3, 1, 1))


# which directions there are


def test_the_directions_are_those_that_the_layers_allow():
    resnet = ResNetConfig(n_classes=2, n_blocks=1, widths=(2,)).build()
    heads = GaussianImageEncoderConfig(n_classes=2, image=(6, 6), d_model=4, n_layers=1).build()
    assert possible_directions(resnet) == ("attention",)
    assert possible_directions(to_attention(resnet).model) == ("convolution",)
    assert possible_directions(heads) == ("convolution",)
    assert possible_directions(to_convolution(heads, (3, 3)).model) == ("attention",)
    assert possible_directions(nn.Sequential(heads, resnet)) == ("attention", "convolution")
    vit = VisionTransformerConfig(n_classes=2, image=(8, 8), patch=(4, 4), d_model=12, n_layers=1).build()
    assert possible_directions(vit) == ()
