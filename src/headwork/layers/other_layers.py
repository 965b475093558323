"""Decoder layers with their norms and residual connections elsewhere, one class for each equation.

They look back only and have no memory; otherwise they are called and saved as `DecoderLayer` is.
"""

from jaxtyping import Bool, Float
from torch import Tensor, nn

from headwork import choices
from headwork.checks import check_probability
from headwork.layers.attention import make_attention
from headwork.layers.cache import AttentionCache
from headwork.layers.linear import OneToken
from headwork.layers.mixture_of_experts import make_feed_forward
from headwork.layers.norm import make_norm
from headwork.layers.positions import Rotation

Mask = Bool[Tensor, "#batch #head #token #key"] | Bool[Tensor, "#token #key"] | None
Bias = Float[Tensor, "#batch #head #token #key"] | None


class CausalLayer(nn.Module):
    """What the layers of this file are made of; the equation of each stands in its `forward`."""

    axes = "batch token d_model"
    norms: tuple[str, ...] = ("attention_norm", "feed_forward_norm")

    def __init__(
        self,
        d_model: int,
        *,
        heads: choices.AnyHeads,
        feed_forward: choices.AnyFeedForward,
        norm: choices.AnyNorm = choices.LayerNorm(),
        position: choices.TextPositions | choices.GridPositions = choices.NoPositions(),
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        window: int | None = None,
    ) -> None:
        arguments = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        super().__init__()
        check_probability(dropout=dropout)
        self.arguments = arguments  # for a file: the attributes of these names are modules
        self.attention = make_attention(heads, d_model, position=position, dropout=attention_dropout, window=window)
        self.feed_forward = make_feed_forward(feed_forward, d_model)
        for name in self.norms:
            self.add_module(name, make_norm(norm, d_model))
        self.dropout = nn.Dropout(dropout)


class ParallelLayer(CausalLayer):
    """x + attention(norm(x)) + feed_forward(norm(x)): both read the same x, so that they can run at the same time.

    Each has a norm of its own (GPT-NeoX), or they share one (`shared_norm`: GPT-J, Phi, Falcon 7B). Wang and
    Komatsuzaki, "GPT-J-6B", 2021; Black et al., "GPT-NeoX-20B", 2022.

    >>> layer = ParallelLayer(8, heads=choices.Heads(n_heads=2), feed_forward=choices.FeedForward(d_ff=32))
    >>> layer(torch.randn(1, 5, 8)).shape
    torch.Size([1, 5, 8])
    """

    attention_norm: nn.Module
    feed_forward_norm: nn.Module | None

    def __init__(
        self,
        d_model: int,
        *,
        heads: choices.AnyHeads,
        feed_forward: choices.AnyFeedForward,
        norm: choices.AnyNorm = choices.LayerNorm(),
        position: choices.TextPositions | choices.GridPositions = choices.NoPositions(),
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        window: int | None = None,
        shared_norm: bool = False,
    ) -> None:
        arguments = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        super().__init__(**{name: value for name, value in arguments.items() if name != "shared_norm"})
        self.arguments = arguments
        if shared_norm:
            self.feed_forward_norm = None

    def forward(
        self,
        x: Float[Tensor, "batch token d_model"],
        visible: Mask = None,
        *,
        causal: bool = True,
        bias: Bias = None,
        rotation: Rotation | None = None,
        cache: AttentionCache | None = None,
    ) -> Float[Tensor, "batch token d_model"]:
        normed = self.attention_norm(x)
        attended = self.attention(normed, visible=visible, causal=causal, bias=bias, rotation=rotation, cache=cache)
        fed = self.feed_forward(normed if self.feed_forward_norm is None else self.feed_forward_norm(x))
        return x + self.dropout(attended) + self.dropout(fed)

    def one_token(self) -> OneToken:
        attend, feed = self.attention.one_token(), one_token_of(self.feed_forward)
        norm, other = one_token_of(self.attention_norm), self.feed_forward_norm
        feed_norm = None if other is None else one_token_of(other)

        def run(x: Tensor, seen: tuple[object, ...], of_memory: tuple[object, ...]) -> Tensor:
            normed = norm(x)
            return x + attend(normed, *seen) + feed(normed if feed_norm is None else feed_norm(x))

        return run


