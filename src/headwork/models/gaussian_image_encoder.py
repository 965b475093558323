"""A BERT-like encoder over pixels whose heads look by position: the model of the ETH sheet."""

from dataclasses import dataclass

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from headwork import choices
from headwork.checks import Count, Probability, Size
from headwork.layers.embeddings import PatchEmbedding
from headwork.layers.gaussian import PositionAttention
from headwork.layers.grid_attention import QueryShiftAttention, make_image_attention
from headwork.layers.hook_point import HookPoint
from headwork.layers.linear import linear
from headwork.layers.norm import make_norm
from headwork.layers.pooling import MeanPooling
from headwork.layers.stack import Stack
from headwork.layers.transformer_layer import ResidualLayer
from headwork.models.model import Description, Device, Parts, building
from headwork.models.vision_transformer import PatchesConfig


@dataclass(frozen=True, kw_only=True)
class GaussianImageEncoderConfig(PatchesConfig):
    """The sizes of the paper's model for CIFAR-10 by default; `n_classes` must be given. Sizes are (rows, columns).

    `hw.models.published("gaussian-cifar")` is the authors' model, parameter for parameter: without a norm of the
    embedding, and with a dense map after attention. In training two things differ: the authors drop attention weights
    instead of embedded patches, and their alpha starts at 1/2 instead of 1.
    """

    n_classes: Count
    image: Size = (32, 32)
    n_channels: Count = 3
    patch: Size = (2, 2)
    d_model: Count = 400
    n_layers: Count = 6
    heads: choices.ImageHeads = choices.GaussianHeads(n_heads=9)
    feed_forward: choices.AnyFeedForward = choices.FeedForward(d_ff=512, activation="gelu")
    norm: choices.AnyNorm = choices.LayerNorm(eps=1e-12)
    norm_order: choices.NormOrder = "post"
    embedding_norm: bool | None = None
    """Of the patches before the first layer; None: as BERT has it, with `norm_order="post"` only."""
    dense_after_attention: bool = False
    """A second linear map behind the one that joins the heads, as in BERT's output layer."""
    dropout: Probability = 0.1

    def build(self, *, device: Device = None, dtype: torch.dtype | None = None) -> "GaussianImageEncoder":
        return GaussianImageEncoder(self, device=device, dtype=dtype)


class ImageLayer(ResidualLayer):
    """Attention over the grid, then a feed-forward network."""

    attention: PositionAttention | QueryShiftAttention

    def __init__(self, config: GaussianImageEncoderConfig) -> None:
        super().__init__(
            config.d_model,
            attention=make_image_attention(config.heads, config.d_model, config.grid),
            feed_forward=config.feed_forward,
            norm_order=config.norm_order,
            norm=config.norm,
            dropout=config.dropout,
        )
        self.dense = linear(config.d_model, config.d_model) if config.dense_after_attention else None

    def forward(
        self, x: Float[Tensor, "batch token d_model"], grid: tuple[int, int]
    ) -> Float[Tensor, "batch token d_model"]:
        """Pre-norm: x + f(norm(x)). Post-norm: norm(x + f(x)). The tokens are the pixels of a grid (rows, columns)."""
        if self.norm_first:
            x = x + self.dropout(self._attend(self.attention_norm(x), grid))
            return x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        x = self.attention_norm(x + self.dropout(self._attend(x, grid)))
        return self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))

    def _attend(self, x: Tensor, grid: tuple[int, int]) -> Float[Tensor, "batch token d_model"]:
        image = rearrange(x, "batch (row column) d -> batch row column d", row=grid[0])
        mixed = rearrange(self.attention(image), "batch row column d -> batch (row column) d")
        return mixed if self.dense is None else self.dense(mixed)


class GaussianImageEncoder(nn.Module):
    """Small patches become tokens; heads look at pixels at an offset from each; the mean of all tokens is classified.

    >>> config = GaussianImageEncoderConfig(n_classes=10, image=(8, 8), n_channels=1, d_model=12, n_layers=2)
    >>> GaussianImageEncoder(config)(torch.randn(3, 1, 8, 8)).shape
    torch.Size([3, 10])
    """

    def __init__(
        self,
        config: GaussianImageEncoderConfig,
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        self.parts: Parts = {}
        pre = config.norm_order == "pre"
        embedding_norm = not pre if config.embedding_norm is None else config.embedding_norm
        with building(self, device, dtype):
            self.patches = PatchEmbedding(config.n_channels, config.patch, config.d_model)
            self.layers = Stack(
                [ImageLayer(config) for _ in range(config.n_layers)],
                embedding_norm=make_norm(config.norm, config.d_model) if embedding_norm else None,
                dropout=config.dropout,
                final_norm=make_norm(config.norm, config.d_model) if pre else None,
            )
            self.pooling = MeanPooling()
            self.classifier = linear(config.d_model, config.n_classes)
            self.logits = HookPoint("batch class")

    @property
    def description(self) -> Description:
        return self.config.description

    def forward(self, image: Float[Tensor, "batch channel row column"]) -> Float[Tensor, "batch class"]:
        """The logits of each class. Gaussian heads take images of other sizes, learned shifts do not."""
        return self.logits(self.classifier(self.pooling(self.hidden(image))))

    def hidden(self, image: Float[Tensor, "batch channel row column"]) -> Float[Tensor, "batch token d_model"]:
        """The vector of each patch before the pooling."""
        return self.layers(self.patches(image), grid=self.patches.grid(image))
