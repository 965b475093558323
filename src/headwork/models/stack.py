"""What the models with a stack of layers have in common: the choices of a layer, and a user's own parts."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import torch
from torch import nn

from headwork import choices
from headwork.checks import check_positive, check_probability
from headwork.layers.decoder_layer import DecoderLayer
from headwork.layers.encoder_layer import EncoderLayer
from headwork.layers.norm import make_norm
from headwork.layers.positions import Positions, make_positions
from headwork.layers.stack import Stack
from headwork.models.description import Device
from headwork.serialise import Checked

Parts = dict[str, nn.Module | list[nn.Module]]
"""What a model was given beside its config, by the name of the argument."""


@dataclass(frozen=True, kw_only=True)
class StackConfig(Checked):
    """The choices every layer of a stack shares; each model's config gives them its own defaults."""

    d_model: int
    heads: choices.AnyHeads
    feed_forward: choices.AnyFeedForward
    norm: choices.AnyNorm
    norm_order: choices.NormOrder
    position: choices.TextPositions | choices.GridPositions
    dropout: float
    attention_dropout: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(d_model=self.d_model)
        check_probability(dropout=self.dropout, attention_dropout=self.attention_dropout)
        if self.d_head is None and self.d_model % self.heads.n_heads:
            raise ValueError(
                f"n_heads must divide d_model, got n_heads={self.heads.n_heads} and d_model={self.d_model}"
            )

    @property
    def d_head(self) -> int | None:
        """The width of a query, if it was given; d_model / n_heads if not."""
        return self.heads.d_head if isinstance(self.heads, choices.Heads) else None

    @property
    def max_tokens(self) -> int | None:
        """The longest sequence that has positions; None: any length."""
        return self.position.max_tokens if isinstance(self.position, choices.LearnedPositions) else None


def make_stack(
    config: StackConfig,
    position: choices.TextPositions,
    n_layers: int,
    *,
    decoder: bool,
    cross_attention: bool = False,
    embedding_norm: bool = False,
    positions: Positions | None = None,
    layers: Sequence[nn.Module] | None = None,
) -> Stack:
    """The stack that the config describes, or with a user's own positions and layers in it.

    Layers start from different values: each is made by itself, none is a copy.
    """
    check_positions(positions)
    of_layer = choices.NoPositions() if positions is not None else config.position
    if positions is None:
        n_heads = config.heads.n_heads
        positions = make_positions(
            position,
            d_model=config.d_model,
            n_heads=n_heads,
            d_head=config.d_model // n_heads if config.d_head is None else config.d_head,
            bidirectional=not decoder,
        )
    if layers is None:
        layers = [make_layer(config, of_layer, decoder, cross_attention) for _ in range(n_layers)]
    pre = config.norm_order == "pre"
    return Stack(
        layers,
        positions=positions,
        embedding_norm=make_norm(config.norm, config.d_model) if embedding_norm and not pre else None,
        dropout=config.dropout,
        final_norm=make_norm(config.norm, config.d_model) if pre else None,
    )


def make_layer(
    config: StackConfig,
    position: choices.TextPositions | choices.GridPositions,
    decoder: bool,
    cross_attention: bool,
) -> EncoderLayer | DecoderLayer:
    settings = {
        "heads": config.heads,
        "feed_forward": config.feed_forward,
        "norm_order": config.norm_order,
        "norm": config.norm,
        "position": position,
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
    }
    if decoder:
        return DecoderLayer(config.d_model, cross_attention=cross_attention, **settings)  # type: ignore[arg-type]
    return EncoderLayer(config.d_model, **settings)  # type: ignore[arg-type]


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


def check_positions(positions: nn.Module | None) -> None:
    if positions is not None and not isinstance(positions, Positions):
        raise TypeError(f"positions must be a subclass of headwork.layers.Positions, got {type(positions).__name__}")


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
