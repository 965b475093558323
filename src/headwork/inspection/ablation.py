"""Switch off heads or layers, to see what the model does without them."""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from headwork.checks import check_type
from headwork.inspection.outputs import choose_points, choose_tensors
from headwork.inspection.patching import HookEdit, edit_outputs
from headwork.inspection.recording import named_points
from headwork.layers.hook_point import HookPoint
from headwork.layers.stack import Stack
from headwork.models.model import describe

Ablation = Literal["zero", "mean"] | Mapping[str, Tensor]
"""What takes the place: zeros, the mean over the visible tokens of the batch, or what was recorded of another input."""


@contextmanager
def ablate(
    model: nn.Module,
    *,
    heads: Mapping[str, Collection[int]] | None = None,
    layers: str | Iterable[str] = (),
    by: Ablation = "zero",
) -> Iterator[None]:
    """Switch off heads, by the name of their attention module, and layers, by their name; `*` is that of `record`.

    The output of a head is replaced by zeros, by its mean over all tokens of the same call (without padding, if the
    model was given `visible`), or by that in another input's recording. Of a layer it is what the layer adds to the
    residual stream: with `by="zero"` the stream passes unchanged, with `by="mean"` every token is moved by the mean
    step. The names are in `describe(model)`; of any other `nn.Module` a layer is a module whose first input has the
    shape of its output (`name[0]` if it returns more). It is a `patch`, and combines with others, with recordings and
    with generation in the same way.

    >>> config = hw.models.DecoderConfig(vocab=100, d_model=8, n_layers=2, heads=choices.Heads(n_heads=2),
    ...     feed_forward=choices.FeedForward(d_ff=32))
    >>> model, ids = config.build().eval(), torch.tensor([[3, 1, 4, 1, 5]])
    >>> with hw.ablate(model, layers=["layers.1"]), hw.record(model, "layers.?") as seen:
    ...     logits = model(ids)
    >>> torch.equal(seen["layers.0"], seen["layers.1"])
    True
    """
    check_type(nn.Module, "a module", model=model)
    check_type(Mapping | None, "a mapping from names of attention modules to numbers of heads", heads=heads)
    check_type(Iterable, "a name or several names", layers=layers)
    check_type(str | Mapping, "'zero', 'mean' or a recording", by=by)
    if isinstance(by, str) and by not in ("zero", "mean"):
        raise ValueError(f"by must be 'zero', 'mean' or a recording, got {by!r}")
    layers = [layers] if isinstance(layers, str) else [*layers]
    padding = _Padding(model)
    edits = {**_head_edits(model, heads or {}, by, padding), **_layer_edits(model, layers, by, padding)}
    if not edits:
        raise ValueError("ablate needs heads or layers to switch off, got neither")
    with padding.watching(), edit_outputs(model, edits, action="ablate"):
        yield


class _Padding:
    """Which tokens are visible (no padding) in each stack of layers, as its last call was told."""

    def __init__(self, model: nn.Module) -> None:
        self.stacks = {name: module for name, module in model.named_modules() if isinstance(module, Stack)}
        self.visible: dict[str, Tensor | None] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        with ExitStack() as hooks:
            for name, stack in self.stacks.items():
                hooks.callback(stack.register_forward_pre_hook(partial(self._keep, name), with_kwargs=True).remove)
            yield

    def _keep(self, name: str, stack: nn.Module, inputs: tuple[Tensor, ...], keywords: dict[str, Any]) -> None:
        x, visible = inputs[0] if inputs else keywords["x"], keywords.get("visible")
        self.visible[name] = None if visible is None else visible[:, -x.shape[1] :]  # the cache has those before

    def mean(self, name: str, value: Tensor, axes: tuple[int, ...]) -> Tensor:
        """The mean over these axes and the visible tokens, in the shape of the value."""
        stack = next((stack for stack in self.stacks if f"{name}.".startswith(f"{stack}.") or not stack), None)
        visible = None if stack is None else self.visible.get(stack)
        if visible is not None and visible.shape != value.shape[:2]:
            visible = None
        n_tokens = math.prod(value.shape[axis] for axis in axes) if visible is None else int(visible.sum())
        if n_tokens == 1:
            raise ValueError(
                f"the mean at {name} would be the value itself: there is one row with one token "
                "(as in generation, which reads token by token). Use by='zero' or a recording"
            )
        mean = value.mean(axes, keepdim=True) if visible is None else value[visible].mean(0)
        return mean.expand_as(value)


def _head_edits(
    model: nn.Module, heads: Mapping[str, Collection[int]], by: Ablation, padding: _Padding
) -> dict[str, HookEdit]:
    points = {
        name.removesuffix(".heads"): module.axes.split().index("head")
        for name, module in named_points(model).items()
        if name.endswith(".heads") and isinstance(module, HookPoint) and "head" in module.axes.split()
    }
    chosen: defaultdict[str, set[int]] = defaultdict(set)
    for pattern, indices in heads.items():
        for name in choose_points(points, [pattern]):
            check_type(Collection, f"a list of the heads to switch off at {name}", heads=indices)
            for index in indices:
                check_type(int, f"a list of the heads to switch off at {name}, whole numbers", heads=index)
            chosen[name].update(indices)
    for name in chosen:
        if not isinstance(by, str) and f"{name}.heads" not in by:
            raise ValueError(f"the recording must hold '{name}.heads': hw.record(model, '{name}.heads')")
    return {
        f"{name}.heads": partial(_replace_heads, f"{name}.heads", points[name], sorted(indices), by, padding)
        for name, indices in chosen.items()
    }


def _replace_heads(
    point: str,
    axis: int,
    chosen: list[int],
    by: Ablation,
    padding: _Padding,
    value: Tensor,
    inputs: tuple[object, ...],
) -> Tensor:
    n_heads = value.shape[axis]
    if not chosen or not 0 <= chosen[0] <= chosen[-1] < n_heads:
        raise ValueError(f"the heads to switch off at {point} must be some of 0 .. {n_heads - 1}, got {chosen}")
    match by:
        case "zero":
            new = torch.zeros_like(value)
        case "mean":
            new = padding.mean(point, value, tuple(a for a in range(value.ndim - 1) if a != axis))
        case _:
            new = by[point]
            if new.shape != value.shape:
                raise ValueError(
                    f"the recording must have the shape of what passes {point}, {tuple(value.shape)}, "
                    f"got {tuple(new.shape)}: record an input of as many rows and tokens"
                )
    index = torch.tensor(chosen, device=value.device)
    return value.index_copy(axis, index, new.index_select(axis, index))


def _layer_edits(model: nn.Module, layers: list[str], by: Ablation, padding: _Padding) -> dict[str, HookEdit]:
    if layers and not isinstance(by, str):
        raise ValueError(
            "a recording holds the output of a layer, not what it added: put it in with hw.patch(model, "
            "{name: recording[name]}), or switch layers off by 'zero' or 'mean'"
        )
    description = describe(model)
    known = named_points(model) if description is None else description.layers
    chosen = [name + place for pattern in layers for name, place in choose_tensors(known, pattern)]
    return {name: partial(_pass_by, name, by, padding) for name in chosen}


def _pass_by(name: str, by: Ablation, padding: _Padding, value: Tensor, inputs: tuple[object, ...]) -> Tensor:
    x = inputs[0] if inputs else None
    if not isinstance(x, Tensor) or x.shape != value.shape:
        raise ValueError(f"ablate can pass by a layer whose first input has the shape of its output; {name} has not")
    return x if by == "zero" else x + padding.mean(name, value - x, tuple(range(value.ndim - 1)))
