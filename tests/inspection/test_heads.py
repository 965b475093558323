"""Where heads look, as numbers: snapshots that survive JSON, and the width of a head."""

import json

import pytest
import torch
from torch import nn

from headwork.convert import attention_from_convolution
from headwork.functional.gaussian import full_precision
from headwork.inspection import gaussian_layers, half_radius, snapshot_centres
from headwork.layers import GaussianAttention
from headwork.models import GaussianImageEncoder, GaussianImageEncoderConfig


def test_layers_are_called_by_the_layer_they_stand_in():
    model = GaussianImageEncoder(GaussianImageEncoderConfig(n_classes=3, image=(4, 6), d_model=8, n_layers=2))
    assert gaussian_layers(model) == {f"layers.{i}": model.layers[i].attention for i in (0, 1)}
    bare = GaussianAttention(4, 3)
    assert gaussian_layers(bare) == {"heads": bare}
    within = nn.Sequential(bare, nn.Sequential(attention_from_convolution(nn.Conv2d(2, 3, 3))))
    assert list(gaussian_layers(within)) == ["0", "1.0"]


@pytest.mark.parametrize("precision", ["isotropic", "diagonal", "full"])
def test_a_snapshot_survives_json_and_further_training(precision):
    layer = GaussianAttention(4, 3, precision=precision)
    with torch.no_grad():
        layer.sharpness.add_(0.3 * torch.randn_like(layer.sharpness))
    snapshot = snapshot_centres(layer)
    before = {"centre": layer.centre.detach().clone(), "alpha": layer.alpha.detach().clone()}
    with torch.no_grad():
        layer.centre.add_(1)
        layer.sharpness.add_(1)
    back = json.loads(json.dumps(snapshot))
    assert back == snapshot
    for name, value in before.items():
        assert torch.equal(torch.tensor(back["heads"][name]), value)


def test_a_model_without_gaussian_heads_has_no_places():
    assert snapshot_centres(nn.Linear(2, 2)) == {}


ELONGATED = {
    "round": torch.tensor([[0.01]]).squeeze(0),
    "along the axes": torch.tensor([[0.005, 0.02]]),
    "across the axes": torch.tensor([[[0.02, 0.01], [0.01, 0.015]]]),
}


@pytest.mark.parametrize("alpha", ELONGATED.values(), ids=ELONGATED.keys())
def test_half_of_the_weight_lies_in_an_ellipse_of_the_area_of_the_circle(alpha):
    """Counted on a fine grid: the sum of the weights inside the ellipse, and its area."""
    place = torch.arange(-80, 81).float()
    delta = torch.stack(torch.meshgrid(place, place, indexing="ij"), -1)
    exponent = torch.einsum("rca,ab,rcb->rc", delta, full_precision(alpha)[0], delta)
    inside = exponent <= torch.tensor(2.0).log()
    weights = torch.exp(-exponent)
    assert weights[inside].sum() / weights.sum() == pytest.approx(0.5, abs=0.01)
    assert torch.pi * half_radius(alpha).item() ** 2 == pytest.approx(inside.sum().item(), rel=0.02)


@pytest.mark.parametrize("sharpness", [-80.0, 0.0, 80.0])
def test_the_width_is_a_number_for_every_alpha_there_is(sharpness):
    for shape in ((3,), (3, 2)):
        width = half_radius(torch.full(shape, sharpness).exp())
        torch.testing.assert_close(width, torch.full((3,), 0.6931472**0.5) * torch.tensor(-sharpness / 2).exp())
