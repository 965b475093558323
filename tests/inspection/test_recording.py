"""hw.record: any named point, weights beside the fused path too, and the output stays what it was."""

import pytest
import torch
from torch import nn

import headwork as hw
from headwork.choices import ClassToken, FeedForward, Heads, RotaryPositions
from headwork.functional import attention_weights
from headwork.inspection import recording
from headwork.layers import LazyHookPoint
from headwork.models import Decoder, DecoderConfig, VisionTransformer, VisionTransformerConfig
from tests.inspection.small_models import cells_of


@pytest.fixture
def decoder():
    return Decoder(
        DecoderConfig(
            vocab=31,
            d_model=14,
            n_layers=3,
            heads=Heads(n_heads=7),
            feed_forward=FeedForward(d_ff=19),
            position=RotaryPositions(),
            dropout=0.3,
            attention_dropout=0.3,
        )
    )


@pytest.fixture
def ids():
    return torch.randint(31, (2, 11))


def test_weights_of_every_layer_are_there_in_eval_without_gradients(decoder, ids):
    """pytorch#119811, #98505, #128413, #132700: the fast path gave no weights, and no hook fired."""
    decoder.eval()
    with torch.no_grad(), hw.record(decoder) as seen:
        decoder(ids)
    for layer in range(3):
        weights = seen[f"layers.{layer}.attention.weights"]
        assert weights.shape == (2, 7, 11, 11)
        torch.testing.assert_close(weights.sum(-1), torch.ones(2, 7, 11))
        assert (weights.triu(1) == 0).all()


@pytest.mark.parametrize("training", [False, True])
def test_looking_does_not_change_the_output(decoder, ids, training):
    """pytorch#152028: asking for weights changed the result."""
    decoder.train(training)
    torch.manual_seed(1)
    alone = decoder(ids)
    torch.manual_seed(1)
    with hw.record(decoder) as seen:
        watched = decoder(ids)
        assert all(value is not None for value in seen.values())
    torch.testing.assert_close(watched, alone, rtol=0, atol=0)


def test_shown_weights_explain_the_heads(decoder, ids):
    decoder.eval()
    with hw.record(decoder) as seen:
        decoder(ids)
    values = seen["layers.1.attention.values"].transpose(1, 2)
    mixed = (seen["layers.1.attention.weights"] @ values).transpose(1, 2)
    torch.testing.assert_close(mixed, seen["layers.1.attention.heads"], rtol=1e-5, atol=1e-6)


def test_weights_are_the_softargmax_of_the_scores(decoder, ids):
    decoder.eval()
    with hw.record(decoder, "layers.0.attention.*") as seen:
        decoder(ids)
    hidden = seen["layers.0.attention.scores"].masked_fill(~hw.masks.causal(11), -torch.inf)
    torch.testing.assert_close(hidden.softmax(-1), seen["layers.0.attention.weights"])


def test_only_what_is_looked_at_is_computed(decoder, ids, monkeypatch):
    """transformers#22469: all layers or none."""
    computed = []

    def counting(q, k, **keywords):
        computed.append(q)
        return attention_weights(q, k, **keywords)

    monkeypatch.setattr("headwork.layers.attention.attention_weights", counting)
    with hw.record(decoder) as seen:
        decoder(ids)
    assert computed == []
    first, again = seen["layers.2.attention.weights"], seen["layers.2.attention.weights"]
    assert len(computed) == 1
    assert first is again


def test_the_gradient_passes_through_what_was_seen(decoder, ids):
    with hw.record(decoder, "layers.0.attention.weights") as seen:
        decoder(ids)
    seen["layers.0.attention.weights"].square().sum().backward()
    assert decoder.layers[0].attention.query.weight.grad.abs().sum() > 0


def test_patterns_choose(decoder, ids):
    with hw.record(decoder, "layers.*.attention.weights", "layers.embedded") as seen:
        decoder(ids)
    assert list(seen) == ["layers.embedded", *(f"layers.{i}.attention.weights" for i in range(3))]


def test_module_outputs_and_the_output_itself_have_names(decoder, ids):
    decoder.eval()
    with hw.record(decoder, "layers.1", "output") as seen:
        logits = decoder(ids)
    assert seen["output"] is logits
    assert seen["layers.1"].shape == (2, 11, 14)


def test_an_unknown_pattern_names_the_nearest_point(decoder):
    with (
        pytest.raises(ValueError, match=r"did you mean 'layers\.0\.attention\.weights'"),
        hw.record(decoder, "layers.0.attention.weight"),
    ):
        pass


def test_an_unknown_name_names_the_nearest_point(decoder, ids):
    with hw.record(decoder) as seen:
        decoder(ids)
    with pytest.raises(KeyError, match="did you mean"):
        seen["layer.0.attention.weights"]


def test_a_model_that_was_not_called_is_an_error_that_says_so(decoder):
    with hw.record(decoder) as seen:
        pass
    with pytest.raises(KeyError, match="call the model inside the with block"):
        seen["layers.0"]


def test_the_last_call_counts_unless_every_call_is_kept(decoder, ids):
    decoder.eval()
    with (
        hw.record(decoder, "layers.embedded") as last,
        hw.record(decoder, "layers.embedded", every_call=True) as all_calls,
    ):
        decoder(ids[:, :3])
        decoder(ids[:, :5])
    assert last["layers.embedded"].shape == (2, 5, 14)
    assert [t.shape[1] for t in all_calls.calls("layers.embedded")] == [3, 5]
    assert [t.shape[1] for t in last.calls("layers.embedded")] == [5]


