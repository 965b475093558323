"""Which linear maps of a model are adapted at low rank, and the same model with the adaptation merged in."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from torch import nn

from headwork.checks import Count, PositiveNumber, nearest
from headwork.layers.lora import LoRALinear
from headwork.serialise import Checked

if TYPE_CHECKING:
    from headwork.convert.network import Converted

ATTENTION = ("*.query", "*.value")
"""The maps that the paper adapts."""


@dataclass(frozen=True, kw_only=True)
class LoRA(Checked):
    """The description of a call of `lora`, which `hw.save` and a run keep."""

    names: tuple[str, ...] = ATTENTION
    rank: Count = 8
    alpha: PositiveNumber = 16.0

    def apply(self, model: nn.Module) -> "Converted":
        from headwork.convert.network import Converted, conversions_of

        linear = [name for name, module in model.named_modules() if type(module) is nn.Linear]
        for pattern in self.names:
            if not any(fnmatchcase(name, pattern) for name in linear):
                raise ValueError(
                    f"names must match linear maps of the model, got {pattern!r}{nearest(pattern, linear)}"
                )
        chosen = {name for name in linear if any(fnmatchcase(name, pattern) for pattern in self.names)}
        adapted = deepcopy(model).requires_grad_(False)
        for name in chosen:
            old = adapted.get_submodule(name)
            assert isinstance(old, nn.Linear)
            adapted.set_submodule(name, LoRALinear(old, self.rank, self.alpha).train(old.training))
        adapted._conversions = (*conversions_of(model), self)  # type: ignore[assignment]  # no module, only a note
        return Converted(adapted, self, ())


def lora(
    model: nn.Module,
    names: str | Sequence[str] = ATTENTION,
    *,
    rank: int = 8,
    alpha: float = 16.0,
    train: str | Sequence[str] = (),
) -> nn.Module:
    """A copy of the model in which the named linear maps are `LoRALinear`, and only what these add is trained.

    In a name `*` stands for anything. `train` names parameters that are trained as well, such as "head.*". The copy
    starts with the answers of the model, and is trained, saved and loaded like any; `merge_lora` gives a plain one.

    >>> config = hw.models.DecoderConfig(vocab=100, d_model=8, n_layers=2, heads=choices.Heads(n_heads=2),
    ...     feed_forward=choices.FeedForward(d_ff=32))
    >>> adapted = hw.lora(config.build(), "layers.*.attention.query", rank=2)
    >>> [name for name, parameter in adapted.named_parameters() if parameter.requires_grad][:2]
    ['layers.0.attention.query.lora_a', 'layers.0.attention.query.lora_b']
    """
    patterns = (names,) if isinstance(names, str) else tuple(names)
    adapted = LoRA(names=patterns, rank=rank, alpha=alpha).apply(model).model
    train_only(adapted, ("*.lora_a", "*.lora_b", *((train,) if isinstance(train, str) else train)))
    return adapted


def train_only(model: nn.Module, patterns: Sequence[str]) -> None:
    """Freeze all parameters but those whose names match, each pattern at least one."""
    parameters = dict(model.named_parameters())
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in parameters):
            raise ValueError(f"train must match parameters of the model, got {pattern!r}{nearest(pattern, parameters)}")
    for name, parameter in parameters.items():
        parameter.requires_grad_(any(fnmatchcase(name, pattern) for pattern in patterns))


def merge_lora(model: nn.Module) -> nn.Module:
    """A copy in which every `LoRALinear` is one plain linear map of the same answers, with all weights trainable.

    >>> adapted = hw.lora(nn.Sequential(nn.Linear(8, 5)), "0", rank=2)
    >>> merge_lora(adapted)
    Sequential(
      (0): Linear(in_features=8, out_features=5, bias=True)
    )
    """
    from headwork.convert.network import conversions_of

    merged = deepcopy(model)
    for name, module in model.named_modules():
        if isinstance(module, LoRALinear):
            merged.set_submodule(name, module.merged())
    left = tuple(conversion for conversion in conversions_of(model) if not isinstance(conversion, LoRA))
    merged._conversions = left  # type: ignore[assignment]  # no module, only a note
    return merged.requires_grad_(True)


def has_lora(model: nn.Module) -> bool:
    return any(isinstance(module, LoRALinear) for module in model.modules())
