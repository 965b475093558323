"""hw.ablate: heads and layers switched off, compared with what the equations say."""

import re

import pytest
import torch
from torch import nn

import headwork as hw
from headwork.generation import generate, translate
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

MODELS = [small_decoder, small_encoder, small_translator, small_vit, small_gaussian]


@pytest.fixture
def decoder():
    return small_decoder()


@pytest.fixture
def ids():
    return torch.randint(VOCAB, (2, 11))


def raises(message):
    return pytest.raises(ValueError, match=re.escape(message))


@pytest.mark.parametrize("make", MODELS)
def test_zeroed_heads_equal_zeroed_columns_of_the_output_projection(make):
    model = make()
    inputs, description = inputs_of(model), describe(model)
    for name in (*description.attention, *description.cross_attention):
        attention = model.get_submodule(name)
        with hw.ablate(model, heads={name: [2, 5]}):
            ablated = model(*inputs)
        kept = attention.out.weight.detach().clone()
        with torch.no_grad():
            columns = attention.out.weight.view(len(kept), attention.n_heads, -1)  # d_model head d_value
            columns[:, [2, 5]] = 0.0
            expected = model(*inputs)
            attention.out.weight.copy_(kept)
        torch.testing.assert_close(ablated, expected)
        assert not torch.allclose(ablated, model(*inputs))


def test_without_all_heads_attention_adds_its_bias(decoder, ids):
    with hw.ablate(decoder, heads={"layers.1.attention": range(7)}), hw.record(decoder, "layers.1.attention") as seen:
        decoder(ids)
    expected = decoder.layers[1].attention.out.bias.expand(2, 11, 14)
    torch.testing.assert_close(seen["layers.1.attention"], expected, rtol=0, atol=0)


def test_the_mean_is_taken_over_batch_and_tokens_of_these_heads_only(decoder, ids):
    point = "layers.0.attention.heads"
    with hw.record(decoder, point) as plain:
        decoder(ids)
    with hw.ablate(decoder, heads={"layers.0.attention": [1]}, by="mean"), hw.record(decoder, point) as seen:
        decoder(ids)
    expected = plain[point].clone()
    expected[:, :, 1] = plain[point][:, :, 1].reshape(22, 2).mean(0)
    torch.testing.assert_close(seen[point], expected)


def test_the_heads_of_another_input(decoder, ids):
    point, other = "layers.0.attention.heads", torch.randint(VOCAB, (2, 11))
    with hw.record(decoder) as theirs:
        decoder(other)
    with hw.record(decoder) as plain:
        decoder(ids)
    with hw.ablate(decoder, heads={"layers.0.attention": [0, 6]}, by=theirs), hw.record(decoder, point) as seen:
        decoder(ids)
    for head in range(7):
        source = theirs if head in (0, 6) else plain
        assert torch.equal(seen[point][:, :, head], source[point][:, :, head])


def test_patterns_and_several_of_them_for_the_same_layer(decoder, ids):
    heads = {"layers.*.attention": [1], "layers.2.attention": [3]}
    with hw.ablate(decoder, heads=heads), hw.record(decoder, "*.heads") as seen:
        decoder(ids)
    off = [[h for h in range(7) if not seen[f"layers.{i}.attention.heads"][:, :, h].any()] for i in range(3)]
    assert off == [[1], [1], [1, 3]]


@pytest.mark.parametrize("make", MODELS)
def test_a_layer_that_is_off_equals_a_model_without_it(make):
    model = make()
    inputs = inputs_of(model)
    for name in describe(model).layers:
        with hw.ablate(model, layers=name):
            ablated = model(*inputs)
        layer = model.get_submodule(name)
        layer.forward = lambda x, *others, **keywords: x
        expected = model(*inputs)
        del layer.forward
        assert torch.equal(ablated, expected)
        assert not torch.allclose(ablated, model(*inputs))


def test_all_layers_off_leaves_the_embedding(decoder, ids):
    with hw.ablate(decoder, layers=["layers.*"]), hw.record(decoder) as seen:
        decoder(ids)
    torch.testing.assert_close(seen["layers.2"], decoder.embedding(ids))  # rotary positions: nothing is added


