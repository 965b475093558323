"""A text encoder that looks both ways: BERT, RoBERTa, DistilBERT."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from headwork import choices
from headwork.checks import Count, CountOrZero, Probability
from headwork.layers.embeddings import LMHead, TokenEmbedding
from headwork.layers.feed_forward import find_activation
from headwork.layers.linear import linear
from headwork.layers.norm import make_norm
from headwork.layers.pooling import Pooling, make_pooling
from headwork.layers.positions import Positions
from headwork.layers.stack import StackConfig, make_stack
from headwork.models.model import Description, Device, OutputKind, building, given_parts, numbered, with_parts


@dataclass(frozen=True, kw_only=True)
class EncoderConfig(StackConfig):
    """BERT-base by default; `vocab` and `head` must be given."""

    vocab: Count
    head: choices.EncoderHead
    d_model: Count = 768
    n_layers: Count = 12
    heads: choices.AnyHeads = choices.Heads(n_heads=12)
    feed_forward: choices.AnyFeedForward = choices.FeedForward(d_ff=3072, activation="gelu")
    norm: choices.AnyNorm = choices.LayerNorm(eps=1e-12)
    norm_order: choices.NormOrder = "post"
    position: choices.TextPositions = choices.LearnedPositions(max_tokens=512)
    n_segments: CountOrZero = 2
    dropout: Probability = 0.1
    attention_dropout: Probability = 0.1
    usually_embedding_norm = True

    @property
    def description(self) -> Description:
        output: OutputKind
        match self.head:
            case choices.ClassificationHead():
                output, n_outputs = "class", self.head.n_classes
            case choices.TokenClassificationHead():
                output, n_outputs = "token class", self.head.n_classes
            case choices.MaskedLMHead():
                output, n_outputs = "masked token", self.vocab
            case choices.EmbeddingHead() | choices.NoHead():
                output, n_outputs = "hidden state", self.d_model
        return Description(
            input="text",
            output=output,
            n_outputs=n_outputs,
            vocab=self.vocab,
            max_tokens=self.max_tokens,
            layers=numbered("layers", self.n_layers),
            attention=numbered("layers", self.n_layers, "attention"),
        )

    def build(self, *, device: Device = None, dtype: torch.dtype | None = None) -> "Encoder":
        return Encoder(self, device=device, dtype=dtype)


class Encoder(nn.Module):
    """Token and segment embeddings, a stack of layers with its positions, and a head.

    `positions` (a `headwork.layers.Positions`), `layers` and `pooling` (of a classification head) are a user's own
    parts, instead of what the config says.

    >>> config = EncoderConfig(vocab=100, head=choices.NoHead(), d_model=8, n_layers=2,
    ...     heads=choices.Heads(n_heads=2), feed_forward=choices.FeedForward(d_ff=32))
    >>> Encoder(config)(torch.tensor([[3, 1, 4, 1, 5]])).shape
    torch.Size([1, 5, 8])
    """

    def __init__(
        self,
        config: EncoderConfig,
        *,
        positions: Positions | None = None,
        layers: Sequence[nn.Module] | None = None,
        pooling: Pooling | None = None,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.config, self.parts = config, given_parts(positions=positions, layers=layers, pooling=pooling)
        with building(self, device, dtype):
            self.embedding = TokenEmbedding(config.vocab, config.d_model)
            self.segments = (
                TokenEmbedding(config.n_segments, config.d_model, name="segments") if config.n_segments else None
            )
            self.layers = make_stack(config, config.n_layers, decoder=False, positions=positions, layers=layers)
            self.head = make_head(config, pooling)

    @property
    def description(self) -> Description:
        return with_parts(self.config.description, self.layers)

    def forward(
        self,
        ids: Int[Tensor, "batch token"],
        *,
        segments: Int[Tensor, "batch token"] | None = None,
        visible: Bool[Tensor, "batch token"] | None = None,
    ) -> Float[Tensor, "batch *output"]:
        """Logits of the head (hidden states without one); `visible` marks the real tokens against the padding."""
        x = self.hidden(ids, segments=segments, visible=visible)
        return x if self.head is None else self.head(x, self.embedding, visible)

    def hidden(
        self,
        ids: Int[Tensor, "batch token"],
        *,
        segments: Int[Tensor, "batch token"] | None = None,
        visible: Bool[Tensor, "batch token"] | None = None,
    ) -> Float[Tensor, "batch token d_model"]:
        """The vector of each token before the head. Padding is hidden from every token."""
        x = self.embedding(ids)
        if segments is not None and segments.shape != ids.shape:
            raise ValueError(f"segments must have the shape of ids, {tuple(ids.shape)}, got {tuple(segments.shape)}")
        if self.segments is not None:
            x = x + self.segments(torch.zeros_like(ids) if segments is None else segments)
        elif segments is not None:
            raise ValueError("segments must be None for a model with n_segments=0, got a tensor")
        return self.layers(x, visible=visible)


class ClassificationHead(nn.Module):
    """Pool, dense, activation, linear; or pool and linear, without an activation."""

    axes = "batch class"
    operation = "output"

    def __init__(self, config: EncoderConfig, head: choices.ClassificationHead, pooling: Pooling | None = None) -> None:
        super().__init__()
        self.pooling = make_pooling(head.pooling, config.d_model) if pooling is None else pooling
        self.dense = linear(config.d_model, config.d_model) if head.activation is not None else nn.Identity()
        self.activation = {"tanh": nn.Tanh, "relu": nn.ReLU, None: nn.Identity}[head.activation]()
        self.dropout = nn.Dropout(config.dropout)
        self.classifier = linear(config.d_model, head.n_classes)

    def forward(
        self,
        x: Float[Tensor, "batch token d_model"],
        embedding: TokenEmbedding,
        visible: Bool[Tensor, "batch token"] | None,
    ) -> Float[Tensor, "batch class"]:
        """The logits of each class from the hidden states; `embedding` is for the heads that are tied to it."""
        pooled = self.activation(self.dense(self.pooling(x, visible)))
        return self.classifier(self.dropout(pooled))


class TokenClassificationHead(nn.Module):
    """Linear at every token; or linear, norm, ReLU, linear."""

    axes = "batch token class"
    operation = "output"

    def __init__(self, config: EncoderConfig, head: choices.TokenClassificationHead) -> None:
        super().__init__()
        self.hidden = (
            nn.Sequential(linear(config.d_model, config.d_model), make_norm(config.norm, config.d_model), nn.ReLU())
            if head.hidden
            else nn.Identity()
        )
        self.dropout = nn.Dropout(config.dropout)
        self.classifier = linear(config.d_model, head.n_classes)

    def forward(
        self,
        x: Float[Tensor, "batch token d_model"],
        embedding: TokenEmbedding,
        visible: Bool[Tensor, "batch token"] | None,
    ) -> Float[Tensor, "batch token class"]:
        """The logits of each class, at every token."""
        return self.classifier(self.dropout(self.hidden(x)))


class MaskedLMHead(nn.Module):
    """Dense, activation, norm, then the score of each token of the vocabulary by the embedding table."""

    axes = "batch token vocab"
    operation = "output"

    def __init__(self, config: EncoderConfig, head: choices.MaskedLMHead) -> None:
        super().__init__()
        self.dense = linear(config.d_model, config.d_model)
        self.activation = find_activation(head.activation)
        self.norm = make_norm(config.norm, config.d_model)
        self.lm_head = LMHead(choices.TiedLMHead(bias=True), config.vocab, config.d_model)

    def forward(
        self,
        x: Float[Tensor, "batch token d_model"],
        embedding: TokenEmbedding,
        visible: Bool[Tensor, "batch token"] | None,
    ) -> Float[Tensor, "batch token vocab"]:
        """The logits of each token of the vocabulary, at every token."""
        return self.lm_head(self.norm(self.activation(self.dense(x))), embedding)


class EmbeddingHead(nn.Module):
    """Pool, and divide by the length."""

    axes = "batch d_model"
    operation = "output"

    def __init__(self, config: EncoderConfig, head: choices.EmbeddingHead) -> None:
        super().__init__()
        self.pooling, self.normalised = make_pooling(head.pooling, config.d_model), head.normalised

    def forward(
        self,
        x: Float[Tensor, "batch token d_model"],
        embedding: TokenEmbedding,
        visible: Bool[Tensor, "batch token"] | None,
    ) -> Float[Tensor, "batch d_model"]:
        """The vector of each text."""
        pooled = self.pooling(x, visible)
        return F.normalize(pooled, dim=-1) if self.normalised else pooled


def make_head(
    config: EncoderConfig, pooling: Pooling | None
) -> ClassificationHead | TokenClassificationHead | MaskedLMHead | EmbeddingHead | None:
    if pooling is not None and not isinstance(config.head, choices.ClassificationHead):
        raise ValueError(f"pooling must be None without a classification head, got {type(pooling).__name__}")
    match config.head:
        case choices.ClassificationHead():
            return ClassificationHead(config, config.head, pooling)
        case choices.TokenClassificationHead():
            return TokenClassificationHead(config, config.head)
        case choices.MaskedLMHead():
            return MaskedLMHead(config, config.head)
        case choices.EmbeddingHead():
            return EmbeddingHead(config, config.head)
        case choices.NoHead():
            return None
