"""Where the heads of a model look: their attention weights on one example, and the centres of Gaussian heads."""

import math
from typing import TypedDict

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headwork.functional.gaussian import Precision, full_precision
from headwork.inspection.recording import record
from headwork.layers.gaussian import GaussianAttention
from headwork.models.model import describe, evaluation_mode


class HeadCentres(TypedDict):
    """Where the heads of one layer look (rows and columns away from the query), and how sharply."""

    centre: list[list[float]]
    alpha: list[float] | list[list[float]] | list[list[list[float]]]


Snapshot = dict[str, HeadCentres]
"""The centres and precisions of the heads of every Gaussian layer, by its name."""


def attention_layers(model: nn.Module, *, cross: bool = False) -> list[str]:
    """The names of the attention modules whose weights can be recorded; none for a model without description.

    >>> attention_layers(hw.models.published("digits-vit").build())[:2]
    ['layers.0.attention', 'layers.1.attention']
    """
    about = describe(model)
    if about is None:
        return []
    modules = dict(model.named_modules())
    return [name for name in (about.cross_attention if cross else about.attention) if f"{name}.weights" in modules]


def attention_weights_of(
    model: nn.Module, names: list[str], *inputs: Tensor, **masks: Tensor
) -> dict[str, Float[Tensor, "head query key"]]:
    """The attention weights of the first example in the named layers, in evaluation mode and without gradients.

    >>> model = hw.models.published("digits-vit").build()
    >>> weights = attention_weights_of(model, ["layers.0.attention"], torch.rand(1, 1, 8, 8))
    >>> weights["layers.0.attention"].shape
    torch.Size([4, 17, 17])
    """
    if not names:
        return {}
    with evaluation_mode(model), torch.no_grad(), record(model, *(f"{name}.weights" for name in names)) as seen:
        model(*inputs, **masks)
    return {name: seen[f"{name}.weights"][0].float().cpu() for name in names}


def gaussian_layers(model: nn.Module) -> dict[str, GaussianAttention]:
    """The Gaussian layers of a model, by the name of the layer whose attention they are.

    >>> config = hw.models.GaussianImageEncoderConfig(n_classes=10, image=(4, 4), d_model=8, n_layers=2)
    >>> list(gaussian_layers(hw.models.GaussianImageEncoder(config)))
    ['layers.0', 'layers.1']
    """
    return {
        name.removesuffix(".attention") or "heads": module
        for name, module in model.named_modules()
        if isinstance(module, GaussianAttention)
    }


def snapshot_centres(model: nn.Module) -> Snapshot:
    """The centres and precisions of every Gaussian layer as they are now; empty for a model without Gaussian heads.

    It is made of lists of numbers, so that a run can keep one for each epoch in a file of JSON lines; the drawings take
    it as well as the model.

    >>> snapshot_centres(hw.layers.GaussianAttention(d_model=4, n_heads=2))["heads"]["alpha"]
    [1.0, 1.0]
    """
    return {
        name: HeadCentres(centre=layer.centre.tolist(), alpha=layer.alpha.tolist())
        for name, layer in gaussian_layers(model).items()
    }


def half_radius(alpha: Precision) -> Float[Tensor, "head"]:
    r"""The width of a head: $\sqrt{\ln 2 / \alpha}$ pixels, the radius of the circle that holds half of its weight.

    For other shapes half of the weight lies in an ellipse, and this is the radius of the circle of the same area:
    $\alpha$ is then the square root of the determinant of the precision. (On a grid of pixels all of this is
    approximate for heads narrower than a pixel.)

    >>> half_radius(torch.tensor([1.0, 0.01]))
    tensor([0.8326, 8.3255])
    """
    area = torch.linalg.det(full_precision(alpha).double()).sqrt()  # float64, since the product of two may overflow
    return torch.sqrt(math.log(2) / area).to(alpha.dtype)
