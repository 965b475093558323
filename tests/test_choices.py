"""Choices: small, frozen, checked, and every one of them leads somewhere."""

import dataclasses
import inspect
import math
import pickle
from typing import get_args

import pytest

from headwork import choices
from headwork.checks import check_one_of, check_positive, check_probability
from headwork.layers.attention import make_attention
from headwork.layers.mixture_of_experts import make_feed_forward
from headwork.layers.norm import make_norm
from headwork.layers.pooling import make_pooling
from headwork.layers.positions import make_grid, make_positions

D_MODEL, HEAD = 12, 3
UNIONS = {
    name: get_args(getattr(choices, name))
    for name in (
        "AnyHeads",
        "ImageHeads",
        "AnyFeedForward",
        "AnyNorm",
        "TextPositions",
        "PatchEmbedding",
        "GridPositions",
        "ImagePooling",
        "TextPooling",
        "LMHead",
        "EncoderHead",
        "ImageHead",
        "AnyLayer",
        "RotaryScaling",
    )
} | {"Heads.qk_norm": (choices.QKNorm,), "DecoderConfig.window": (choices.SlidingWindow,)}
REQUIRED = {
    "d_hidden": 7,
    "widths": (5, 7),
    "max_distance": 4,
    "n_experts": 3,
    "n_active": 2,
    "n_tokens": 5,
    "factor": 2.0,
    "original_max_tokens": 11,
    "n_heads": HEAD,
    "d_ff": 7,
    "max_tokens": 11,
    "n_classes": 5,
    "pooling": choices.MeanPooling(),
}
EVERY_KIND = sorted({kind for union in UNIONS.values() for kind in union}, key=lambda kind: kind.__name__)


def make(kind: type) -> object:
    """One with the smallest number of arguments."""
    needed = [f.name for f in dataclasses.fields(kind) if f.default is dataclasses.MISSING]
    return kind(**{name: REQUIRED[name] for name in needed})


def test_every_choice_belongs_to_a_union() -> None:
    defined = {
        kind
        for _, kind in inspect.getmembers(choices, inspect.isclass)
        if dataclasses.is_dataclass(kind) and kind.__module__ == choices.__name__
    }
    assert defined == set(EVERY_KIND)


@pytest.mark.parametrize("kind", EVERY_KIND, ids=lambda kind: kind.__name__)
def test_a_choice_is_a_value(kind: type) -> None:
    choice = make(kind)
    assert choice == make(kind)
    assert hash(choice) == hash(make(kind))
    assert pickle.loads(pickle.dumps(choice)) == choice
    assert dataclasses.replace(choice) == choice
    assert eval(repr(choice), vars(choices)) == choice


