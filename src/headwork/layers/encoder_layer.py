"""One layer of a stack that looks at itself, both ways or (with `causal=True`) back only."""

from jaxtyping import Bool, Float
from torch import Tensor, nn

from headwork import choices
from headwork.checks import check_one_of, check_probability
from headwork.layers.attention import make_attention
from headwork.layers.cache import AttentionCache
from headwork.layers.feed_forward import make_feed_forward
from headwork.layers.norm import make_norm
from headwork.layers.positions import Rotation


class EncoderLayer(nn.Module):
    """Self-attention, then a feed-forward network, each with a residual connection and a norm.

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
        self.arguments = {  # for a file: the attributes of these names are the modules that they choose
            "d_model": d_model,
            "heads": heads,
            "feed_forward": feed_forward,
            "norm_order": norm_order,
            "norm": norm,
            "position": position,
            "dropout": dropout,
            "attention_dropout": attention_dropout,
        }
        check_one_of(("pre", "post"), norm_order=norm_order)
        check_probability(dropout=dropout)
        attention = make_attention(heads, d_model, position=position, dropout=attention_dropout)
        network = make_feed_forward(feed_forward, d_model)
        self.norm_first = norm_order == "pre"
        if self.norm_first:  # registered in the order in which they run
            self.attention_norm, self.attention = make_norm(norm, d_model), attention
            self.feed_forward_norm, self.feed_forward = make_norm(norm, d_model), network
        else:
            self.attention, self.attention_norm = attention, make_norm(norm, d_model)
            self.feed_forward, self.feed_forward_norm = network, make_norm(norm, d_model)
        self.dropout = nn.Dropout(dropout)

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
