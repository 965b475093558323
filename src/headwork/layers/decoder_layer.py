"""One layer of a decoder: it looks back only, and at a memory if it has cross-attention."""

from jaxtyping import Bool, Float
from torch import Tensor, nn

from headwork import choices
from headwork.checks import check_one_of, check_probability
from headwork.layers.attention import make_attention
from headwork.layers.cache import AttentionCache
from headwork.layers.feed_forward import make_feed_forward
from headwork.layers.norm import make_norm
from headwork.layers.one_token import OneToken
from headwork.layers.positions import Rotation


class DecoderLayer(nn.Module):
    """Causal self-attention, cross-attention to the memory (if any), then a feed-forward network.

    Each has a residual connection and a norm. GPT-2 and Llama have no memory: `cross_attention=False`.

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
        cross_attention: bool = True,
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
            "cross_attention": cross_attention,
        }
        check_one_of(("pre", "post"), norm_order=norm_order)
        check_probability(dropout=dropout)
        attention = make_attention(heads, d_model, position=position, dropout=attention_dropout)
        cross = make_attention(heads, d_model, dropout=attention_dropout) if cross_attention else None
        network = make_feed_forward(feed_forward, d_model)
        cross_norm = make_norm(norm, d_model) if cross_attention else None
        self.norm_first = norm_order == "pre"
        if self.norm_first:  # registered in the order in which they run
            self.attention_norm, self.attention = make_norm(norm, d_model), attention
            self.cross_attention_norm, self.cross_attention = cross_norm, cross
            self.feed_forward_norm, self.feed_forward = make_norm(norm, d_model), network
        else:
            self.attention, self.attention_norm = attention, make_norm(norm, d_model)
            self.cross_attention, self.cross_attention_norm = cross, cross_norm
            self.feed_forward, self.feed_forward_norm = network, make_norm(norm, d_model)
        self.dropout = nn.Dropout(dropout)

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
            if self.cross_attention is not None and self.cross_attention_norm is not None:
                x = x + self.dropout(self.cross_attention(self.cross_attention_norm(x), **of_memory))
            return x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        x = self.attention_norm(x + self.dropout(self.attention(x, **seen)))
        if self.cross_attention is not None and self.cross_attention_norm is not None:
            x = self.cross_attention_norm(x + self.dropout(self.cross_attention(x, **of_memory)))
        return self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))

    def one_token(self) -> OneToken:
        """The same for one new token of each row; a memory is in its cache already. No dropout."""
        attend, norm = self.attention.one_token(), self.attention_norm.one_token()
        feed, feed_norm = self.feed_forward.one_token(), self.feed_forward_norm.one_token()
        look = None if self.cross_attention is None else self.cross_attention.one_token()
        look_norm = norm if self.cross_attention_norm is None else self.cross_attention_norm.one_token()

        def pre_norm(x: Tensor, seen: tuple[object, ...], of_memory: tuple[object, ...]) -> Tensor:
            x = x + attend(norm(x), *seen)
            x = x if look is None else x + look(look_norm(x), *of_memory)
            return x + feed(feed_norm(x))

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
