"""T5 (both versions) and Marian, against Hugging Face."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from headwork.models import EncoderDecoder

from ..small_models import ready, real_tokens, some_ids
from .comparing import assert_parity, in_float64, loaded

pytestmark = pytest.mark.slow

transformers = pytest.importorskip("transformers")

Pair = tuple[Any, EncoderDecoder]


def t5(feed_forward: str = "relu", tied: bool = True) -> Pair:
    """Few buckets and a short reach, so that a short sentence fills them all."""
    config = transformers.T5Config(
        vocab_size=37,
        d_model=23,
        d_kv=5,
        d_ff=17,
        num_layers=2,
        num_decoder_layers=3,
        num_heads=3,
        relative_attention_num_buckets=8,
        relative_attention_max_distance=16,
        feed_forward_proj=feed_forward,
        tie_word_embeddings=tied,
        attn_implementation="eager",
    )
    theirs = transformers.T5ForConditionalGeneration(config)
    if not tied:
        theirs.lm_head.weight = nn.Parameter(torch.empty_like(theirs.shared.weight))
    theirs = ready(theirs)
    return theirs, loaded(theirs)


def t5_v1_1() -> Pair:
    return t5("gated-gelu", tied=False)


def marian(d_model: int = 12) -> Pair:
    config = transformers.MarianConfig(
        vocab_size=37,
        d_model=d_model,
        encoder_layers=2,
        decoder_layers=3,
        encoder_attention_heads=3,
        decoder_attention_heads=3,
        encoder_ffn_dim=17,
        decoder_ffn_dim=17,
        max_position_embeddings=29,
        activation_function="swish",
        scale_embedding=True,
        pad_token_id=36,
        eos_token_id=0,
        decoder_start_token_id=36,
        attn_implementation="eager",
    )
    theirs = ready(transformers.MarianMTModel(config))
    theirs.final_logits_bias.normal_()
    for stack in (theirs.model.encoder, theirs.model.decoder):
        stack.embed_positions.weight.data.copy_(sines_then_cosines(29, d_model))
    return theirs, loaded(theirs)


def marian_of_odd_width() -> Pair:
    return marian(d_model=15)


def sines_then_cosines(n_positions: int, d_model: int) -> torch.Tensor:
    """Marian's table; its own code rounds it to float32, which the test of float32 below compares with."""
    channel = torch.arange(d_model, dtype=torch.float64)
    angle = torch.arange(n_positions, dtype=torch.float64)[:, None] / 10_000 ** (2 * (channel // 2) / d_model)
    return torch.cat([angle[:, 0::2].sin(), angle[:, 1::2].cos()], dim=1)


every_translator = pytest.mark.parametrize("pair", [t5, t5_v1_1, marian, marian_of_odd_width])


def compare(pair: Pair, real_source: torch.Tensor, real_target: torch.Tensor) -> None:
    theirs, ours = pair
    source, target = some_ids(2, 23, 36), some_ids(2, 19, 36)
    logits = in_float64(theirs)(
        input_ids=source,
        attention_mask=real_source.long(),
        decoder_input_ids=target,
        decoder_attention_mask=real_target.long(),
    ).logits
    mine = ours(source, target, source_visible=real_source, target_visible=real_target)
    assert_parity((mine, ours.embedding.table), (logits, theirs.get_input_embeddings().weight), real_target)


@pytest.mark.usefixtures("float64")
@every_translator
@pytest.mark.parametrize("lengths", [((23, 23), (19, 19)), ((23, 11), (13, 19))], ids=["none", "right"])
def test_logits_and_gradients(pair: Callable[[], Pair], lengths: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    compare(pair(), real_tokens(lengths[0], 23), real_tokens(lengths[1], 19))


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("pair", [t5, t5_v1_1])
def test_logits_and_gradients_padded_on_the_left(pair: Callable[[], Pair]) -> None:
    compare(pair(), real_tokens((23, 11), 23, "left"), real_tokens((13, 19), 19, "left"))


@pytest.mark.usefixtures("float64")
@every_translator
def test_logits_and_gradients_without_masks(pair: Callable[[], Pair]) -> None:
    theirs, ours = pair()
    source, target = some_ids(2, 23, 36), some_ids(2, 19, 36)
    logits = in_float64(theirs)(input_ids=source, decoder_input_ids=target).logits
    assert_parity((ours(source, target), ours.embedding.table), (logits, theirs.get_input_embeddings().weight))


@every_translator
def test_logits_in_float32_as_hugging_face_runs_them(pair: Callable[[], Pair]) -> None:
    theirs, ours = (model.float() for model in pair())
    source, target = some_ids(2, 23, 36), some_ids(2, 19, 36)
    logits = theirs(input_ids=source, decoder_input_ids=target).logits
    torch.testing.assert_close(ours(source, target), logits, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("d_model", [12, 15])
def test_the_sinusoids_are_marians_own(d_model: int) -> None:
    theirs = transformers.models.marian.modeling_marian.MarianSinusoidalPositionalEmbedding(29, d_model)
    torch.testing.assert_close(theirs.create_weight(), sines_then_cosines(29, d_model).float())
