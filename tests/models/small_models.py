"""Models small enough to test, every axis another size; for the tests and for the child process that compiles."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeVar

import torch
from torch import Tensor, nn

from headwork import choices
from headwork.models import (
    Decoder,
    DecoderConfig,
    Encoder,
    EncoderConfig,
    EncoderDecoder,
    EncoderDecoderConfig,
    GaussianImageEncoder,
    GaussianImageEncoderConfig,
    ResNet,
    ResNetConfig,
    VisionTransformer,
    VisionTransformerConfig,
)

Model = TypeVar("Model", bound=nn.Module)

VOCAB = 37
MAX_TOKENS = 31

POSITIONS: dict[str, choices.TextPositions] = {
    "none": choices.NoPositions(),
    "learned": choices.LearnedPositions(max_tokens=MAX_TOKENS),
    "sinusoidal": choices.SinusoidalPositions(),
    "sinusoidal-halves": choices.SinusoidalPositions(layout="halves"),
    "rotary": choices.RotaryPositions(),
    "rotary-interleaved": choices.RotaryPositions(layout="interleaved"),
    "alibi": choices.AlibiPositions(),
    "buckets": choices.BucketPositions(n_buckets=8, max_distance=16),
    "relative": choices.RelativePositions(),
    "learned-relative": choices.LearnedRelativePositions(max_distance=4, biases=True),
}

_LAYERS = {
    "d_model": 18,
    "heads": choices.Heads(n_heads=3),
    "feed_forward": choices.FeedForward(d_ff=23, activation="gelu"),
}
LLAMA = {
    "heads": choices.Heads(n_heads=6, d_head=4, d_value=4, n_kv_heads=2, bias=False),
    "feed_forward": choices.GatedFeedForward(d_ff=23),
    "norm": choices.RMSNorm(),
    "position": choices.RotaryPositions(),
    "lm_head": choices.UntiedLMHead(),
}
GEMMA3 = {
    "n_layers": 3,
    "heads": choices.Heads(
        n_heads=6, d_head=4, d_value=4, n_kv_heads=2, bias=False, beta=0.3, qk_norm=choices.QKNorm(), softcap=5.0
    ),
    "feed_forward": choices.GatedFeedForward(d_ff=23, activation="gelu_tanh"),
    "norm": choices.RMSNorm(),
    "layer": choices.SandwichLayer(),
    "position": choices.RotaryPositions(base=1000.0, scaling=choices.LinearScaling(factor=2.0)),
    "window": choices.SlidingWindow(n_tokens=3, layers=(0, 2), position=choices.RotaryPositions(base=100.0)),
    "scaled_embedding": True,
    "lm_head": choices.TiedLMHead(softcap=3.0),
}
NEOX = {
    "heads": choices.Heads(n_heads=3),
    "layer": choices.ParallelLayer(),
    "position": choices.RotaryPositions(fraction=0.7),
    "lm_head": choices.UntiedLMHead(bias=True),
}
PHI = NEOX | {"layer": choices.ParallelLayer(shared_norm=True), "window": choices.SlidingWindow(n_tokens=4)}
OLMO2 = LLAMA | {
    "heads": choices.Heads(
        n_heads=6, d_head=4, d_value=4, n_kv_heads=2, bias=False, qk_norm=choices.QKNorm(per_head=False)
    ),
    "layer": choices.BranchNormLayer(),
    "position": choices.RotaryPositions(scaling=choices.YarnScaling(factor=4.0, original_max_tokens=8)),
}
EXPERTS = LLAMA | {"feed_forward": choices.MixtureOfExperts(n_experts=5, n_active=2, d_ff=7, d_shared=11)}
OTHER_DECODERS: dict[str, dict[str, object]] = {
    "gemma3": GEMMA3,
    "neox": NEOX,
    "phi": PHI,
    "olmo2": OLMO2,
    "experts": EXPERTS,
}
T5 = {
    "heads": choices.Heads(n_heads=3, d_head=5, d_value=5, bias=False, beta=1.0),
    "feed_forward": choices.FeedForward(d_ff=23, activation="relu", bias=False),
    "norm": choices.RMSNorm(),
    "norm_order": "pre",
    "position": POSITIONS["buckets"],
    "scaled_embedding": False,
    "lm_head": choices.TiedLMHead(scaled=True),
}


def encoder(**changes: object) -> Encoder:
    settings = {"vocab": VOCAB, "head": choices.NoHead(), "n_layers": 2, "position": POSITIONS["learned"], **_LAYERS}
    return Encoder(EncoderConfig(**{**settings, **changes}))


def classifier(pooling: choices.TextPooling, **changes: object) -> Encoder:
    return encoder(head=choices.ClassificationHead(n_classes=5, pooling=pooling), **changes)


def decoder(**changes: object) -> Decoder:
    settings = {"vocab": VOCAB, "n_layers": 2, "position": POSITIONS["learned"], **_LAYERS}
    return Decoder(DecoderConfig(**{**settings, **changes}))


def encoder_decoder(**changes: object) -> EncoderDecoder:
    settings = {"vocab": VOCAB, "n_encoder_layers": 2, "n_decoder_layers": 3, **_LAYERS}
    return EncoderDecoder(EncoderDecoderConfig(**{**settings, **changes}))


def vision_transformer(**changes: object) -> VisionTransformer:
    settings = {"n_classes": 5, "image": (6, 15), "n_channels": 2, "patch": (2, 3), "n_layers": 2, **_LAYERS}
    return VisionTransformer(VisionTransformerConfig(**{**settings, **changes}))


def gaussian_image_encoder(**changes: object) -> GaussianImageEncoder:
    settings = {"n_classes": 5, "image": (6, 15), "n_channels": 2, "patch": (2, 3), "n_layers": 2, "d_model": 18}
    return GaussianImageEncoder(GaussianImageEncoderConfig(**{**settings, **changes}))


def resnet(**changes: object) -> ResNet:
    settings = {"n_classes": 7, "n_channels": 2, "n_blocks": 2, "widths": (3, 5, 11)}
    return ResNet(ResNetConfig(**{**settings, **changes}))


def ready(model: Model, seed: int = 0) -> Model:
    """In float64, in evaluation, and with no number left at the 0 or 1 it started from, so that each one matters."""
    generator = torch.Generator().manual_seed(seed)
    model.double().eval()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(0.3 * torch.randn(p.shape, generator=generator, dtype=torch.float64))
        for name, buffer in model.named_buffers():
            if name.endswith(("running_mean", "running_var")):
                buffer.copy_(torch.rand(buffer.shape, generator=generator, dtype=torch.float64) + 0.5)
    return model


def some_ids(batch: int, n_token: int, vocab: int = VOCAB, first: int = 0) -> Tensor:
    return torch.randint(first, vocab, (batch, n_token))


def real_tokens(lengths: tuple[int, ...], n_token: int, side: Literal["left", "right"] = "right") -> Tensor:
    """True for the real tokens of a batch that is padded on the given side."""
    place = torch.arange(n_token)
    rows = [place < n if side == "right" else place >= n_token - n for n in lengths]
    return torch.stack(rows)


@dataclass(frozen=True)
class Case:
    """A fresh model and what it is called with."""

    make: Callable[[], nn.Module]
    inputs: Callable[[], tuple[Tensor, ...]]
    masks: Callable[[], dict[str, Tensor]] = field(default=dict)

    def call(self, model: nn.Module) -> Tensor:
        return model(*self.inputs(), **self.masks())


def _text(make: Callable[[], nn.Module]) -> Case:
    return Case(make, lambda: (some_ids(2, 7),), lambda: {"visible": real_tokens((7, 5), 7)})


def _translation(make: Callable[[], nn.Module]) -> Case:
    return Case(
        make,
        lambda: (some_ids(2, 11), some_ids(2, 7, 29)),
        lambda: {"source_visible": real_tokens((11, 5), 11), "target_visible": real_tokens((7, 5), 7)},
    )


def _image(make: Callable[[], nn.Module], rows: int = 6, columns: int = 15) -> Case:
    return Case(make, lambda: (torch.randn(4, 2, rows, columns),))


EVERY_MODEL: dict[str, Case] = {
    "encoder": _text(encoder),
    "encoder-pre-norm": _text(lambda: encoder(norm_order="pre")),
    "encoder-fills-masks": _text(lambda: encoder(head=choices.MaskedLMHead())),
    "encoder-classifies-first": _text(lambda: classifier(choices.FirstToken())),
    "encoder-classifies-mean": _text(lambda: classifier(choices.MeanPooling(), n_segments=0)),
    "encoder-classifies-attention": _text(lambda: classifier(choices.AttentionPooling(n_heads=2))),
    **{f"decoder-{name}": _text(lambda p=p: decoder(position=p)) for name, p in POSITIONS.items()},
    "decoder-llama": _text(lambda: decoder(**LLAMA)),
    **{f"decoder-{name}": _text(lambda c=c: decoder(**c)) for name, c in OTHER_DECODERS.items()},
    "decoder-post-norm": _text(lambda: decoder(norm_order="post")),
    "decoder-split-heads": _text(lambda: decoder(heads=choices.SplitHeads(n_heads=3))),
    "encoder-scores-tokens": _text(
        lambda: encoder(
            head=choices.TokenClassificationHead(n_classes=5, hidden=True),
            norm=choices.UnbiasedLayerNorm(),
            embedding_norm=False,
        )
    ),
    "encoder-classifies-max": _text(
        lambda: encoder(
            head=choices.ClassificationHead(n_classes=5, pooling=choices.MaxPooling(), activation=None),
            norm_order="pre",
            final_norm=False,
        )
    ),
    "encoder-decoder": _translation(encoder_decoder),
    "encoder-decoder-two-vocabularies": _translation(
        lambda: encoder_decoder(target_vocab=29, lm_head=choices.TiedLMHead(bias=True))
    ),
    "encoder-decoder-t5": _translation(lambda: encoder_decoder(**T5)),
    "vision-transformer-class": _image(vision_transformer),
    "vision-transformer-mean": _image(
        lambda: vision_transformer(pooling=choices.MeanPooling(), position=choices.SinusoidalGrid())
    ),
    "vision-transformer-attention": _image(
        lambda: vision_transformer(pooling=choices.AttentionPooling(n_heads=2), position=choices.NoPositions())
    ),
    "vision-transformer-distilled": _image(
        lambda: vision_transformer(
            pooling=choices.DistillationToken(),
            head=choices.MLPHead(d_hidden=13),
            embedding=choices.LinearPatches(norm=True),
        )
    ),
    "vision-transformer-stem": _image(
        lambda: vision_transformer(
            image=(4, 12),
            patch=(2, 2),
            embedding=choices.ConvolutionalStem(widths=(3, 5)),
            pooling=choices.MeanPooling(),
        ),
        4,
        12,
    ),
    "vision-transformer-larger-image": _image(vision_transformer, 10, 21),
    "resnet": _image(resnet, 13, 11),
}

IMAGE_HEADS: dict[str, choices.ImageHeads] = {
    "gaussian": choices.GaussianHeads(n_heads=3),
    "gaussian-diagonal": choices.GaussianHeads(n_heads=3, precision="diagonal"),
    "gaussian-full": choices.GaussianHeads(n_heads=3, precision="full"),
    "gaussian-values": choices.GaussianHeads(n_heads=3, d_value=4),
    "shift": choices.ShiftHeads(n_heads=3),
    "query-shift": choices.QueryShiftHeads(n_heads=3),
    "content-shift": choices.ContentShiftHeads(n_heads=3),
}
GAUSSIAN_MODELS: dict[str, Case] = {
    f"image-encoder-{name}": _image(lambda heads=heads: gaussian_image_encoder(heads=heads))
    for name, heads in IMAGE_HEADS.items()
}

ONE_LAYER: dict[str, Case] = {
    "encoder": _text(lambda: encoder(n_layers=1, head=choices.MaskedLMHead())),
    "decoder": _text(lambda: decoder(n_layers=1, position=POSITIONS["rotary"])),
    "encoder-decoder": _translation(lambda: encoder_decoder(n_encoder_layers=1, n_decoder_layers=1)),
    "vision-transformer": _image(lambda: vision_transformer(n_layers=1)),
    "resnet": _image(lambda: resnet(n_blocks=1), 13, 11),
}
