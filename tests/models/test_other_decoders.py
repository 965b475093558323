"""Decoders with the choices that models of today make: what every choice owes, whoever made it."""

import itertools
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

import headwork as hw
from headwork import choices
from headwork.models import DecoderConfig
from headwork.models.published import MODEL_CONFIGS
from headwork.serialise import config_from_dict, config_to_dict

from .small_models import EXPERTS, GEMMA3, LLAMA, NEOX, OTHER_DECODERS, VOCAB, decoder, ready, real_tokens, some_ids

every_decoder = pytest.mark.parametrize("name", OTHER_DECODERS)
N_TOKEN = 11


def make(name: str, **changes: Any) -> Any:
    return ready(decoder(**{**OTHER_DECODERS[name], **changes}))


@pytest.mark.usefixtures("float64")
@every_decoder
@pytest.mark.parametrize("real", [None, real_tokens((11, 6), 11, "left")], ids=["whole", "padded"])
def test_in_pieces_and_one_token_at_a_time_as_at_once(name: str, real: Tensor | None) -> None:
    model, ids = make(name), some_ids(2, N_TOKEN)
    whole = model(ids, visible=real)
    one_token, cache = model.one_token(), model.new_cache()
    assert one_token is not None
    pieces = [
        model(ids[:, start:end], visible=None if real is None else real[:, :end], cache=cache)
        for start, end in itertools.pairwise((0, 4, 5, 7))
    ]
    for i in range(7, N_TOKEN):
        scores = one_token(ids[:, i : i + 1], None if real is None else real[:, : i + 1], cache)
        pieces.append(scores[:, None])
    chosen = torch.ones(2, N_TOKEN, dtype=torch.bool) if real is None else real
    torch.testing.assert_close(torch.cat(pieces, dim=1)[chosen], whole[chosen], rtol=0, atol=1e-10)


@pytest.mark.usefixtures("float64")
@every_decoder
def test_looking_changes_nothing(name: str) -> None:
    model, ids = make(name), some_ids(2, N_TOKEN)
    plain = model(ids)
    with hw.record(model) as seen:
        looked_at = model(ids)
        weights = seen["layers.0.attention.weights"]
    torch.testing.assert_close(looked_at, plain, rtol=0, atol=1e-12)
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
    with hw.patch(model, {"layers.0.attention.weights": lambda weights: weights.clone()}):
        torch.testing.assert_close(model(ids), plain, rtol=0, atol=1e-12)
    with hw.patch(model, {"layers.*.attention.scores": lambda scores: scores.clone()}):
        torch.testing.assert_close(model(ids), plain, rtol=0, atol=1e-12)


@every_decoder
def test_it_is_traced_and_counted(name: str) -> None:
    model, ids = decoder(**OTHER_DECODERS[name]), some_ids(2, N_TOKEN)
    rows = {row.name: row for row in hw.trace(model, ids)}
    assert rows["layers.0.attention.weights"].shape[-2:] == (N_TOKEN, N_TOKEN)
    counted = hw.cost(model, ids)
    assert {"projections", "scores", "mixing", "feed-forward", "output"} <= counted.by_operation().keys()
    with FakeTensorMode(allow_non_fake_inputs=True):
        assert (
            hw.cost(decoder(**OTHER_DECODERS[name]), torch.zeros(2, N_TOKEN, dtype=torch.long)).flops == counted.flops
        )


def test_a_token_pays_for_the_experts_it_sees() -> None:
    """Router, two experts of three matrices and the shared one with its gate, in every layer."""
    model, ids, (d_model, d_ff, d_shared) = decoder(**EXPERTS), some_ids(2, 7), (18, 7, 11)
    of_token = 5 * d_model + 2 * 3 * d_model * d_ff + 3 * d_model * d_shared + d_model
    assert hw.cost(model, ids).by_operation()["feed-forward"] == 2 * 2 * 14 * of_token


@every_decoder
def test_its_config_is_a_file(name: str) -> None:
    config = decoder(**OTHER_DECODERS[name]).config
    assert config_from_dict(config_to_dict(config), MODEL_CONFIGS) == config


@pytest.mark.usefixtures("float64")
def test_a_window_is_a_mask() -> None:
    """Two layers of a window of 3: token i knows tokens i - 4 to i, and no other."""
    model, ids = ready(decoder(**LLAMA, window=choices.SlidingWindow(n_tokens=3))), some_ids(1, N_TOKEN)
    changed = ids.clone()
    changed[:, 2] = (ids[:, 2] + 1) % VOCAB
    moved = (model(ids) - model(changed)).abs().amax((0, 2)) > 1e-9
    assert moved.tolist() == [2 <= i <= 6 for i in range(N_TOKEN)]
    with hw.record(model, "layers.0.attention.weights") as seen:
        model(ids)
    near = hw.masks.causal(N_TOKEN) & hw.masks.window(N_TOKEN, radius=2)
    assert torch.equal(seen["layers.0.attention.weights"][0, 0] > 0, near)


@pytest.mark.usefixtures("float64")
def test_a_window_wider_than_the_text_is_none() -> None:
    plain, ids = ready(decoder(**LLAMA)), some_ids(2, N_TOKEN)
    wide = ready(decoder(**LLAMA, window=choices.SlidingWindow(n_tokens=N_TOKEN)))
    assert torch.equal(wide(ids), plain(ids))


