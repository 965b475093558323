"""One layer of a decoder that also looks at an encoder's output."""

from jaxtyping import Bool, Float
from torch import Tensor, nn

from headwork import choices
from headwork.layers.attention import make_attention
from headwork.layers.cache import FixedCache, GrowingCache
from headwork.layers.feed_forward import make_feed_forward
from headwork.layers.positions import Rotation
from headwork.layers.residual import make_residual


class DecoderLayer(nn.Module):
    """Causal self-attention, cross-attention to the memory, then a feed-forward network, each in a residual connection.

    >>> layer = DecoderLayer(8, heads=choices.Heads(n_heads=2),
    ...     feed_forward=choices.FeedForward(d_ff=32), norm_order="post")
    >>> layer(torch.randn(1, 5, 8), torch.randn(1, 7, 8)).shape
    torch.Size([1, 5, 8])
    """

    axes = "batch token d_model"

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
    ) -> None:
        super().__init__()
        self.self_attention = make_attention(heads, d_model, position=position, dropout=attention_dropout)
        self.cross_attention = make_attention(heads, d_model, dropout=attention_dropout)
        self.feed_forward = make_feed_forward(feed_forward, d_model, dropout=0.0)
        self.self_attention_residual = make_residual(norm_order, d_model, norm=norm, dropout=dropout)
        self.cross_attention_residual = make_residual(norm_order, d_model, norm=norm, dropout=dropout)
        self.feed_forward_residual = make_residual(norm_order, d_model, norm=norm, dropout=dropout)

    def forward(
        self,
        x: Float[Tensor, "batch token d_model"],
        memory: Float[Tensor, "batch memory_token d_model"],
        visible: Bool[Tensor, "#batch #head #token #key"] | Bool[Tensor, "#token #key"] | None = None,
        memory_visible: Bool[Tensor, "#batch #head #token #memory_token"] | None = None,
        *,
        causal: bool = True,
        bias: Float[Tensor, "#batch #head #token #key"] | None = None,
        rotation: Rotation | None = None,
        cache: GrowingCache | None = None,
        memory_cache: FixedCache | None = None,
    ) -> Float[Tensor, "batch token d_model"]:
        options = {"causal": causal, "bias": bias, "rotation": rotation, "cache": cache}
        x = self.self_attention_residual(x, lambda y: self.self_attention(y, y, visible, **options))
        x = self.cross_attention_residual(
            x, lambda y: self.cross_attention(y, memory, memory_visible, cache=memory_cache)
        )
        return self.feed_forward_residual(x, self.feed_forward)
