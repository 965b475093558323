"""The image encoder of the ETH sheet, with each kind of head."""

import pytest
import torch
from torch.nn import functional as F

import headwork as hw
from headwork import choices
from headwork.models import GaussianImageEncoder, GaussianImageEncoderConfig
from headwork.serialise import config_from_dict, config_to_dict

HEADS = {
    "gaussian": choices.GaussianHeads(n_heads=3),
    "gaussian-values": choices.GaussianHeads(n_heads=3, d_value=5, precision="diagonal"),
    "shift": choices.ShiftHeads(n_heads=3),
    "query": choices.QueryShiftHeads(n_heads=3),
    "content": choices.ContentShiftHeads(n_heads=3),
}


def make(heads: str, **changes):
    config = GaussianImageEncoderConfig(
        n_classes=7,
        image=(6, 10),
        n_channels=2,
        d_model=12,
        n_layers=2,
        heads=HEADS[heads],
        feed_forward=choices.FeedForward(d_ff=11),
        **changes,
    )
    return GaussianImageEncoder(config)


@pytest.mark.parametrize("norm_order", ["pre", "post"])
@pytest.mark.parametrize("heads", HEADS)
def test_logits_and_a_gradient_for_every_parameter(heads, norm_order):
    model = make(heads, norm_order=norm_order)
    logits = model(torch.randn(5, 2, 6, 10))
    assert logits.shape == (5, 7)
    F.cross_entropy(logits, torch.arange(5)).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0 or name.endswith("key.bias"), name


@pytest.mark.parametrize("heads", HEADS)
def test_config_survives_json_and_costs_are_counted(heads):
    model = make(heads)
    assert config_from_dict(config_to_dict(model.config), [GaussianImageEncoderConfig]) == model.config
    price = hw.cost(model, torch.randn(1, 2, 6, 10))
    assert price.attention > 0
    assert price.projections > 0
    assert "Attention by position costs" in price.verdict()
    assert len(hw.trace(model, torch.randn(1, 2, 6, 10))) > 10


def test_gaussian_heads_take_other_sizes_and_learned_shifts_do_not():
    larger = torch.randn(1, 2, 12, 14)
    assert make("gaussian")(larger).shape == (1, 7)
    with pytest.raises(ValueError, match="the grid must fit into"):
        make("shift")(larger)


def test_mixing_by_position_costs_what_the_formula_says():
    """Rows: 2 h R^2 C d; columns: 2 h R C^2 d, for each layer."""
    model = make("gaussian")
    rows, columns, d_model, n_heads, n_layers = 3, 5, 12, 3, 2
    expected = n_layers * 2 * n_heads * d_model * (rows * rows * columns + rows * columns * columns)
    assert hw.cost(model, torch.randn(1, 2, 6, 10)).by_operation()["mixing"] == expected


@pytest.mark.usefixtures("as_users_run_it")
def test_a_patch_must_divide_the_image():
    with pytest.raises(ValueError, match="patch must divide the image"):
        make("gaussian", patch=(4, 4))