def test_weights_of_a_cached_step_stay_as_they_were_when_the_cache_grows(decoder, ids):
    decoder.eval()
    cache = decoder.new_cache()
    with hw.record(decoder, "layers.0.attention.weights", every_call=True) as seen:
        decoder(ids[:, :4], cache=cache)
        decoder(ids[:, 4:], cache=cache)
    with hw.record(decoder, "layers.0.attention.weights") as whole:
        decoder(ids)
    early, late = seen.calls("layers.0.attention.weights")
    everything = whole["layers.0.attention.weights"]
    torch.testing.assert_close(early, everything[:, :, :4, :4])
    torch.testing.assert_close(late, everything[:, :, 4:])


def test_everything_comes_off_again_even_after_an_error(decoder):
    def hooks():
        watched = sum(len(m._forward_hooks) for m in decoder.modules())
        return watched + sum(len(m._lazy_hooks) for m in decoder.modules() if isinstance(m, LazyHookPoint))

    def fail_while_recording():
        with hw.record(decoder):
            assert hooks() > 0
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_while_recording()
    assert hooks() == 0


@pytest.mark.usefixtures("as_users_run_it")
def test_a_compiled_model_is_refused_not_silently_empty():
    layer = nn.Linear(3, 3)
    in_place = nn.Linear(3, 3)
    in_place.compile(backend="eager")
    for compiled in (torch.compile(layer, backend="eager"), in_place):
        with pytest.raises(ValueError, match="compiled"), hw.record(compiled):
            pass


def test_any_torch_module_can_be_recorded():
    network = nn.Sequential(nn.Linear(3, 5), nn.ReLU())
    with hw.record(network) as seen:
        output = network(torch.randn(2, 3))
    assert seen["0"].shape == (2, 5)
    assert seen["output"] is output


def test_images_too():
    """bertviz#94: images were out of scope."""
    model = VisionTransformer(
        VisionTransformerConfig(
            n_classes=10,
            image=(6, 9),
            patch=(3, 3),
            d_model=14,
            n_layers=2,
            heads=Heads(n_heads=7),
            feed_forward=FeedForward(d_ff=19),
            pooling=ClassToken(),
        )
    )
    with hw.record(model) as seen:
        model(torch.randn(2, 3, 6, 9))
    assert seen["layers.1.attention.weights"].shape == (2, 7, 7, 7)


def test_a_recording_is_a_mapping(decoder, ids):
    with hw.record(decoder, "layers.embedded", "layers.0.attention.weights") as seen:
        decoder(ids)
    assert isinstance(seen, recording.Recording)
    assert len(seen) == 2
    assert {name: tuple(value.shape) for name, value in seen.items()} == {
        "layers.embedded": (2, 11, 14),
        "layers.0.attention.weights": (2, 7, 11, 11),
    }


def test_what_is_seen_is_what_flowed_after_a_hook_has_edited_it(decoder, ids):
    decoder.eval()
    attention = decoder.layers[1].attention
    handle = attention.weights.register_forward_hook(lambda point, inputs, weights: torch.full_like(weights, 1 / 11))
    with hw.record(decoder) as seen:
        decoder(ids)
    handle.remove()
    values = seen["layers.1.attention.values"].transpose(1, 2)
    mixed = (seen["layers.1.attention.weights"] @ values).transpose(1, 2)
    torch.testing.assert_close(mixed, seen["layers.1.attention.heads"], rtol=1e-5, atol=1e-6)


def test_calls_of_an_unknown_name_are_an_error(decoder, ids):
    with hw.record(decoder, every_call=True) as seen:
        decoder(ids)
    with pytest.raises(KeyError, match="did you mean"):
        seen.calls("layer.0.attention.weights")


@pytest.mark.computes_in(torch.bfloat16)
def test_relative_positions_under_autocast_can_be_looked_at_outside():
    layer = hw.layers.MultiHeadAttention(8, 2, relative=hw.layers.RelativeShifts(8, 2, 4))
    x = torch.randn(1, 5, 8)
    with hw.record(layer) as seen, torch.autocast("cpu", torch.bfloat16):
        layer(x, x)
    torch.testing.assert_close(seen["weights"].float().sum(-1), torch.ones(1, 2, 5), rtol=0, atol=0.02)


def test_a_recording_prints_names_and_shapes_and_computes_nothing_for_it(decoder, ids):
    weights = "layers.0.attention.weights"
    with hw.record(decoder, weights, "layers.0", every_call=True) as seen:
        assert repr(seen) == "Recording: 0 of 2 points passed"
        decoder(ids[:, :5])
        decoder(ids)

    lines = [
        "Recording: 2 of 2 points passed",
        "  layers.0.attention.weights  [2, 7, 11, 11]  2 calls",
        "  layers.0                    [2, 11, 14]  2 calls",
    ]
    assert repr(seen) == "\n".join(lines)
    assert seen.shape(weights) == (2, 7, 11, 11)
    assert type(seen[weights]) is torch.Tensor  # not the fake tensor that the shape was found with
    assert ["layers.0.attention.weights", "[2, 7, 11, 11]", "2 calls"] in cells_of(seen._repr_html_())
    with pytest.raises(KeyError, match="did you mean"):
        seen.shape("layers.0.attention.weight")
