"""Activation patching between two inputs, compared with patches made by hand."""

import re

import pytest
import torch

import headwork as hw
from headwork.inspection import patching_effects
from headwork.models import describe
from tests.inspection.small_models import VOCAB, hooks_of, inputs_of, small_decoder, small_translator, small_vit


@pytest.fixture
def decoder():
    return small_decoder()


@pytest.fixture
def clean():
    return torch.tensor([[3, 1, 4, 1, 5, 9, 2]])


@pytest.fixture
def corrupted(clean):
    return clean.index_fill(1, torch.tensor([2]), 17)  # the third token is another


def metric(logits):
    return logits[0, -1, 8] - logits[0, -1, 9]


def test_each_token_of_each_layer_as_a_patch_by_hand(decoder, clean, corrupted):
    layers = describe(decoder).layers
    effects = list(patching_effects(decoder, clean, corrupted, layers, metric, each="token"))
    assert [(e.name, e.index) for e in effects] == [(layer, (token,)) for layer in layers for token in range(7)]
    with torch.no_grad(), hw.record(decoder, *layers) as seen:
        best = float(metric(decoder(clean)))
    with torch.no_grad():
        worst = float(metric(decoder(corrupted)))
    for effect in effects:
        (token,) = effect.index

        def hook(module, inputs, output, token=token, value=seen[effect.name]):
            return torch.cat([output[:, :token], value[:, token : token + 1], output[:, token + 1 :]], dim=1)

        handle = decoder.get_submodule(effect.name).register_forward_hook(hook)
        with torch.no_grad():
            expected = float(metric(decoder(corrupted)))
        handle.remove()
        assert effect.metric == expected
        assert effect.restored == pytest.approx((expected - worst) / (best - worst))


def test_what_must_come_back(decoder, clean, corrupted):
    """The past of the changed token is the same; at the last layer all depends on the last token."""
    effects = patching_effects(decoder, clean, corrupted, "layers.?", metric, each="token")
    restored = torch.tensor([effect.restored for effect in effects]).reshape(3, 7)
    assert (restored[:, :2] == 0).all()
    assert restored[2, -1] == pytest.approx(1)
    assert (restored[2, :-1] == 0).all()
    whole = [effect.restored for effect in patching_effects(decoder, clean, corrupted, "layers.?", metric)]
    assert whole == pytest.approx([1, 1, 1])


def test_heads_and_heads_by_token(decoder, clean, corrupted):
    point = "layers.1.attention.heads"
    by_head = list(patching_effects(decoder, clean, corrupted, point, metric, each="head"))
    assert [e.index for e in by_head] == [(head,) for head in range(7)]
    by_both = list(patching_effects(decoder, clean, corrupted, point, metric, each="query head"))
    assert [e.index for e in by_both] == [(token, head) for token in range(7) for head in range(7)]
    with torch.no_grad(), hw.record(decoder, point) as seen:
        decoder(clean)

    def put(heads):
        heads[:, 5, 3] = seen[point][:, 5, 3]

    with torch.no_grad(), hw.patch(decoder, {point: put}):
        assert by_both[5 * 7 + 3].metric == float(metric(decoder(corrupted)))


def test_weights_beside_the_fused_kernel(decoder, clean, corrupted):
    weights = tuple(f"{name}.weights" for name in describe(decoder).attention)
    effects = list(patching_effects(decoder, clean, corrupted, weights, metric, each="head"))
    assert len(effects) == 21
    assert any(effect.restored for effect in effects)


def test_several_inputs_and_images():
    translator = small_translator()
    source, target = inputs_of(translator, batch=1)
    other = source.flip(1)
    last_of_encoder, last = describe(translator).layers[1], describe(translator).layers[-1]
    effects = patching_effects(translator, (source, target), (other, target), (last_of_encoder, last), metric)
    assert [(e.name, pytest.approx(e.restored)) for e in effects] == [(last_of_encoder, 1), (last, 1)]

    vit = small_vit()
    (one,), (two,) = inputs_of(vit, batch=1), inputs_of(vit, batch=1)
    effects = list(patching_effects(vit, one, two, "layers.2", lambda logits: logits[0, 1], each="token"))
    assert len(effects) == 7  # a class token and 2 x 3 patches
    assert [effect.restored for effect in effects] == pytest.approx([1, 0, 0, 0, 0, 0, 0])


