"""From ids and images to tokens."""

import math
from itertools import pairwise

import torch
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor, nn

from headwork import choices
from headwork.checks import check_positive, check_type
from headwork.functional.embedding import look_up
from headwork.functional.patches import channels_last, embed_patches, grid_of, patches_from_image
from headwork.functional.processor import check_products
from headwork.functional.soft_cap import soft_cap
from headwork.layers.linear import OneToken, affine_map, linear, normal
from headwork.layers.norm import BatchNorm2d, LayerNorm


class TokenEmbedding(nn.Module):
    """A learned vector for each token of the vocabulary.

    `scaled` multiplies the vectors by sqrt(d_model), as the original Transformer does; errors call the ids `name`.

    >>> TokenEmbedding(vocab=100, d_model=8)(torch.tensor([[3, 1, 4]])).shape
    torch.Size([1, 3, 8])
    """

    def __init__(self, vocab: int, d_model: int, *, scaled: bool = False, name: str = "token ids") -> None:
        super().__init__()
        check_positive(vocab=vocab, d_model=d_model)
        self.name = name
        self.scale = math.sqrt(d_model) if scaled else 1.0
        spread = 1 / math.sqrt(d_model) if scaled else 0.02
        self.table = normal(vocab, d_model, spread=spread)

    def forward(self, ids: Int[Tensor, "batch token"]) -> Float[Tensor, "batch token d_model"]:
        check_type(Tensor, "a tensor", **{self.name: ids})
        if ids.ndim != 2 or ids.shape[1] == 0:
            raise ValueError(
                f"{self.name} must have the axes (batch, token) and at least one token, got shape {tuple(ids.shape)}"
            )
        vectors = look_up(ids, self.table, self.name)
        return vectors if self.scale == 1.0 else vectors * self.scale

    def one_token(self) -> OneToken:
        table, scale = self.table, self.scale
        if scale == 1.0:
            return lambda ids: torch.embedding(table, ids)[:, 0]
        return lambda ids: torch.embedding(table, ids)[:, 0] * scale

    def extra_repr(self) -> str:
        return f"vocab={self.table.shape[0]}, d_model={self.table.shape[1]}"


class LMHead(nn.Module):
    """One score for each token of the vocabulary, by the embedding table (tied) or a linear map of its own.

    >>> embedding = TokenEmbedding(vocab=100, d_model=8)
    >>> LMHead(choices.TiedLMHead(), 100, 8)(torch.randn(1, 5, 8), embedding).shape
    torch.Size([1, 5, 100])
    """

    axes = "batch token vocab"
    operation = "output"

    def __init__(self, choice: choices.LMHead, vocab: int, d_model: int) -> None:
        super().__init__()
        self.vocab, self.d_model = vocab, d_model
        match choice:
            case choices.TiedLMHead():
                self.scale = 1 / math.sqrt(d_model) if choice.scaled else 1.0
                self.weight = None
            case choices.UntiedLMHead():
                self.scale = 1.0
                self.weight = linear(d_model, vocab, bias=False).weight
        self.bias = nn.Parameter(torch.zeros(vocab)) if choice.bias else None
        self.softcap = choice.softcap

    def forward(
        self, x: Float[Tensor, "batch token d_model"], embedding: TokenEmbedding
    ) -> Float[Tensor, "batch token vocab"]:
        """The logits of hidden states x; `embedding` is the table that a tied head multiplies with."""
        check_products(x)
        x = x if self.scale == 1.0 else x * self.scale
        logits = nn.functional.linear(x, self._matrix(embedding), self.bias)
        return logits if self.softcap is None else soft_cap(logits, self.softcap)

    def one_token(self, embedding: TokenEmbedding) -> OneToken:
        score, scale, cap = affine_map(self._matrix(embedding), self.bias), self.scale, self.softcap
        if cap is not None:
            return lambda x: soft_cap(score(x * scale), cap)
        return score if scale == 1.0 else lambda x: score(x * scale)

    def extra_repr(self) -> str:
        return f"d_model={self.d_model}, vocab={self.vocab}, tied={self.weight is None}, bias={self.bias is not None}"

    def _matrix(self, embedding: TokenEmbedding) -> Float[Tensor, "vocab d_model"]:
        return embedding.table if self.weight is None else self.weight


def check_grid(
    image: Float[Tensor, "batch channel row column"], n_channels: int, patch: tuple[int, int]
) -> tuple[int, int]:
    """How many (rows, columns) of patches an image of so many channels has."""
    grid = grid_of(image, patch)
    if image.shape[1] != n_channels:
        raise ValueError(f"image must have {n_channels} channels, got {image.shape[1]}")
    return grid


