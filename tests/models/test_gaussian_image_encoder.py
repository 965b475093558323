"""The image encoder of the ETH sheet, with each kind of head."""

from dataclasses import replace

import pytest
import torch
from einops import rearrange
from torch.nn import functional as F

import headwork as hw
from headwork import choices
from headwork.models import GaussianImageEncoder, GaussianImageEncoderConfig
from headwork.serialise import config_from_dict, config_to_dict

from .small_models import ready

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


def authors_logits(model: GaussianImageEncoder, image: torch.Tensor) -> torch.Tensor:
    """BertImage of github.com/epfml/attention-cnn with the same parameters: models/transformer.py, models/bert.py."""
    config, p, eps = model.config, dict(model.named_parameters()), model.config.norm.eps
    rows, columns = config.patch
    pixels = rearrange(image, "b c (i row) (j column) -> b i j (c row column)", row=rows, column=columns)
    x = F.linear(pixels, p["patches.weight"].flatten(1), p["patches.bias"])  # features_upscale, and no norm
    side = [torch.arange(n) for n in x.shape[1:3]]
    pixel = torch.stack(torch.meshgrid(*side, indexing="ij"), -1)
    delta = (pixel[None, None] - pixel[:, :, None, None]).to(x.dtype)
    features = torch.cat([delta, delta**2], -1)
    for i in range(config.n_layers):

        def dense(x, name, i=i):
            return F.linear(x, p[f"layers.{i}.{name}.weight"], p[f"layers.{i}.{name}.bias"])

        def norm(x, name, i=i):
            return F.layer_norm(x, x.shape[-1:], p[f"layers.{i}.{name}.weight"], p[f"layers.{i}.{name}.bias"], eps)

        mu, a = (
            p[f"layers.{i}.attention.centre"],
            2 * p[f"layers.{i}.attention.sharpness"].exp(),
        )  # their spread squared
        target = -0.5 * torch.stack([-2 * a * mu[:, 0], -2 * a * mu[:, 1], a, a], -1)
        scores = torch.einsum("ijkld,hd->ijhkl", features, target)
        weights = scores.flatten(3).softmax(-1).view(scores.shape)
        heads = torch.einsum("ijhkl,bkld->bijhd", weights, x).flatten(3)
        x = norm(dense(dense(heads, "attention.out"), "dense") + x, "attention_norm")
        hidden = F.gelu(dense(x, "feed_forward.up"))
        x = norm(dense(hidden, "feed_forward.down") + x, "feed_forward_norm")
    return F.linear(x.flatten(1, 2).mean(1), p["classifier.weight"], p["classifier.bias"])


def test_it_is_the_authors_model():
    config = replace(hw.models.published("gaussian-cifar"), image=(8, 12), d_model=14, n_layers=2)
    model = ready(config.build())
    image = torch.randn(3, 3, 8, 12, dtype=torch.float64)
    torch.testing.assert_close(model(image), authors_logits(model, image), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("norm_order", ["pre", "post"])
def test_the_norm_of_the_embedding_is_a_choice(norm_order):
    given, without, as_ever = (
        make("shift", norm_order=norm_order, embedding_norm=norm) for norm in (True, False, None)
    )
    assert given.layers.embedding_norm is not None
    assert without.layers.embedding_norm is None
    assert (as_ever.layers.embedding_norm is None) == (norm_order == "pre")
