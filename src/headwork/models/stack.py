"""What the stacks of all models have in common: the choices of a layer."""

from dataclasses import dataclass

from torch import nn

from headwork import choices
from headwork.checks import check_positive, check_probability
from headwork.layers.decoder_layer import DecoderLayer
from headwork.layers.encoder_layer import EncoderLayer
from headwork.layers.positions import Positions, make_positions
from headwork.serialise import Checked


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


def make_layers(kind: type[EncoderLayer] | type[DecoderLayer], config: StackConfig, n_layers: int) -> nn.ModuleList:
    """Layers that start from different values: each is made by itself, none is a copy."""
    return nn.ModuleList(
        kind(
            config.d_model,
            heads=config.heads,
            feed_forward=config.feed_forward,
            norm_order=config.norm_order,
            norm=config.norm,
            position=config.position,
            dropout=config.dropout,
            attention_dropout=config.attention_dropout,
        )
        for _ in range(n_layers)
    )


def make_text_positions(config: StackConfig, position: choices.TextPositions, *, bidirectional: bool) -> Positions:
    n_heads = config.heads.n_heads
    return make_positions(
        position,
        d_model=config.d_model,
        n_heads=n_heads,
        d_head=config.d_model // n_heads if config.d_head is None else config.d_head,
        bidirectional=bidirectional,
    )
