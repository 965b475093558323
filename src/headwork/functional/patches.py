"""An image as a sequence of patches, there and back, and the two ways to embed them."""

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from headwork.checks import check_type
from headwork.functional.processor import check_products, is_under_func


def patches_from_image(
    image: Float[Tensor, "batch channel row column"], patch: tuple[int, int]
) -> Float[Tensor, "batch token pixel"]:
    """Cut an image into patches of (rows, columns), read left to right and top to bottom.

    >>> patches_from_image(torch.zeros(1, 3, 8, 8), (4, 4)).shape
    torch.Size([1, 4, 48])
    """
    rows, columns = grid_of(image, patch)
    return rearrange(
        image,
        "batch channel (row patch_row) (column patch_column) -> batch (row column) (channel patch_row patch_column)",
        row=rows,
        column=columns,
    )


def image_from_patches(
    patches: Float[Tensor, "batch token pixel"], patch: tuple[int, int], grid: tuple[int, int]
) -> Float[Tensor, "batch channel row column"]:
    """Lay patches of (rows, columns) out again on a grid of (rows, columns): the inverse of `patches_from_image`.

    >>> image_from_patches(torch.zeros(1, 4, 48), (4, 4), (2, 2)).shape
    torch.Size([1, 3, 8, 8])
    """
    if patches.shape[1] != grid[0] * grid[1]:
        raise ValueError(f"grid must hold all {patches.shape[1]} patches, got {grid[0]} x {grid[1]}")
    if patches.shape[2] % (patch[0] * patch[1]):
        raise ValueError(f"a patch of {patch[0]} x {patch[1]} must divide the {patches.shape[2]} numbers of each patch")
    return rearrange(
        patches,
        "batch (row column) (channel patch_row patch_column) -> batch channel (row patch_row) (column patch_column)",
        row=grid[0],
        column=grid[1],
        patch_row=patch[0],
        patch_column=patch[1],
    )


def embed_patches(
    image: Float[Tensor, "batch channel row column"],
    weight: Float[Tensor, "d_model channel patch_row patch_column"],
    bias: Float[Tensor, "d_model"] | None = None,
) -> Float[Tensor, "batch token d_model"]:
    """One linear map for every patch: $W \\operatorname{vec}(patch) + b$. Dosovitskiy et al. (ViT), 2021.

    >>> embed_patches(torch.zeros(1, 3, 8, 8), torch.zeros(16, 3, 4, 4)).shape
    torch.Size([1, 4, 16])
    """
    patches = patches_from_image(image, (weight.shape[2], weight.shape[3]))
    check_products(patches)
    return F.linear(patches, weight.flatten(1), bias)


def embed_patches_by_convolution(
    image: Float[Tensor, "batch channel row column"],
    weight: Float[Tensor, "d_model channel patch_row patch_column"],
    bias: Float[Tensor, "d_model"] | None = None,
) -> Float[Tensor, "batch token d_model"]:
    """The same map as `embed_patches`, as a convolution that steps from patch to patch.

    >>> embed_patches_by_convolution(torch.zeros(1, 3, 8, 8), torch.zeros(16, 3, 4, 4)).shape
    torch.Size([1, 4, 16])
    """
    patch = (weight.shape[2], weight.shape[3])
    grid_of(image, patch)
    check_products(image)
    return rearrange(
        F.conv2d(image, weight, bias, stride=patch), "batch d_model row column -> batch (row column) d_model"
    )


def grid_of(image: Float[Tensor, "batch channel row column"], patch: tuple[int, int]) -> tuple[int, int]:
    """How many (rows, columns) of patches the image has.

    >>> grid_of(torch.zeros(1, 1, 8, 12), (4, 4))
    (2, 3)
    """
    check_image(image)
    rows, columns = image.shape[2:]
    if min(patch) < 1 or rows % patch[0] or columns % patch[1] or not rows or not columns:
        raise ValueError(
            f"patch must divide the image, got patch={patch[0]} x {patch[1]} and an image of {rows} x {columns}"
        )
    return rows // patch[0], columns // patch[1]


def check_image(image: Float[Tensor, "batch channel row column"]) -> None:
    """Raise unless this is a batch of images in real numbers."""
    check_type(Tensor, "a tensor", image=image)
    if image.ndim != 4:
        raise ValueError(f"image must have the axes (batch, channel, row, column), got shape {tuple(image.shape)}")
    if not image.is_floating_point():
        raise TypeError(f"image must hold real numbers, got dtype {image.dtype}: write image / 255 for bytes")


def channels_last(image: Float[Tensor, "batch channel row column"]) -> Float[Tensor, "batch channel row column"]:
    """The same image with the channels of a pixel side by side in memory, where convolutions are faster.

    torch.func has no such layout, and gets the image as it is.
    """
    return image if is_under_func() else image.contiguous(memory_format=torch.channels_last)
