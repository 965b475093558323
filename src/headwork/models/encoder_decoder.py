"""An encoder and a decoder that looks at it: the original Transformer, Marian, T5.

Which mask goes where (question 2b of the EECS 182 sheet): the padding mask of the source on the encoder's
self-attention and on the decoder's cross-attention; the causal mask on the decoder's self-attention.
"""

from dataclasses import dataclass
from typing import NoReturn

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from headwork import choices, masks
from headwork.checks import Count, Probability
from headwork.layers.cache import DecoderCache
from headwork.layers.embeddings import LMHead, TokenEmbedding
from headwork.layers.linear import OneToken
from headwork.layers.stack import StackConfig, make_stack, takes_part
from headwork.models.model import Description, Device, Parts, building, numbered


@dataclass(frozen=True, kw_only=True)
class EncoderDecoderConfig(StackConfig):
    """The base model of "Attention is all you need" by default; `vocab` must be given.

    `target_vocab=None` shares one vocabulary and one embedding table between source and target.
    """

    vocab: Count
    target_vocab: Count | None = None
    d_model: Count = 512
    n_encoder_layers: Count = 6
    n_decoder_layers: Count = 6
    heads: choices.AnyHeads = choices.Heads(n_heads=8)
    feed_forward: choices.AnyFeedForward = choices.FeedForward(d_ff=2048, activation="relu")
    norm: choices.AnyNorm = choices.LayerNorm()
    norm_order: choices.NormOrder = "post"
    position: choices.TextPositions = choices.SinusoidalPositions()
    scaled_embedding: bool = True
    lm_head: choices.LMHead = choices.TiedLMHead()
    dropout: Probability = 0.1
    attention_dropout: Probability = 0.0

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
                *numbered("decoder_layers", n_decoder, "attention"),
            ),
            cross_attention=numbered("decoder_layers", n_decoder, "cross_attention"),
        )

    def build(self, *, device: Device = None, dtype: torch.dtype | None = None) -> "EncoderDecoder":
        return EncoderDecoder(self, device=device, dtype=dtype)


class EncoderDecoder(nn.Module):
    """Reads the source both ways, writes the target from left to right.

    >>> config = EncoderDecoderConfig(vocab=100, d_model=8, n_encoder_layers=1, n_decoder_layers=1,
    ...     heads=choices.Heads(n_heads=2), feed_forward=choices.FeedForward(d_ff=32))
    >>> EncoderDecoder(config)(torch.tensor([[3, 1, 4, 1, 5]]), torch.tensor([[2, 7]])).shape
    torch.Size([1, 2, 100])
    """

    def __init__(
        self,
        config: EncoderDecoderConfig,
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        self.parts: Parts = {}
        with building(self, device, dtype):
            self.embedding = TokenEmbedding(config.vocab, config.d_model, scaled=config.scaled_embedding)
            self.target_embedding = (
                None
                if config.target_vocab is None
                else TokenEmbedding(config.target_vocab, config.d_model, scaled=config.scaled_embedding)
            )
            self.encoder_layers = make_stack(config, config.n_encoder_layers, decoder=False)
            self.decoder_layers = make_stack(config, config.n_decoder_layers, decoder=True, cross_attention=True)
            self.final_dropout = nn.Dropout(config.dropout if config.norm_order == "pre" else 0.0)  # as T5
            self.lm_head = LMHead(config.lm_head, config.target_vocab or config.vocab, config.d_model)

    @property
    def description(self) -> Description:
        return self.config.description

    def forward(
        self,
        source: Int[Tensor, "batch source_token"],
        target: Int[Tensor, "batch token"],
        *,
        source_visible: Bool[Tensor, "batch source_token"] | None = None,
        target_visible: Bool[Tensor, "batch token"] | None = None,
    ) -> Float[Tensor, "batch token vocab"]:
        """Scores of the token after each of the target; `..._visible` marks the real tokens against the padding."""
        return self.unembed(self.hidden(source, target, source_visible=source_visible, target_visible=target_visible))

    def hidden(
        self,
        source: Int[Tensor, "batch source_token"],
        target: Int[Tensor, "batch token"],
        *,
        source_visible: Bool[Tensor, "batch source_token"] | None = None,
        target_visible: Bool[Tensor, "batch token"] | None = None,
    ) -> Float[Tensor, "batch token d_model"]:
        """The vector of each target token before the head."""
        memory = self.encode(source, visible=source_visible)
        return self.decode(target, memory, memory_visible=source_visible, visible=target_visible)

    def encode(
        self, source: Int[Tensor, "batch source_token"], *, visible: Bool[Tensor, "batch source_token"] | None = None
    ) -> Float[Tensor, "batch source_token d_model"]:
        """The memory: a vector for each source token."""
        x = self.embedding(source)
        masks.check_padding(visible, (source.shape[0], source.shape[1]), "source_visible")
        return self.final_dropout(self.encoder_layers(x, visible=visible))

    def decode(
        self,
        target: Int[Tensor, "batch token"],
        memory: Float[Tensor, "batch source_token d_model"],
        *,
        memory_visible: Bool[Tensor, "batch source_token"] | None = None,
        visible: Bool[Tensor, "batch key"] | None = None,
        cache: DecoderCache | None = None,
    ) -> Float[Tensor, "batch token d_model"]:
        """The hidden states of the target tokens, given the memory."""
        x = self._target_embedding(target)
        if memory.shape[0] != target.shape[0]:
            raise ValueError(
                f"source and target must have the same batch size, got {memory.shape[0]} and {target.shape[0]}"
            )
        n_past = 0 if cache is None else cache.n_tokens
        masks.check_padding(visible, (target.shape[0], n_past + target.shape[1]), "target_visible")
        x = self.decoder_layers(
            x, visible=visible, causal=True, cache=cache, memory=memory, memory_visible=memory_visible
        )
        return self.final_dropout(x)

    def unembed(self, x: Float[Tensor, "batch token d_model"]) -> Float[Tensor, "batch token vocab"]:
        """From hidden states of the target to logits."""
        return self.lm_head(x, self._target_embedding)

    def generate(self, *_: object, **__: object) -> NoReturn:
        """Is a function here: `headwork.generation.translate`, or `beam_search`."""
        call = "headwork.generation.translate(model, ids, max_new_tokens=..., begin=..., end=...)"
        raise TypeError(f"generate is a function: write {call}")

    def new_cache(self) -> DecoderCache:
        return DecoderCache(len(self.decoder_layers))

    def one_token(self) -> OneToken | None:
        """The logits after one new target token of each row, (ids, memory_visible, cache); see `Decoder.one_token`."""
        embedding = self._target_embedding
        if not takes_part(self, embedding, self.decoder_layers, self.lm_head):
            return None
        embed, run, score = embedding.one_token(), self.decoder_layers.one_token(), self.lm_head.one_token(embedding)
        return lambda ids, memory_visible, cache: score(run(embed(ids), None, cache, memory_visible))

    @property
    def _target_embedding(self) -> TokenEmbedding:
        return self.embedding if self.target_embedding is None else self.target_embedding
