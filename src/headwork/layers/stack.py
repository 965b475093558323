"""A stack of layers with all that they share: positions, masks, cache and the norms around them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import partial

from jaxtyping import Bool, Float
from torch import Tensor, nn

from headwork import choices, masks
from headwork.checks import Count, Probability, check_divides, check_probability
from headwork.functional.attention import check_beta_of_sum
from headwork.layers.cache import DecoderCache
from headwork.layers.hook_point import HookPoint, LazyHookPoint
from headwork.layers.linear import OneToken
from headwork.layers.norm import make_norm
from headwork.layers.positions import LearnedPositions, Positions, RelativeShifts, count_positions, make_positions
from headwork.layers.transformer_layer import DecoderLayer, EncoderLayer
from headwork.serialise import Checked

_PLAIN = {nn.Linear, nn.Dropout, HookPoint, LazyHookPoint, RelativeShifts}
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
    def max_tokens(self) -> int | None:
        """The longest sequence that has positions; None: any length."""
        return self.position.max_tokens if isinstance(self.position, choices.LearnedPositions) else None


class Stack(nn.Module):
    """Positions join the embedded tokens, then layer after layer, then the final norm (of a pre-norm stack).

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
    ) -> None:
        super().__init__()
        check_probability(dropout=dropout)
        self.positions = Positions() if positions is None else positions
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
                "rotation": self.positions.rotation(positions),
            }
        if memory is not None:
            masks.check_padding(memory_visible, (memory.shape[0], memory.shape[1]), "memory_visible")
            seen["memory"] = memory
            seen["memory_visible"] = None if memory_visible is None else masks.key_padding(memory_visible)
        for i, layer in enumerate(self):
            x = layer(x, **seen, **({} if grid else _caches(cache, i, memory)))
        if cache is not None:
            cache.n_tokens = n_key
        return x if self.final_norm is None else self.final_norm(x)

    def one_token(self) -> OneToken:
        """The same for one new token of each row, (x, visible, cache, memory_visible)."""
        layers = [_one_token_of(layer) for layer in self]
        final_norm = None if self.final_norm is None else _one_token_of(self.final_norm)
        learned = self.positions if type(self.positions) is LearnedPositions else None
        table = learned.table if learned is not None and self.embedding_norm is None else None

        def run(
            x: Float[Tensor, "batch d_model"],
            visible: Bool[Tensor, "batch key"] | None,
            cache: DecoderCache,
            memory_visible: Bool[Tensor, "batch memory_token"] | None = None,
        ) -> Float[Tensor, "batch d_model"]:
            n_past = cache.n_tokens
            if table is not None and visible is None:  # every row has the same position
                x, bias, rotation = x + table[n_past], None, None
            else:
                token = x[:, None]
                positions = count_positions(token, n_past=n_past, visible=visible)
                token = self._embed(token, positions, n_past + 1)
                bias, rotation = self.positions.bias(token, n_past + 1), self.positions.rotation(positions)
                x = token[:, 0]
            keys = None if visible is None else masks.key_padding(visible)
            memory_keys = None if memory_visible is None else masks.key_padding(memory_visible)
            caches = zip(layers, cache.self_attention, cache.cross_attention, strict=True)
            for layer, own, of_memory in caches:
                x = layer(x, (keys, bias, rotation, own), (memory_keys, None, None, of_memory))
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
    embedding_norm: bool = False,
    positions: Positions | None = None,
    layers: Sequence[nn.Module] | None = None,
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
    if positions is None:
        positions = make_positions(
            config.position,
            d_model=config.d_model,
            n_heads=config.heads.n_heads,
            d_head=config.d_head,
            bidirectional=not decoder,
        )
    make: Callable[..., nn.Module] = partial(DecoderLayer, cross_attention=cross_attention) if decoder else EncoderLayer
    if layers is None:
        layers = [
            make(
                config.d_model,
                heads=config.heads,
                feed_forward=config.feed_forward,
                norm_order=config.norm_order,
                norm=config.norm,
                position=of_layer,
                dropout=config.dropout,
                attention_dropout=config.attention_dropout,
            )
            for _ in range(n_layers)
        ]
    pre = config.norm_order == "pre"
    return Stack(
        layers,
        positions=positions,
        embedding_norm=make_norm(config.norm, config.d_model) if embedding_norm and not pre else None,
        dropout=config.dropout,
        final_norm=make_norm(config.norm, config.d_model) if pre else None,
    )


def check_own_positions(config: StackConfig, positions: nn.Module | None) -> None:
    """A user's position code takes the place of the config's default; any other of the config would be lost."""
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


def _one_token_of(module: nn.Module) -> OneToken:
    make = module.one_token
    assert callable(make)
    return make()
