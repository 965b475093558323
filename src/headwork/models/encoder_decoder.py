"""An encoder and a decoder that looks at it: the original Transformer, Marian, T5.

Which mask goes where (question 2b of the EECS 182 sheet): the padding mask of the source on the encoder's
self-attention and on the decoder's cross-attention; the causal mask on the decoder's self-attention.
"""

from dataclasses import dataclass

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from headwork import choices, masks
from headwork.checks import check_positive
from headwork.layers.cache import DecoderCache
from headwork.layers.decoder_layer import DecoderLayer
from headwork.layers.embeddings import LMHead, TokenEmbedding
from headwork.layers.encoder_layer import EncoderLayer
from headwork.layers.hook_point import HookPoint
from headwork.layers.norm import make_norm
from headwork.layers.positions import Positions, count_positions
from headwork.models.description import Description, numbered
from headwork.models.stack import StackConfig, make_layers, make_text_positions


@dataclass(frozen=True, kw_only=True)
class EncoderDecoderConfig(StackConfig):
    """The base model of "Attention is all you need" by default; `vocab` is yours to say.

    `target_vocab=None` shares one vocabulary and one embedding table between source and target.
    """

    vocab: int
    target_vocab: int | None = None
    d_model: int = 512
    n_encoder_layers: int = 6
    n_decoder_layers: int = 6
    heads: choices.AnyHeads = choices.Heads(n_heads=8)
    feed_forward: choices.AnyFeedForward = choices.FeedForward(d_ff=2048, activation="relu")
    norm: choices.AnyNorm = choices.LayerNorm()
    norm_order: choices.NormOrder = "post"
    position: choices.TextPositions = choices.SinusoidalPositions()
    scaled_embedding: bool = True
    lm_head: choices.LMHead = choices.TiedLMHead()
    dropout: float = 0.1
    attention_dropout: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(
            vocab=self.vocab,
            target_vocab=self.target_vocab,
            n_encoder_layers=self.n_encoder_layers,
            n_decoder_layers=self.n_decoder_layers,
        )

    @property
    def description(self) -> Description:
        n_encoder, n_decoder = self.n_encoder_layers, self.n_decoder_layers
        return Description(
            input="text pair",
            output="next token",
            n_outputs=self.target_vocab or self.vocab,
            vocab=self.vocab,
            max_tokens=self.max_tokens,
            layers=(*numbered("encoder_layers", n_encoder), *numbered("decoder_layers", n_decoder)),
            attention=(
                *numbered("encoder_layers", n_encoder, "attention"),
                *numbered("decoder_layers", n_decoder, "self_attention"),
            ),
            cross_attention=numbered("decoder_layers", n_decoder, "cross_attention"),
        )

    def build(self) -> "EncoderDecoder":
        return EncoderDecoder(self)


