"""What every model has: a description, parts of a user's own, a device and a mode.

The description is what an architecture is, as facts: asked by everything above the models instead of their type.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Literal, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from headwork.checks import check_positive
from headwork.layers.stack import Stack

InputKind = Literal["image", "text", "text pair"]
Device = torch.device | str | None
OutputKind = Literal["class", "token class", "next token", "masked token", "hidden state"]
Parts = dict[str, nn.Module | list[nn.Module]]
"""What a model was given beside its config, by the name of the argument."""


@dataclass(frozen=True, kw_only=True)
class Description:
    """What a model reads, what it answers, its limits, and where its layers are."""

    input: InputKind
    """`text` is token ids; `text pair` is the ids of a source and of a target."""
    output: OutputKind
    """What the last axis of the output scores."""
    n_outputs: int
    """The size of that axis: classes, tokens of the vocabulary, or d_model."""
    vocab: int | None = None
    """Of the ids that are read (of the source, for a pair)."""
    max_tokens: int | None = None
    """The longest sequence; None: any length."""
    image: tuple[int, int] | None = None
    """The (rows, columns) of pixels it is made for; None: any."""
    n_channels: int | None = None
    grid: tuple[int, int] | None = None
    """The (rows, columns) of tokens of that image."""
    layers: tuple[str, ...] = ()
    """The names of the layers of its stacks, in the order in which they run."""
    attention: tuple[str, ...] = ()
    """The names of the self-attention modules."""
    cross_attention: tuple[str, ...] = ()


@runtime_checkable
class ModelConfig(Protocol):
    """A frozen dataclass that says all about a model: `build` makes it, with fresh weights."""

    def build(self) -> nn.Module: ...


def describe(model: object) -> Description | None:
    """The description of a model or of a config; None for one that has none, as a user's own may.

    >>> describe(hw.models.published("gpt2")).max_tokens
    1024
    """
    for where in (model, getattr(model, "config", None)):
        if isinstance(found := getattr(where, "description", None), Description):
            return found
    return None


def example_inputs(
    description: Description,
    *,
    batch: int = 1,
    n_tokens: int = 16,
    image: tuple[int, int] = (32, 32),
    device: Device = None,
) -> list[Tensor]:
    """Inputs of the right shape and type, all zeros; `image` is for models that take any size.

    >>> [tuple(t.shape) for t in example_inputs(hw.models.published("transformer-base").description, n_tokens=5)]
    [(1, 5), (1, 5)]
    """
    check_positive(batch=batch, n_tokens=n_tokens)
    if description.input == "image":
        assert description.n_channels is not None
        return [torch.zeros(batch, description.n_channels, *(description.image or image), device=device)]
    n_inputs = 2 if description.input == "text pair" else 1
    return [torch.zeros(batch, n_tokens, dtype=torch.long, device=device)] * n_inputs


def numbered(stack: str, n_layers: int, part: str = "") -> tuple[str, ...]:
    """The names of the layers of a stack, or of the same part of each.

    >>> numbered("layers", 2, "attention")
    ('layers.0.attention', 'layers.1.attention')
    """
    return tuple(f"{stack}.{i}" + (f".{part}" if part else "") for i in range(n_layers))


def with_parts(description: Description, layers: Stack) -> Description:
    """The description of a model with a user's own positions or layers in its stack `layers`.

    A layer whose attention is to be shown has it as `attention`, with a hook point `weights`, as ours have.
    """
    attention = [i for i, layer in enumerate(layers) if hasattr(getattr(layer, "attention", None), "weights")]
    return replace(
        description,
        max_tokens=layers.positions.max_tokens,
        layers=numbered("layers", len(layers)),
        attention=tuple(f"layers.{i}.attention" for i in attention),
    )


def given_parts(**parts: nn.Module | Sequence[nn.Module] | None) -> Parts:
    """The parts that a caller passed; raise for what is no module.

    >>> given_parts(positions=None, pooling=hw.layers.MeanPooling())
    {'pooling': MeanPooling()}
    """
    given: Parts = {}
    for name, part in parts.items():
        if part is None:
            continue
        for module in [part] if isinstance(part, nn.Module | type) else part:
            if not isinstance(module, nn.Module):
                hint = " (an instance, with parentheses)" if isinstance(module, type) else ""
                raise TypeError(f"{name} must be made of modules{hint}, got {module!r}")
        given[name] = part if isinstance(part, nn.Module) else list(part)
    return given


@contextmanager
def building(model: nn.Module, device: Device, dtype: torch.dtype | None) -> Iterator[None]:
    """What is made inside goes to this device and precision.

    The numbers come from the usual generator, so that a seed makes the same model on every device; on `meta` there are
    none.
    """
    with torch.device("meta") if device is not None and torch.device(device).type == "meta" else nullcontext():
        yield
    if device is not None or dtype is not None:
        model.to(device=device, dtype=dtype)


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Without dropout inside the block; afterwards every module has its own mode back.

    >>> dropout = nn.Dropout()
    >>> with evaluation_mode(dropout):
    ...     print(dropout.training)
    False
    >>> dropout.training
    True
    """
    modes = {module: module.training for module in model.modules()}
    if any(modes.values()):
        model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            if module.training != mode:  # to set an attribute of a module takes long
                module.training = mode
