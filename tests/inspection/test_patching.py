"""hw.patch: what is put in is what flows on, in every path of every model, and nothing is left behind."""

import math
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import headwork as hw
from headwork.choices import AlibiPositions, Heads, LearnedPositions
from headwork.generation import beam_search, generate, translate
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


def points_passed(model, inputs):
    with hw.record(model) as seen:
        model(*inputs)
    return list(seen)


def uniform(weights):
    """The same weight for each visible key."""
    visible = weights > 0
    return visible / visible.sum(-1, keepdim=True).clamp(min=1)


# --- what is put in flows on ---


@pytest.mark.parametrize(
    "make", [pytest.param(make, marks=pytest.mark.slow if make is small_translator else ()) for make in MODELS]
)
def test_every_point_of_every_model_is_patched_as_by_a_raw_hook(make):
    model = make()
    inputs = inputs_of(model)
    plain = model(*inputs)
    for name in points_passed(model, inputs):
        with hw.patch(model, {name: lambda value: 0.5 * value.flip(0) + 0.1}):
            patched = model(*inputs)
        module = model if name == "output" else model.get_submodule(name)
        handle = module.register_forward_hook(lambda module, inputs, value: 0.5 * value.flip(0) + 0.1)
        expected = model(*inputs)
        handle.remove()
        torch.testing.assert_close(patched, expected, rtol=0, atol=0)
        assert not torch.equal(patched, plain), name


