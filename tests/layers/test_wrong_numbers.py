"""Numbers of the wrong kind or size get an error of ours, which says what to do."""

import pytest
import torch

from headwork import choices
from headwork.layers import (
    FeedForward,
    GatedFeedForward,
    LearnedPositions,
    MultiHeadAttention,
    PatchEmbedding,
    RotaryPositions,
    TokenEmbedding,
)
from headwork.models import ResNet, ResNetConfig, VisionTransformer, VisionTransformerConfig

pytestmark = pytest.mark.usefixtures("as_users_run_it")


@pytest.mark.parametrize("kind", [FeedForward, GatedFeedForward])
def test_tokens_of_another_width(kind):
    with pytest.raises(ValueError, match=r"x must have the width d_model=6, got shape \(2, 5\)"):
        kind(6, 7)(torch.randn(2, 5))


def test_tokens_that_are_no_real_numbers():
    layer, x = MultiHeadAttention(6, 2), torch.zeros(1, 3, 6)
    with pytest.raises(TypeError, match=r"x must hold real numbers, got dtype torch\.int64"):
        layer(x.long(), x)
    with pytest.raises(TypeError, match=r"memory must hold real numbers, got dtype torch\.int64"):
        layer(x, x.long())


@pytest.mark.parametrize(
    "model",
    [
        lambda: VisionTransformer(
            VisionTransformerConfig(
                n_classes=3,
                image=(4, 4),
                patch=(2, 2),
                d_model=6,
                n_layers=1,
                heads=choices.Heads(n_heads=2),
                feed_forward=choices.FeedForward(d_ff=7),
            )
        ),
        lambda: ResNet(ResNetConfig(n_classes=3)),
    ],
    ids=["vision-transformer", "resnet"],
)
def test_an_image_of_bytes_is_told_how_to_become_one_of_numbers(model):
    with pytest.raises(TypeError, match=r"got dtype torch\.uint8: write image / 255"):
        model()(torch.zeros(1, 3, 4, 4, dtype=torch.uint8))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TokenEmbedding(0, 4), "vocab must be 1 or more, got 0"),
        (lambda: LearnedPositions(0, 4), "max_tokens must be 1 or more, got 0"),
        (lambda: PatchEmbedding(1, (0, 2), 4), "patch_rows must be 1 or more, got 0"),
        (lambda: RotaryPositions(4, layout="mixed"), "layout must be one of interleaved, halves, got 'mixed'"),
    ],
)
def test_sizes_that_cannot_be(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_true_is_no_number():
    with pytest.raises(ValueError, match="n_heads must be 1 or more, got True"):
        MultiHeadAttention(6, True)