def test_the_mean_step_of_a_layer(decoder, ids):
    with hw.record(decoder, "layers.?") as plain:
        decoder(ids)
    with hw.ablate(decoder, layers=["layers.1"], by="mean"), hw.record(decoder, "layers.?") as seen:
        decoder(ids)
    step = (plain["layers.1"] - plain["layers.0"]).reshape(22, 14).mean(0)
    torch.testing.assert_close(seen["layers.1"], plain["layers.0"] + step)


@pytest.mark.parametrize("make", [small_encoder, small_translator])
def test_padding_changes_no_mean(make):
    model = make()
    short, long = (torch.randint(VOCAB, (1, n)) for n in (5, 8))
    padded = torch.cat([torch.cat([short, torch.randint(VOCAB, (1, 3))], 1), long])
    visible = torch.arange(8) < torch.tensor([[5], [8]])
    inputs, masks = (padded,), {"visible": visible}
    if make is small_translator:
        inputs, masks = (padded, padded), {"source_visible": visible, "target_visible": visible}
    description = describe(model)
    for name in (*description.attention, *description.cross_attention):
        point = f"{name}.heads"
        with hw.record(model, point) as plain:
            model(*inputs, **masks)
        with hw.ablate(model, heads={name: [1]}, by="mean"), hw.record(model, point) as seen:
            model(*inputs, **masks)
        mean = plain[point][visible][:, 1].mean(0)
        torch.testing.assert_close(seen[point][:, :, 1], mean.expand(2, 8, -1))
    for name, before in zip(description.layers[1:], description.layers, strict=False):
        if name.partition(".")[0] != before.partition(".")[0]:
            continue
        with hw.record(model, name, before) as plain:
            model(*inputs, **masks)
        with hw.ablate(model, layers=name, by="mean"), hw.record(model, name, before) as seen:
            model(*inputs, **masks)
        step = (plain[name] - plain[before])[visible].mean(0)
        torch.testing.assert_close(seen[name], plain[before] + step)
    assert not any(hook for hooks in hooks_of(model).values() for hook in hooks)


def test_one_visible_token_has_no_mean():
    model, visible = small_encoder(), torch.tensor([[True, False, False]])
    with raises("there is one row with one token"), hw.ablate(model, layers="layers.0", by="mean"):
        model(torch.randint(VOCAB, (1, 3)), visible=visible)


def test_heads_and_layers_and_patches_together(decoder, ids):
    with (
        hw.patch(decoder, {"layers.0": lambda x: x + 1}),
        hw.ablate(decoder, heads={"layers.2.attention": [4]}, layers=["layers.1"]),
        hw.record(decoder) as seen,
    ):
        decoder(ids)
    assert torch.equal(seen["layers.0"], seen["layers.1"])
    assert not seen["layers.2.attention.heads"][:, :, 4].any()
    assert not any(hook for hooks in hooks_of(decoder).values() for hook in hooks)


def test_generation_goes_on_without_a_layer_and_some_heads(decoder):
    ids = torch.randint(VOCAB, (4, 3))
    with hw.ablate(decoder, heads={"layers.0.attention": [0, 1]}, layers=["layers.1"]), torch.no_grad():
        new = generate(decoder, ids, max_new_tokens=6)
        whole = decoder(torch.cat([ids, new], dim=1))
    assert torch.equal(whole[:, 2:-1].argmax(-1), new)


def test_translation_goes_on_without_heads_of_the_cross_attention():
    model, source = small_translator(), torch.randint(VOCAB, (4, 5))
    heads = dict.fromkeys(describe(model).cross_attention, range(7))
    with hw.ablate(model, heads=heads):
        blind = translate(model, source, max_new_tokens=6, begin=0, end=None)
    assert (blind == blind[0]).all()  # nobody sees the source
    seeing = translate(model, source, max_new_tokens=6, begin=0, end=None)
    assert not (seeing == seeing[0]).all()


def test_gradients_of_a_head_that_is_off_are_zero(decoder, ids):
    with hw.ablate(decoder, heads={"layers.2.attention": [3]}):
        decoder(ids).sum().backward()
    gradient = decoder.layers[2].attention.value.weight.grad.view(7, 2, 14).abs().sum((1, 2))
    assert gradient[3] == 0
    assert (gradient[[0, 1, 2, 4, 5, 6]] > 0).all()


