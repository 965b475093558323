"""Look at what passes inside a model, by name, without changing what comes out.

Each module is a point with a name, which stands for what the module returns.
"""

import inspect
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from headwork.checks import check_type, nearest
from headwork.inspection.outputs import choose_tensors, tensors_in, without_fast_path
from headwork.layers.hook_point import LazyHookPoint
from headwork.tables import Table


class Recording(Mapping[str, Tensor]):
    """The tensors that passed while the model was recorded, by name; the last call's if there were several.

    Attention weights are computed when they are first asked for, from the queries and keys that passed.
    """

    def __init__(self, names: list[str]) -> None:
        self._names = names
        self._values: dict[str, list[Tensor | Callable[[], Tensor]]] = {}

    def __getitem__(self, name: str) -> Tensor:
        return self._compute(name, -1)

    def calls(self, name: str) -> list[Tensor]:
        """The tensors of all calls, oldest first; `record(..., every_call=True)` keeps them."""
        return [self._compute(name, call) for call in range(len(self._calls(name)))]

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor, which is not computed for it."""
        value = self._calls(name)[-1]
        if isinstance(value, Tensor):
            return tuple(value.shape)
        with warnings.catch_warnings(action="ignore"), FakeTensorMode(allow_non_fake_inputs=True):
            return tuple(value().shape)

    def n_calls(self, name: str) -> int:
        """How often the point has passed; more than once only with `record(..., every_call=True)`."""
        return len(self._values.get(name, []))

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        rows = self._rows()
        width = max((len(name) for name, *_ in rows), default=0)
        lines = [f"  {name:<{width}}  {shape}  {calls}".rstrip() for name, shape, calls in rows]
        passed = [name for name in self._names if name in self._values or self._inside(name)]
        return "\n".join([f"Recording: {len(passed)} of {len(self._names)} points passed", *lines])

    def _repr_html_(self) -> str:
        return Table(("name", "shape", "calls"), self._rows()).html()

    def _rows(self) -> tuple[tuple[str, str, str], ...]:
        calls = {name: len(values) for name, values in self._values.items()}
        return tuple((name, str(list(self.shape(name))), f"{n} calls" if n > 1 else "") for name, n in calls.items())

    def _compute(self, name: str, call: int) -> Tensor:
        values = self._calls(name)
        value = values[call]
        if not isinstance(value, Tensor):
            value = values[call] = value()
        return value

    def _calls(self, name: str) -> list[Tensor | Callable[[], Tensor]]:
        if name in self._values:
            return self._values[name]
        if others := self._inside(name) or self._inside(name.partition("[")[0]):
            raise KeyError(f"{name!r} is no tensor: the module returns several, there are {', '.join(others)}")
        if name in self._names:
            why = "is recorded, but the model has not passed it: call the model inside the with block"
            raise KeyError(f"{name!r} {why}")
        raise KeyError(f"{name!r} is not recorded{nearest(name, self._names)}")

    def _inside(self, name: str) -> list[str]:
        """The tensors in what a module returned, if it is not one."""
        return [recorded for recorded in self._values if recorded.startswith(f"{name}[")]

    def _keep(self, every_call: bool, name: str, value: Tensor | Callable[[], Tensor]) -> None:
        earlier = self._values.pop(name, []) if every_call else []
        self._values[name] = [*earlier, value]


@contextmanager
def record(model: nn.Module, *names: str, every_call: bool = False) -> Iterator[Recording]:
    """Record what passes the named points (all of them, unless some are named) while the block runs.

    The model is any `nn.Module`. A name is that of any module inside it and stands for what the module returns; `*`
    matches any part of it. If that is a tuple or a dict, its tensors are called `name[0]`, `name[logits]`. The output
    of the model itself is called `output`. What is recorded is what flowed on: after `patch`, and after the hooks that
    were there before.

    >>> attention = hw.layers.MultiHeadAttention(d_model=8, n_heads=2)
    >>> x = torch.randn(1, 5, 8)
    >>> with hw.record(attention, "queries", "weights") as seen:
    ...     y = attention(x, x)
    >>> seen["weights"].shape
    torch.Size([1, 2, 5, 5])
    >>> seen
    Recording: 2 of 2 points passed
      queries  [1, 5, 2, 4]
      weights  [1, 2, 5, 5]
    """
    points = named_points(model)
    places: dict[str, set[str]] = {name: set() for name in points}
    for pattern in names or ("*",):
        for name, place in choose_tensors(points, pattern):
            places[name].add(place)
    chosen = {name: wanted for name, wanted in places.items() if wanted}
    check_not_compiled(points, chosen, "record")
    seen = Recording([name if "" in wanted else name + place for name, wanted in chosen.items() for place in wanted])
    with ExitStack() as hooks:
        hooks.enter_context(without_fast_path(model))
        for name, wanted in chosen.items():
            module, keep = points[name], partial(seen._keep, every_call)
            if isinstance(module, LazyHookPoint):
                hooks.callback(module.register_lazy_hook(partial(keep, name)).remove)
            else:
                hooks.callback(module.register_forward_hook(KeepOutput(name, wanted, keep)).remove)
        yield seen


class KeepOutput:
    """The hook of a recording; `patch` puts its own hooks before it."""

    def __init__(self, name: str, places: Iterable[str], keep: Callable[[str, Tensor], None]) -> None:
        self.name, self.places, self.keep = name, tuple(places), keep

    def __call__(self, module: nn.Module, inputs: object, output: object) -> None:
        for place, tensor in tensors_in(output):
            if place.startswith(self.places):
                self.keep(self.name + place, tensor)


def named_points(model: nn.Module) -> dict[str, nn.Module]:
    """The modules of a model by name; the model itself, whose name is empty, is called `output`.

    >>> list(named_points(nn.Sequential(nn.Linear(3, 5), nn.ReLU())))
    ['output', '0', '1']
    """
    check_type(nn.Module, "a module", model=model)
    return {name or "output": module for name, module in model.named_modules()}


def check_not_compiled(points: dict[str, nn.Module], chosen: Iterable[str], action: str) -> None:
    """A compiled module runs as one piece, so no hook inside it would be called."""
    compiled = [name for name, module in points.items() if _is_compiled(module)]
    for name in chosen:
        for outer in compiled:
            if outer == "output" or f"{name}.".startswith(f"{outer}."):
                where = "a compiled model" if outer == "output" else f"{outer}, which is compiled"
                raise ValueError(
                    f"{action} cannot look into {where}: its modules no longer run one by one. "
                    f"Use the model that was given to torch.compile or torch.jit, and call that"
                )


def _is_compiled(module: nn.Module) -> bool:
    is_script = isinstance(module, torch.jit.ScriptModule)
    return is_script or hasattr(module, "_orig_mod") or module._compiled_call_impl is not None


def check_no_cache(action: str, keywords: Mapping[str, object]) -> None:
    """Whoever calls a model several times must not be given the cache of one call."""
    if keywords.get("cache") is not None:
        raise ValueError(f"{action} calls the model several times: leave out cache, and pass the whole text")


def check_inputs(action: str, model: nn.Module, inputs: Iterable[object], keywords: Mapping[str, object]) -> None:
    """Whoever runs a model needs the inputs of its `forward`."""
    check_type(nn.Module, "a module", model=model)
    try:
        inspect.signature(model.forward).bind(*inputs, **keywords)
    except TypeError as error:
        raise TypeError(
            f"{action} runs the model: pass its inputs, as in hw.{action}(model, x). {type(model).__name__} is {error}"
        ) from None