class EncoderDecoder(nn.Module):
    """Reads the source both ways, writes the target from left to right.

    >>> config = EncoderDecoderConfig(vocab=100, d_model=8, n_encoder_layers=1, n_decoder_layers=1,
    ...     heads=choices.Heads(n_heads=2), feed_forward=choices.FeedForward(d_ff=32))
    >>> EncoderDecoder(config)(torch.tensor([[3, 1, 4, 1, 5]]), torch.tensor([[2, 7]])).shape
    torch.Size([1, 2, 100])
    """

    def __init__(self, config: EncoderDecoderConfig) -> None:
        super().__init__()
        self.config = config
        pre = config.norm_order == "pre"
        self.embedding = TokenEmbedding(config.vocab, config.d_model, scaled=config.scaled_embedding)
        self.target_embedding = (
            None
            if config.target_vocab is None
            else TokenEmbedding(config.target_vocab, config.d_model, scaled=config.scaled_embedding)
        )
        self.dropout = nn.Dropout(config.dropout)

        self.encoder_positions = make_text_positions(config, config.position, bidirectional=True)
        self.encoder_tokens = HookPoint("batch source_token d_model")
        self.encoder_layers = make_layers(EncoderLayer, config, config.n_encoder_layers)
        self.encoder_norm = make_norm(config.norm, config.d_model) if pre else None

        self.decoder_positions = make_text_positions(config, config.position, bidirectional=False)
        self.decoder_tokens = HookPoint("batch token d_model")
        self.decoder_layers = make_layers(DecoderLayer, config, config.n_decoder_layers)
        self.decoder_norm = make_norm(config.norm, config.d_model) if pre else None
        self.lm_head = LMHead(config.lm_head, config.target_vocab or config.vocab, config.d_model)

    def forward(
        self,
        source: Int[Tensor, "batch source_token"],
        target: Int[Tensor, "batch token"],
        *,
        source_visible: Bool[Tensor, "batch source_token"] | None = None,
        target_visible: Bool[Tensor, "batch token"] | None = None,
    ) -> Float[Tensor, "batch token vocab"]:
        """Scores of the word after each target token; `..._visible` marks the real tokens against the padding."""
        memory = self.encode(source, visible=source_visible)
        return self.decode(target, memory, memory_visible=source_visible, visible=target_visible)

    def encode(
        self, source: Int[Tensor, "batch source_token"], *, visible: Bool[Tensor, "batch source_token"] | None = None
    ) -> Float[Tensor, "batch source_token d_model"]:
        """The memory: a vector for each source token."""
        x = self.embedding(source)
        masks.check_padding(visible, (source.shape[0], source.shape[1]), "source_visible")
        places = count_positions(source, visible=visible)
        x = self.encoder_tokens(self._place(x, self.encoder_positions, places, source.shape[1]))
        bias, rotation = self.encoder_positions.bias(x, source.shape[1]), self.encoder_positions.rotation(places)
        keys = None if visible is None else masks.key_padding(visible)
        for layer in self.encoder_layers:
            x = layer(x, keys, bias=bias, rotation=rotation)
        return x if self.encoder_norm is None else self.dropout(self.encoder_norm(x))

    def decode(
        self,
        target: Int[Tensor, "batch token"],
        memory: Float[Tensor, "batch source_token d_model"],
        *,
        memory_visible: Bool[Tensor, "batch source_token"] | None = None,
        visible: Bool[Tensor, "batch key"] | None = None,
        cache: DecoderCache | None = None,
    ) -> Float[Tensor, "batch token vocab"]:
        """Scores of the word after each target token, given the memory."""
        x = self._target_embedding(target)
        if len(memory) != len(target):
            raise ValueError(f"source and target must have the same batch size, got {len(memory)} and {len(target)}")
        n_past = 0 if cache is None else cache.n_tokens
        n_key = n_past + target.shape[1]
        masks.check_padding(visible, (len(target), n_key), "target_visible")
        if cache is not None:
            cache.check(self.config.n_decoder_layers, visible)
        masks.check_padding(memory_visible, (memory.shape[0], memory.shape[1]), "memory_visible")
        places = count_positions(target, n_past=n_past, visible=visible)
        x = self.decoder_tokens(self._place(x, self.decoder_positions, places, n_key))
        bias, rotation = self.decoder_positions.bias(x, n_key), self.decoder_positions.rotation(places)
        keys = None if visible is None else masks.key_padding(visible)
        memory_keys = None if memory_visible is None else masks.key_padding(memory_visible)
        for i, layer in enumerate(self.decoder_layers):
            x = layer(
                x,
                memory,
                keys,
                memory_keys,
                bias=bias,
                rotation=rotation,
                cache=None if cache is None else cache.self_attention[i],
                memory_cache=None if cache is None else cache.cross_attention[i],
            )
        if self.decoder_norm is not None:
            x = self.dropout(self.decoder_norm(x))
        return self.lm_head(x, self._target_embedding)

    def new_cache(self) -> DecoderCache:
        return DecoderCache(self.config.n_decoder_layers)

    @property
    def _target_embedding(self) -> TokenEmbedding:
        return self.embedding if self.target_embedding is None else self.target_embedding

    def _place(
        self, x: Tensor, positions: Positions, places: Tensor, n_total: int
    ) -> Float[Tensor, "batch token d_model"]:
        vectors = positions.vectors(places, n_total)
        return self.dropout(x if vectors is None else x + vectors)
