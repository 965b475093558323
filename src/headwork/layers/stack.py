"""A stack of layers with all that they share: positions, masks, cache and the norms around them."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import ClassVar

from jaxtyping import Bool, Float
from torch import Tensor, nn

from headwork import choices, masks
from headwork.checks import Count, Probability, check_divides, check_probability
from headwork.functional.attention import check_beta_of_sum
from headwork.layers.cache import DecoderCache
from headwork.layers.hook_point import HookPoint, LazyHookPoint
from headwork.layers.linear import OneToken
from headwork.layers.norm import make_norm
from headwork.layers.other_layers import BranchNormLayer, ParallelLayer, SandwichLayer, one_token_of
from headwork.layers.positions import (
    LearnedPositions,
    LearnedShifts,
    Positions,
    RelativeShifts,
    Rotation,
    count_positions,
    make_positions,
)
from headwork.layers.transformer_layer import DecoderLayer, EncoderLayer
from headwork.layers.value_residual import ValueResidual, share_first_values
from headwork.serialise import Checked

_PLAIN = {nn.Linear, nn.ModuleList, nn.Dropout, HookPoint, LazyHookPoint, RelativeShifts, LearnedShifts, ValueResidual}
"""Modules that the layer around them reads or calls as they are, or that do nothing when nobody looks."""


@dataclass(frozen=True, kw_only=True)
class StackConfig(Checked):
    """The choices every layer of a stack shares; each model's config gives them its own defaults."""

    d_model: Count
    heads: choices.AnyHeads
    feed_forward: choices.AnyFeedForward
    norm: choices.AnyNorm
    norm_order: choices.NormOrder
    position: choices.TextPositions | choices.GridPositions
    dropout: Probability
    attention_dropout: Probability
    embedding_norm: bool | None = None
    """Whether the embedded tokens are normalised; None: as is usual for the model."""
    final_norm: bool | None = None
    """Whether the output of the last layer is normalised; None: after pre-norm layers, and after no others."""
    value_residual: bool = False
    """Whether the values of the first layer take part in all later ones. Zhou et al., 2024."""
    usually_embedding_norm: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if getattr(self.heads, "d_head", None) is None:
            check_divides(n_heads=self.heads.n_heads, d_model=self.d_model)

    @property
    def d_head(self) -> int:
        """The width of a query."""
        given = self.heads.d_head if isinstance(self.heads, choices.Heads) else None
        return self.d_model // self.heads.n_heads if given is None else given

    @property
    def has_embedding_norm(self) -> bool:
        usual = self.usually_embedding_norm and self.norm_order == "post"
        return usual if self.embedding_norm is None else self.embedding_norm

    @property
    def has_final_norm(self) -> bool:
        return self.norm_order == "pre" if self.final_norm is None else self.final_norm

    @property
    def max_tokens(self) -> int | None:
        """The longest sequence that has positions; None: any length."""
        if isinstance(self.position, choices.LearnedPositions | choices.RotaryPositions):
            return self.position.max_tokens
        return None


