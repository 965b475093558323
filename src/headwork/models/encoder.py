"""A text encoder that looks both ways: BERT, RoBERTa, DistilBERT."""

from dataclasses import dataclass

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from headwork import choices, masks
from headwork.checks import check_positive
from headwork.layers.embeddings import LMHead, TokenEmbedding
from headwork.layers.encoder_layer import EncoderLayer
from headwork.layers.feed_forward import find_activation
from headwork.layers.hook_point import HookPoint
from headwork.layers.linear import linear
from headwork.layers.norm import make_norm
from headwork.layers.pooling import make_text_pooling
from headwork.layers.positions import count_positions
from headwork.models.description import Description, OutputKind, numbered
from headwork.models.stack import StackConfig, make_layers, make_text_positions


@dataclass(frozen=True, kw_only=True)
class EncoderConfig(StackConfig):
    """BERT-base by default; `vocab` and `task` are yours to say."""

    vocab: int
    head: choices.EncoderHead
    d_model: int = 768
    n_layers: int = 12
    heads: choices.AnyHeads = choices.Heads(n_heads=12)
    feed_forward: choices.AnyFeedForward = choices.FeedForward(d_ff=3072, activation="gelu")
    norm: choices.AnyNorm = choices.LayerNorm(eps=1e-12)
    norm_order: choices.NormOrder = "post"
    position: choices.TextPositions = choices.LearnedPositions(max_tokens=512)
    n_segments: int = 2
    dropout: float = 0.1
    attention_dropout: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(vocab=self.vocab, n_layers=self.n_layers)
        if self.n_segments < 0:
            raise ValueError(f"n_segments must be 0 (none) or more, got {self.n_segments}")

    @property
    def description(self) -> Description:
        output: OutputKind
        match self.head:
            case choices.ClassificationHead():
                output, n_outputs = "class", self.head.n_classes
            case choices.MaskedLMHead():
                output, n_outputs = "masked token", self.vocab
            case choices.NoHead():
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

    def build(self) -> "Encoder":
        return Encoder(self)


class Encoder(nn.Module):
    """Token, position and segment embeddings, a stack of layers, and the head of the task.

    >>> config = EncoderConfig(vocab=100, head=choices.NoHead(), d_model=8, n_layers=2,
    ...     heads=choices.Heads(n_heads=2), feed_forward=choices.FeedForward(d_ff=32))
    >>> Encoder(config)(torch.tensor([[3, 1, 4, 1, 5]])).shape
    torch.Size([1, 5, 8])
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = TokenEmbedding(config.vocab, config.d_model)
        self.segments = (
            TokenEmbedding(config.n_segments, config.d_model, name="segments") if config.n_segments else None
        )
        self.positions = make_text_positions(config, config.position, bidirectional=True)
        self.embedding_norm = make_norm(config.norm, config.d_model) if config.norm_order == "post" else None
        self.dropout = nn.Dropout(config.dropout)
        self.tokens = HookPoint("batch token d_model")
        self.layers = make_layers(EncoderLayer, config, config.n_layers)
        self.final_norm = make_norm(config.norm, config.d_model) if config.norm_order == "pre" else None
        self.head = make_head(config)

    def forward(
        self,
        ids: Int[Tensor, "batch token"],
        segments: Int[Tensor, "batch token"] | None = None,
        *,
        visible: Bool[Tensor, "batch token"] | None = None,
    ) -> Float[Tensor, "batch *output"]:
        """Scores for the task; `visible` marks the real tokens (True) against the padding."""
        x = self.encode(ids, segments, visible=visible)
        return x if self.head is None else self.head(x, self.embedding, visible)

    def encode(
        self,
        ids: Int[Tensor, "batch token"],
        segments: Int[Tensor, "batch token"] | None = None,
        *,
        visible: Bool[Tensor, "batch token"] | None = None,
    ) -> Float[Tensor, "batch token d_model"]:
        """The vector of each token, before the head. Padding is hidden from every token."""
        x = self.embedding(ids)
        masks.check_padding(visible, (ids.shape[0], ids.shape[1]))
        x = self._embed(x, ids, segments, visible)
        bias = self.positions.bias(x, ids.shape[1])
        rotation = self.positions.rotation(count_positions(ids, visible=visible))
        keys = None if visible is None else masks.key_padding(visible)
        for layer in self.layers:
            x = layer(x, keys, bias=bias, rotation=rotation)
        return x if self.final_norm is None else self.final_norm(x)

    def _embed(
        self, x: Tensor, ids: Tensor, segments: Tensor | None, visible: Tensor | None
    ) -> Float[Tensor, "batch token d_model"]:
        places = self.positions.vectors(count_positions(ids, visible=visible), ids.shape[1])
        if places is not None:
            x = x + places
        if segments is not None and segments.shape != ids.shape:
            raise ValueError(f"segments must have the shape of ids, {tuple(ids.shape)}, got {tuple(segments.shape)}")
        if self.segments is not None:
            x = x + self.segments(ids.new_zeros(ids.shape) if segments is None else segments)
        elif segments is not None:
            raise ValueError("segments must be None for a model with n_segments=0, got a tensor")
        if self.embedding_norm is not None:
            x = self.embedding_norm(x)
        return self.tokens(self.dropout(x))


class ClassificationHead(nn.Module):
    """Pool, dense, activation, linear."""

    axes = "batch class"

    def __init__(self, config: EncoderConfig, task: choices.ClassificationHead) -> None:
        super().__init__()
        self.pooling = make_text_pooling(task.pooling, config.d_model)
        self.dense = linear(config.d_model, config.d_model)
        self.activation = nn.Tanh() if task.activation == "tanh" else nn.ReLU()
        self.dropout = nn.Dropout(config.dropout)
        self.classes = linear(config.d_model, task.n_classes)

    def forward(
        self,
        x: Float[Tensor, "batch token d_model"],
        embedding: TokenEmbedding,
        visible: Bool[Tensor, "batch token"] | None,
    ) -> Float[Tensor, "batch class"]:
        pooled = self.activation(self.dense(self.pooling(x, visible)))
        return self.classes(self.dropout(pooled))


class MaskedLMHead(nn.Module):
    """Dense, activation, norm, then the score of each word by the embedding table."""

    axes = "batch token vocab"

    def __init__(self, config: EncoderConfig, task: choices.MaskedLMHead) -> None:
        super().__init__()
        self.dense = linear(config.d_model, config.d_model)
        self.activation = find_activation(task.activation)
        self.norm = make_norm(config.norm, config.d_model)
        self.lm_head = LMHead(choices.TiedLMHead(bias=True), config.vocab, config.d_model)

    def forward(
        self,
        x: Float[Tensor, "batch token d_model"],
        embedding: TokenEmbedding,
        visible: Bool[Tensor, "batch token"] | None,
    ) -> Float[Tensor, "batch token vocab"]:
        return self.lm_head(self.norm(self.activation(self.dense(x))), embedding)


def make_head(config: EncoderConfig) -> ClassificationHead | MaskedLMHead | None:
    match config.head:
        case choices.ClassificationHead():
            return ClassificationHead(config, config.head)
        case choices.MaskedLMHead():
            return MaskedLMHead(config, config.head)
        case choices.NoHead():
            return None
