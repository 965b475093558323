"""The attention weights of a model on one example, layer by layer."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headwork.inspection.recording import record
from headwork.models.model import describe, evaluation_mode


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
