"""Value residuals: each layer attends to the mean of its own values and those of the first."""

import copy
import pickle
from dataclasses import replace

import pytest
import torch
from torch import nn

import headwork as hw
from headwork import choices
from headwork.generation import generate
from headwork.models import DecoderConfig, EncoderDecoderConfig, VisionTransformerConfig
from headwork.training.gradient_checkpointing import checkpointed_layers

SIZES = {"d_model": 12, "heads": choices.Heads(n_heads=3), "feed_forward": choices.FeedForward(d_ff=20), "dropout": 0.0}


def decoder(*, value_residual: bool = True, **changes: object) -> nn.Module:
    torch.manual_seed(0)
    options = {"vocab": 11, "n_layers": 3, "attention_dropout": 0.0, **SIZES, **changes}
    return DecoderConfig(value_residual=value_residual, **options).build().double().eval()


def ids(*shape: int) -> torch.Tensor:
    return torch.randint(0, 11, shape, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("heads", [choices.Heads(n_heads=4, n_kv_heads=2), choices.SplitHeads(n_heads=3)], ids=str)
def test_it_is_the_mean_with_the_values_of_the_first_layer(heads: object) -> None:
    plain, mixed = (decoder(value_residual=value, heads=heads) for value in (False, True))
    kept: list[torch.Tensor] = []
    edits = {"layers.0.attention.values": kept.append}
    edits |= {f"layers.{i}.attention.values": lambda v: (v + kept[0]) / 2 for i in (1, 2)}
    with hw.patch(plain, edits):
        expected = plain(ids(2, 5))
    torch.testing.assert_close(mixed(ids(2, 5)), expected)


def test_both_stacks_of_a_translator_and_a_vision_transformer_have_it() -> None:
    for config, inputs in (
        (EncoderDecoderConfig(vocab=11, n_encoder_layers=2, n_decoder_layers=2, **SIZES), (ids(2, 5), ids(2, 4))),
        (
            VisionTransformerConfig(n_classes=3, image=(8, 8), patch=(4, 4), n_layers=2, **SIZES),
            (torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(2)),),
        ),
    ):
        answers = []
        for value in (False, True):
            torch.manual_seed(0)
            model = replace(config, value_residual=value).build().eval()
            answers.append(model(*inputs))
        assert not torch.allclose(*answers)


def test_generation_with_a_cache_is_the_same_as_without() -> None:
    model, prompt = decoder(position=choices.RotaryPositions()), ids(2, 3)
    found = generate(model, prompt, max_new_tokens=6)
    tokens = prompt
    for _ in range(6):
        tokens = torch.cat([tokens, model(tokens)[:, -1:].argmax(-1)], 1)
    assert found.tolist() == tokens[:, 3:].tolist()


def test_layers_that_are_computed_again_have_the_same_gradients() -> None:
    model = decoder()
    expected = torch.autograd.grad(model(ids(2, 5)).square().mean(), list(model.parameters()))
    with checkpointed_layers(model):
        found = torch.autograd.grad(model(ids(2, 5)).square().mean(), list(model.parameters()))
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_copy_has_values_of_its_own(copied) -> None:
    model = decoder()
    expected = model(ids(2, 5))
    other = copied(model)
    assert other.layers[0].attention.value_residual.first is other.layers[2].attention.value_residual.first
    model(ids(1, 4))
    torch.testing.assert_close(other(ids(2, 5)), expected)


def test_it_is_saved_and_loaded_with_the_config(tmp_path) -> None:
    model = decoder().float()
    hw.save(model, tmp_path / "model")
    torch.testing.assert_close(hw.load(tmp_path / "model")(ids(2, 5)), model(ids(2, 5)))


def test_layers_of_a_users_own_cannot_have_it() -> None:
    config = DecoderConfig(vocab=11, n_layers=1, value_residual=True, **SIZES)
    with pytest.raises(ValueError, match="value_residual must be False beside layers of your own, got True"):
        hw.models.Decoder(config, layers=[nn.Identity()])


def test_pytorch_has_no_such_layers() -> None:
    with pytest.raises(ValueError, match=r"value_residual must be False for nn\.MultiheadAttention, got True"):
        hw.to_torch(decoder().layers[1].attention)
