"""Published sizes, counted on the meta device, where a parameter costs nothing."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from headwork import choices
from headwork.models import (
    Decoder,
    DecoderConfig,
    Encoder,
    EncoderConfig,
    EncoderDecoder,
    EncoderDecoderConfig,
    ResNet,
    ResNetConfig,
    VisionTransformer,
    VisionTransformerConfig,
    published,
)


def count(make: Callable[[], nn.Module]) -> int:
    with torch.device("meta"):
        return sum(p.numel() for p in make().parameters())


def test_bert_base_is_hugging_faces() -> None:
    transformers = pytest.importorskip("transformers")
    theirs = count(lambda: transformers.BertModel(transformers.BertConfig(), add_pooling_layer=False))
    assert count(lambda: Encoder(EncoderConfig(vocab=30_522, head=choices.NoHead()))) == theirs == 108_891_648


def test_bert_base_with_its_pooler_has_the_published_110_million() -> None:
    head = choices.ClassificationHead(n_classes=2, pooling=choices.FirstToken())
    assert count(lambda: Encoder(EncoderConfig(vocab=30_522, head=head))) == 109_482_240 + 2 * 769


def test_gpt2_has_124_million() -> None:
    assert count(lambda: Decoder(DecoderConfig(vocab=50_257))) == 124_439_808


def test_llama_2_has_7_billion() -> None:
    config = DecoderConfig(
        vocab=32_000,
        d_model=4096,
        n_layers=32,
        heads=choices.Heads(n_heads=32, bias=False),
        feed_forward=choices.GatedFeedForward(d_ff=11_008),
        norm=choices.RMSNorm(eps=1e-5),
        position=choices.RotaryPositions(),
        lm_head=choices.UntiedLMHead(),
    )
    assert count(lambda: Decoder(config)) == 6_738_415_616


def test_t5_small_has_60_million() -> None:
    config = EncoderDecoderConfig(
        vocab=32_128,
        heads=choices.Heads(n_heads=8, bias=False, beta=1.0),
        feed_forward=choices.FeedForward(d_ff=2048, activation="relu", bias=False),
        norm=choices.RMSNorm(),
        norm_order="pre",
        position=choices.BucketPositions(),
        scaled_embedding=False,
        lm_head=choices.TiedLMHead(scaled=True),
    )
    assert count(lambda: EncoderDecoder(config)) == 60_506_624


def test_vit_base_has_the_published_number_less_the_position_of_the_class_token() -> None:
    assert count(lambda: VisionTransformer(VisionTransformerConfig(n_classes=1000))) == 86_567_656 - 768


def test_resnet_20_for_cifar_has_a_quarter_of_a_million() -> None:
    """269,722 as published, and two shortcuts that are convolutions with a norm."""
    shortcuts = (16 * 32 + 2 * 32) + (32 * 64 + 2 * 64)
    assert count(lambda: ResNet(ResNetConfig(n_classes=10))) == 269_722 + shortcuts == 272_474


def test_the_gaussian_encoder_for_cifar_has_as_many_as_the_authors() -> None:
    """As their BertImage counts itself, github.com/epfml/attention-cnn with runs/quadratic/run.sh."""
    assert count(lambda: published("gaussian-cifar").build()) == 12_086_844


def test_the_original_transformer_by_its_formula() -> None:
    d, d_ff, vocab = 512, 2048, 37_000
    attention, feed_forward, norm = 4 * (d * d + d), 2 * d * d_ff + d + d_ff, 2 * d
    encoder_layer = attention + feed_forward + 2 * norm
    decoder_layer = 2 * attention + feed_forward + 3 * norm
    expected = vocab * d + 6 * encoder_layer + 6 * decoder_layer
    assert count(lambda: EncoderDecoder(EncoderDecoderConfig(vocab=vocab))) == expected == 63_082_496


def test_marian_is_hugging_faces_without_its_frozen_sinusoids() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.MarianConfig(
        vocab_size=58_101,
        d_model=512,
        encoder_layers=6,
        decoder_layers=6,
        encoder_attention_heads=8,
        decoder_attention_heads=8,
        encoder_ffn_dim=2048,
        decoder_ffn_dim=2048,
        max_position_embeddings=512,
        pad_token_id=58_100,
        eos_token_id=0,
        decoder_start_token_id=58_100,
    )
    theirs = count(lambda: transformers.MarianMTModel(config)) - 2 * 512 * 512
    ours = EncoderDecoderConfig(
        vocab=58_101,
        feed_forward=choices.FeedForward(d_ff=2048, activation="silu"),
        position=choices.SinusoidalPositions(layout="halves"),
        lm_head=choices.TiedLMHead(bias=True),
    )
    assert count(lambda: EncoderDecoder(ours)) == theirs + 58_101
