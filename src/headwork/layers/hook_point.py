"""Named points inside a model where a tensor can be looked at, or replaced, from outside."""

from collections import OrderedDict
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle


class HookPoint(nn.Module):
    """A point that a tensor passes under a name and with named axes; it changes nothing.

    `hw.record` looks here and `hw.patch` writes here, and so may any forward hook: what it returns replaces the tensor.
    """

    def __init__(self, axes: str) -> None:
        super().__init__()
        self.axes = axes

    def forward(self, value: Tensor) -> Tensor:
        return value

    def extra_repr(self) -> str:
        return self.axes


class LazyHookPoint(HookPoint):
    """A point whose tensor costs something, as weights beside a fused kernel do: computed only if asked for."""

    def __init__(self, axes: str) -> None:
        super().__init__(axes)
        self._lazy_hooks: OrderedDict[int, Callable[[Callable[[], Tensor]], None]] = OrderedDict()

    def register_lazy_hook(self, keep: Callable[[Callable[[], Tensor]], None]) -> RemovableHandle:
        """At every pass hand `keep` a function that computes the tensor, until the handle is removed."""
        handle = RemovableHandle(self._lazy_hooks)
        self._lazy_hooks[handle.id] = keep
        return handle

    def is_watched(self) -> bool:
        """Whether anybody looks here; if not, there is nothing to publish."""
        return bool(self._lazy_hooks) or self._is_hooked()

    def publish(self, compute: Callable[[], Tensor]) -> Tensor | None:
        """Show the tensor to forward hooks; returned only if one replaced it. Lazy hooks may compute it later."""
        new = self._show(compute)
        for keep in self._lazy_hooks.values():
            keep(compute if new is None else lambda: new)
        return new

    def _show(self, compute: Callable[[], Tensor]) -> Tensor | None:
        if not self._is_hooked():
            return None
        shown: Tensor = compute()
        before = shown.clone()
        passed: Tensor = self(shown)
        edited_in_place = not torch.allclose(shown, before, rtol=0, atol=0, equal_nan=True)
        return passed if passed is not shown or edited_in_place else None

    def _is_hooked(self) -> bool:
        after, before = self._forward_hooks or self._backward_hooks, self._forward_pre_hooks or self._backward_pre_hooks
        return bool(after or before)