@pytest.mark.parametrize("kind", EVERY_KIND, ids=lambda kind: kind.__name__)
def test_a_choice_is_frozen_and_named(kind: type) -> None:
    choice = make(kind)
    for field in dataclasses.fields(kind):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(choice, field.name, 1)
    with pytest.raises(TypeError):
        kind(1)


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize(
    ("kind", "arguments", "message"),
    [
        (choices.Heads, {"n_heads": 0}, "n_heads must be 1 or more, got 0"),
        (choices.Heads, {"n_heads": 2, "d_head": 0}, "d_head must be 1 or more, got 0"),
        (choices.Heads, {"n_heads": 2, "d_value": -1}, "d_value must be 1 or more, got -1"),
        (choices.Heads, {"n_heads": 2, "n_kv_heads": 0}, "n_kv_heads must be 1 or more, got 0"),
        (
            choices.Heads,
            {"n_heads": 3, "n_kv_heads": 2},
            "n_kv_heads must divide n_heads, got n_kv_heads=2 and n_heads=3",
        ),
        (choices.Heads, {"n_heads": 3, "beta": float("nan")}, "beta must lie in 0 .. inf, got nan"),
        (choices.SinusoidalPositions, {"layout": "mixed"}, "layout must be one of interleaved, halves, got 'mixed'"),
        (choices.RotaryPositions, {"layout": "mixed"}, "layout must be one of interleaved, halves, got 'mixed'"),
        (choices.BucketPositions, {"n_buckets": 7}, "n_buckets must be even and 4 or more, got 7"),
        (choices.BucketPositions, {"max_distance": 16}, "max_distance must be more than n_buckets / 2, got 16"),
        (choices.SplitHeads, {"n_heads": 0}, "n_heads must be 1 or more, got 0"),
        (choices.FeedForward, {"d_ff": 0}, "d_ff must be 1 or more, got 0"),
        (
            choices.FeedForward,
            {"d_ff": 7, "activation": "swish"},
            "activation must be one of relu, relu2, gelu, gelu_tanh, silu, got 'swish'",
        ),
        (choices.GatedFeedForward, {"d_ff": -2}, "d_ff must be 1 or more, got -2"),
        (
            choices.GatedFeedForward,
            {"d_ff": 7, "activation": "GELU"},
            "activation must be one of relu, relu2, gelu, gelu_tanh, silu, got 'GELU'",
        ),
        (choices.LearnedPositions, {"max_tokens": 0}, "max_tokens must be 1 or more, got 0"),
        (choices.AttentionPooling, {"n_heads": 0}, "n_heads must be 1 or more, got 0"),
        (
            choices.ClassificationHead,
            {"n_classes": 0, "pooling": choices.MeanPooling()},
            "n_classes must be 1 or more, got 0",
        ),
        (
            choices.ClassificationHead,
            {"n_classes": 5, "pooling": choices.MeanPooling(), "activation": "gelu"},
            "activation must be one of tanh, relu or None, got 'gelu'",
        ),
        (choices.MaskedLMHead, {"activation": "tanh"}, "activation must be one of .*, got 'tanh'"),
    ],
)
def test_a_choice_that_cannot_be_is_refused(kind: type, arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kind(**arguments)


@pytest.mark.parametrize("kind", UNIONS["AnyHeads"], ids=lambda kind: kind.__name__)
def test_all_heads_can_be_made(kind: type) -> None:
    assert make_attention(make(kind), D_MODEL).n_heads == HEAD


@pytest.mark.parametrize("kind", UNIONS["AnyFeedForward"], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("activation", get_args(choices.Activation))
def test_all_feed_forward_networks_can_be_made(kind: type, activation: choices.Activation) -> None:
    layer = make_feed_forward(dataclasses.replace(make(kind), activation=activation), D_MODEL)
    assert type(layer).__name__ == kind.__name__


@pytest.mark.parametrize("kind", UNIONS["AnyNorm"], ids=lambda kind: kind.__name__)
def test_all_norms_can_be_made(kind: type) -> None:
    assert type(make_norm(make(kind), D_MODEL)).__name__ == kind.__name__


@pytest.mark.parametrize("kind", UNIONS["TextPositions"], ids=lambda kind: kind.__name__)
def test_all_text_positions_can_be_made(kind: type) -> None:
    module = make_positions(make(kind), d_model=D_MODEL, n_heads=HEAD, d_head=4, bidirectional=True)
    assert type(module).__name__ in (kind.__name__, "Positions")


@pytest.mark.parametrize("kind", UNIONS["GridPositions"], ids=lambda kind: kind.__name__)
def test_all_grids_can_be_made(kind: type) -> None:
    grid = make_grid(make(kind), (2, 3), D_MODEL)
    assert type(grid).__name__ in (kind.__name__, "NoneType")


@pytest.mark.parametrize("kind", UNIONS["ImagePooling"], ids=lambda kind: kind.__name__)
def test_all_image_poolings_can_be_made(kind: type) -> None:
    assert kind.__name__ in type(make_pooling(make(kind), D_MODEL)).__name__


@pytest.mark.parametrize("kind", UNIONS["TextPooling"], ids=lambda kind: kind.__name__)
def test_all_text_poolings_can_be_made(kind: type) -> None:
    assert kind.__name__ in type(make_pooling(make(kind), D_MODEL)).__name__


# --- checks --------------------------------------------------------------------------------------------------------


def test_counts_of_one_and_more_pass_and_none_is_not_given() -> None:
    check_positive(n_heads=1, d_head=None, d_ff=10**6)
    with pytest.raises(ValueError, match="second must be 1 or more, got -5"):
        check_positive(first=1, second=-5)


@pytest.mark.parametrize("fine", [0.0, 0.5, 0.999])
def test_rates_below_one_pass(fine: float) -> None:
    check_probability(dropout=fine)


@pytest.mark.parametrize("wrong", [1.0, -1e-9, 2.0, math.nan, math.inf])
def test_other_rates_do_not(wrong: float) -> None:
    with pytest.raises(ValueError, match=rf"dropout must lie in \[0, 1\), got {wrong}"):
        check_probability(dropout=wrong)


def test_words_that_mean_something_pass() -> None:
    check_one_of(("pre", "post"), norm_order="pre")
    with pytest.raises(ValueError, match="norm_order must be one of pre, post, got 'mid'"):
        check_one_of(("pre", "post"), norm_order="mid")
