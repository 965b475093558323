"""The layers of a Transformer: attention and a feed-forward network, each with a residual connection and a norm."""

from jaxtyping import Bool, Float
from torch import Tensor, nn

from headwork import choices
from headwork.checks import check_one_of, check_probability
from headwork.layers.attention import MultiHeadAttention, make_attention
from headwork.layers.cache import AttentionCache
from headwork.layers.feed_forward import FeedForward
from headwork.layers.linear import OneToken
from headwork.layers.mixture_of_experts import MixtureOfExperts, make_feed_forward
from headwork.layers.norm import AnyNorm, make_norm
from headwork.layers.positions import Rotation


class ResidualLayer(nn.Module):
    """What the layers of this file are made of; the equation of each stands in its `forward`."""

    axes = "batch token d_model"
    attention_norm: AnyNorm
    feed_forward: FeedForward | MixtureOfExperts
    feed_forward_norm: AnyNorm

    def __init__(
        self,
        d_model: int,
        *,
        feed_forward: choices.AnyFeedForward,
        norm_order: choices.NormOrder,
        norm: choices.AnyNorm,
        dropout: float,
        feed_forward_dropout: float = 0.0,
        **attention: nn.Module,
    ) -> None:
        super().__init__()
        check_one_of(("pre", "post"), norm_order=norm_order)
        check_probability(dropout=dropout)
        self.norm_first = norm_order == "pre"
        made = make_feed_forward(feed_forward, d_model, dropout=feed_forward_dropout)
        for name, part in {**attention, "feed_forward": made}.items():
            both = [(f"{name}_norm", make_norm(norm, d_model)), (name, part)]
            for of_part, module in both if self.norm_first else reversed(both):  # in the order in which they run
                self.add_module(of_part, module)
        self.dropout = nn.Dropout(dropout)


class EncoderLayer(ResidualLayer):
    """Self-attention, both ways or (with `causal=True`) back only, then a feed-forward network.

    >>> layer = EncoderLayer(8, heads=choices.Heads(n_heads=2),
    ...     feed_forward=choices.FeedForward(d_ff=32), norm_order="pre")
    >>> layer(torch.randn(1, 5, 8)).shape
    torch.Size([1, 5, 8])
    """

    attention: MultiHeadAttention

    def __init__(
        self,
        d_model: int,
        *,
        heads: choices.AnyHeads,
        feed_forward: choices.AnyFeedForward,
        norm_order: choices.NormOrder,
        norm: choices.AnyNorm = choices.LayerNorm(),
        position: choices.TextPositions | choices.GridPositions = choices.NoPositions(),
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        feed_forward_dropout: float = 0.0,
        window: int | None = None,
    ) -> None:
        arguments = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        super().__init__(
            d_model,
            attention=make_attention(heads, d_model, position=position, dropout=attention_dropout, window=window),
            feed_forward=feed_forward,
            norm_order=norm_order,
            norm=norm,
            dropout=dropout,
            feed_forward_dropout=feed_forward_dropout,
        )
        self.arguments = arguments  # for a file: the attributes of these names are modules

    def forward(
        self,
        x: Float[Tensor, "batch token d_model"],
        visible: Bool[Tensor, "#batch #head #query #key"] | Bool[Tensor, "#query #key"] | None = None,
        *,
        causal: bool = False,
        bias: Float[Tensor, "#batch #head #query #key"] | None = None,
        rotation: Rotation | None = None,
        cache: AttentionCache | None = None,
    ) -> Float[Tensor, "batch token d_model"]:
        """Pre-norm: x + f(norm(x)), which trains deep stacks without warm-up. Post-norm: norm(x + f(x)), as in BERT.

        Xiong et al., "On layer normalization in the Transformer architecture", 2020.
        """
        seen = {"visible": visible, "causal": causal, "bias": bias, "rotation": rotation, "cache": cache}
        if self.norm_first:
            x = x + self.dropout(self.attention(self.attention_norm(x), **seen))
            return x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        x = self.attention_norm(x + self.dropout(self.attention(x, **seen)))
        return self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))