@pytest.mark.parametrize("heads", [Heads(n_heads=7), Heads(n_heads=14, n_kv_heads=7, d_head=6, d_value=4)])
def test_uniform_weights_give_the_mean_of_the_past_values(heads, ids):
    decoder = small_decoder(heads=heads)
    with (
        hw.patch(decoder, {"layers.1.attention.weights": uniform}),
        hw.record(decoder, "layers.1.attention.*") as seen,
    ):
        decoder(ids)
    values = seen["layers.1.attention.values"]  # batch key kv_head d_value
    means = values.cumsum(1) / torch.arange(1, 12)[:, None, None]
    means = means.repeat_interleave(heads.n_heads // 7, dim=2)
    torch.testing.assert_close(seen["layers.1.attention.heads"], means)


@pytest.mark.parametrize("position", [AlibiPositions(), LearnedPositions(max_tokens=20)])
def test_patched_scores_go_through_mask_and_softargmax(position, ids):
    decoder = small_decoder(position=position)
    name = "layers.0.attention"
    with hw.record(decoder, f"{name}.*") as plain:
        decoder(ids)
    with hw.patch(decoder, {f"{name}.scores": lambda scores: 3 * scores}), hw.record(decoder, f"{name}.*") as seen:
        decoder(ids)
    hidden = (3 * plain[f"{name}.scores"]).masked_fill(~hw.masks.causal(11), -math.inf)
    weights = hidden.softmax(-1)
    torch.testing.assert_close(seen[f"{name}.weights"], weights)
    heads = (weights @ plain[f"{name}.values"].transpose(1, 2)).transpose(1, 2)
    torch.testing.assert_close(seen[f"{name}.heads"], heads)


def test_attention_without_heads_adds_the_bias_of_its_output_only(decoder, ids):
    with (
        hw.patch(decoder, {"layers.*.attention.heads": torch.zeros_like}),
        hw.record(decoder, "layers.?.attention") as seen,
    ):
        decoder(ids)
    for i, layer in enumerate(decoder.layers):
        expected = layer.attention.out.bias.expand(2, 11, 14)
        torch.testing.assert_close(seen[f"layers.{i}.attention"], expected, rtol=0, atol=0)


@pytest.mark.parametrize("make", MODELS)
def test_the_last_layer_of_another_input_gives_the_answer_of_that_input(make):
    model = make()
    one, other = inputs_of(model), inputs_of(model)
    last = describe(model).layers[-1]
    with hw.record(model, last) as seen:
        expected = model(*other)
    with hw.patch(model, {last: seen[last]}):
        torch.testing.assert_close(model(*one), expected, rtol=0, atol=0)
    with hw.patch(model, seen):  # a recording is such a dictionary
        torch.testing.assert_close(model(*one), expected, rtol=0, atol=0)


def test_a_number_stands_for_all_entries(decoder, ids):
    with hw.patch(decoder, {"layers.1.feed_forward.hidden": 2}), hw.record(decoder, "*.hidden") as seen:
        decoder(ids)
    assert (seen["layers.1.feed_forward.hidden"] == 2.0).all()


def test_hard_attention_too(ids):
    decoder = small_decoder(heads=Heads(n_heads=7, beta=math.inf))
    with hw.patch(decoder, {"layers.0.attention.scores": torch.zeros_like}), hw.record(decoder, "*.weights") as seen:
        decoder(ids)
    torch.testing.assert_close(seen["layers.0.attention.weights"][0, 0].sum(-1), torch.ones(11))
    torch.testing.assert_close(seen["layers.0.attention.weights"][0, 0, 4, :5], torch.full((5,), 0.2))


def test_patched_weights_are_dropped_out_in_training_like_any(ids):
    decoder = small_decoder(dropout=0.4).train()

    def run(edits):
        torch.manual_seed(3)
        with hw.patch(decoder, edits), hw.record(decoder, "layers.0.attention.heads") as seen:
            decoder(ids)
        return seen["layers.0.attention.heads"]

    ones = run({"layers.0.attention.weights": uniform, "layers.0.attention.values": 1})
    assert not torch.allclose(ones, torch.ones_like(ones))  # rows of 1 / n, some of them dropped
    twice = run({"layers.0.attention.weights": lambda w: 2 * uniform(w), "layers.0.attention.values": 1})
    torch.testing.assert_close(twice, 2 * ones)


# --- if nothing is changed, nothing changes ---


@pytest.mark.parametrize("make", MODELS)
@pytest.mark.parametrize("edit", [lambda value: None, lambda value: value], ids=["none", "itself"])
def test_an_edit_that_changes_nothing_changes_no_bit(make, edit):
    model = make().train()
    inputs = inputs_of(model)
    torch.manual_seed(1)
    plain = model(*inputs)
    torch.manual_seed(1)
    with hw.patch(model, dict.fromkeys(points_passed(model, inputs)[::-1], edit)):
        torch.manual_seed(1)
        assert torch.equal(model(*inputs), plain)


@pytest.mark.slow
@settings(deadline=None, max_examples=30)
@given(st.data())
def test_nothing_is_left_behind(data):
    torch.manual_seed(0)
    model = small_decoder()
    inputs = inputs_of(model)
    names = points_passed(model, inputs)
    with hw.record(model), hw.patch(model, {"layers.0": lambda x: x + 1}):  # hooks of others stay, in their order
        before, plain = hooks_of(model), model(*inputs)
        chosen = data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=5, unique=True))
        fails = data.draw(st.sampled_from([None, "edit", "block", "later name"]))

        def edit(value):
            if fails == "edit":
                raise ZeroDivisionError
            return value + 1

        def block():
            missing = {"no.such.point": edit} if fails == "later name" else {}
            with hw.patch(model, {**dict.fromkeys(chosen, edit), **missing}):
                model(*inputs)
                if fails == "block":
                    raise ZeroDivisionError

        if fails is None:
            block()
        else:
            with pytest.raises(ValueError if fails == "later name" else ZeroDivisionError):
                block()
        assert hooks_of(model) == before
        assert torch.equal(model(*inputs), plain)
    assert not any(hook for hooks in hooks_of(model).values() for hook in hooks)


# --- together with others ---


def test_a_recording_sees_the_patched_value_whichever_was_opened_first(decoder, ids):
    names = ["layers.0", "layers.1.attention.heads", "layers.1.attention.weights", "lm_head"]
    edits = dict.fromkeys(names, lambda value: torch.full_like(value, 0.25))
    with hw.record(decoder, *names) as outer, hw.patch(decoder, edits), hw.record(decoder, *names) as inner:
        decoder(ids)
    for seen in (outer, inner):
        assert {name: float(seen[name].unique()) for name in names} == dict.fromkeys(names, 0.25)


