"""Patches: against torch's unfold and plain loops, there and back, and embedded in two ways."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from headwork.functional import (
    embed_patches,
    embed_patches_by_convolution,
    grid_of,
    image_from_patches,
    patches_from_image,
)

BATCH, CHANNEL, D_MODEL = 2, 3, 11
PATCH, GRID = (5, 7), (2, 3)
IMAGE = (10, 21)


def random_image():
    return torch.randn(BATCH, CHANNEL, *IMAGE, dtype=torch.float64)


def test_patches_equal_torch_unfold_in_value_and_gradient(assert_same):
    assert_same(lambda x: patches_from_image(x, PATCH), lambda x: F.unfold(x, PATCH, stride=PATCH).mT, random_image())


def test_patches_are_read_left_to_right_and_top_to_bottom():
    image = random_image()
    patches = patches_from_image(image, PATCH)
    for row in range(GRID[0]):
        for column in range(GRID[1]):
            cut = image[:, :, 5 * row : 5 * row + 5, 7 * column : 7 * column + 7]
            assert torch.equal(patches[:, 3 * row + column], cut.flatten(1))


@settings(max_examples=50, deadline=None)
@given(*[st.integers(1, 4)] * 4, st.integers(1, 3), st.integers(0, 2))
def test_an_image_comes_back_from_its_patches(rows, columns, patch_rows, patch_columns, channels, batch):
    image = torch.arange(batch * channels * rows * patch_rows * columns * patch_columns, dtype=torch.float32)
    image = image.reshape(batch, channels, rows * patch_rows, columns * patch_columns)
    patch = (patch_rows, patch_columns)
    patches = patches_from_image(image, patch)
    assert patches.shape == (batch, rows * columns, channels * patch_rows * patch_columns)
    assert grid_of(image, patch) == (rows, columns)
    assert torch.equal(image_from_patches(patches, patch, (rows, columns)), image)


@pytest.mark.parametrize("patch", [PATCH, (1, 1), IMAGE, (10, 7)])
def test_the_two_embeddings_agree_in_value_and_gradient(assert_same, patch):
    weight = torch.randn(D_MODEL, CHANNEL, *patch, dtype=torch.float64)
    bias = torch.randn(D_MODEL, dtype=torch.float64)
    assert_same(embed_patches, embed_patches_by_convolution, random_image(), weight, bias)
    assert_same(embed_patches, embed_patches_by_convolution, random_image(), weight)


def test_an_embedded_patch_is_the_weight_times_its_pixels():
    image = random_image()
    weight = torch.randn(D_MODEL, CHANNEL, *PATCH, dtype=torch.float64)
    bias = torch.randn(D_MODEL, dtype=torch.float64)
    last = torch.einsum("dcrs,bcrs->bd", weight, image[:, :, 5:, 14:]) + bias
    torch.testing.assert_close(embed_patches(image, weight, bias)[:, 5], last)
    torch.testing.assert_close(embed_patches_by_convolution(image, weight, bias)[:, 5], last)


@pytest.mark.parametrize("patch", [(3, 7), (5, 2), (11, 7), (0, 7), (5, -7)])
def test_a_patch_that_does_not_divide_the_image_is_refused(as_users_run_it, patch):
    message = f"patch must divide the image, got patch={patch[0]} x {patch[1]} and an image of 10 x 21"
    with pytest.raises(ValueError, match=message):
        grid_of(random_image(), patch)
    with pytest.raises(ValueError, match=message):
        patches_from_image(random_image(), patch)


@pytest.mark.parametrize("embed", [embed_patches, embed_patches_by_convolution])
def test_neither_embedding_cuts_the_rest_of_the_image_off(as_users_run_it, embed):
    """A convolution would drop the last row without a word."""
    with pytest.raises(ValueError, match="patch must divide the image, got patch=3 x 7 and an image of 10 x 21"):
        embed(random_image(), torch.randn(D_MODEL, CHANNEL, 3, 7, dtype=torch.float64))


@pytest.mark.parametrize("shape", [(CHANNEL, *IMAGE), (10, 21), (1, BATCH, CHANNEL, *IMAGE)])
def test_an_image_without_its_four_axes_is_refused(as_users_run_it, shape):
    with pytest.raises(ValueError, match=r"image must have the axes \(batch, channel, row, column\), got shape"):
        patches_from_image(torch.zeros(shape), PATCH)


def test_an_empty_image_is_refused(as_users_run_it):
    with pytest.raises(ValueError, match="patch must divide the image, got patch=5 x 7 and an image of 0 x 21"):
        patches_from_image(torch.zeros(1, 1, 0, 21), PATCH)


def test_patches_that_do_not_fill_the_grid_are_refused(as_users_run_it):
    patches = patches_from_image(random_image(), PATCH)
    with pytest.raises(ValueError, match="grid must hold all 6 patches, got 2 x 2"):
        image_from_patches(patches, PATCH, (2, 2))
    with pytest.raises(ValueError, match="a patch of 5 x 11 must divide the 105 numbers"):
        image_from_patches(patches, (5, 11), GRID)
