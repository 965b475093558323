"""The caller's faults are named: argument, rule, value. 24 of 30 masks of a wrong shape are accepted elsewhere."""

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from headwork import choices, layers
from headwork.models import (
    Decoder,
    DecoderConfig,
    EncoderConfig,
    EncoderDecoderConfig,
    ResNetConfig,
    VisionTransformerConfig,
)

from .small_models import MAX_TOKENS, POSITIONS, VOCAB, decoder, encoder, encoder_decoder, real_tokens, some_ids

pytestmark = pytest.mark.usefixtures("as_users_run_it")


def call_encoder(ids: Tensor, visible: Tensor | None = None) -> Tensor:
    return encoder().eval()(ids, visible=visible)


def call_decoder(ids: Tensor, visible: Tensor | None = None) -> Tensor:
    return decoder().eval()(ids, visible=visible)


def call_with_source(ids: Tensor, visible: Tensor | None = None) -> Tensor:
    return encoder_decoder().eval()(ids, some_ids(len(ids), 5), source_visible=visible)


def call_with_target(ids: Tensor, visible: Tensor | None = None) -> Tensor:
    return encoder_decoder().eval()(some_ids(len(ids), 5), ids, target_visible=visible)


Call = Callable[..., Tensor]
everywhere = pytest.mark.parametrize("call", [call_encoder, call_decoder, call_with_source, call_with_target])


# --- ids -------------------------------------------------------------------------------------------------------------


@everywhere
@pytest.mark.parametrize("bad", [-1, VOCAB, 10**9])
def test_ids_outside_the_vocabulary(call: Call, bad: int) -> None:
    """ "index out of range in self", elsewhere."""
    ids = torch.tensor([[0, bad, 0]])
    with pytest.raises(ValueError, match=rf"ids must lie in 0 \.\. {VOCAB - 1}, got .*{bad}"):
        call(ids)


def test_target_ids_are_of_the_target_vocabulary() -> None:
    with pytest.raises(ValueError, match=r"ids must lie in 0 \.\. 28, got .*29"):
        encoder_decoder(target_vocab=29)(some_ids(1, 5), torch.tensor([[29]]))


@everywhere
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.complex64])
def test_ids_that_are_no_whole_numbers(call: Call, dtype: torch.dtype) -> None:
    with pytest.raises(TypeError, match=f"ids must be whole numbers, got dtype {dtype}"):
        call(torch.ones(2, 7, dtype=dtype))


def test_ids_that_are_true_or_false() -> None:
    with pytest.raises(TypeError, match=r"ids must be whole numbers, got dtype torch\.bool"):
        call_decoder(torch.ones(2, 7, dtype=torch.bool))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32])
def test_any_whole_numbers_are_ids(dtype: torch.dtype) -> None:
    """The bytes of a file, the int16 of a tokenised corpus."""
    assert call_decoder(torch.ones(2, 7, dtype=dtype)).shape == (2, 7, VOCAB)


@everywhere
def test_an_empty_sequence(call: Call) -> None:
    with pytest.raises(ValueError, match=r"at least one token, got shape \(2, 0\)"):
        call(some_ids(2, 0))


@everywhere
def test_ids_without_a_batch(call: Call) -> None:
    with pytest.raises(ValueError, match=r"ids must have the axes \(batch, token\).*got shape \(7,\)"):
        call(torch.zeros(7, dtype=torch.long))


@everywhere
def test_ids_with_an_axis_too_many(call: Call) -> None:
    with pytest.raises(ValueError, match=r"ids must have the axes \(batch, token\).*got shape \(2, 7, 3\)"):
        call(torch.zeros(2, 7, 3, dtype=torch.long))


@everywhere
def test_an_empty_batch_gives_an_empty_result(call: Call) -> None:
    assert len(call(some_ids(0, 7))) == 0
    assert len(call(some_ids(0, 7), torch.ones(0, 7, dtype=torch.bool))) == 0


@pytest.mark.parametrize(
    "pooling", [choices.FirstToken(), choices.MeanPooling(), choices.AttentionPooling(n_heads=2)], ids=str
)
def test_an_empty_batch_has_no_class(pooling: choices.TextPooling) -> None:
    model = encoder(head=choices.ClassificationHead(n_classes=5, pooling=pooling))
    assert model(some_ids(0, 7)).shape == (0, 5)