class SandwichLayer(CausalLayer):
    """x + norm(f(norm(x))), for the attention and for the feed-forward network: Gemma 2 and 3.

    Ding et al., "CogView", 2021.

    >>> layer = SandwichLayer(8, heads=choices.Heads(n_heads=2), feed_forward=choices.FeedForward(d_ff=32))
    >>> layer(torch.randn(1, 5, 8)).shape
    torch.Size([1, 5, 8])
    """

    norms = ("attention_norm", "attention_out_norm", "feed_forward_norm", "feed_forward_out_norm")
    attention_norm: nn.Module
    attention_out_norm: nn.Module
    feed_forward_norm: nn.Module
    feed_forward_out_norm: nn.Module

    def forward(
        self,
        x: Float[Tensor, "batch token d_model"],
        visible: Mask = None,
        *,
        causal: bool = True,
        bias: Bias = None,
        rotation: Rotation | None = None,
        cache: AttentionCache | None = None,
    ) -> Float[Tensor, "batch token d_model"]:
        seen = {"visible": visible, "causal": causal, "bias": bias, "rotation": rotation, "cache": cache}
        x = x + self.dropout(self.attention_out_norm(self.attention(self.attention_norm(x), **seen)))
        return x + self.dropout(self.feed_forward_out_norm(self.feed_forward(self.feed_forward_norm(x))))

    def one_token(self) -> OneToken:
        attend, feed = self.attention.one_token(), one_token_of(self.feed_forward)
        norm, out_norm = one_token_of(self.attention_norm), one_token_of(self.attention_out_norm)
        feed_norm, feed_out_norm = one_token_of(self.feed_forward_norm), one_token_of(self.feed_forward_out_norm)

        def run(x: Tensor, seen: tuple[object, ...], of_memory: tuple[object, ...]) -> Tensor:
            x = x + out_norm(attend(norm(x), *seen))
            return x + feed_out_norm(feed(feed_norm(x)))

        return run


class BranchNormLayer(CausalLayer):
    """x + norm(f(x)): the norm stands at the end of each branch, and nothing before it: OLMo 2.

    Liu et al., "Swin Transformer V2", 2022; OLMo team, "2 OLMo 2 Furious", 2024.

    >>> layer = BranchNormLayer(8, heads=choices.Heads(n_heads=2), feed_forward=choices.FeedForward(d_ff=32))
    >>> layer(torch.randn(1, 5, 8)).shape
    torch.Size([1, 5, 8])
    """

    attention_norm: nn.Module
    feed_forward_norm: nn.Module

    def forward(
        self,
        x: Float[Tensor, "batch token d_model"],
        visible: Mask = None,
        *,
        causal: bool = True,
        bias: Bias = None,
        rotation: Rotation | None = None,
        cache: AttentionCache | None = None,
    ) -> Float[Tensor, "batch token d_model"]:
        seen = {"visible": visible, "causal": causal, "bias": bias, "rotation": rotation, "cache": cache}
        x = x + self.dropout(self.attention_norm(self.attention(x, **seen)))
        return x + self.dropout(self.feed_forward_norm(self.feed_forward(x)))

    def one_token(self) -> OneToken:
        attend, feed = self.attention.one_token(), one_token_of(self.feed_forward)
        norm, feed_norm = one_token_of(self.attention_norm), one_token_of(self.feed_forward_norm)

        def run(x: Tensor, seen: tuple[object, ...], of_memory: tuple[object, ...]) -> Tensor:
            x = x + norm(attend(x, *seen))
            return x + feed_norm(feed(x))

        return run


def one_token_of(module: nn.Module) -> OneToken:
    """The fast form of a part that has one."""
    make = module.one_token
    assert callable(make)
    return make()
