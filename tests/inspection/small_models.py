"""One small model of each kind, with weights large enough that every part matters, and inputs for it."""

import re

import torch
from torch import Tensor, nn

from headwork.choices import (
    AnyHeads,
    ClassificationHead,
    ClassToken,
    FeedForward,
    Heads,
    MaskedLMHead,
    MeanPooling,
    NormOrder,
    RotaryPositions,
    TextPositions,
)
from headwork.models import (
    Decoder,
    DecoderConfig,
    Encoder,
    EncoderConfig,
    EncoderDecoder,
    EncoderDecoderConfig,
    GaussianImageEncoder,
    GaussianImageEncoderConfig,
    VisionTransformer,
    VisionTransformerConfig,
)

VOCAB, N_HEADS = 31, 7


def small_decoder(
    *,
    heads: AnyHeads = Heads(n_heads=N_HEADS),
    position: TextPositions = RotaryPositions(),
    norm_order: NormOrder = "pre",
    dropout: float = 0.0,
) -> Decoder:
    config = DecoderConfig(
        vocab=VOCAB,
        d_model=14,
        n_layers=3,
        heads=heads,
        feed_forward=FeedForward(d_ff=19),
        position=position,
        norm_order=norm_order,
        dropout=dropout,
        attention_dropout=dropout,
    )
    return lively(Decoder(config))


def small_encoder(head: ClassificationHead | MaskedLMHead = MaskedLMHead()) -> Encoder:
    config = EncoderConfig(
        vocab=VOCAB, head=head, d_model=14, n_layers=3, heads=Heads(n_heads=N_HEADS), feed_forward=FeedForward(d_ff=19)
    )
    return lively(Encoder(config))


def small_translator(*, norm_order: NormOrder = "post") -> EncoderDecoder:
    config = EncoderDecoderConfig(
        vocab=VOCAB,
        d_model=14,
        n_encoder_layers=2,
        n_decoder_layers=3,
        heads=Heads(n_heads=N_HEADS),
        feed_forward=FeedForward(d_ff=19),
        norm_order=norm_order,
    )
    return lively(EncoderDecoder(config))


def small_vit(pooling: ClassToken | MeanPooling = ClassToken()) -> VisionTransformer:
    config = VisionTransformerConfig(
        n_classes=5,
        image=(6, 9),
        patch=(3, 3),
        d_model=14,
        n_layers=3,
        heads=Heads(n_heads=N_HEADS),
        feed_forward=FeedForward(d_ff=19),
        pooling=pooling,
    )
    return lively(VisionTransformer(config))


def small_gaussian() -> GaussianImageEncoder:
    return lively(
        GaussianImageEncoder(
            GaussianImageEncoderConfig(n_classes=5, image=(6, 8), n_channels=3, d_model=14, n_layers=2)
        )
    )


def lively(model: nn.Module) -> nn.Module:
    """In evaluation mode, and with parameters that are not all near zero."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.5 * torch.randn_like(parameter))
    return model.eval()


def inputs_of(model: nn.Module, batch: int = 2) -> tuple[Tensor, ...]:
    match model:
        case EncoderDecoder():
            return torch.randint(VOCAB, (batch, 5)), torch.randint(VOCAB, (batch, 11))
        case VisionTransformer():
            return (torch.randn(batch, 3, 6, 9),)
        case GaussianImageEncoder():
            return (torch.randn(batch, 3, 6, 8),)
        case _:
            return (torch.randint(VOCAB, (batch, 11)),)


def hooks_of(model: nn.Module) -> dict[str, list[object]]:
    """Every hook of every module, in their order."""
    return {
        name: [list(hooks.items()) for kind, hooks in vars(module).items() if kind.endswith("_hooks")]
        for name, module in model.named_modules()
    }


def cells_of(html: str) -> list[list[str]]:
    """The cells of a table, row by row."""
    rows = re.findall(r"<tr>(.*?)</tr>", html, flags=re.DOTALL)
    return [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in rows]
