"""One layer of a stack that looks at itself: an encoder's, or, with `causal=True`, a GPT's."""

from jaxtyping import Bool, Float
from torch import Tensor, nn

from headwork import choices
from headwork.layers.attention import make_attention
from headwork.layers.cache import AttentionCache
from headwork.layers.feed_forward import make_feed_forward
from headwork.layers.positions import Rotation
from headwork.layers.residual import make_residual


class EncoderLayer(nn.Module):
    """Self-attention, then a feed-forward network, each inside a residual connection with its norm.

    >>> layer = EncoderLayer(8, heads=choices.Heads(n_heads=2),
    ...     feed_forward=choices.FeedForward(d_ff=32), norm_order="pre")
    >>> layer(torch.randn(1, 5, 8)).shape
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
        self.attention = make_attention(heads, d_model, position=position, dropout=attention_dropout)
        self.feed_forward = make_feed_forward(feed_forward, d_model, dropout=0.0)
        self.attention_residual = make_residual(norm_order, d_model, norm=norm, dropout=dropout)
        self.feed_forward_residual = make_residual(norm_order, d_model, norm=norm, dropout=dropout)

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
        options = {"causal": causal, "bias": bias, "rotation": rotation, "cache": cache}
        x = self.attention_residual(x, lambda y: self.attention(y, y, visible, **options))
        return self.feed_forward_residual(x, self.feed_forward)