def test_keywords_go_to_both_runs(decoder, clean, corrupted):
    visible = torch.tensor([[False, False, False, True, True, True, True]])  # the difference is hidden
    with pytest.raises(ValueError, match="must tell the clean input from the corrupted one"):
        patching_effects(decoder, clean, corrupted, "layers.0", metric, visible=visible)


def test_the_model_is_as_it_was_between_two_effects(clean, corrupted):
    decoder = small_decoder(dropout=0.5).train()
    hooks = hooks_of(decoder)
    effects = patching_effects(decoder, clean, corrupted, "layers.?", metric)
    for effect in effects:
        assert decoder.training
        assert torch.is_grad_enabled()
        assert hooks_of(decoder) == hooks
        assert effect.restored == pytest.approx(1)


def test_mistakes_are_found_before_the_first_effect(decoder, clean, corrupted):
    for points, each, message in (
        ("layers.0.attention.head", "", "did you mean 'layers.0.attention.heads'"),
        ("layers.0", "head", "layers.0 has no axis called 'head'; its axes are batch token d_model"),
        ("layers.0.attention.query", "token", "no axis called 'token'; its axes are not named"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            patching_effects(decoder, clean, corrupted, points, metric, each=each)


def test_inputs_of_different_lengths_are_refused(decoder, clean):
    longer = torch.randint(VOCAB, (1, 8))
    effects = patching_effects(decoder, clean, longer, "layers.0", metric, each="token")
    with pytest.raises(ValueError, match=re.escape("give (1, 7, 14) and (1, 8, 14) at layers.0")):
        next(effects)


def test_a_point_that_passes_twice_in_a_call_is_refused() -> None:
    """Source and target share one embedding: the value of one must not be put into the other."""
    model = small_translator()
    source, target, corrupted = (torch.randint(VOCAB, (1, 6)) for _ in range(3))
    with pytest.raises(ValueError, match=r"points must pass once in a call of the model, got embedding, .* 2 times"):
        hw.inspection.patching_effects(
            model, (source, target), (corrupted, target), "embedding", lambda logits: logits[0, -1, 7]
        )


def test_a_cache_of_one_call_is_refused() -> None:
    model, ids = small_decoder(), torch.randint(VOCAB, (1, 6))
    for ask in (
        lambda: hw.lens(model, ids, cache=model.new_cache()),
        lambda: hw.inspection.patching_effects(
            model, ids, ids.flip(1), "layers.0", lambda logits: logits[0, -1, 7], cache=model.new_cache()
        ),
    ):
        with pytest.raises(ValueError, match="calls the model several times: leave out cache"):
            ask()


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": "gpt2"}, "model must be a module, got 'gpt2'"),
        ({"clean": [1, 2]}, "clean must be a tensor or a tuple of tensors, got [1, 2]"),
        ({"corrupted": (torch.zeros(1), None)}, "corrupted must be a tensor or a tuple of tensors, got None"),
        ({"points": 3}, "points must be the name of a point or several names, got 3"),
        ({"points": [3]}, "name must be the name of a point, or a pattern of names, got 3"),
        ({"metric": 0.5}, "metric must be a function of the model's output, got 0.5"),
        ({"metric": lambda logits: logits[0, -1]}, "metric must be a function that returns one number, got tensor(["),
        ({"metric": lambda logits: None}, "metric must be a function that returns one number, got None"),
        ({"each": 1}, "each must be the names of axes, got 1"),
    ],
)
def test_arguments_of_the_wrong_type_are_named(change, message):
    clean, corrupted = torch.tensor([[3, 1, 4]]), torch.tensor([[3, 1, 9]])
    arguments = {
        "model": small_decoder(),
        "clean": clean,
        "corrupted": corrupted,
        "points": "layers.1",
        "metric": lambda logits: logits[0, -1, 7],
    }
    with pytest.raises(TypeError, match=re.escape(message)):
        hw.inspection.patching_effects(**arguments | change)
