"""The Vision Transformer: poolings, sizes of image and patch, and that it learns."""

import pytest
import torch
from sklearn.datasets import load_digits
from torch.nn import functional as F

from headwork import choices
from headwork.models import VisionTransformerConfig

from .small_models import ready, vision_transformer

every_pooling = pytest.mark.parametrize(
    "pooling",
    [choices.ClassToken(), choices.MeanPooling(), choices.AttentionPooling(n_heads=2)],
    ids=["CLS", "GAP", "MAP"],
)
every_grid = pytest.mark.parametrize(
    "position",
    [choices.NoPositions(), choices.LearnedGrid(), choices.SinusoidalGrid()],
    ids=["none", "learned", "sinusoidal"],
)


@every_pooling
@every_grid
@pytest.mark.parametrize("size", [(6, 15), (10, 21), (2, 3), (4, 3), (16, 3)], ids=str)
def test_images_of_any_size_the_patch_divides(
    pooling: choices.ImagePooling, position: choices.GridPositions, size: tuple[int, int]
) -> None:
    model = vision_transformer(pooling=pooling, position=position)
    assert model(torch.randn(4, 2, *size)).shape == (4, 5)


@every_pooling
def test_a_model_of_one_patch(pooling: choices.ImagePooling) -> None:
    model = vision_transformer(image=(7, 5), patch=(7, 5), pooling=pooling)
    assert model(torch.randn(4, 2, 7, 5)).shape == (4, 5)


@every_pooling
def test_there_is_a_token_for_each_patch_and_one_for_the_class(pooling: choices.ImagePooling) -> None:
    tokens = vision_transformer(pooling=pooling).hidden(torch.randn(4, 2, 6, 15))
    assert tokens.shape == (4, 15 + isinstance(pooling, choices.ClassToken), 18)


def test_patches_are_read_left_to_right_and_top_to_bottom() -> None:
    """Rows of patches are counted before columns: only token 1 + 5 * row + column changes with the patch."""
    model = ready(vision_transformer(position=choices.NoPositions()))
    image = torch.randn(1, 2, 6, 15, dtype=torch.float64)
    other = image.clone()
    other[:, :, 2:4, 9:12] += 1.0
    seen = []
    model.layers.embedded.register_forward_hook(lambda module, inputs, output: seen.append(output))
    model(image), model(other)
    changed = (seen[0] != seen[1]).any(-1)[0]
    assert changed.nonzero().flatten().tolist() == [1 + 5 * 1 + 3]


def test_the_class_token_is_read_alone() -> None:
    model, image = ready(vision_transformer()), torch.randn(4, 2, 6, 15, dtype=torch.float64)
    by_hand = model.classifier(model.hidden(image)[:, 0])
    torch.testing.assert_close(model(image), by_hand, rtol=1e-10, atol=1e-10)


def test_the_mean_is_over_all_patches() -> None:
    model = ready(vision_transformer(pooling=choices.MeanPooling()))
    image = torch.randn(4, 2, 6, 15, dtype=torch.float64)
    by_hand = model.classifier(model.hidden(image).mean(1))
    torch.testing.assert_close(model(image), by_hand, rtol=1e-10, atol=1e-10)


def flip_patches(image: torch.Tensor) -> torch.Tensor:
    """The patches of 2 x 3 in reverse order, each as it was."""
    patches = image.unflatten(3, (-1, 3)).unflatten(2, (-1, 2))
    return patches.flip(2, 4).flatten(4, 5).flatten(2, 3)


@every_pooling
@every_grid
def test_only_positions_tell_where_a_patch_was(pooling: choices.ImagePooling, position: choices.GridPositions) -> None:
    model = ready(vision_transformer(pooling=pooling, position=position))
    image = torch.randn(4, 2, 6, 15, dtype=torch.float64)
    same = torch.allclose(model(flip_patches(image)), model(image), rtol=1e-10, atol=1e-10)
    assert same == isinstance(position, choices.NoPositions)


def test_positions_of_the_trained_size_are_not_interpolated() -> None:
    model = ready(vision_transformer())
    table, patches = model.positions.table, torch.zeros(1, 15, 18, dtype=torch.float64)
    assert model.positions(patches, (3, 5))[0].equal(table.flatten(0, 1))


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize("size", [(5, 15), (6, 14), (1, 3), (0, 3)], ids=str)
def test_an_image_the_patch_does_not_divide_is_an_error(size: tuple[int, int]) -> None:
    with pytest.raises(
        ValueError, match=rf"patch must divide the image, got patch=2 x 3 and an image of {size[0]} x {size[1]}"
    ):
        vision_transformer()(torch.randn(4, 2, *size))


@pytest.mark.usefixtures("as_users_run_it")
def test_an_image_with_other_channels_is_an_error() -> None:
    with pytest.raises(ValueError, match="image must have 2 channels, got 3"):
        vision_transformer()(torch.randn(4, 3, 6, 15))


@pytest.mark.usefixtures("as_users_run_it")
def test_an_image_without_a_batch_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"\(batch, channel, row, column\), got shape \(2, 6, 15\)"):
        vision_transformer()(torch.randn(2, 6, 15))


@pytest.mark.usefixtures("as_users_run_it")
def test_a_config_whose_patch_does_not_divide_the_image_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"patch must divide the image, got patch=\(16, 16\) and image=\(20, 32\)"):
        VisionTransformerConfig(n_classes=10, image=(20, 32))


def test_the_grid_is_rows_by_columns_of_patches() -> None:
    assert VisionTransformerConfig(n_classes=10, image=(6, 15), patch=(2, 3)).grid == (3, 5)


def test_no_image_gives_no_logits() -> None:
    assert vision_transformer()(torch.randn(0, 2, 6, 15)).shape == (0, 5)


@pytest.mark.usefixtures("as_users_run_it")
@every_pooling
def test_eight_digits_are_learnt_by_heart(pooling: choices.ImagePooling) -> None:
    digits = load_digits()
    image = torch.tensor(digits.images[:8], dtype=torch.float32)[:, None] / 16
    label = torch.tensor(digits.target[:8])
    model = vision_transformer(
        n_classes=10,
        n_channels=1,
        image=(8, 8),
        patch=(2, 4),
        d_model=32,
        heads=choices.Heads(n_heads=2),
        pooling=pooling,
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(60):
        loss = F.cross_entropy(model(image), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert model(image).argmax(-1).equal(label)
    assert loss < 0.1