@pytest.mark.usefixtures("float64")
def test_caps_bind_large_scores_and_leave_small_ones() -> None:
    scores = torch.tensor([-1e6, -1.0, 0.0, 0.5, 1e6])
    capped = hw.functional.soft_cap(scores, 30.0)
    assert capped.tolist() == pytest.approx([-30.0, -1.0, 0.0, 0.5, 30.0], abs=1e-3)
    model = make("gemma3")
    assert model(some_ids(2, 7)).abs().max() <= 3.0
    with hw.record(model, "layers.*.attention.scores") as seen:
        model(some_ids(1, 5))
    visible = seen["layers.1.attention.scores"][0, 0].tril()
    assert visible.abs().max() <= 5.0


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("normalised", [True, False])
def test_experts_equal_a_loop_over_tokens(normalised: bool) -> None:
    torch.manual_seed(0)
    experts = ready(hw.layers.MixtureOfExperts(6, 5, n_experts=4, n_active=2, normalised=normalised))
    x = torch.randn(3, 7, 6)
    expected = torch.zeros_like(x)
    for row, token in itertools.product(range(3), range(7)):
        p = experts.router(x[row, token]).softmax(-1)
        best = sorted(range(4), key=lambda e: -p[e].item())[:2]
        total = sum(p[e] for e in best) if normalised else 1.0
        for e in best:
            expected[row, token] += p[e] / total * experts.experts[e](x[row, token][None])[0]
    torch.testing.assert_close(experts(x), expected)
    by_token = experts._by_token(
        x.flatten(0, 1),
        *(t.flatten(0, 1) for t in hw.functional.choose_experts(experts.router(x), 2, normalised=normalised)),
    )
    torch.testing.assert_close(by_token.view(x.shape), expected)


@pytest.mark.usefixtures("float64")
def test_experts_and_their_gradients_on_both_paths() -> None:
    experts, x = ready(hw.layers.MixtureOfExperts(6, 5, n_experts=4, n_active=3, bias=True)), torch.randn(9, 6)
    weights, chosen = hw.functional.choose_experts(experts.router(x), 3)
    one, other = experts._by_expert(x, weights, chosen), experts._by_token(x, weights, chosen)
    torch.testing.assert_close(one, other)
    parameters = list(experts.parameters())
    gradients = [
        torch.autograd.grad(y.square().sum(), parameters, retain_graph=True, allow_unused=True) for y in (one, other)
    ]
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(torch.zeros(()) if a is None else a, torch.zeros(()) if b is None else b)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: decoder(**NEOX, norm_order="post"), "norm_order must be 'pre' beside layer=ParallelLayer"),
        (
            lambda: decoder(window=choices.SlidingWindow(n_tokens=3, layers=(0, 2))),
            r"layers of the window .* got \[2\]",
        ),
        (lambda: choices.MixtureOfExperts(n_experts=2, n_active=3, d_ff=5), "n_active must be at most n_experts=2"),
        (lambda: choices.SlidingWindow(n_tokens=0), "n_tokens must be 1 or more, got 0"),
        (lambda: choices.Heads(n_heads=3, softcap=0.0), "softcap must be more than 0"),
        (lambda: hw.functional.choose_experts(torch.zeros(3), 4), "n_active must lie in 1 .. 3"),
        (lambda: hw.layers.CappedAttention(8, 2, cap=50.0, beta=float("inf")), "beta must be at most"),
    ],
)
def test_choices_that_cannot_be(build: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        build()


def test_nothing_is_paid_by_who_does_not_choose() -> None:
    """A plain model has no more modules, parameters or hook points than before."""
    config = DecoderConfig(vocab=VOCAB, **{"d_model": 18, "n_layers": 1, **LLAMA})
    names = {name.removeprefix("layers.0.") for name, _ in config.build().named_modules() if "layers.0." in name}
    assert not {name for name in names if "norm" in name} - {"attention_norm", "feed_forward_norm"}
    assert replace(config, window=None, layer=choices.SequentialLayer()) == config
    assert not isinstance(config.build().layers[0].attention, hw.layers.CappedAttention)
    assert isinstance(decoder(**GEMMA3).layers[0].attention.query_norm, nn.Module)


@pytest.mark.skipif("fbgemm" not in torch.backends.quantized.supported_engines, reason="there is no product in int8")
@every_decoder
def test_in_int8_it_is_nearly_the_same(name: str) -> None:
    """Caps, norms, windows and experts are those of the float32 model."""
    model, ids = make(name).float(), some_ids(2, N_TOKEN)
    with torch.no_grad():
        whole = model(ids)
        rounded = hw.quantize(model, bits=8)
        near = rounded(ids)
        assert (near - whole).abs().max() < 0.2 * whole.abs().max()
        one_token, cache = rounded.one_token(), rounded.new_cache()
        pieces = torch.stack([one_token(ids[:, i : i + 1], None, cache) for i in range(N_TOKEN)], dim=1)
    torch.testing.assert_close(pieces, near, rtol=0, atol=1e-4)
