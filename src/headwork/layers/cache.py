"""Keys and values of the past, so that a decoder reads each token only once."""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

SHORT_PAST = 2**15
"""So few numbers are copied faster than they are written into a buffer (256 tokens of width 128)."""

KeysAndValues = tuple[Float[Tensor, "batch head key d_head"], Float[Tensor, "batch head key d_value"]]


@runtime_checkable
class AttentionCache(Protocol):
    """What one attention layer keeps between calls."""

    def __call__(self, project: Callable[[], KeysAndValues]) -> KeysAndValues: ...


class GrowingCache:
    """Self-attention: the keys and values of new tokens join those of the past.

    Without gradients, a long past is not copied for every token: new ones are written into a buffer of twice the size.

    >>> cache = GrowingCache()
    >>> new = torch.zeros(1, 2, 3, 4)
    >>> k, v = cache(lambda: (new, new)); k, v = cache(lambda: (new, new))
    >>> k.shape, cache.n_tokens
    (torch.Size([1, 2, 6, 4]), 6)
    """

    def __init__(self) -> None:
        self.kept: KeysAndValues | None = None
        self._buffers: KeysAndValues | None = None

    @property
    def n_tokens(self) -> int:
        return 0 if self.kept is None else self.kept[0].shape[2]

    def __call__(self, project: Callable[[], KeysAndValues]) -> KeysAndValues:
        return self.append(*project())

    def append(self, k: Tensor, v: Tensor) -> KeysAndValues:
        """All keys and values, the new ones last."""
        if self.kept is None:
            self.kept = k, v
            return self.kept
        past_k, past_v = self.kept
        if past_k.shape[0] != k.shape[0]:
            raise ValueError(f"the batch must stay as the cache knows it, {past_k.shape[0]}, got {k.shape[0]}")
        if torch.is_grad_enabled() or past_k.numel() < SHORT_PAST or past_k.dtype != k.dtype:
            self.kept, self._buffers = (torch.cat([past_k, k], dim=2), torch.cat([past_v, v], dim=2)), None
        else:
            k_buffer, v_buffer = self._buffers = self._buffers_for(past_k, past_v, past_k.shape[2] + k.shape[2])
            self.kept = _write(k, k_buffer, past_k.shape[2]), _write(v, v_buffer, past_v.shape[2])
        return self.kept

    def reorder(self, rows: Tensor) -> None:
        if self.kept is not None:
            self.kept, self._buffers = _pick_rows(self.kept, rows), None

    def forget(self, n_tokens: int) -> None:
        """Drop the last tokens; the next ones are written over them."""
        if self.kept is not None and n_tokens:
            k, v = self.kept
            self.kept = k[:, :, :-n_tokens], v[:, :, :-n_tokens]

    def _buffers_for(self, past_k: Tensor, past_v: Tensor, n_tokens: int) -> KeysAndValues:
        """The buffers as they are, if so many tokens fit in, or the past in others of twice the size."""
        if self._buffers is not None and n_tokens <= self._buffers[0].shape[2]:
            made_here = torch.is_inference_mode_enabled() or not self._buffers[0].is_inference()
            if made_here:  # nobody may write to an inference tensor outside of inference mode
                return self._buffers
        return _move(past_k, 2 * n_tokens), _move(past_v, 2 * n_tokens)


class FixedCache:
    """Cross-attention: the memory does not change, so its keys and values are computed once."""

    def __init__(self) -> None:
        self.kept: KeysAndValues | None = None

    def __call__(self, project: Callable[[], KeysAndValues]) -> KeysAndValues:
        if self.kept is None:
            self.kept = project()
        return self.kept

    def known(self) -> KeysAndValues:
        """The keys and values of the memory, which has been read."""
        assert self.kept is not None
        return self.kept

    def reorder(self, rows: Tensor) -> None:
        if self.kept is not None:
            self.kept = _pick_rows(self.kept, rows)


class DecoderCache:
    """The caches of a whole stack, one pair for each layer; the stack counts the tokens.

    >>> DecoderCache(n_layers=2).n_tokens
    0
    """

    def __init__(self, n_layers: int) -> None:
        self.n_tokens = 0
        """How many tokens have been read."""
        self.has_padding = False
        self.self_attention = [GrowingCache() for _ in range(n_layers)]
        self.cross_attention = [FixedCache() for _ in range(n_layers)]

    def check(self, n_layers: int, visible: Tensor | None) -> None:
        """Raise if this is another model's cache, or if padding hidden in the past would come into sight now."""
        if n_layers != len(self.self_attention):
            raise ValueError(f"the cache must be of this model's {n_layers} layers, got {len(self.self_attention)}")
        kept = {cache.n_tokens for cache in self.self_attention} - {0}
        if kept - {self.n_tokens}:
            raise ValueError(
                f"the cache must hold the {self.n_tokens} tokens that were read, got {max(kept)} in some layers: "
                "a call failed halfway; begin with a new cache"
            )
        if visible is None and self.has_padding:
            raise ValueError(
                "visible must be given at every step once it has been, for past and new tokens together, got None"
            )
        self.has_padding = visible is not None

    def reorder(self, rows: Tensor) -> None:
        """Keep the given batch rows, in this order: what a beam search does between steps."""
        for of_layer in self.self_attention:
            of_layer.reorder(rows)
        for of_memory in self.cross_attention:
            of_memory.reorder(rows)

    def forget(self, n_tokens: int) -> None:
        """Drop the last tokens, as if they had not been read: some of them were only a guess."""
        if not 0 <= n_tokens < self.n_tokens:
            raise ValueError(f"n_tokens must be fewer than the {self.n_tokens} that were read, got {n_tokens}")
        self.n_tokens -= n_tokens
        for of_layer in self.self_attention:
            of_layer.forget(n_tokens)


def _move(past: Tensor, n_tokens: int) -> Float[Tensor, "batch head capacity d"]:
    """The past at the beginning of a new buffer."""
    buffer = past.new_empty(past.shape[0], past.shape[1], n_tokens, past.shape[3])
    buffer.narrow(2, 0, past.shape[2]).copy_(past)
    return buffer


def _write(new: Tensor, buffer: Tensor, n_past: int) -> Float[Tensor, "batch head key d"]:
    """The new tokens after the past, and all of them together."""
    buffer.narrow(2, n_past, new.shape[2]).copy_(new)
    return buffer.narrow(2, 0, n_past + new.shape[2])


def _pick_rows(kept: tuple[Tensor, Tensor], rows: Tensor) -> tuple[Tensor, Tensor]:
    k, v = kept
    return k.index_select(0, rows), v.index_select(0, rows)