class Stack(nn.Module):
    """Positions join the embedded tokens, then layer after layer, then the final norm (of a pre-norm stack).

    The layers with the numbers `local_layers` get the rotation of `local_positions` instead (if there are any).

    A layer is any module that keeps the shape of x. It is called as

        layer(x, visible=, causal=, bias=, rotation=, cache=)

    where `visible` is the padding mask [batch 1 1 key], `bias` and `rotation` are what the position code says, and
    `cache` is None or the `GrowingCache` of this layer: a layer that mixes tokens hands its new keys and values to it
    and gets those of the past as well, as `MultiHeadAttention` does. If there is a memory, `memory=`,
    `memory_visible=` [batch 1 1 key] and `memory_cache=` come too. Layers of an image that look by position are called
    as layer(x, grid=) instead, with the (rows, columns) of the tokens. A layer that needs none of it takes `**_`.

    >>> layers = [hw.layers.EncoderLayer(8, heads=choices.Heads(n_heads=2), norm_order="pre",
    ...     feed_forward=choices.FeedForward(d_ff=32)) for _ in range(3)]
    >>> stack = Stack(layers, positions=hw.layers.SinusoidalPositions(d_model=8))
    >>> stack(torch.randn(1, 5, 8), causal=True).shape, len(stack)
    (torch.Size([1, 5, 8]), 3)
    """

    axes = "batch token d_model"

    def __init__(
        self,
        layers: Sequence[nn.Module],
        *,
        positions: Positions | None = None,
        embedding_norm: nn.Module | None = None,
        dropout: float = 0.0,
        final_norm: nn.Module | None = None,
        local_positions: Positions | None = None,
        local_layers: Collection[int] = (),
    ) -> None:
        super().__init__()
        check_probability(dropout=dropout)
        self.positions = Positions() if positions is None else positions
        self.local_positions, self.local_layers = local_positions, frozenset(local_layers)
        self.embedding_norm = embedding_norm
        self.dropout = nn.Dropout(dropout)
        self.embedded = HookPoint("batch token d_model")
        self.n_layers = len(layers)
        for i, layer in enumerate(layers):
            self.add_module(str(i), layer)
        self.final_norm = final_norm
        if type(self.positions).bias is not Positions.bias:
            for layer in layers:
                check_beta_of_sum(getattr(getattr(layer, "attention", None), "beta", 0.0))

    def forward(
        self,
        x: Float[Tensor, "batch token d_model"],
        *,
        visible: Bool[Tensor, "batch key"] | None = None,
        causal: bool = False,
        cache: DecoderCache | None = None,
        memory: Float[Tensor, "batch memory_token d_memory"] | None = None,
        memory_visible: Bool[Tensor, "batch memory_token"] | None = None,
        grid: tuple[int, int] | None = None,
    ) -> Float[Tensor, "batch token d_model"]:
        """From embedded tokens to hidden states; `visible` marks the real tokens, those in the cache included."""
        n_past = 0 if cache is None else cache.n_tokens
        n_key = n_past + x.shape[1]
        masks.check_padding(visible, (x.shape[0], n_key))
        if cache is not None:
            cache.check(len(self), visible)
        positions = count_positions(x, n_past=n_past, visible=visible)
        x = self.embedded(self.dropout(self._embed(x, positions, n_key)))
        seen: dict[str, object] = {"grid": grid}
        if grid is None:
            seen = {
                "visible": None if visible is None else masks.key_padding(visible),
                "causal": causal,
                "bias": self.positions.bias(x, n_key),
                "rotation": _rotation(self.positions, positions, x),
            }
        if memory is not None:
            masks.check_padding(memory_visible, (memory.shape[0], memory.shape[1]), "memory_visible")
            seen["memory"] = memory
            seen["memory_visible"] = None if memory_visible is None else masks.key_padding(memory_visible)
        local = seen
        if self.local_positions is not None:
            local = seen | {"rotation": _rotation(self.local_positions, positions, x)}
        for i, layer in enumerate(self):
            of_layer = local if i in self.local_layers else seen
            x = layer(x, **of_layer, **({} if grid else _caches(cache, i, memory)))
        if cache is not None:
            cache.n_tokens = n_key
        return x if self.final_norm is None else self.final_norm(x)

    def one_token(self) -> OneToken:
        """The same for one new token of each row, (x, visible, cache, memory_visible)."""
        layers = [one_token_of(layer) for layer in self]
        final_norm = None if self.final_norm is None else one_token_of(self.final_norm)
        learned = self.positions if type(self.positions) is LearnedPositions else None
        table = learned.table if learned is not None and self.embedding_norm is None and not self.local_layers else None
        is_local = [self.local_positions is not None and i in self.local_layers for i in range(len(layers))]

        def run(x: Tensor, visible: Tensor | None, cache: DecoderCache, memory_visible: Tensor | None = None) -> Tensor:
            n_past = cache.n_tokens
            if table is not None and visible is None:  # every row has the same position
                x, bias, rotation = x + table[n_past], None, None
            else:
                token = x[:, None]
                positions = count_positions(token, n_past=n_past, visible=visible)
                token = self._embed(token, positions, n_past + 1)
                bias, rotation = self.positions.bias(token, n_past + 1), _rotation(self.positions, positions, token)
                x = token[:, 0]
            keys = None if visible is None else masks.key_padding(visible)
            memory_keys = None if memory_visible is None else masks.key_padding(memory_visible)
            local = None if self.local_positions is None else _rotation(self.local_positions, positions, x)
            caches = zip(layers, is_local, cache.self_attention, cache.cross_attention, strict=True)
            for layer, here, own, of_memory in caches:
                x = layer(x, (keys, bias, local if here else rotation, own), (memory_keys, None, None, of_memory))
            cache.n_tokens = n_past + 1
            return x if final_norm is None else final_norm(x)

        return run

    def _embed(self, x: Tensor, positions: Tensor, n_key: int) -> Float[Tensor, "batch token d_model"]:
        vectors = self.positions.vectors(positions, n_key)
        x = x if vectors is None else x + vectors
        return x if self.embedding_norm is None else self.embedding_norm(x)

    def __len__(self) -> int:
        return self.n_layers

    def __iter__(self) -> Iterator[nn.Module]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, i: int) -> nn.Module:
        return self.get_submodule(str(range(len(self))[i]))


def _rotation(code: Positions, positions: Tensor, x: Tensor) -> Rotation | None:
    """Computed once for all layers."""
    rotation = code.rotation(positions)
    return None if rotation is None else rotation.computed(x.dtype)


def _caches(cache: DecoderCache | None, i: int, memory: Tensor | None) -> dict[str, object]:
    own: dict[str, object] = {"cache": None if cache is None else cache.self_attention[i]}
    if memory is None:
        return own
    return own | {"memory_cache": None if cache is None else cache.cross_attention[i]}