@pytest.mark.parametrize("name", ["layers.1", "layers.1.attention.heads", "layers.1.attention.weights"])
def test_edits_apply_from_outside_in_and_in_the_order_of_the_dictionary(decoder, ids, name):
    order = []

    def note(word):
        return lambda value: order.append(word)

    with (
        hw.patch(decoder, {name: note("outer"), f"?{name[1:]}": note("outer, by pattern")}),
        hw.record(decoder),
        hw.patch(decoder, {name: note("inner")}),
    ):
        decoder(ids)
    assert order == ["outer", "outer, by pattern", "inner"]


def test_an_inner_edit_gets_what_the_outer_one_gave(decoder, ids):
    with (
        hw.patch(decoder, {"layers.0": torch.ones_like}),
        hw.patch(decoder, {"layers.0": lambda x: 3 * x}),
        hw.record(decoder, "layers.0") as seen,
    ):
        decoder(ids)
    assert (seen["layers.0"] == 3).all()


def test_a_raw_hook_of_the_user_runs_in_its_turn(decoder, ids):
    handle = decoder.layers[0].register_forward_hook(lambda module, inputs, output: torch.ones_like(output))
    with hw.patch(decoder, {"layers.0": lambda x: x + 1}), hw.record(decoder, "layers.0") as seen:
        decoder(ids)
    handle.remove()
    assert (seen["layers.0"] == 2).all()


# --- gradients ---


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("name", ["layers.0", "layers.1.attention.heads", "layers.1.attention.weights", "*.scores"])
def test_gradients_pass_through_the_edit(name):
    decoder, ids = small_decoder(), torch.randint(VOCAB, (1, 4))

    def logits(scale):
        with hw.patch(decoder, {name: lambda value: value + scale * torch.linspace(0, 1, value.shape[-1])}):
            return decoder(ids)[0, -1, :3]

    assert torch.autograd.gradcheck(logits, (torch.tensor(1.3, requires_grad=True),))


def test_a_tensor_that_is_put_in_gets_its_gradient_and_what_it_replaced_gets_none(decoder, ids):
    new = torch.randn(2, 11, 14, requires_grad=True)
    with hw.patch(decoder, {"layers.0": new}):
        decoder(ids).sum().backward()
    assert new.grad.abs().sum() > 0
    gradient = decoder.layers[0].feed_forward.up.weight.grad
    assert gradient is None or not gradient.any()


@pytest.mark.parametrize("name", ["layers.0.attention.heads", "layers.0.attention.weights", "layers.0", "*.queries"])
def test_writing_into_the_tensor_is_an_edit_and_harms_no_gradient(decoder, ids, name):
    def write(value):
        value[..., 0] = 0.0

    def pure(value):
        return torch.cat([torch.zeros_like(value[..., :1]), value[..., 1:]], dim=-1)

    results = []
    for edit in (write, pure):
        decoder.zero_grad()
        with hw.patch(decoder, {name: edit}):
            logits = decoder(ids)
        logits.square().mean().backward()
        results.append((logits, decoder.layers[0].attention.value.weight.grad.clone()))
    torch.testing.assert_close(*results, rtol=0, atol=0)


def test_writing_does_not_reach_what_was_recorded_before_the_point(decoder, ids):
    def write(value):
        value.zero_()

    with hw.patch(decoder, {"layers.0.attention.queries": write}), hw.record(decoder, "layers.0.*") as seen:
        decoder(ids)
    assert (seen["layers.0.attention.queries"] == 0).all()
    assert seen["layers.0.attention.query"].abs().sum() > 0


# --- generation ---

POINTS_OF_GENERATION = ["attention.weights", "attention.scores", "attention.heads", "attention.values", "feed_forward"]


def edit_of(point):
    if point.endswith("weights"):
        return lambda weights: torch.ones_like(weights) * (torch.arange(weights.shape[-1]) == 0)  # the first key only
    return lambda value: -2 * value


