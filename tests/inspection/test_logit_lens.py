"""hw.lens: the answer after each layer, through the model's own end."""

import pytest
import torch
from torch import nn

import headwork as hw
from headwork.choices import ClassificationHead, ClassToken, FirstToken, MeanPooling
from headwork.models import describe
from tests.inspection.small_models import (
    VOCAB,
    hooks_of,
    inputs_of,
    small_decoder,
    small_encoder,
    small_gaussian,
    small_translator,
    small_vit,
)

MODELS = {
    "decoder, pre-norm": small_decoder,
    "decoder, post-norm": lambda: small_decoder(norm_order="post"),
    "masked language model": small_encoder,
    "text classifier": lambda: small_encoder(ClassificationHead(n_classes=5, pooling=FirstToken())),
    "translator, post-norm": small_translator,
    "translator, pre-norm": lambda: small_translator(norm_order="pre"),
    "vit, class token": lambda: small_vit(ClassToken()),
    "vit, mean": lambda: small_vit(MeanPooling()),
    "gaussian": small_gaussian,
}


@pytest.mark.parametrize("kind", MODELS)
def test_the_last_entry_is_the_answer_of_the_model(kind):
    model = MODELS[kind]()
    inputs = inputs_of(model)
    found = hw.lens(model, *inputs)
    logits = model(*inputs)
    assert torch.equal(found.logits[-1], logits)
    assert found.logits.shape == (len(found.names), *logits.shape)
    assert not torch.allclose(found.logits[0], logits)


@pytest.mark.parametrize("kind", MODELS)
def test_each_entry_is_the_answer_of_a_model_whose_later_layers_are_off(kind):
    model = MODELS[kind]()
    inputs = inputs_of(model)
    found = hw.lens(model, *inputs)
    for i, name in enumerate(found.names[:-1]):
        with hw.ablate(model, layers=found.names[i + 1 :]):
            torch.testing.assert_close(found[name], model(*inputs))


def test_by_hand():
    model, ids = small_decoder(), torch.randint(VOCAB, (2, 11))
    with hw.record(model, "layers.0", "lm_head") as seen:
        logits = model(ids)
    norms = [module for name, module in model.named_modules() if name.endswith("final_norm")]
    expected = model.lm_head(norms[0](seen["layers.0"]), model.embedding)
    torch.testing.assert_close(hw.lens(model, ids)["layers.0"], expected)
    assert torch.equal(seen["lm_head"], logits)


def test_a_translator_is_seen_through_its_decoder():
    model = small_translator()
    found = hw.lens(model, *inputs_of(model))
    assert found.names == describe(model).layers[2:]


def test_masks_are_passed_on():
    model, ids = small_decoder(), torch.randint(VOCAB, (2, 11))
    visible = torch.arange(11).expand(2, 11) >= 3
    found = hw.lens(model, ids, visible=visible)
    assert torch.equal(found.logits[-1], model(ids, visible=visible))
    torch.testing.assert_close(found.logits[:, :, 3:], hw.lens(model, ids[:, 3:]).logits)


def test_in_evaluation_mode_and_back():
    model, ids = small_decoder(dropout=0.5).train(), torch.randint(VOCAB, (2, 11))
    model.layers[1].eval()
    modes = [module.training for module in model.modules()]
    modules, hooks = list(model.named_modules()), hooks_of(model)
    found = hw.lens(model, ids)
    assert modes == [module.training for module in model.modules()]
    assert list(model.named_modules()) == modules
    assert hooks_of(model) == hooks
    assert torch.equal(found.logits[-1], model.eval()(ids))


def test_an_error_leaves_the_model_whole():
    model, ids = small_decoder(), torch.randint(VOCAB, (2, 11))
    modules = list(model.named_modules())
    calls = []

    def fail_the_second_time(logits):
        calls.append(logits)
        if len(calls) == 2:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), hw.patch(model, {"lm_head": fail_the_second_time}):
        hw.lens(model, ids)
    assert list(model.named_modules()) == modules


def test_gradients_reach_the_layers():
    model, ids = small_decoder(), torch.randint(VOCAB, (2, 11))
    hw.lens(model, ids)["layers.1"].sum().backward()
    assert model.layers[1].feed_forward.up.weight.grad.any()
    assert not model.layers[2].feed_forward.up.weight.grad.any()


def test_patches_apply_once_and_recordings_see_the_run_of_the_model():
    model, ids = small_decoder(), torch.randint(VOCAB, (2, 11))
    with hw.record(model) as plain:
        model(ids)
    with hw.patch(model, {"layers.2": lambda x: x + 1, "layers.0": lambda x: 2 * x}), hw.record(model) as seen:
        found = hw.lens(model, ids)
        assert torch.equal(found.logits[-1], model(ids))
        with hw.ablate(model, layers=["layers.1", "layers.2"]):
            torch.testing.assert_close(found["layers.0"], model(ids))
    assert torch.equal(seen["layers.0"], 2 * plain["layers.0"])


def test_a_model_that_does_not_say_where_its_layers_are_is_refused():
    with pytest.raises(ValueError, match=r"description.layers.* got a Linear that does not"):
        hw.lens(nn.Linear(2, 2), torch.randn(1, 2))


def test_an_unknown_layer_names_the_nearest():
    model, ids = small_decoder(), torch.randint(VOCAB, (2, 11))
    found = hw.lens(model, ids)
    assert repr(found) == "Lens: logits [3, 2, 11, 31] of layers.0, layers.1, layers.2"
    with pytest.raises(KeyError, match=r"did you mean 'layers\.\d'"):
        found["layer.0"]


def test_layers_that_change_the_shape_have_no_lens() -> None:
    resnet = hw.models.ResNetConfig(n_classes=5, n_blocks=1).build()
    with pytest.raises(ValueError, match="lens needs layers that all keep the shape of what they read, got"):
        hw.lens(resnet, torch.rand(1, 3, 16, 16))


@pytest.mark.usefixtures("as_users_run_it")
def test_arguments_of_the_wrong_type_are_named():
    with pytest.raises(TypeError, match="model must be a module, got 'gpt2'"):
        hw.lens("gpt2", torch.zeros(1, 5))
    with pytest.raises(TypeError, match=r"lens runs the model: pass its inputs, as in hw.lens\(model, x\)"):
        hw.lens(small_decoder())