@pytest.mark.parametrize(
    "call",
    [
        call_encoder,
        call_decoder,
        lambda ids: encoder_decoder(position=POSITIONS["learned"])(ids, some_ids(1, 5)),
        lambda ids: encoder_decoder(position=POSITIONS["learned"])(some_ids(1, 5), ids),
    ],
    ids=["encoder", "decoder", "source", "target"],
)
def test_more_tokens_than_learned_positions(call: Call) -> None:
    """Nothing at all is said for some models, elsewhere; through the cache: test_decoder.py."""
    with pytest.raises(ValueError, match=f"the {MAX_TOKENS} learned positions, got {MAX_TOKENS + 1} tokens"):
        call(some_ids(1, MAX_TOKENS + 1))


# --- masks -----------------------------------------------------------------------------------------------------------


@everywhere
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.uint8])
def test_masks_that_are_not_boolean(call: Call, dtype: torch.dtype) -> None:
    with pytest.raises(TypeError, match=f"visible must be boolean .* got {dtype}"):
        call(some_ids(2, 7), torch.ones(2, 7, dtype=dtype))


@everywhere
@pytest.mark.parametrize(
    "shape", [(7,), (2, 6), (2, 8), (1, 7), (2, 1), (7, 2), (3, 7), (2, 7, 7), (2, 1, 7), (2, 1, 1, 7), (2, 3, 7, 7)]
)
def test_masks_of_another_shape(call: Call, shape: tuple[int, ...]) -> None:
    message = f"visible must have the axes (batch, token) = (2, 7), got {shape}"
    with pytest.raises(ValueError, match=re.escape(message)):
        call(some_ids(2, 7), torch.ones(shape, dtype=torch.bool))


def test_a_mask_of_the_memory_is_named() -> None:
    model = encoder_decoder()
    memory = model.encode(some_ids(2, 11))
    with pytest.raises(ValueError, match=r"memory_visible must have the axes \(batch, token\) = \(2, 11\)"):
        model.decode(some_ids(2, 7), memory, memory_visible=real_tokens((7, 7), 7))


# --- segments, source and target -------------------------------------------------------------------------------------


def test_segments_for_a_model_without() -> None:
    ids = some_ids(2, 7)
    with pytest.raises(ValueError, match="segments must be None for a model with n_segments=0"):
        encoder(n_segments=0)(ids, segments=torch.zeros_like(ids))


def test_segments_out_of_range_are_called_segments() -> None:
    ids = some_ids(2, 7)
    with pytest.raises(ValueError, match=r"segments? .*0 \.\. 1, got 2 \.\. 2"):
        encoder()(ids, segments=torch.full_like(ids, 2))


@pytest.mark.parametrize("shape", [(1, 7), (2, 1), (2, 6), (3, 7)], ids=str)
def test_segments_of_another_shape(shape: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="segments"):
        encoder()(some_ids(2, 7), segments=torch.zeros(shape, dtype=torch.long))


def test_source_and_target_of_different_batches() -> None:
    with pytest.raises(ValueError, match="source and target must have the same batch size, got 2 and 3"):
        encoder_decoder()(some_ids(2, 11), some_ids(3, 7))


def test_memory_of_another_width() -> None:
    with pytest.raises(ValueError, match="memory must have the axes"):
        encoder_decoder().decode(some_ids(2, 7), torch.randn(2, 11, 17))


# --- configs ---------------------------------------------------------------------------------------------------------

CONFIGS: dict[str, Callable[..., object]] = {
    "encoder": lambda **changes: EncoderConfig(**{"vocab": 11, "head": choices.NoHead(), **changes}),
    "decoder": lambda **changes: DecoderConfig(**{"vocab": 11, **changes}),
    "encoder-decoder": lambda **changes: EncoderDecoderConfig(**{"vocab": 11, **changes}),
    "vision-transformer": lambda **changes: VisionTransformerConfig(**{"n_classes": 11, **changes}),
}
every_config = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())


@every_config
@pytest.mark.parametrize("heads", [choices.Heads(n_heads=7), choices.SplitHeads(n_heads=7)], ids=["whole", "split"])
def test_heads_that_do_not_divide_the_width(config: Callable[..., object], heads: choices.AnyHeads) -> None:
    with pytest.raises(ValueError, match="n_heads must divide d_model, got n_heads=7 and d_model=10"):
        config(d_model=10, heads=heads)


@every_config
@pytest.mark.parametrize("name", ["dropout", "attention_dropout"])
@pytest.mark.parametrize("value", [-0.1, 1.0, 1.5, float("nan")])
def test_dropout_out_of_range(config: Callable[..., object], name: str, value: float) -> None:
    with pytest.raises(ValueError, match=rf"{name} must lie in \[0, 1\), got {value}"):
        config(**{name: value})


@every_config
def test_an_unknown_order_of_the_norms(config: Callable[..., object]) -> None:
    with pytest.raises(ValueError, match="norm_order must be one of pre, post, got 'mid'"):
        config(norm_order="mid")