def make_stack(
    config: StackConfig,
    n_layers: int,
    *,
    decoder: bool,
    cross_attention: bool = False,
    positions: Positions | None = None,
    layers: Sequence[nn.Module] | None = None,
    layer: choices.AnyLayer = choices.SequentialLayer(),
    window: choices.SlidingWindow | None = None,
) -> Stack:
    """The stack that the config describes, or with a user's own positions and layers in it.

    Layers start from different values: each is made by itself, none is a copy.
    """
    if positions is not None and not isinstance(positions, Positions):
        raise TypeError(f"positions must be a subclass of headwork.layers.Positions, got {type(positions).__name__}")
    check_own_positions(config, positions)
    if layers is not None and len(layers) != n_layers:
        raise ValueError(f"layers must be as many as n_layers={n_layers} of the config, got {len(layers)}")
    of_layer = config.position if positions is None else choices.NoPositions()
    of_choice = partial(
        make_positions,
        d_model=config.d_model,
        n_heads=config.heads.n_heads,
        d_head=config.d_head,
        bidirectional=not decoder,
    )
    positions = of_choice(config.position) if positions is None else positions
    local_layers = () if window is None else window.layers if window.layers is not None else tuple(range(n_layers))
    if layers is None:
        layers = [
            make_layer(
                config,
                layer,
                decoder=decoder,
                cross_attention=cross_attention,
                position=of_layer,
                window=window.n_tokens if window is not None and i in local_layers else None,
            )
            for i in range(n_layers)
        ]
        if config.value_residual:
            share_first_values([made.get_submodule("attention") for made in layers])  # type: ignore[misc]
    elif config.value_residual:
        raise ValueError("value_residual must be False beside layers of your own, got True")
    return Stack(
        layers,
        positions=positions,
        embedding_norm=make_norm(config.norm, config.d_model) if config.has_embedding_norm else None,
        dropout=config.dropout,
        final_norm=make_norm(config.norm, config.d_model) if config.has_final_norm else None,
        local_positions=None if window is None or window.position is None else of_choice(window.position),
        local_layers=local_layers,
    )


def make_layer(
    config: StackConfig,
    layer: choices.AnyLayer,
    *,
    decoder: bool,
    cross_attention: bool,
    position: choices.TextPositions | choices.GridPositions,
    window: int | None,
) -> nn.Module:
    make: Callable[..., nn.Module]
    match layer:
        case choices.SequentialLayer() if decoder:
            make = partial(DecoderLayer, cross_attention=cross_attention, norm_order=config.norm_order)
        case choices.SequentialLayer():
            make = partial(EncoderLayer, norm_order=config.norm_order)
        case choices.ParallelLayer():
            make = partial(ParallelLayer, shared_norm=layer.shared_norm)
        case choices.SandwichLayer():
            make = SandwichLayer
        case choices.BranchNormLayer():
            make = BranchNormLayer
    return make(
        config.d_model,
        heads=config.heads,
        feed_forward=config.feed_forward,
        norm=config.norm,
        position=position,
        dropout=config.dropout,
        attention_dropout=config.attention_dropout,
        window=window,
    )


def check_own_positions(config: StackConfig, positions: nn.Module | None) -> None:
    """A user's position code takes the place of the config's default; any other of the config would be lost."""
    own, questions = type(positions), ("vectors", "rotation", "bias")
    as_if_none = issubclass(own, Positions) and all(getattr(own, n) is getattr(Positions, n) for n in questions)
    if as_if_none and own is not Positions:
        raise ValueError(
            "positions must answer vectors(positions, n_total), rotation(positions) or bias(x, n_key), "
            f"got {own.__name__}, which defines none of them"
        )
    default = next(field.default for field in fields(config) if field.name == "position")
    if positions is not None and config.position not in (default, choices.NoPositions()):
        raise ValueError(
            f"position of the config must be NoPositions() beside positions={type(positions).__name__}(...), "
            f"got {config.position}"
        )


def takes_part(model: nn.Module, *parts: nn.Module) -> bool:
    """Whether the model and all that is inside these parts of it have a one-token form that says what they say.

    One token at a time, the arithmetic is small, and most of the time goes into modules, hooks, checks and reshapes. So
    the layers that generation runs have, beside `forward`, a method `one_token`. It returns a plain function over the
    same parameters (nothing is copied), of one new token of each row as [batch, d_model], in evaluation and without
    gradients. A class has one if it defines `one_token` itself: a subclass may have another `forward`. Position codes
    are asked the same questions on both paths, so any will do.
    """
    return _is_unchanged(model) and all(_is_unchanged(module) for part in parts for module in _inside(part))


def _is_unchanged(module: nn.Module) -> bool:
    return (
        (type(module) in _PLAIN or "one_token" in vars(type(module)))
        and "forward" not in vars(module)
        and module._compiled_call_impl is None
    )


def _inside(module: nn.Module) -> Iterator[nn.Module]:
    yield module
    for child in module.children():
        if not isinstance(child, Positions):
            yield from _inside(child)
