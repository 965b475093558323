"""A text decoder that looks back only: GPT-2, Llama."""

from dataclasses import dataclass

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from headwork import choices, masks
from headwork.checks import check_positive
from headwork.layers.cache import DecoderCache
from headwork.layers.embeddings import LMHead, TokenEmbedding
from headwork.layers.encoder_layer import EncoderLayer
from headwork.layers.hook_point import HookPoint
from headwork.layers.norm import make_norm
from headwork.layers.positions import count_positions
from headwork.models.description import Description, numbered
from headwork.models.stack import StackConfig, make_layers, make_text_positions


@dataclass(frozen=True, kw_only=True)
class DecoderConfig(StackConfig):
    """GPT-2 small by default; `vocab` is yours to say."""

    vocab: int
    d_model: int = 768
    n_layers: int = 12
    heads: choices.AnyHeads = choices.Heads(n_heads=12)
    feed_forward: choices.AnyFeedForward = choices.FeedForward(d_ff=3072, activation="gelu_tanh")
    norm: choices.AnyNorm = choices.LayerNorm()
    norm_order: choices.NormOrder = "pre"
    position: choices.TextPositions = choices.LearnedPositions(max_tokens=1024)
    lm_head: choices.LMHead = choices.TiedLMHead()
    dropout: float = 0.1
    attention_dropout: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(vocab=self.vocab, n_layers=self.n_layers)

    @property
    def description(self) -> Description:
        return Description(
            input="text",
            output="next token",
            n_outputs=self.vocab,
            vocab=self.vocab,
            max_tokens=self.max_tokens,
            layers=numbered("layers", self.n_layers),
            attention=numbered("layers", self.n_layers, "attention"),
        )

    def build(self) -> "Decoder":
        return Decoder(self)


class Decoder(nn.Module):
    """Token and position embeddings, a stack of causal layers, and the score of each next word.

    >>> config = DecoderConfig(vocab=100, d_model=8, n_layers=2, heads=choices.Heads(n_heads=2),
    ...     feed_forward=choices.FeedForward(d_ff=32))
    >>> model = Decoder(config).eval()
    >>> ids = torch.tensor([[3, 1, 4, 1, 5]])
    >>> model(ids).shape
    torch.Size([1, 5, 100])

    With a cache the past is read once; the newest logits are those of the whole text:

    >>> cache = model.new_cache()
    >>> _ = model(ids[:, :4], cache=cache)
    >>> torch.allclose(model(ids[:, 4:], cache=cache), model(ids)[:, 4:], atol=1e-6)
    True
    """

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = TokenEmbedding(config.vocab, config.d_model)
        self.positions = make_text_positions(config, config.position, bidirectional=False)
        self.dropout = nn.Dropout(config.dropout)
        self.tokens = HookPoint("batch token d_model")
        self.layers = make_layers(EncoderLayer, config, config.n_layers)
        self.final_norm = make_norm(config.norm, config.d_model) if config.norm_order == "pre" else None
        self.lm_head = LMHead(config.lm_head, config.vocab, config.d_model)

    def forward(
        self,
        ids: Int[Tensor, "batch token"],
        *,
        visible: Bool[Tensor, "batch key"] | None = None,
        cache: DecoderCache | None = None,
    ) -> Float[Tensor, "batch token vocab"]:
        """Scores of the word after each token; `visible` marks the real tokens, those in the cache included."""
        return self.lm_head(self.decode(ids, visible=visible, cache=cache), self.embedding)

    def decode(
        self,
        ids: Int[Tensor, "batch token"],
        *,
        visible: Bool[Tensor, "batch key"] | None = None,
        cache: DecoderCache | None = None,
    ) -> Float[Tensor, "batch token d_model"]:
        """The vector of each token, before the words are scored. Nobody sees the future; nobody sees the padding."""
        x = self.embedding(ids)
        n_past = 0 if cache is None else cache.n_tokens
        n_key = n_past + ids.shape[1]
        masks.check_padding(visible, (len(ids), n_key))
        if cache is not None:
            cache.check(self.config.n_layers, visible)
        places = count_positions(ids, n_past=n_past, visible=visible)
        vectors = self.positions.vectors(places, n_key)
        x = self.tokens(self.dropout(x if vectors is None else x + vectors))
        bias, rotation = self.positions.bias(x, n_key), self.positions.rotation(places)
        keys = None if visible is None else masks.key_padding(visible)
        caches = [None] * len(self.layers) if cache is None else cache.self_attention
        for layer, layer_cache in zip(self.layers, caches, strict=True):
            x = layer(x, keys, causal=True, bias=bias, rotation=rotation, cache=layer_cache)
        return x if self.final_norm is None else self.final_norm(x)

    def new_cache(self) -> DecoderCache:
        return DecoderCache(self.config.n_layers)
