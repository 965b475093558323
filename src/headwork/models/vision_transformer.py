"""An image as a sequence of patches: ViT, DeiT."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headwork import choices
from headwork.checks import Count, Probability, Size
from headwork.layers.embeddings import make_patches
from headwork.layers.hook_point import HookPoint
from headwork.layers.linear import linear
from headwork.layers.pooling import Pooling, make_pooling
from headwork.layers.positions import make_grid
from headwork.layers.stack import StackConfig, check_own_positions, make_stack
from headwork.models.model import Description, Device, building, given_parts, numbered, with_parts
from headwork.serialise import Checked


@dataclass(frozen=True, kw_only=True)
class PatchesConfig(Checked):
    """Images of (rows, columns) that are cut into patches and classified; each model gives its own defaults."""

    n_classes: Count
    image: Size
    n_channels: Count
    patch: Size
    n_layers: Count

    def __post_init__(self) -> None:
        super().__post_init__()
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


@dataclass(frozen=True, kw_only=True)
class VisionTransformerConfig(PatchesConfig, StackConfig):
    """ViT-B/16 by default; `n_classes` must be given. Sizes are (rows, columns)."""

    n_classes: Count
    image: Size = (224, 224)
    n_channels: Count = 3
    patch: Size = (16, 16)
    d_model: Count = 768
    n_layers: Count = 12
    heads: choices.AnyHeads = choices.Heads(n_heads=12)
    feed_forward: choices.AnyFeedForward = choices.FeedForward(d_ff=3072, activation="gelu")
    norm: choices.AnyNorm = choices.LayerNorm(eps=1e-6)
    norm_order: choices.NormOrder = "pre"
    embedding: choices.PatchEmbedding = choices.LinearPatches()
    position: choices.GridPositions = choices.LearnedGrid()
    pooling: choices.ImagePooling = choices.ClassToken()
    head: choices.ImageHead = choices.LinearHead()
    dropout: Probability = 0.0
    attention_dropout: Probability = 0.0

    def build(self, *, device: Device = None, dtype: torch.dtype | None = None) -> "VisionTransformer":
        return VisionTransformer(self, device=device, dtype=dtype)


class VisionTransformer(nn.Module):
    """Patches become tokens, tokens look at each other, one vector is read and classified.

    `positions` (a module with `forward(patches, grid)`), `layers`, `pooling` and `classifier` are a user's own parts,
    instead of what the config says.

    >>> config = VisionTransformerConfig(n_classes=10, image=(8, 8), n_channels=1, patch=(2, 2), d_model=8, n_layers=2,
    ...     heads=choices.Heads(n_heads=2), feed_forward=choices.FeedForward(d_ff=32))
    >>> model = VisionTransformer(config)
    >>> model(torch.randn(4, 1, 8, 8)).shape
    torch.Size([4, 10])

    Images of another size work too, if the patch divides them; learned positions are interpolated:

    >>> model(torch.randn(4, 1, 12, 16)).shape
    torch.Size([4, 10])
    """

    def __init__(
        self,
        config: VisionTransformerConfig,
        *,
        positions: nn.Module | None = None,
        layers: Sequence[nn.Module] | None = None,
        pooling: Pooling | None = None,
        classifier: nn.Module | None = None,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        self.parts = given_parts(positions=positions, layers=layers, pooling=pooling, classifier=classifier)
        check_own_positions(config, positions)
        with building(self, device, dtype):
            self.patches = make_patches(config.embedding, config.n_channels, config.patch, config.d_model)
            self.positions = make_grid(config.position, config.grid, config.d_model) if positions is None else positions
            pooling = make_pooling(config.pooling, config.d_model) if pooling is None else pooling
            self.layers = make_stack(config, config.n_layers, decoder=False, layers=layers)
            self.pooling = pooling
            width = pooling.n_vectors * config.d_model
            self.classifier = make_head(config.head, width, config.n_classes) if classifier is None else classifier
            self.logits = HookPoint("batch class")

    @property
    def description(self) -> Description:
        return with_parts(self.config.description, self.layers)

    def forward(self, image: Float[Tensor, "batch channel row column"]) -> Float[Tensor, "batch class"]:
        """The logits of each class."""
        return self.logits(self.classifier(self.pooling(self.hidden(image))))

    def hidden(self, image: Float[Tensor, "batch channel row column"]) -> Float[Tensor, "batch token d_model"]:
        """The vector of each token before the pooling, the class token (if there is one) first."""
        x = self.patches(image)
        if self.positions is not None:
            x = self.positions(x, self.patches.grid(image))
        return self.layers(self.pooling.join(x))


class MLPHead(nn.Module):
    """A hidden layer before the classes.

    >>> MLPHead(8, 16, n_classes=10)(torch.randn(2, 8)).shape
    torch.Size([2, 10])
    """

    axes = "batch class"
    operation = "output"

    def __init__(
        self, d_model: int, d_hidden: int, n_classes: int, activation: Literal["tanh", "relu"] = "tanh"
    ) -> None:
        super().__init__()
        self.arguments = {"d_model": d_model, "d_hidden": d_hidden, "n_classes": n_classes, "activation": activation}
        self.dense = linear(d_model, d_hidden)
        self.activation = nn.Tanh() if activation == "tanh" else nn.ReLU()
        self.classifier = linear(d_hidden, n_classes)

    def forward(self, x: Float[Tensor, "batch d_model"]) -> Float[Tensor, "batch class"]:
        return self.classifier(self.activation(self.dense(x)))


def make_head(choice: choices.ImageHead, d_model: int, n_classes: int) -> nn.Linear | MLPHead:
    match choice:
        case choices.LinearHead():
            return linear(d_model, n_classes)
        case choices.MLPHead():
            return MLPHead(d_model, choice.d_hidden, n_classes, choice.activation)
