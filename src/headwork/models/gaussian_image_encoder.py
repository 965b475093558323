"""A BERT-like encoder over pixels whose heads look by position: the model of the ETH sheet."""

from dataclasses import dataclass

from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from headwork import choices
from headwork.checks import check_positive, check_probability
from headwork.layers.embeddings import PatchEmbedding
from headwork.layers.feed_forward import make_feed_forward
from headwork.layers.grid_attention import make_image_attention
from headwork.layers.hook_point import HookPoint
from headwork.layers.linear import linear
from headwork.layers.norm import make_norm
from headwork.layers.pooling import MeanPooling
from headwork.layers.residual import make_residual
from headwork.models.description import Description, numbered
from headwork.serialise import Checked


@dataclass(frozen=True, kw_only=True)
class GaussianImageEncoderConfig(Checked):
    """The paper's model for CIFAR-10 by default; `n_classes` is yours to say. Sizes are (rows, columns)."""

    n_classes: int
    image: tuple[int, int] = (32, 32)
    n_channels: int = 3
    patch: tuple[int, int] = (2, 2)
    d_model: int = 400
    n_layers: int = 6
    heads: choices.ImageHeads = choices.GaussianHeads(n_heads=9)
    feed_forward: choices.AnyFeedForward = choices.FeedForward(d_ff=512, activation="gelu")
    norm: choices.AnyNorm = choices.LayerNorm(eps=1e-12)
    norm_order: choices.NormOrder = "post"
    dropout: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(
            n_classes=self.n_classes, n_channels=self.n_channels, d_model=self.d_model, n_layers=self.n_layers
        )
        check_probability(dropout=self.dropout)
        if min(*self.image, *self.patch) < 1 or self.image[0] % self.patch[0] or self.image[1] % self.patch[1]:
            raise ValueError(f"patch must divide the image, got patch={self.patch} and image={self.image}")

    @property
    def grid(self) -> tuple[int, int]:
        """How many (rows, columns) of patches there are."""
        return self.image[0] // self.patch[0], self.image[1] // self.patch[1]

    @property
    def description(self) -> Description:
        return Description(
            input="image",
            output="class",
            n_outputs=self.n_classes,
            image=self.image,
            n_channels=self.n_channels,
            grid=self.grid,
            layers=numbered("layers", self.n_layers),
            attention=numbered("layers", self.n_layers, "attention"),
        )

    def build(self) -> "GaussianImageEncoder":
        return GaussianImageEncoder(self)


class ImageLayer(nn.Module):
    """Attention over the grid, then a feed-forward network, each inside a residual connection with its norm."""

    axes = "batch token d_model"

    def __init__(self, config: GaussianImageEncoderConfig) -> None:
        super().__init__()
        self.attention = make_image_attention(config.heads, config.d_model, config.grid)
        self.feed_forward = make_feed_forward(config.feed_forward, config.d_model)
        self.attention_residual = make_residual(
            config.norm_order, config.d_model, norm=config.norm, dropout=config.dropout
        )
        self.feed_forward_residual = make_residual(
            config.norm_order, config.d_model, norm=config.norm, dropout=config.dropout
        )

    def forward(
        self, x: Float[Tensor, "batch token d_model"], grid: tuple[int, int]
    ) -> Float[Tensor, "batch token d_model"]:
        def attend(y: Tensor) -> Tensor:
            image = rearrange(y, "batch (row column) d -> batch row column d", row=grid[0])
            return rearrange(self.attention(image), "batch row column d -> batch (row column) d")

        x = self.attention_residual(x, attend)
        return self.feed_forward_residual(x, self.feed_forward)


class GaussianImageEncoder(nn.Module):
    """Small patches become tokens; heads look at places away from each; the mean of all tokens is classified.

    >>> config = GaussianImageEncoderConfig(n_classes=10, image=(8, 8), n_channels=1, d_model=12, n_layers=2)
    >>> GaussianImageEncoder(config)(torch.randn(3, 1, 8, 8)).shape
    torch.Size([3, 10])
    """

    def __init__(self, config: GaussianImageEncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.patches = PatchEmbedding(config.n_channels, config.patch, config.d_model)
        self.embedding_norm = make_norm(config.norm, config.d_model) if config.norm_order == "post" else None
        self.dropout = nn.Dropout(config.dropout)
        self.tokens = HookPoint("batch token d_model")
        self.layers = nn.ModuleList(ImageLayer(config) for _ in range(config.n_layers))
        self.final_norm = make_norm(config.norm, config.d_model) if config.norm_order == "pre" else None
        self.pooling = MeanPooling()
        self.classes = linear(config.d_model, config.n_classes)
        self.logits = HookPoint("batch class")

    def forward(self, image: Float[Tensor, "batch channel row column"]) -> Float[Tensor, "batch class"]:
        return self.logits(self.classes(self.pooling(self.encode(image))))

    def encode(self, image: Float[Tensor, "batch channel row column"]) -> Float[Tensor, "batch token d_model"]:
        """The vector of each patch. Gaussian heads take images of other sizes, learned shifts do not."""
        grid = self.patches.grid(image)
        x = self.patches(image)
        x = x if self.embedding_norm is None else self.embedding_norm(x)
        x = self.tokens(self.dropout(x))
        for layer in self.layers:
            x = layer(x, grid)
        return x if self.final_norm is None else self.final_norm(x)