def test_a_model_without_description_is_asked_by_the_names_of_its_modules():
    network = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 5))
    x = torch.randn(2, 3)
    with hw.ablate(network, layers=["0"]):
        assert torch.equal(network(x), network[1](x))
    with raises("its output; 1 has not"), hw.ablate(network, layers=["1"]):
        network(x)


@pytest.mark.usefixtures("as_users_run_it")
def test_arguments_of_the_wrong_type_are_named(decoder):
    for arguments, message in (
        ({"heads": ["layers.0.attention"]}, "heads must be a mapping from names of attention modules to numbers"),
        ({"heads": {"layers.0.attention": 1}}, "heads must be a list of the heads to switch off at layers.0.attention"),
        ({"heads": {"layers.0.attention": ["a"]}}, "layers.0.attention, whole numbers, got 'a'"),
        ({"heads": {3: [1]}}, "name must be the name of a point, or a pattern of names, got 3"),
        ({"layers": 1}, "layers must be a name or several names, got 1"),
        ({"layers": [1]}, "name must be the name of a point, or a pattern of names, got 1"),
        ({"layers": "layers.0", "by": None}, "by must be 'zero', 'mean' or a recording, got None"),
    ):
        with pytest.raises(TypeError, match=re.escape(message)):
            hw.ablate(decoder, **arguments).__enter__()
    with pytest.raises(TypeError, match="model must be a module, got 'gpt2'"):
        hw.ablate("gpt2", layers="layers.0").__enter__()


@pytest.mark.usefixtures("as_users_run_it")
def test_mistakes(decoder, ids):
    for arguments, message in (
        ({"heads": {"layers.0.attentoin": [0]}}, "did you mean 'layers.0.attention'"),
        ({"layers": ["layers.3"]}, "no point is called 'layers.3'"),
        ({"layers": ["layers.0.attention"]}, "did you mean 'layers.0'"),
        ({"heads": {"layers.0.attention": [0]}, "by": "random"}, "by must be 'zero', 'mean' or a recording"),
        ({}, "needs heads or layers"),
        ({"heads": {"layers.0.attention": [0]}, "by": {}}, "the recording must hold 'layers.0.attention.heads'"),
        ({"layers": ["layers.0"], "by": {}}, "hw.patch(model, {name: recording[name]})"),
    ):
        with raises(message):
            hw.ablate(decoder, **arguments).__enter__()
    for chosen in ([7], [-1], []):
        with (
            raises(f"layers.0.attention.heads must be some of 0 .. 6, got {chosen}"),
            hw.ablate(decoder, heads={"layers.0.attention": chosen}),
        ):
            decoder(ids)
    with hw.record(decoder) as shorter:
        decoder(ids[:, :5])
    with (
        raises("layers.0.attention.heads, (2, 11, 7, 2), got (2, 5, 7, 2)"),
        hw.ablate(decoder, heads={"layers.0.attention": [1]}, by=shorter),
    ):
        decoder(ids)
    for off in ({"heads": {"layers.0.attention": [1]}}, {"layers": ["layers.0"]}):
        with raises("there is one row with one token"), hw.ablate(decoder, **off, by="mean"):
            decoder(ids[:1, :1])
    with raises("ablate changed nothing at 'layers.0'"), hw.ablate(decoder, layers=["layers.0"]):
        pass
    assert not any(hook for hooks in hooks_of(decoder).values() for hook in hooks)


@pytest.mark.parametrize("heads", [hw.choices.QueryShiftHeads(n_heads=3), hw.choices.ContentShiftHeads(n_heads=3)])
def test_heads_that_look_by_shift_can_be_switched_off(heads: hw.choices.ImageHeads) -> None:
    config = hw.models.GaussianImageEncoderConfig(
        n_classes=5, image=(6, 6), d_model=12, n_layers=1, heads=heads, dropout=0.0
    )
    model, image = config.build().eval(), torch.rand(2, 3, 6, 6)
    with hw.ablate(model, heads={"layers.0.attention": [0, 1, 2]}):
        off = model(image)
    with hw.patch(model, {"layers.0.attention": model.layers[0].attention.out.bias.expand(2, 3, 3, 12).clone()}):
        torch.testing.assert_close(off, model(image))
