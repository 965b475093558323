"""One new token for each row: the fast twins of the models' own calls.

One token at a time, the arithmetic is small, and most of the time goes into modules, hooks, checks and reshapes. Here
each part of a model becomes a plain function over the same parameters; nothing is copied. The twins are for plain
models only: one with a replaced or compiled part, or with the rarer heads (split, relative, hard), is called itself,
and so is every model while somebody watches it through a hook. The tests hold the twins equal to the models.
"""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules import module as torch_modules

from headwork import masks
from headwork.functional.attention import LARGEST_BETA_FOR_A_SUM
from headwork.functional.fused import fused_attention
from headwork.layers import embeddings, positions
from headwork.layers.attention import MultiHeadAttention
from headwork.layers.cache import DecoderCache, FixedCache, GrowingCache
from headwork.layers.decoder_layer import DecoderLayer
from headwork.layers.encoder_layer import EncoderLayer
from headwork.layers.feed_forward import FeedForward, GatedFeedForward
from headwork.layers.hook_point import HookPoint, LazyHookPoint
from headwork.layers.norm import LayerNorm, RMSNorm
from headwork.layers.residual import PostNorm, PreNorm
from headwork.models import Decoder, EncoderDecoder

Map = Callable[[Tensor], Tensor]
Layer = Callable[..., Tensor]
"""From the token, and what it may see, to the token."""

PLAIN: set[type[nn.Module]] = {
    *(Decoder, EncoderDecoder, nn.ModuleList, EncoderLayer, DecoderLayer, PreNorm, PostNorm, LayerNorm, RMSNorm),
    *(MultiHeadAttention, FeedForward, GatedFeedForward, nn.Linear, nn.Dropout, HookPoint, LazyHookPoint),
    *(embeddings.TokenEmbedding, embeddings.LMHead, positions.Positions, positions.LearnedPositions),
    *(positions.SinusoidalPositions, positions.RotaryPositions, positions.AlibiPositions, positions.BucketPositions),
}
"""The modules whose arithmetic is written out below; an heir of one of them may do something else."""


def is_plain(model: nn.Module) -> bool:
    """Whether every part is one that the twins know, as it came from its class."""
    return all(
        type(module) in PLAIN
        and "forward" not in vars(module)
        and module._compiled_call_impl is None
        and not (isinstance(module, MultiHeadAttention) and module.beta > LARGEST_BETA_FOR_A_SUM)
        for module in model.modules()
    )


class Watch:
    """True while anybody looks into the model through a hook; cheap enough to ask at every token."""

    def __init__(self, model: nn.Module) -> None:
        self._hooks = [
            *(torch_modules._global_forward_hooks, torch_modules._global_forward_pre_hooks),
            *(module._forward_hooks for module in model.modules()),
            *(module._forward_pre_hooks for module in model.modules()),
            *(module._lazy_hooks for module in model.modules() if isinstance(module, LazyHookPoint)),
        ]

    def __bool__(self) -> bool:
        return any(self._hooks)


class DecoderTwin:
    """What a `Decoder` says after one more token, given the cache of the others."""

    def __init__(self, model: Decoder) -> None:
        self.embed = Embed(model.embedding, model.positions)
        self.layers = [encoder_layer(layer) for layer in model.layers]
        self.lm_head = Words(model.final_norm, model.lm_head, model.embedding)

    def __call__(
        self, ids: Int[Tensor, "batch 1"], visible: Bool[Tensor, "batch key"] | None, cache: DecoderCache
    ) -> Float[Tensor, "batch vocab"]:
        x, bias, rotation = self.embed(ids, visible, cache.n_tokens)
        keys = None if visible is None else masks.key_padding(visible)
        for layer, layer_cache in zip(self.layers, cache.self_attention, strict=True):
            x = layer(x, layer_cache, keys, bias, rotation)
        return self.lm_head(x)


class EncoderDecoderTwin:
    """What an `EncoderDecoder` says after one more target token, given the cache of the others and of the memory."""

    def __init__(self, model: EncoderDecoder) -> None:
        embedding = model.embedding if model.target_embedding is None else model.target_embedding
        self.embed = Embed(embedding, model.decoder_positions)
        self.layers = [decoder_layer(layer) for layer in model.decoder_layers]
        self.lm_head = Words(model.decoder_norm, model.lm_head, embedding)

    def __call__(
        self,
        ids: Int[Tensor, "batch 1"],
        memory_visible: Bool[Tensor, "batch source_token"] | None,
        cache: DecoderCache,
    ) -> Float[Tensor, "batch vocab"]:
        x, bias, rotation = self.embed(ids, None, cache.n_tokens)
        memory_keys = None if memory_visible is None else masks.key_padding(memory_visible)
        caches = zip(self.layers, cache.self_attention, cache.cross_attention, strict=True)
        for layer, layer_cache, memory_cache in caches:
            x = layer(x, layer_cache, bias, rotation, memory_cache, memory_keys)
        return self.lm_head(x)


class Embed:
    """From ids to vectors, and what their place does to scores, queries and keys."""

    def __init__(self, embedding: embeddings.TokenEmbedding, places: positions.Positions) -> None:
        self.table, self.scale, self.places = embedding.table, embedding.scale, places
        self.learned = places.table if isinstance(places, positions.LearnedPositions) else None

    def __call__(
        self, ids: Int[Tensor, "batch 1"], visible: Bool[Tensor, "batch key"] | None, n_past: int
    ) -> tuple[Float[Tensor, "batch d_model"], Float[Tensor, "1 head 1 all_keys"] | None, positions.Rotation | None]:
        x = torch.embedding(self.table, ids)
        x = x if self.scale == 1.0 else x * self.scale
        if self.learned is not None and visible is None:  # every row stands at the same place
            return x[:, 0] + self.learned[n_past], None, None
        place = positions.count_positions(ids, n_past=n_past, visible=visible)
        vectors = self.places.vectors(place, n_past + 1)
        x = x if vectors is None else x + vectors
        return x[:, 0], self.places.bias(x, n_past + 1), self.places.rotation(place)