class DecoderLayer(ResidualLayer):
    """Causal self-attention, cross-attention to the memory (if any), then a feed-forward network.

    GPT-2 and Llama have no memory: `cross_attention=False`.

    >>> layer = DecoderLayer(8, heads=choices.Heads(n_heads=2),
    ...     feed_forward=choices.FeedForward(d_ff=32), norm_order="post")
    >>> layer(torch.randn(1, 5, 8), torch.randn(1, 7, 8)).shape
    torch.Size([1, 5, 8])
    """

    attention: MultiHeadAttention
    cross_attention: MultiHeadAttention | None
    cross_attention_norm: AnyNorm

    def __init__(
        self,
        d_model: int,
        *,
        heads: choices.AnyHeads,
        feed_forward: choices.AnyFeedForward,
        norm_order: choices.NormOrder,
        norm: choices.AnyNorm = choices.LayerNorm(),
        position: choices.TextPositions | choices.GridPositions = choices.NoPositions(),
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        feed_forward_dropout: float = 0.0,
        cross_attention: bool = True,
        window: int | None = None,
    ) -> None:
        arguments = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        own = make_attention(heads, d_model, position=position, dropout=attention_dropout, window=window)
        attention = {"attention": own}
        if cross_attention:
            attention["cross_attention"] = make_attention(heads, d_model, dropout=attention_dropout)
        super().__init__(
            d_model,
            feed_forward=feed_forward,
            norm_order=norm_order,
            norm=norm,
            dropout=dropout,
            feed_forward_dropout=feed_forward_dropout,
            **attention,
        )
        self.arguments = arguments  # for a file: the attributes of these names are modules
        if not cross_attention:
            self.cross_attention = None

    def forward(
        self,
        x: Float[Tensor, "batch token d_model"],
        memory: Float[Tensor, "batch memory_token d_model"] | None = None,
        visible: Bool[Tensor, "#batch #head #token #key"] | Bool[Tensor, "#token #key"] | None = None,
        memory_visible: Bool[Tensor, "#batch #head #token #memory_token"] | None = None,
        *,
        causal: bool = True,
        bias: Float[Tensor, "#batch #head #token #key"] | None = None,
        rotation: Rotation | None = None,
        cache: AttentionCache | None = None,
        memory_cache: AttentionCache | None = None,
    ) -> Float[Tensor, "batch token d_model"]:
        """Pre-norm: x + f(norm(x)). Post-norm: norm(x + f(x)). Bias and rotation are for the self-attention."""
        self._check(memory)
        seen = {"visible": visible, "causal": causal, "bias": bias, "rotation": rotation, "cache": cache}
        of_memory = {"memory": memory, "visible": memory_visible, "cache": memory_cache}
        if self.norm_first:
            x = x + self.dropout(self.attention(self.attention_norm(x), **seen))
            if self.cross_attention is not None:
                x = x + self.dropout(self.cross_attention(self.cross_attention_norm(x), **of_memory))
            return x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        x = self.attention_norm(x + self.dropout(self.attention(x, **seen)))
        if self.cross_attention is not None:
            x = self.cross_attention_norm(x + self.dropout(self.cross_attention(x, **of_memory)))
        return self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))

    def one_token(self) -> OneToken:
        """The same for one new token of each row; a memory is in its cache already. No dropout."""
        attend, norm = self.attention.one_token(), self.attention_norm.one_token()
        feed, feed_norm = self.feed_forward.one_token(), self.feed_forward_norm.one_token()
        look = None if self.cross_attention is None else self.cross_attention.one_token()
        look_norm = norm if look is None else self.cross_attention_norm.one_token()

        def pre_norm(x: Tensor, seen: tuple[object, ...], of_memory: tuple[object, ...]) -> Tensor:
            x = attend(norm(x), *seen).add_(x)
            x = x if look is None else look(look_norm(x), *of_memory).add_(x)
            return feed(feed_norm(x)).add_(x)

        def post_norm(x: Tensor, seen: tuple[object, ...], of_memory: tuple[object, ...]) -> Tensor:
            x = norm(x + attend(x, *seen))
            x = x if look is None else look_norm(x + look(x, *of_memory))
            return feed_norm(x + feed(x))

        return pre_norm if self.norm_first else post_norm

    def _check(self, memory: Tensor | None) -> None:
        if self.cross_attention is None and memory is not None:
            raise ValueError(f"memory must be None without cross-attention, got shape {tuple(memory.shape)}")
        if self.cross_attention is not None and memory is None:
            raise ValueError("memory must be given to a layer with cross-attention, got None")
