"""ViT, against Hugging Face: the position of its class token is folded into our class token."""

import pytest
import torch

from headwork.models import VisionTransformer

from ..small_models import ready
from .comparing import assert_parity, in_float64, loaded

pytestmark = pytest.mark.slow

transformers = pytest.importorskip("transformers")


def vit() -> tuple["transformers.ViTForImageClassification", VisionTransformer]:
    config = transformers.ViTConfig(
        hidden_size=21,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=17,
        image_size=12,
        patch_size=4,
        num_channels=2,
        num_labels=5,
        attn_implementation="eager",
    )
    theirs = ready(transformers.ViTForImageClassification(config))
    return theirs, loaded(theirs)


@pytest.mark.usefixtures("float64")
def test_logits_and_gradients() -> None:
    (theirs, ours), image = vit(), torch.randn(2, 2, 12, 12)
    assert_parity(
        (ours(image), ours.patches.weight),
        (in_float64(theirs)(image).logits, theirs.vit.embeddings.patch_embeddings.projection.weight),
    )


@pytest.mark.usefixtures("float64")
def test_gradient_of_the_positions() -> None:
    (theirs, ours), image = vit(), torch.randn(2, 2, 12, 12)
    logits, weights = in_float64(theirs)(image).logits, torch.randn(2, 5)
    (mine,) = torch.autograd.grad((ours(image) * weights).sum(), ours.positions.table)
    (of_theirs,) = torch.autograd.grad((logits * weights).sum(), theirs.vit.embeddings.position_embeddings)
    torch.testing.assert_close(mine.flatten(0, 1), of_theirs[0, 1:], rtol=1e-10, atol=1e-10)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("size", [(20, 28), (4, 8), (4, 36), (24, 24)], ids=str)
def test_another_resolution_interpolates_the_positions(size: tuple[int, int]) -> None:
    """One of them has as many patches as the model was made for, on a grid of another shape."""
    (theirs, ours), image = vit(), torch.randn(2, 2, *size)
    logits = in_float64(theirs)(image, interpolate_pos_encoding=True).logits
    assert_parity(
        (ours(image), ours.patches.weight),
        (logits, theirs.vit.embeddings.patch_embeddings.projection.weight),
    )


def test_logits_in_float32_as_hugging_face_runs_them() -> None:
    (theirs, ours), image = vit(), torch.randn(2, 2, 12, 12)
    torch.testing.assert_close(ours.float()(image), theirs.float()(image).logits, rtol=1e-4, atol=1e-4)
