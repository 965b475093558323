"""Switch off heads or layers, to see what the model does without them."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from headwork.inspection.patching import HookEdit, edit_outputs
from headwork.inspection.points import choose_points, named_points
from headwork.layers.hook_point import HookPoint
from headwork.models.model import describe

Ablation = Literal["zero", "mean"] | Mapping[str, Tensor]
"""What takes the place: zeros, the mean over batch and tokens, or what was recorded of another input."""


@contextmanager
def ablate(
    model: nn.Module,
    *,
    heads: Mapping[str, Collection[int]] | None = None,
    layers: str | Iterable[str] = (),
    by: Ablation = "zero",
) -> Iterator[None]:
    """Switch off heads, by the name of their attention module, and layers, by their name; `*` is that of `record`.

    The output of a head is replaced by zeros, by its mean over the batch and the tokens of the same call, or by that in
    another input's recording. Of a layer it is what the layer adds to the residual stream: with `by="zero"` the stream
    passes unchanged, with `by="mean"` every token is moved by the mean step. The names are in `describe(model)`.
    It is a `patch`, and combines with others, with recordings and with generation in the same way.

    >>> config = hw.models.DecoderConfig(vocab=100, d_model=8, n_layers=2, heads=choices.Heads(n_heads=2),
    ...     feed_forward=choices.FeedForward(d_ff=32))
    >>> model, ids = config.build().eval(), torch.tensor([[3, 1, 4, 1, 5]])
    >>> with hw.ablate(model, layers=["layers.1"]), hw.record(model, "layers.?") as seen:
    ...     logits = model(ids)
    >>> torch.equal(seen["layers.0"], seen["layers.1"])
    True
    """
    if isinstance(by, str) and by not in ("zero", "mean"):
        raise ValueError(f"by must be 'zero', 'mean' or a recording, got {by!r}")
    layers = [layers] if isinstance(layers, str) else [*layers]
    edits = {**_head_edits(model, heads or {}, by), **_layer_edits(model, layers, by)}
    if not edits:
        raise ValueError("ablate needs heads or layers to switch off, got neither")
    with edit_outputs(model, edits, action="ablate"):
        yield


def _head_edits(model: nn.Module, heads: Mapping[str, Collection[int]], by: Ablation) -> dict[str, HookEdit]:
    points = {
        name.removesuffix(".heads"): module.axes.split().index("head")
        for name, module in named_points(model).items()
        if name.endswith(".heads") and isinstance(module, HookPoint) and "head" in module.axes.split()
    }
    chosen: defaultdict[str, set[int]] = defaultdict(set)
    for pattern, indices in heads.items():
        for name in choose_points(points, [pattern]):
            chosen[name].update(indices)
    for name in chosen:
        if not isinstance(by, str) and f"{name}.heads" not in by:
            raise ValueError(f"the recording must hold '{name}.heads': hw.record(model, '{name}.heads')")
    return {
        f"{name}.heads": partial(_replace_heads, f"{name}.heads", points[name], sorted(indices), by)
        for name, indices in chosen.items()
    }


def _replace_heads(
    point: str, axis: int, chosen: list[int], by: Ablation, value: Tensor, inputs: tuple[object, ...]
) -> Tensor:
    n_heads = value.shape[axis]
    if not chosen or not 0 <= chosen[0] <= chosen[-1] < n_heads:
        raise ValueError(f"the heads to switch off at {point} must be some of 0 .. {n_heads - 1}, got {chosen}")
    match by:
        case "zero":
            new = torch.zeros_like(value)
        case "mean":
            new = _mean(point, value, tuple(a for a in range(value.ndim - 1) if a != axis))
        case _:
            new = by[point]
            if new.shape != value.shape:
                raise ValueError(
                    f"the recording must have the shape of what passes {point}, {tuple(value.shape)}, "
                    f"got {tuple(new.shape)}: record an input of as many rows and tokens"
                )
    index = torch.tensor(chosen, device=value.device)
    return value.index_copy(axis, index, new.index_select(axis, index))


def _layer_edits(model: nn.Module, layers: list[str], by: Ablation) -> dict[str, HookEdit]:
    if layers and not isinstance(by, str):
        raise ValueError(
            "a recording holds the output of a layer, not what it added: put it in with hw.patch(model, "
            "{name: recording[name]}), or switch layers off by 'zero' or 'mean'"
        )
    description = describe(model)
    known = named_points(model) if description is None else description.layers
    return {name: partial(_pass_by, name, by) for name in choose_points(known, layers)}


def _pass_by(name: str, by: Ablation, value: Tensor, inputs: tuple[object, ...]) -> Tensor:
    x = inputs[0] if inputs else None
    if not isinstance(x, Tensor) or x.shape != value.shape:
        raise ValueError(f"ablate can pass by a layer whose first input has the shape of its output; {name} has not")
    return x if by == "zero" else x + _mean(name, value - x, tuple(range(value.ndim - 1)))


def _mean(name: str, value: Tensor, axes: tuple[int, ...]) -> Tensor:
    """The mean over these axes, in the shape of the value."""
    if all(value.shape[axis] == 1 for axis in axes):
        raise ValueError(
            f"the mean at {name} would be the value itself: there is one row with one token "
            "(as in generation, which reads token by token). Use by='zero' or a recording"
        )
    return value.mean(axes, keepdim=True).expand_as(value)