@every_config
def test_an_unknown_setting(config: Callable[..., object]) -> None:
    with pytest.raises(TypeError, match="n_haeds"):
        config(n_haeds=8)


@every_config
@pytest.mark.parametrize("value", [0, -1])
def test_a_width_that_is_none(config: Callable[..., object], value: int) -> None:
    with pytest.raises(ValueError, match=f"d_model must be 1 or more, got {value}"):
        config(d_model=value)


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ("encoder", "vocab"),
        ("encoder", "n_layers"),
        ("decoder", "vocab"),
        ("decoder", "n_layers"),
        ("encoder-decoder", "vocab"),
        ("encoder-decoder", "target_vocab"),
        ("encoder-decoder", "n_encoder_layers"),
        ("encoder-decoder", "n_decoder_layers"),
        ("vision-transformer", "n_classes"),
        ("vision-transformer", "n_channels"),
        ("vision-transformer", "n_layers"),
    ],
)
def test_a_count_below_1(config: str, name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be 1 or more, got 0"):
        CONFIGS[config](**{name: 0})


def test_a_negative_number_of_segments() -> None:
    with pytest.raises(ValueError, match=r"n_segments must be 0 or more, got -1"):
        CONFIGS["encoder"](n_segments=-1)


@pytest.mark.parametrize("name", ["n_classes", "n_channels", "n_blocks"])
def test_a_count_of_the_resnet_below_1(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be 1 or more, got 0"):
        ResNetConfig(**{"n_classes": 10, name: 0})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: choices.FeedForward(d_ff=0), "d_ff must be 1 or more"),
        (lambda: choices.FeedForward(d_ff=8, activation="swish"), "activation must be one of"),
        (lambda: choices.GatedFeedForward(d_ff=8, activation="swish"), "activation must be one of"),
        (lambda: choices.Heads(n_heads=0), "n_heads must be 1 or more"),
        (lambda: choices.LearnedPositions(max_tokens=0), "max_tokens must be 1 or more"),
        (lambda: choices.ClassificationHead(n_classes=0, pooling=choices.FirstToken()), "n_classes must be 1 or more"),
        (
            lambda: choices.ClassificationHead(n_classes=2, pooling=choices.FirstToken(), activation="gelu"),
            "activation must be one of",
        ),
        (lambda: choices.AttentionPooling(n_heads=0), "n_heads must be 1 or more"),
    ],
)
def test_a_choice_that_cannot_be(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("make", "changes", "message"),
    [
        (decoder, {"heads": choices.Heads(n_heads=5, d_head=4)}, "n_heads must divide d_model"),
        (
            decoder,
            {"heads": choices.Heads(n_heads=6), "position": POSITIONS["rotary"]},
            "d_head must be even .* got 3",
        ),
        (
            encoder,
            {"head": choices.ClassificationHead(n_classes=2, pooling=choices.AttentionPooling(n_heads=5))},
            "n_heads must divide d_model",
        ),
    ],
    ids=["value-width", "rotary-pairs", "pooling-heads"],
)
def test_choices_that_do_not_fit_together(
    make: Callable[..., nn.Module], changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        make(**changes)


@pytest.mark.parametrize("position", ["alibi", "buckets", "relative"])
@pytest.mark.parametrize("make", [encoder, decoder, encoder_decoder])
def test_a_beta_that_leaves_no_room_for_a_bias_is_refused_at_once(
    make: Callable[..., nn.Module], position: str
) -> None:
    with pytest.raises(ValueError, match=r"beta must be at most 1e\+06 with a bias .* got inf"):
        make(heads=choices.Heads(n_heads=3, beta=math.inf), position=POSITIONS[position])
    make(heads=choices.Heads(n_heads=3, beta=math.inf), position=choices.SinusoidalPositions())


def test_a_position_code_of_ones_own_with_a_bias_is_no_exception() -> None:
    class Fade(layers.Positions):
        def bias(self, x: Tensor, n_key: int) -> Tensor:
            return torch.zeros(1, 1, x.shape[1], n_key)

    config = decoder(heads=choices.Heads(n_heads=3, beta=math.inf), position=choices.NoPositions()).config
    with pytest.raises(ValueError, match=r"beta must be at most 1e\+06 with a bias .* got inf"):
        Decoder(config, positions=Fade())
    with pytest.raises(ValueError, match=r"beta must be at most 1e\+06 with a bias .* got inf"):
        layers.MultiHeadAttention(18, 3, beta=math.inf, relative=layers.positions.RelativeShifts(18, 3, 6))
