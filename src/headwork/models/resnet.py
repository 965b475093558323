"""A small residual network for small images: the CNN to compare with."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headwork.checks import Count
from headwork.functional.patches import channels_last, check_image
from headwork.functional.processor import check_products
from headwork.layers.hook_point import HookPoint
from headwork.layers.linear import linear
from headwork.layers.norm import BatchNorm2d
from headwork.models.model import Description, Device, Parts, building, numbered
from headwork.serialise import Checked


@dataclass(frozen=True, kw_only=True)
class ResNetConfig(Checked):
    """ResNet-20 for CIFAR by default (6 n_blocks + 2 layers); `n_classes` must be given."""

    n_classes: Count
    n_channels: Count = 3
    n_blocks: Count = 3
    widths: tuple[int, ...] = (16, 32, 64)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.widths or min(self.widths) < 1:
            raise ValueError(f"widths must name the channels of each stage, each 1 or more, got {self.widths}")

    @property
    def description(self) -> Description:
        return Description(
            input="image",
            output="class",
            n_outputs=self.n_classes,
            n_channels=self.n_channels,
            layers=numbered("blocks", self.n_blocks * len(self.widths)),
        )

    def build(self, *, device: Device = None, dtype: torch.dtype | None = None) -> "ResNet":
        return ResNet(self, device=device, dtype=dtype)


class ResidualBlock(nn.Module):
    """Two 3 x 3 convolutions beside a shortcut: relu(f(x) + x). He et al., "Deep residual learning", 2016."""

    axes = "batch channel row column"

    def __init__(self, d_in: int, d_out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(d_in, d_out, 3, stride, padding=1, bias=False)
        self.norm1 = BatchNorm2d(d_out)
        self.conv2 = nn.Conv2d(d_out, d_out, 3, padding=1, bias=False)
        self.norm2 = BatchNorm2d(d_out)
        same_shape = d_in == d_out and stride == 1
        self.shortcut = (
            nn.Identity()
            if same_shape
            else nn.Sequential(nn.Conv2d(d_in, d_out, 1, stride, bias=False), BatchNorm2d(d_out))
        )

    def forward(self, x: Float[Tensor, "batch channel row column"]) -> Float[Tensor, "batch wider lower narrower"]:
        y = self.norm1(self.conv1(x)).relu()
        return (self.norm2(self.conv2(y)) + self.shortcut(x)).relu()


class ResNet(nn.Module):
    """A convolution, stages of residual blocks that halve the image and widen it, the mean over the image, classes.

    >>> ResNet(ResNetConfig(n_classes=10))(torch.randn(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self,
        config: ResNetConfig,
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        self.parts: Parts = {}
        with building(self, device, dtype):
            first = config.widths[0]
            self.conv = nn.Conv2d(config.n_channels, first, 3, padding=1, bias=False)
            self.norm = BatchNorm2d(first)
            self.features = HookPoint("batch channel row column")
            self.blocks = nn.ModuleList()
            d_in = first
            for stage, width in enumerate(config.widths):
                for block in range(config.n_blocks):
                    self.blocks.append(ResidualBlock(d_in, width, stride=2 if stage and not block else 1))
                    d_in = width
            self.pooled = HookPoint("batch channel")
            self.classifier = linear(d_in, config.n_classes)
            self.logits = HookPoint("batch class")
            for module in self.modules():
                if isinstance(module, nn.Conv2d):
                    nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    @property
    def description(self) -> Description:
        return self.config.description

    def forward(self, image: Float[Tensor, "batch channel row column"]) -> Float[Tensor, "batch class"]:
        """The logits of each class."""
        return self.logits(self.classifier(self.pooled(self.hidden(image).mean((2, 3)))))

    def hidden(self, image: Float[Tensor, "batch channel row column"]) -> Float[Tensor, "batch wider lower narrower"]:
        """The features of each pixel of the last stage, before the mean over the image."""
        check_image(image)
        if image.shape[1] != self.config.n_channels:
            raise ValueError(
                f"image must have the axes (batch, channel={self.config.n_channels}, row, column), "
                f"got shape {tuple(image.shape)}"
            )
        check_products(image)
        x = self.features(self.norm(self.conv(channels_last(image))).relu())
        for block in self.blocks:
            x = block(x)
        return x
