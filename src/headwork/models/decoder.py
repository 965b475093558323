"""A text decoder that looks back only: GPT-2, Llama."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from headwork import choices
from headwork.checks import Count, Probability
from headwork.layers.cache import DecoderCache
from headwork.layers.embeddings import LMHead, TokenEmbedding
from headwork.layers.linear import OneToken
from headwork.layers.positions import Positions
from headwork.layers.stack import StackConfig, make_stack, takes_part
from headwork.models.model import Description, Device, building, given_parts, numbered, with_parts


@dataclass(frozen=True, kw_only=True)
class DecoderConfig(StackConfig):
    """GPT-2 small by default; `vocab` must be given."""

    vocab: Count
    d_model: Count = 768
    n_layers: Count = 12
    heads: choices.AnyHeads = choices.Heads(n_heads=12)
    feed_forward: choices.AnyFeedForward = choices.FeedForward(d_ff=3072, activation="gelu_tanh")
    norm: choices.AnyNorm = choices.LayerNorm()
    norm_order: choices.NormOrder = "pre"
    position: choices.TextPositions = choices.LearnedPositions(max_tokens=1024)
    lm_head: choices.LMHead = choices.TiedLMHead()
    layer: choices.AnyLayer = choices.SequentialLayer()
    window: choices.SlidingWindow | None = None
    scaled_embedding: bool = False
    dropout: Probability = 0.1
    attention_dropout: Probability = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.layer, choices.SequentialLayer) and self.norm_order != "pre":
            raise ValueError(f"norm_order must be 'pre' beside layer={self.layer}, got {self.norm_order!r}")
        wrong = [i for i in (self.window.layers or () if self.window else ()) if not 0 <= i < self.n_layers]
        if wrong:
            raise ValueError(f"layers of the window must lie in 0 .. {self.n_layers - 1}, got {wrong}")

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

    def build(self, *, device: Device = None, dtype: torch.dtype | None = None) -> "Decoder":
        return Decoder(self, device=device, dtype=dtype)


class Decoder(nn.Module):
    """Token embeddings, a stack of causal layers with its positions, and the score of each next token.

    `positions` (a `headwork.layers.Positions`) and `layers` are a user's own parts, instead of what the config says.

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

    def __init__(
        self,
        config: DecoderConfig,
        *,
        positions: Positions | None = None,
        layers: Sequence[nn.Module] | None = None,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.config, self.parts = config, given_parts(positions=positions, layers=layers)
        with building(self, device, dtype):
            self.embedding = TokenEmbedding(config.vocab, config.d_model, scaled=config.scaled_embedding)
            self.layers = make_stack(
                config,
                config.n_layers,
                decoder=True,
                positions=positions,
                layers=layers,
                layer=config.layer,
                window=config.window,
            )
            self.lm_head = LMHead(config.lm_head, config.vocab, config.d_model)

    @property
    def description(self) -> Description:
        return with_parts(self.config.description, self.layers)

    def forward(
        self,
        ids: Int[Tensor, "batch token"],
        *,
        visible: Bool[Tensor, "batch key"] | None = None,
        cache: DecoderCache | None = None,
        last_only: bool = False,
    ) -> Float[Tensor, "batch scored vocab"]:
        """Scores of the token after each (after the last alone, with `last_only`).

        `visible` marks the real tokens, those in the cache included.
        """
        x = self.hidden(ids, visible=visible, cache=cache)
        return self.unembed(x[:, -1:] if last_only else x)

    def hidden(
        self,
        ids: Int[Tensor, "batch token"],
        *,
        visible: Bool[Tensor, "batch key"] | None = None,
        cache: DecoderCache | None = None,
    ) -> Float[Tensor, "batch token d_model"]:
        """The vector of each token before the head. Nobody sees the future; nobody sees the padding."""
        return self.layers(self.embedding(ids), visible=visible, causal=True, cache=cache)

    def unembed(self, x: Float[Tensor, "batch token d_model"]) -> Float[Tensor, "batch token vocab"]:
        """From hidden states to logits."""
        return self.lm_head(x, self.embedding)

    def generate(self, *_: object, **__: object) -> NoReturn:
        """Is a function here, which takes any model that continues texts: `headwork.generate`."""
        raise TypeError("generate is a function: write headwork.generate(model, ids, max_new_tokens=...)")

    def new_cache(self) -> DecoderCache:
        return DecoderCache(len(self.layers))

    def one_token(self) -> OneToken | None:
        """The logits after one new token of each row, (ids, visible, cache); None if a part of it must be called."""
        if not takes_part(self, self.embedding, self.layers, self.lm_head):
            return None
        embed, run = self.embedding.one_token(), self.layers.one_token()
        score = self.lm_head.one_token(self.embedding)
        return lambda ids, visible, cache: score(run(embed(ids), visible, cache))