class PatchEmbedding(nn.Module):
    """One linear map for every patch of an image, stored as the convolution it is equal to.

    >>> PatchEmbedding(n_channels=3, patch=(4, 4), d_model=8)(torch.randn(1, 3, 8, 8)).shape
    torch.Size([1, 4, 8])
    """

    axes = "batch token d_model"
    operation = "embedding"

    def __init__(self, n_channels: int, patch: tuple[int, int], d_model: int) -> None:
        super().__init__()
        check_positive(n_channels=n_channels, patch_rows=patch[0], patch_columns=patch[1], d_model=d_model)
        self.n_channels, self.patch = n_channels, patch
        self.weight = nn.Parameter(torch.empty(d_model, n_channels, *patch))
        self.bias = nn.Parameter(torch.zeros(d_model))
        nn.init.xavier_uniform_(self.weight.flatten(1))

    def forward(self, image: Float[Tensor, "batch channel row column"]) -> Float[Tensor, "batch token d_model"]:
        self.grid(image)
        return embed_patches(image, self.weight, self.bias)

    def grid(self, image: Float[Tensor, "batch channel row column"]) -> tuple[int, int]:
        """How many (rows, columns) of patches the image has."""
        return check_grid(image, self.n_channels, self.patch)

    def extra_repr(self) -> str:
        return f"n_channels={self.n_channels}, patch={self.patch}, d_model={len(self.weight)}"


class NormalisedPatchEmbedding(PatchEmbedding):
    """The same with a norm of the pixels of each patch before the map, and one of its features behind it.

    Kumar, Dehghani and Houlsby, "Dual PatchNorm", 2023.

    >>> NormalisedPatchEmbedding(n_channels=3, patch=(4, 4), d_model=8)(torch.randn(1, 3, 8, 8)).shape
    torch.Size([1, 4, 8])
    """

    def __init__(self, n_channels: int, patch: tuple[int, int], d_model: int) -> None:
        super().__init__(n_channels, patch, d_model)
        self.pixel_norm = LayerNorm(n_channels * patch[0] * patch[1])
        self.norm = LayerNorm(d_model)
        self.pixel_norm.axes = "batch token pixel"

    def forward(self, image: Float[Tensor, "batch channel row column"]) -> Float[Tensor, "batch token d_model"]:
        self.grid(image)
        check_products(image)
        pixels = self.pixel_norm(patches_from_image(image, self.patch))
        return self.norm(nn.functional.linear(pixels, self.weight.flatten(1), self.bias))


class ConvolutionalStem(nn.Module):
    """Convolutions instead of one map for every patch: batch norm and ReLU behind each but the last.

    The last ones have a stride of 2, as many as halve a patch to one token.

    >>> ConvolutionalStem(n_channels=3, patch=(4, 4), widths=(5, 7), d_model=8)(torch.randn(1, 3, 8, 8)).shape
    torch.Size([1, 4, 8])
    """

    axes = "batch token d_model"
    operation = "embedding"

    def __init__(self, n_channels: int, patch: tuple[int, int], widths: tuple[int, ...], d_model: int) -> None:
        super().__init__()
        n_halvings = patch[0].bit_length() - 1
        if patch != (2**n_halvings, 2**n_halvings) or n_halvings > len(widths) + 1:
            raise ValueError(
                f"patch must be square, 1, 2, 4, ... up to {2 ** (len(widths) + 1)} pixels wide, for a stem of "
                f"{len(widths) + 1} convolutions that halve the image at most once each, got {patch}"
            )
        self.n_channels, self.patch = n_channels, patch
        self.convolutions = nn.ModuleList()
        self.norms = nn.ModuleList(BatchNorm2d(width) for width in widths)
        for number, (d_in, d_out) in enumerate(pairwise((n_channels, *widths, d_model))):
            is_last = number == len(widths)
            stride = 2 if number > len(widths) - n_halvings else 1
            convolution = nn.Conv2d(d_in, d_out, 3, stride, padding=1, bias=is_last)
            nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="linear" if is_last else "relu")
            self.convolutions.append(convolution)

    def forward(self, image: Float[Tensor, "batch channel row column"]) -> Float[Tensor, "batch token d_model"]:
        self.grid(image)
        check_products(image)
        *convolutions, last = self.convolutions
        x = channels_last(image)
        for convolution, norm in zip(convolutions, self.norms, strict=True):
            x = norm(convolution(x)).relu()
        return rearrange(last(x), "batch channel row column -> batch (row column) channel")

    def grid(self, image: Float[Tensor, "batch channel row column"]) -> tuple[int, int]:
        """How many (rows, columns) of tokens the image has."""
        return check_grid(image, self.n_channels, self.patch)


def make_patches(
    choice: choices.PatchEmbedding, n_channels: int, patch: tuple[int, int], d_model: int
) -> PatchEmbedding | ConvolutionalStem:
    match choice:
        case choices.LinearPatches(norm=False):
            return PatchEmbedding(n_channels, patch, d_model)
        case choices.LinearPatches():
            return NormalisedPatchEmbedding(n_channels, patch, d_model)
        case choices.ConvolutionalStem():
            return ConvolutionalStem(n_channels, patch, choice.widths, d_model)
