"""Look at what passes inside a model, by name, without changing what comes out."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import partial

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from headwork.checks import nearest
from headwork.layers.hook_point import LazyHookPoint


class Seen(Mapping[str, Tensor]):
    """The tensors a recording has seen, by name; the last call's if there were several.

    Attention weights are computed at the first look, from the queries and keys that passed; what nobody looks at costs
    nothing.
    """

    def __init__(self, names: list[str]) -> None:
        self._names = names
        self._values: dict[str, list[Tensor | Callable[[], Tensor]]] = {}

    def __getitem__(self, name: str) -> Tensor:
        return self._compute(name, -1)

    def calls(self, name: str) -> list[Tensor]:
        """The tensors of all calls, oldest first; `record(..., every_call=True)` keeps them."""
        if name not in self._values:
            raise KeyError(self._why_missing(name))
        return [self._compute(name, call) for call in range(len(self._values[name]))]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def _compute(self, name: str, call: int) -> Tensor:
        if name not in self._values:
            raise KeyError(self._why_missing(name))
        value = self._values[name][call]
        if not isinstance(value, Tensor):
            value = self._values[name][call] = value()
        return value

    def _why_missing(self, name: str) -> str:
        if name in self._names:
            return f"{name!r} is recorded, but the model has not passed it: call the model inside the with block"
        return f"{name!r} is not recorded{nearest(name, self._names)}"

    def _keep(self, name: str, every_call: bool, value: Tensor | Callable[[], Tensor]) -> None:
        earlier = self._values.pop(name, []) if every_call else []
        self._values[name] = [*earlier, value]


@contextmanager
def record(model: nn.Module, *names: str, every_call: bool = False) -> Iterator[Seen]:
    """Record what passes the named points (all of them, unless some are named) while the block runs.

    A name is that of any module inside the model and stands for what the module returns; `*` matches any part of it.
    The output of the model itself is called `output`.

    >>> attention = hw.layers.MultiHeadAttention(d_model=8, n_heads=2)
    >>> x = torch.randn(1, 5, 8)
    >>> with hw.record(attention) as seen:
    ...     y = attention(x, x)
    >>> seen["weights"].shape, seen["queries"].shape
    (torch.Size([1, 2, 5, 5]), torch.Size([1, 5, 2, 4]))
    """
    if hasattr(model, "_orig_mod") or getattr(model, "_compiled_call_impl", None) is not None:
        raise ValueError(
            "record cannot look into a compiled model, whose insides no longer run one by one: "
            "record the model that was given to torch.compile, and call that"
        )
    points = {name or "output": module for name, module in model.named_modules()}
    chosen = _choose(list(points), names)
    seen = Seen(chosen)
    handles: list[RemovableHandle] = []
    try:
        for name in chosen:
            module, keep = points[name], partial(seen._keep, name, every_call)
            if isinstance(module, LazyHookPoint):
                handles.append(module.register_lazy_hook(keep))
            else:
                handles.append(module.register_forward_hook(partial(_keep_output, keep)))
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def _keep_output(keep: Callable[[Tensor], None], module: nn.Module, inputs: object, output: object) -> None:
    if isinstance(output, Tensor):
        keep(output)


def _choose(points: list[str], patterns: tuple[str, ...]) -> list[str]:
    for pattern in patterns:
        if not any(fnmatchcase(point, pattern) for point in points):
            raise ValueError(f"no point is called {pattern!r}{nearest(pattern, points)}")
    return [p for p in points if not patterns or any(fnmatchcase(p, pattern) for pattern in patterns)]
