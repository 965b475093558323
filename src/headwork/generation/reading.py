"""Readers take in token after token and score the one that comes next.

A reader keeps the keys and values of what it has read. It runs its model in evaluation mode and without gradients, and
gives it back as it was. One new token takes the fast path, `model.one_token()`, if there is one and nobody watches.
"""

from contextlib import AbstractContextManager, nullcontext

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.modules import module as torch_modules

from headwork.generation.sampling import check_scores
from headwork.layers.hook_point import LazyHookPoint
from headwork.models import Decoder, EncoderDecoder
from headwork.models.model import evaluation_mode


class Watch:
    """True while anybody looks into the model through a hook; cheap enough to ask at every token."""

    def __init__(self, model: nn.Module) -> None:
        modules = list(model.modules())
        self._hooks = [
            *(torch_modules._global_forward_hooks, torch_modules._global_forward_pre_hooks),
            *(module._forward_hooks for module in modules),
            *(module._forward_pre_hooks for module in modules),
            *(module._lazy_hooks for module in modules if isinstance(module, LazyHookPoint)),
        ]

    def __bool__(self) -> bool:
        return any(self._hooks)


def without_gradients() -> AbstractContextManager[object]:
    """Inference mode; nothing if it is on already, for which `torch.inference_mode` takes as long."""
    return nullcontext() if torch.is_inference_mode_enabled() else torch.inference_mode()


class TextReader:
    """Reads a text with a `Decoder`.

    >>> config = hw.models.DecoderConfig(vocab=100, d_model=8, n_layers=2, heads=choices.Heads(n_heads=2),
    ...     feed_forward=choices.FeedForward(d_ff=32))
    >>> read = TextReader(hw.models.Decoder(config))
    >>> read(torch.tensor([[3, 1, 4]])).shape
    torch.Size([1, 100])
    """

    def __init__(self, model: Decoder) -> None:
        self.model, self.cache = model, model.new_cache()
        self.one_token = model.one_token()
        self.watch = Watch(model)
        self.visible: Tensor | None = None

    def __call__(
        self, ids: Int[Tensor, "batch token"], visible: Bool[Tensor, "batch token"] | None = None
    ) -> Float[Tensor, "batch vocab"]:
        """The scores of the token after these tokens, of which `visible` marks the real ones (all, unless given)."""
        with without_gradients():
            self._remember(ids, visible)
            logits = self._read(ids)
        check_scores(logits, self.cache.n_tokens)
        return logits

    def all_scores(self, ids: Int[Tensor, "batch token"]) -> Float[Tensor, "batch token vocab"]:
        """The scores after each of these tokens."""
        with torch.inference_mode(), evaluation_mode(self.model):
            self._remember(ids, None)
            logits = self.model(ids, visible=self.visible, cache=self.cache)
        check_scores(logits.flatten(0, 1), self.cache.n_tokens)
        return logits

    def forget(self, n_tokens: int) -> None:
        """As if the last tokens had not been read."""
        self.cache.forget(n_tokens)
        if self.visible is not None:
            self.visible = self.visible[:, : self.cache.n_tokens]

    def reorder(self, rows: Int[Tensor, "chosen"]) -> None:
        """Go on with these rows of what was read, in this order."""
        with torch.inference_mode():
            self.cache.reorder(rows)
            if self.visible is not None:
                self.visible = self.visible.index_select(0, rows)

    def _remember(self, ids: Tensor, visible: Tensor | None) -> None:
        """Which tokens are real must be said at every step for the whole past, once some were not."""
        if visible is not None or self.visible is not None:
            past = ids.new_ones(len(ids), self.cache.n_tokens, dtype=torch.bool)
            new = torch.ones_like(ids, dtype=torch.bool)
            parts = [past if self.visible is None else self.visible, new if visible is None else visible]
            self.visible = torch.cat(parts, dim=1)

    def _read(self, ids: Tensor) -> Tensor:
        if self.one_token is not None and not self.watch and self.cache.n_tokens and ids.shape[1] == 1:
            return self.one_token(ids, self.visible, self.cache)
        options = {} if self.one_token is None else {"last_only": True}  # a user's own `forward` may not know it
        with evaluation_mode(self.model):
            return self.model(ids, visible=self.visible, cache=self.cache, **options)[:, -1]


class TargetReader:
    """Reads a translation with an `EncoderDecoder`, which has read the source before."""

    def __init__(
        self,
        model: EncoderDecoder,
        source: Int[Tensor, "batch source_token"],
        source_visible: Bool[Tensor, "batch source_token"] | None = None,
    ) -> None:
        self.model, self.cache = model, model.new_cache()
        self.one_token = model.one_token()
        self.watch = Watch(model)
        with torch.inference_mode(), evaluation_mode(model):
            self.memory = model.encode(source, visible=source_visible)
        self.memory_visible = source_visible

    def __call__(self, ids: Int[Tensor, "batch token"]) -> Float[Tensor, "batch vocab"]:
        """The scores of the token after these tokens."""
        with without_gradients():
            logits = self._read(ids)
        check_scores(logits, self.cache.n_tokens)
        return logits

    def reorder(self, rows: Int[Tensor, "chosen"]) -> None:
        """Go on with these rows of what was read, in this order."""
        with torch.inference_mode():
            self.cache.reorder(rows)
            self.memory = self.memory.index_select(0, rows)
            if self.memory_visible is not None:
                self.memory_visible = self.memory_visible.index_select(0, rows)

    def _read(self, ids: Tensor) -> Tensor:
        if self.one_token is not None and not self.watch and self.cache.n_tokens and ids.shape[1] == 1:
            return self.one_token(ids, self.memory_visible, self.cache)
        with evaluation_mode(self.model):
            x = self.model.decode(ids, self.memory, memory_visible=self.memory_visible, cache=self.cache)
            return self.model.unembed(x[:, -1:])[:, -1]
