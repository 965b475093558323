"""Keys and values of the past, so that a decoder reads each token only once."""

from collections.abc import Callable, Iterator
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

KeysAndValues = tuple[Float[Tensor, "batch head key d_head"], Float[Tensor, "batch head key d_value"]]


@runtime_checkable
class AttentionCache(Protocol):
    """What one attention layer keeps between calls."""

    def __call__(self, project: Callable[[], KeysAndValues]) -> KeysAndValues: ...


class GrowingCache:
    """Self-attention: the keys and values of new tokens join those of the past.

    >>> cache = GrowingCache()
    >>> new = torch.zeros(1, 2, 3, 4)
    >>> k, v = cache(lambda: (new, new)); k, v = cache(lambda: (new, new))
    >>> k.shape, cache.n_tokens
    (torch.Size([1, 2, 6, 4]), 6)
    """

    def __init__(self) -> None:
        self.kept: KeysAndValues | None = None

    @property
    def n_tokens(self) -> int:
        return 0 if self.kept is None else self.kept[0].shape[2]

    def __call__(self, project: Callable[[], KeysAndValues]) -> KeysAndValues:
        k, v = project()
        if self.kept is not None:
            past_k, past_v = self.kept
            if past_k.shape[0] != k.shape[0]:
                raise ValueError(f"the batch must stay as the cache knows it, {past_k.shape[0]}, got {k.shape[0]}")
            k, v = torch.cat([past_k, k], dim=2), torch.cat([past_v, v], dim=2)
        self.kept = k, v
        return k, v


class FixedCache:
    """Cross-attention: the memory does not change, so its keys and values are computed once."""

    def __init__(self) -> None:
        self.kept: KeysAndValues | None = None

    def __call__(self, project: Callable[[], KeysAndValues]) -> KeysAndValues:
        if self.kept is None:
            self.kept = project()
        return self.kept


class DecoderCache:
    """The caches of a whole decoder, one pair for each layer.

    >>> DecoderCache(n_layers=2).n_tokens
    0
    """

    def __init__(self, n_layers: int) -> None:
        self.has_padding = False
        self.self_attention = [GrowingCache() for _ in range(n_layers)]
        self.cross_attention = [FixedCache() for _ in range(n_layers)]

    @property
    def n_tokens(self) -> int:
        """How many tokens have been read."""
        return self.self_attention[0].n_tokens

    def check(self, n_layers: int, visible: Tensor | None) -> None:
        """Raise if this is another model's cache, or if padding hidden in the past would come into sight now."""
        if n_layers != len(self.self_attention):
            raise ValueError(f"the cache must be of this model's {n_layers} layers, got {len(self.self_attention)}")
        if visible is None and self.has_padding:
            raise ValueError(
                "visible must be given at every step once it has been, for past and new tokens together, got None"
            )
        self.has_padding = visible is not None

    def reorder(self, rows: Tensor) -> None:
        """Keep the given batch rows, in this order: what a beam search does between steps."""
        for cache in self._caches():
            if cache.kept is not None:
                k, v = cache.kept
                cache.kept = k.index_select(0, rows), v.index_select(0, rows)

    def _caches(self) -> Iterator[GrowingCache | FixedCache]:
        yield from self.self_attention
        yield from self.cross_attention
