"""Small models with random weights, one of each kind that the explorer shows."""

import torch

import headwork as hw
from headwork.data import Tokenizer
from headwork.explorer.subject import Subject

HEADS, FEED_FORWARD = hw.choices.Heads(n_heads=2), hw.choices.FeedForward(d_ff=16)
LETTERS = "abcdefghijklmnopqrstuvwxyz ."


def tokenizer() -> Tokenizer:
    return Tokenizer.characters([LETTERS])


def text_model(seed: int = 0, max_tokens: int = 64) -> torch.nn.Module:
    torch.manual_seed(seed)
    return hw.models.DecoderConfig(
        vocab=len(tokenizer()),
        d_model=8,
        n_layers=3,
        heads=HEADS,
        feed_forward=FEED_FORWARD,
        position=hw.choices.LearnedPositions(max_tokens=max_tokens),
    ).build()


def text_subject(seed: int = 0, max_tokens: int = 64) -> Subject:
    return Subject.of(text_model(seed, max_tokens), tokenizer=tokenizer(), name="letters")


def image_subject(seed: int = 0) -> Subject:
    torch.manual_seed(seed)
    config = hw.models.VisionTransformerConfig(
        n_classes=5, image=(6, 8), n_channels=1, patch=(2, 2), d_model=8, n_layers=2, heads=HEADS,
        feed_forward=FEED_FORWARD,
    )  # fmt: skip
    return Subject.of(config.build(), labels=["ant", "bee", "cat", "dog", "elk"], name="animals")


def gaussian_subject() -> Subject:
    torch.manual_seed(3)
    config = hw.models.GaussianImageEncoderConfig(
        n_classes=3, image=(6, 6), n_channels=1, patch=(1, 1), d_model=6, n_layers=2,
        heads=hw.choices.GaussianHeads(n_heads=3), feed_forward=FEED_FORWARD,
    )  # fmt: skip
    return Subject.of(config.build(), name="discs")


def pair_subject() -> Subject:
    torch.manual_seed(1)
    config = hw.models.EncoderDecoderConfig(
        vocab=len(tokenizer()), d_model=8, n_encoder_layers=1, n_decoder_layers=2, heads=HEADS,
        feed_forward=FEED_FORWARD,
    )  # fmt: skip
    model = config.build()
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(2 if weight.ndim == 2 else 1)  # so that what it says depends on what it reads
    return Subject.of(model, tokenizer=tokenizer(), name="translator")


SUBJECTS = {"text": text_subject, "image": image_subject, "gaussian": gaussian_subject, "pair": pair_subject}
