"""Outputs that start at zero: every layer is the identity, nothing else is changed, and all of it can learn."""

import pytest
import torch
from torch import nn

import headwork as hw
from headwork import choices
from headwork.models import describe
from headwork.training import TrainingConfig
from headwork.training.config import RunConfig
from headwork.training.loop import build_model, zero_outputs

SIZES = {"d_model": 8, "heads": choices.Heads(n_heads=2)}
PLAIN, GATED = choices.FeedForward(d_ff=12), choices.GatedFeedForward(d_ff=12)
EXPERTS = choices.MixtureOfExperts(n_experts=3, n_active=2, d_ff=12, d_shared=4)
TEXT = {"vocab": 11, "dropout": 0.0, "attention_dropout": 0.0, **SIZES}
CONFIGS = {
    "gpt": hw.models.DecoderConfig(n_layers=3, feed_forward=PLAIN, **TEXT),
    "gated": hw.models.DecoderConfig(n_layers=3, feed_forward=GATED, **TEXT),
    "experts": hw.models.DecoderConfig(n_layers=2, feed_forward=EXPERTS, **TEXT),
    "parallel": hw.models.DecoderConfig(n_layers=2, feed_forward=PLAIN, layer=choices.ParallelLayer(), **TEXT),
    "translator": hw.models.EncoderDecoderConfig(
        n_encoder_layers=2, n_decoder_layers=2, feed_forward=PLAIN, norm_order="pre", **TEXT
    ),
    "vit": hw.models.VisionTransformerConfig(
        n_classes=3, image=(4, 4), n_channels=1, patch=(2, 2), n_layers=2, feed_forward=PLAIN, **SIZES
    ),
    "gaussian": hw.models.GaussianImageEncoderConfig(
        n_classes=3,
        image=(4, 4),
        n_channels=1,
        patch=(2, 2),
        n_layers=2,
        d_model=8,
        heads=choices.GaussianHeads(n_heads=2),
        feed_forward=PLAIN,
        norm_order="pre",
        dropout=0.0,
    ),
}


def build(config: object, *, zero: bool) -> nn.Module:
    training = TrainingConfig(batch_size=2, steps=1, seed=3, zero_init_outputs=zero)
    return build_model(RunConfig(name="run", data=None, model=config, training=training))  # type: ignore[arg-type]


def layers_of(model: nn.Module) -> list[nn.Module]:
    description = describe(model)
    assert description is not None
    return [model.get_submodule(name) for name in description.layers]


def call(model: nn.Module, kind: str) -> torch.Tensor:
    ids = torch.tensor([[1, 2, 3], [4, 5, 6]])
    if kind in ("vit", "gaussian"):
        return model(torch.rand(2, 1, 4, 4))
    return model(ids, ids) if kind == "translator" else model(ids)


@pytest.mark.parametrize("kind", CONFIGS)
def test_every_layer_is_the_identity_and_can_learn(kind: str) -> None:
    model = build(CONFIGS[kind], zero=True)
    changes: list[bool] = []
    for layer in layers_of(model):
        layer.register_forward_hook(lambda _, inputs, output: changes.append(not torch.equal(inputs[0], output)))
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(2):  # an encoder learns from the second on, when its decoder looks at it
        optimiser.zero_grad()
        call(model, kind).square().sum().backward()
        assert step or changes == [False] * len(layers_of(model))
        optimiser.step()
    changes.clear()
    call(model, kind)
    assert changes == [True] * len(layers_of(model))


@pytest.mark.parametrize("kind", CONFIGS)
def test_nothing_else_is_changed(kind: str) -> None:
    """The others start as they would without it: of the seed."""
    plain, zero = (dict(build(CONFIGS[kind], zero=each).named_parameters()) for each in (False, True))
    changed = [name for name, parameter in zero.items() if not torch.equal(parameter, plain[name])]
    assert changed
    assert all(name.endswith(("attention.out.weight", "down.weight")) for name in changed)
    assert all(not zero[name].any() for name in changed)


def test_a_model_without_such_layers_is_refused() -> None:
    with pytest.raises(ValueError, match="zero_init_outputs is for layers with attention"):
        zero_outputs(hw.models.ResNetConfig(n_classes=3, n_blocks=1, widths=(4,)).build())


def test_a_model_that_is_given_keeps_its_weights() -> None:
    model = CONFIGS["gpt"].build()
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    after = dict(build(model, zero=True).named_parameters())
    assert all(torch.equal(after[name], parameter) for name, parameter in before.items())