def generate_slowly(next_logits, ids, n):
    """Without a cache: the whole text again for each token."""
    start = ids.shape[1]
    for _ in range(n):
        ids = torch.cat([ids, next_logits(ids)[:, -1].argmax(-1, keepdim=True)], dim=1)
    return ids[:, start:]


@pytest.mark.parametrize("point", [*POINTS_OF_GENERATION, ""])
@pytest.mark.parametrize("n_prompt", [1, 4])
def test_a_patched_decoder_generates_with_its_cache_what_it_does_without(point, n_prompt):
    decoder, ids = small_decoder(), torch.randint(VOCAB, (8, n_prompt))
    plain = generate(decoder, ids, max_new_tokens=9)
    with torch.no_grad(), hw.patch(decoder, {f"layers.?.{point}".rstrip("."): edit_of(point)}):
        patched = generate(decoder, ids, max_new_tokens=9)
        assert torch.equal(patched, generate_slowly(decoder, ids, 9))
    assert not torch.equal(patched, plain)
    assert torch.equal(generate(decoder, ids, max_new_tokens=9), plain)


def test_a_patch_that_begins_and_ends_while_text_is_streamed_is_noticed(decoder):
    ids, calls = torch.randint(VOCAB, (1, 3)), []
    steps = hw.generation.stream(decoder, ids, max_new_tokens=9)
    next(steps)
    next(steps)
    with hw.patch(decoder, {"layers.0.attention.weights": lambda weights: calls.append(tuple(weights.shape))}):
        next(steps)
        next(steps)
    next(steps)
    assert calls == [(1, 7, 1, 5), (1, 7, 1, 6)]


@pytest.mark.parametrize("point", ["attention.weights", "cross_attention.weights", "cross_attention.scores", ""])
def test_a_patched_translator_translates_with_its_cache_what_it_does_without(point):
    model, source = small_translator(), torch.randint(VOCAB, (8, 5))
    description = describe(model)
    if point.startswith("cross"):
        names = [f"{name}.{point.removeprefix('cross_attention.')}" for name in description.cross_attention]
    elif point:
        names = [f"{name}.{point.removeprefix('attention.')}" for name in description.attention]
    else:
        names = list(description.layers)
    begin = torch.zeros(8, 1, dtype=torch.long)
    plain = beam_search(model, source, n_beams=3, max_new_tokens=8, begin=0, end=VOCAB - 1)
    with torch.no_grad(), hw.patch(model, dict.fromkeys(names, edit_of(point))):
        patched = translate(model, source, max_new_tokens=8, begin=0, end=None)
        assert torch.equal(patched, generate_slowly(lambda target: model(source, target), begin, 8))
        searched = beam_search(model, source, n_beams=1, max_new_tokens=8, begin=0, end=VOCAB - 1)
        wide = beam_search(model, source, n_beams=3, max_new_tokens=8, begin=0, end=VOCAB - 1)
        for row, found in enumerate(wide):
            target = torch.cat([begin[row], found.ids[:-1]])
            log_p = model(source[row : row + 1], target[None])[0].log_softmax(-1)
            mean = log_p.gather(1, found.ids[:, None]).mean()
            assert found.score == pytest.approx(float(mean), abs=1e-4)
    assert any(abs(found.score - unpatched.score) > 1e-3 for found, unpatched in zip(wide, plain, strict=True))
    for row, hypothesis in enumerate(searched):
        assert torch.equal(hypothesis.ids, patched[row, : len(hypothesis.ids)])


# --- mistakes, in words ---


def raises(error, message):
    return pytest.raises(error, match=re.escape(message))


def test_an_unknown_name_names_the_nearest_point(decoder):
    with raises(ValueError, "did you mean 'layers.0.attention.weights'"):
        hw.patch(decoder, {"layers.0.attention.weight": 0}).__enter__()


@pytest.mark.parametrize("name", ["layers.1", "layers.1.attention.heads", "layers.1.attention.weights"])
def test_another_shape_dtype_or_device_names_the_point_and_both(decoder, ids, name):
    with hw.record(decoder, name) as seen:
        decoder(ids)
    shape = tuple(seen[name].shape)
    for edit, message in (
        (lambda value: value[:1], f"{name} must have the shape {shape}, got {(1, *shape[1:])}"),
        (lambda value: value.double(), f"{name} must have the dtype torch.float32, got torch.float64"),
        (lambda value: value.to("meta"), f"{name} must have the device cpu, got meta"),
    ):
        with raises(ValueError, message), hw.patch(decoder, {name: edit}):
            decoder(ids)


