"""An image as a sequence of patches: ViT, DeiT."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor, nn

from headwork import choices
from headwork.checks import check_positive
from headwork.layers.embeddings import PatchEmbedding
from headwork.layers.encoder_layer import EncoderLayer
from headwork.layers.hook_point import HookPoint
from headwork.layers.linear import linear
from headwork.layers.norm import make_norm
from headwork.layers.pooling import make_image_pooling
from headwork.layers.positions import make_grid
from headwork.models.description import Description, numbered
from headwork.models.stack import StackConfig, make_layers


@dataclass(frozen=True, kw_only=True)
class VisionTransformerConfig(StackConfig):
    """ViT-B/16 by default; `n_classes` is yours to say. Sizes are (rows, columns)."""

    n_classes: int
    image: tuple[int, int] = (224, 224)
    n_channels: int = 3
    patch: tuple[int, int] = (16, 16)
    d_model: int = 768
    n_layers: int = 12
    heads: choices.AnyHeads = choices.Heads(n_heads=12)
    feed_forward: choices.AnyFeedForward = choices.FeedForward(d_ff=3072, activation="gelu")
    norm: choices.AnyNorm = choices.LayerNorm(eps=1e-6)
    norm_order: choices.NormOrder = "pre"
    position: choices.GridPositions = choices.LearnedGrid()
    pooling: choices.ImagePooling = choices.ClassToken()
    dropout: float = 0.0
    attention_dropout: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(n_classes=self.n_classes, n_channels=self.n_channels, n_layers=self.n_layers)
        for name, size in (("image", self.image), ("patch", self.patch)):
            if min(size) < 1:
                raise ValueError(f"{name} must be (rows, columns), each 1 or more, got {size}")
        if self.image[0] % self.patch[0] or self.image[1] % self.patch[1]:
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

    def build(self) -> "VisionTransformer":
        return VisionTransformer(self)


class VisionTransformer(nn.Module):
    """Patches become tokens, tokens look at each other, one vector is read and classified.

    >>> config = VisionTransformerConfig(n_classes=10, image=(8, 8), n_channels=1, patch=(2, 2), d_model=8, n_layers=2,
    ...     heads=choices.Heads(n_heads=2), feed_forward=choices.FeedForward(d_ff=32))
    >>> model = VisionTransformer(config)
    >>> model(torch.randn(4, 1, 8, 8)).shape
    torch.Size([4, 10])

    Images of another size work too, if the patch divides them; learned positions are interpolated:

    >>> model(torch.randn(4, 1, 12, 16)).shape
    torch.Size([4, 10])
    """

    def __init__(self, config: VisionTransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.patches = PatchEmbedding(config.n_channels, config.patch, config.d_model)
        self.positions = make_grid(config.position, config.grid, config.d_model)
        self.pooling = make_image_pooling(config.pooling, config.d_model)
        self.dropout = nn.Dropout(config.dropout)
        self.tokens = HookPoint("batch token d_model")
        self.layers = make_layers(EncoderLayer, config, config.n_layers)
        self.final_norm = make_norm(config.norm, config.d_model) if config.norm_order == "pre" else None
        self.classes = linear(config.d_model, config.n_classes)
        self.logits = HookPoint("batch class")

    def forward(self, image: Float[Tensor, "batch channel row column"]) -> Float[Tensor, "batch class"]:
        return self.logits(self.classes(self.pooling(self.encode(image))))

    def encode(self, image: Float[Tensor, "batch channel row column"]) -> Float[Tensor, "batch token d_model"]:
        """The vector of each token, the class token (if there is one) first."""
        x = self.patches(image)
        if self.positions is not None:
            x = self.positions(x, self.patches.grid(image))
        x = self.tokens(self.dropout(self.pooling.join(x)))
        for layer in self.layers:
            x = layer(x)
        return x if self.final_norm is None else self.final_norm(x)
