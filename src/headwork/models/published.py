"""Published models by name: their configs, without their weights.

>>> published("gpt2").d_model
768
"""

from headwork import choices, layers
from headwork.checks import check_type, nearest
from headwork.models.decoder import Decoder, DecoderConfig
from headwork.models.encoder import Encoder, EncoderConfig
from headwork.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from headwork.models.gaussian_image_encoder import GaussianImageEncoderConfig
from headwork.models.model import ModelConfig
from headwork.models.resnet import ResNetConfig
from headwork.models.vision_transformer import MLPHead, VisionTransformer, VisionTransformerConfig

MODEL_CONFIGS: tuple[type[ModelConfig], ...] = (
    EncoderConfig,
    DecoderConfig,
    EncoderDecoderConfig,
    VisionTransformerConfig,
    GaussianImageEncoderConfig,
    ResNetConfig,
)
"""The configs of our own models, which a file may name."""

CLASSES: tuple[type, ...] = (
    *MODEL_CONFIGS,
    *(Encoder, Decoder, EncoderDecoder, VisionTransformer),
    *(layers.EncoderLayer, layers.DecoderLayer),
    *(layers.ParallelLayer, layers.SandwichLayer, layers.BranchNormLayer),
    *(layers.Positions, layers.LearnedPositions, layers.SinusoidalPositions, layers.RotaryPositions),
    *(layers.AlibiPositions, layers.BucketPositions, layers.LearnedGrid, layers.SinusoidalGrid),
    *(
        layers.ClassTokenPooling,
        layers.DistillationTokenPooling,
        layers.FirstTokenPooling,
        layers.MaxPooling,
        layers.MeanPooling,
        layers.AttentionPooling,
        layers.FullyConnectedPooling,
    ),
    MLPHead,
)
"""All of ours that the file of a model may name: configs, and models with parts beside those that are a user's own."""

AnyConfig = (
    EncoderConfig
    | DecoderConfig
    | EncoderDecoderConfig
    | VisionTransformerConfig
    | GaussianImageEncoderConfig
    | ResNetConfig
)

_T5 = choices.Heads(n_heads=8, d_head=64, d_value=64, bias=False, beta=1.0)

PUBLISHED: dict[str, AnyConfig] = {
    "digits-vit": VisionTransformerConfig(
        n_classes=10,
        image=(8, 8),
        n_channels=1,
        patch=(2, 2),
        d_model=64,
        n_layers=4,
        heads=choices.Heads(n_heads=4),
        feed_forward=choices.FeedForward(d_ff=128),
    ),
    "vit-s16": VisionTransformerConfig(
        n_classes=1000,
        d_model=384,
        heads=choices.Heads(n_heads=6),
        feed_forward=choices.FeedForward(d_ff=1536),
    ),
    "vit-b16": VisionTransformerConfig(n_classes=1000),
    "gaussian-cifar": GaussianImageEncoderConfig(n_classes=10, embedding_norm=False, dense_after_attention=True),
    "resnet20": ResNetConfig(n_classes=10),
    "bert-base": EncoderConfig(vocab=30_522, head=choices.MaskedLMHead()),
    "bert-large": EncoderConfig(
        vocab=30_522,
        head=choices.MaskedLMHead(),
        d_model=1024,
        n_layers=24,
        heads=choices.Heads(n_heads=16),
        feed_forward=choices.FeedForward(d_ff=4096),
    ),
    "distilbert": EncoderConfig(vocab=30_522, head=choices.MaskedLMHead(), n_layers=6, n_segments=0),
    "gpt2": DecoderConfig(vocab=50_257),
    "gpt2-xl": DecoderConfig(
        vocab=50_257,
        d_model=1600,
        n_layers=48,
        heads=choices.Heads(n_heads=25),
        feed_forward=choices.FeedForward(d_ff=6400, activation="gelu_tanh"),
    ),
    "llama-2-7b": DecoderConfig(
        vocab=32_000,
        d_model=4096,
        n_layers=32,
        heads=choices.Heads(n_heads=32, bias=False),
        feed_forward=choices.GatedFeedForward(d_ff=11_008),
        norm=choices.RMSNorm(eps=1e-5),
        position=choices.RotaryPositions(max_tokens=4096),
        lm_head=choices.UntiedLMHead(),
        dropout=0.0,
        attention_dropout=0.0,
    ),
    "llama-3-8b": DecoderConfig(
        vocab=128_256,
        d_model=4096,
        n_layers=32,
        heads=choices.Heads(n_heads=32, n_kv_heads=8, bias=False),
        feed_forward=choices.GatedFeedForward(d_ff=14_336),
        norm=choices.RMSNorm(eps=1e-5),
        position=choices.RotaryPositions(base=500_000.0, max_tokens=8192),
        lm_head=choices.UntiedLMHead(),
        dropout=0.0,
        attention_dropout=0.0,
    ),
    "transformer-base": EncoderDecoderConfig(vocab=37_000),
    "t5-small": EncoderDecoderConfig(
        vocab=32_128,
        heads=_T5,
        feed_forward=choices.FeedForward(d_ff=2048, activation="relu", bias=False),
        norm=choices.RMSNorm(),
        norm_order="pre",
        position=choices.BucketPositions(),
        scaled_embedding=False,
        lm_head=choices.TiedLMHead(scaled=True),
    ),
}


def published(name: str) -> AnyConfig:
    """The config of a published model."""
    check_type(str, "a name", name=name)
    if name not in PUBLISHED:
        raise ValueError(f"model {name!r} is not known{nearest(name, PUBLISHED)}")
    return PUBLISHED[name]