class Words:
    """From the last layer to the score of each word."""

    def __init__(
        self,
        norm: LayerNorm | RMSNorm | None,
        words: embeddings.LMHead,
        embedding: embeddings.TokenEmbedding,
    ) -> None:
        self.norm, self.scale = None if norm is None else norm_map(norm), words.scale
        self.score = affine_map(embedding.table if words.weight is None else words.weight, words.bias)

    def __call__(self, x: Float[Tensor, "batch d_model"]) -> Float[Tensor, "batch vocab"]:
        x = x if self.norm is None else self.norm(x)
        return self.score(x if self.scale == 1.0 else x * self.scale)


class Attention:
    """What self- and cross-attention have in common; with one token, heads are split by a view."""

    def __init__(self, attention: MultiHeadAttention) -> None:
        self.query, self.out = linear_map(attention.query), linear_map(attention.out)
        self.n_heads, self.n_kv_heads = attention.n_heads, attention.n_kv_heads
        self.d_head, self.d_value, self.beta = attention.d_head, attention.d_value, attention.beta
        self.group = self.n_heads // self.n_kv_heads

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, visible: Tensor | None, bias: Tensor | None
    ) -> Float[Tensor, "batch d_model"]:
        if self.group > 1:
            k, v = k.repeat_interleave(self.group, dim=1), v.repeat_interleave(self.group, dim=1)
        if visible is None and bias is None:
            heads = F.scaled_dot_product_attention(q, k, v, scale=self.beta)
        else:
            heads = fused_attention(q, k, v, visible=visible, bias=bias, beta=self.beta)
        return self.out(heads.reshape(-1, self.n_heads * self.d_value))


class SelfAttention(Attention):
    """The new token looks at itself and the past."""

    def __init__(self, attention: MultiHeadAttention) -> None:
        super().__init__(attention)
        self.key, self.value = linear_map(attention.key), linear_map(attention.value)

    def __call__(
        self,
        x: Float[Tensor, "batch d_model"],
        cache: GrowingCache,
        visible: Tensor | None,
        bias: Tensor | None,
        rotation: positions.Rotation | None,
    ) -> Float[Tensor, "batch d_model"]:
        q = self.query(x).view(-1, self.n_heads, 1, self.d_head)
        k = self.key(x).view(-1, self.n_kv_heads, 1, self.d_head)
        v = self.value(x).view(-1, self.n_kv_heads, 1, self.d_value)
        if rotation is not None:
            q, k = rotation(q), rotation(k)
        return self.attend(q, *cache(lambda: (k, v)), visible, bias)


class CrossAttention(Attention):
    """The new token looks at the memory, whose keys and values were made when the first token came."""

    def __call__(
        self, x: Float[Tensor, "batch d_model"], cache: FixedCache, visible: Tensor | None
    ) -> Float[Tensor, "batch d_model"]:
        assert cache.kept is not None
        return self.attend(self.query(x).view(-1, self.n_heads, 1, self.d_head), *cache.kept, visible, None)


def encoder_layer(layer: nn.Module) -> Layer:
    assert isinstance(layer, EncoderLayer)
    attend = residual_map(layer.attention_residual, SelfAttention(layer.attention))
    feed = residual_map(layer.feed_forward_residual, feed_forward_map(layer.feed_forward))
    return lambda x, *seen: feed(attend(x, *seen))


def decoder_layer(layer: nn.Module) -> Layer:
    assert isinstance(layer, DecoderLayer)
    attend = residual_map(layer.self_attention_residual, SelfAttention(layer.self_attention))
    look = residual_map(layer.cross_attention_residual, CrossAttention(layer.cross_attention))
    feed = residual_map(layer.feed_forward_residual, feed_forward_map(layer.feed_forward))
    return lambda x, cache, bias, rotation, *memory: feed(look(attend(x, cache, None, bias, rotation), *memory))


def residual_map(residual: PreNorm | PostNorm, f: Layer) -> Layer:
    norm = norm_map(residual.norm)
    if isinstance(residual, PreNorm):
        return lambda x, *seen: x + f(norm(x), *seen)
    return lambda x, *seen: norm(x + f(x, *seen))


def feed_forward_map(feed_forward: FeedForward) -> Map:
    up, down, activation = linear_map(feed_forward.up), linear_map(feed_forward.down), feed_forward.activation
    if isinstance(feed_forward, GatedFeedForward):
        gate = linear_map(feed_forward.gate)
        return lambda x: down(activation(gate(x)) * up(x))
    return lambda x: down(activation(up(x)))


def norm_map(norm: LayerNorm | RMSNorm) -> Map:
    weight, shape, eps = norm.weight, norm.weight.shape, norm.eps
    if isinstance(norm, RMSNorm):
        return lambda x: torch.rms_norm(x, shape, weight, eps)
    bias = norm.bias
    return lambda x: torch.layer_norm(x, shape, weight, bias, eps)


def linear_map(linear: nn.Module) -> Map:
    assert isinstance(linear, nn.Linear)
    return affine_map(linear.weight, linear.bias)


def affine_map(weight: Float[Tensor, "d_out d_in"], bias: Float[Tensor, "d_out"] | None) -> Map:
    """W x + b for one token in each row, without the detours that `F.linear` takes for more axes."""
    transposed = weight.t()
    if bias is None:
        return lambda x: torch.mm(x, transposed)
    return lambda x: torch.addmm(bias, x, transposed)