@pytest.mark.usefixtures("as_users_run_it")
def test_what_is_no_tensor_is_refused(decoder, ids):
    with raises(TypeError, "layers.0 must be a tensor or None, got list"), hw.patch(decoder, {"layers.0": list}):
        decoder(ids)
    with raises(TypeError, "the edit of 'layers.0' must be a function, a tensor or a number, got 'zero'"):
        hw.patch(decoder, {"layers.0": "zero"}).__enter__()


def test_a_module_that_returns_no_tensor_is_refused():
    lstm = nn.Sequential(nn.LSTM(3, 5))
    with raises(TypeError, "only tensors can be patched, and 0 returns a tuple"), hw.patch(lstm, {"0": 0}):
        lstm(torch.randn(2, 3))


def test_points_that_never_pass_are_an_error_at_the_end(decoder, ids):
    decoder.add_module("spare", nn.Linear(2, 2))
    for call in (lambda: decoder(ids), lambda: None):
        with (
            raises(ValueError, "patch changed nothing at 'spare': the model did not pass it"),
            hw.patch(decoder, {"spare": 0}),
        ):
            call()
    with hw.patch(decoder, {"*": lambda value: None}):  # a pattern is content with one point that passes
        decoder(ids)
    assert not any(hook for hooks in hooks_of(decoder).values() for hook in hooks)


def test_an_error_inside_the_block_is_the_one_that_is_raised(decoder):
    with pytest.raises(ZeroDivisionError), hw.patch(decoder, {"layers.0": 0}):
        raise ZeroDivisionError


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize("look", [hw.record, lambda model, name: hw.patch(model, {name: 0})], ids=["record", "patch"])
def test_a_compiled_model_or_part_is_refused(look):
    in_place = nn.Sequential(nn.Linear(3, 3))
    in_place.compile(backend="eager")
    part = nn.Sequential(torch.compile(nn.Sequential(nn.Linear(3, 3)), backend="eager"), nn.ReLU())
    for model, name in (
        (torch.compile(nn.Sequential(nn.Linear(3, 3)), backend="eager"), "_orig_mod.0"),
        (in_place, "0"),
        (part, "0._orig_mod.0"),
    ):
        with pytest.raises(ValueError, match="compiled"):
            look(model, name).__enter__()
    with look(part, "1"):
        part(torch.randn(2, 3))


@pytest.mark.parametrize("point", ["layers.0.attention.heads", "layers.0", "layers.0.attention.weights"])
def test_an_edit_in_place_that_changes_no_number_still_passes_its_gradient(point: str) -> None:
    """A gate of ones, as head importance uses it."""
    model, ids = small_decoder(), torch.randint(VOCAB, (2, 5))
    gate = torch.ones((), requires_grad=True)

    def multiply(value: torch.Tensor) -> None:
        value.mul_(gate)

    with hw.patch(model, {point: multiply}):
        model(ids).square().sum().backward()
    assert gate.grad is not None
    assert gate.grad != 0


@pytest.mark.usefixtures("as_users_run_it")
def test_arguments_of_the_wrong_type_are_named():
    model = nn.Linear(3, 5)
    for arguments, message in (
        (("gpt2", {}), "model must be a module, got 'gpt2'"),
        ((model, ["output"]), "edits must be a mapping from names of points to edits, got ['output']"),
        ((model, {3: 0.0}), "name must be the name of a point, or a pattern of names, got 3"),
        ((model, {"output": "zero"}), "the edit of 'output' must be a function, a tensor or a number, got 'zero'"),
    ):
        with pytest.raises(TypeError, match=re.escape(message)):
            hw.patch(*arguments).__enter__()
    with pytest.raises(TypeError, match="model must be a module"):
        hw.record({"layers": 3}).__enter__()
