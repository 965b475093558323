"""Activation patching: put what one input gave into the run of another, and see how much of the answer comes back."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

import torch
from torch import Tensor, nn

from headwork.checks import check_type
from headwork.inspection.outputs import choose_points
from headwork.inspection.patching import patch
from headwork.inspection.recording import check_no_cache, named_points, record
from headwork.models.model import evaluation_mode

Inputs = Tensor | tuple[Tensor, ...]
"""What the model is called with: one tensor, or several."""


@dataclass(frozen=True)
class Effect:
    """What one patch did to the metric."""

    name: str
    index: tuple[int, ...]
    """Where along the axes that were asked for; empty: the whole tensor."""
    metric: float
    """Of the corrupted input with the clean value put in."""
    restored: float
    """(metric - corrupted) / (clean - corrupted): 0 if nothing came back, 1 if everything did."""


def patching_effects(
    model: nn.Module,
    clean: Inputs,
    corrupted: Inputs,
    points: str | tuple[str, ...],
    metric: Callable[[Tensor], Tensor | float],
    *,
    each: str = "",
    **keywords: object,
) -> Iterator[Effect]:
    """Run the corrupted input once for each named point, with the value that the clean input gave there.

    `each` names axes of the points, of which one index is put in at a time: `each="token"` for layers, `"head"` or
    `"query head"` for `attention.heads`. The metric is a number from the model's output; keywords go to both calls of
    the model, which run in evaluation mode without gradients. Effects come one by one, in the order of the model. Meng
    et al., 2022, "Locating and editing factual associations in GPT".

    >>> config = hw.models.DecoderConfig(vocab=100, d_model=8, n_layers=2, heads=choices.Heads(n_heads=2),
    ...     feed_forward=choices.FeedForward(d_ff=32))
    >>> clean, corrupted = torch.tensor([[3, 1, 4, 1, 5]]), torch.tensor([[3, 1, 9, 1, 5]])
    >>> effects = patching_effects(config.build(), clean, corrupted, "layers.1", lambda logits: logits[0, -1, 7])
    >>> [(effect.name, round(effect.restored, 3)) for effect in effects]
    [('layers.1', 1.0)]
    """

    for name, inputs in (("clean", clean), ("corrupted", corrupted)):
        for tensor in inputs if isinstance(inputs, tuple) else (inputs,):
            check_type(Tensor, "a tensor or a tuple of tensors", **{name: tensor})
    check_type(str | Sequence, "the name of a point or several names", points=points)
    check_type(Callable, "a function of the model's output", metric=metric)  # type: ignore[arg-type]
    check_type(str, "the names of axes", each=each)

    def run(inputs: Inputs) -> float:
        with evaluation_mode(model), torch.no_grad():
            answer: object = metric(model(*(inputs if isinstance(inputs, tuple) else (inputs,)), **keywords))
        if isinstance(answer, Tensor) and answer.numel() == 1:
            return float(answer)
        check_type(float | int, "a function that returns one number", metric=answer)
        return float(answer)  # type: ignore[arg-type]  # it is a number

    modules = named_points(model)
    axes = {
        name: _find_axes(name, modules[name], each)
        for name in choose_points(modules, (points,) if isinstance(points, str) else points)
    }
    check_no_cache("patching_effects", keywords)
    with record(model, *axes, every_call=True) as seen:
        at_clean = run(clean)
    for name in seen:
        if (n_calls := seen.n_calls(name)) > 1:
            raise ValueError(f"points must pass once in a call of the model, got {name}, which passes {n_calls} times")
    at_corrupted = run(corrupted)
    if at_clean == at_corrupted:
        raise ValueError(f"the metric must tell the clean input from the corrupted one, got {at_clean} for both")

    def effects() -> Iterator[Effect]:
        for name, cut in axes.items():
            value = seen[name]
            for index in product(*(range(value.shape[axis]) for axis in cut)):
                with patch(model, {name: partial(_put, name, value, dict(zip(cut, index, strict=True)))}):
                    found = run(corrupted)
                yield Effect(name, index, found, (found - at_corrupted) / (at_clean - at_corrupted))

    return effects()


def _put(name: str, clean: Tensor, index: dict[int, int], value: Tensor) -> Tensor:
    """The value with the clean one at this index of these axes."""
    if value.shape != clean.shape:
        raise ValueError(
            f"clean and corrupted input must have the same shapes, "
            f"but give {tuple(clean.shape)} and {tuple(value.shape)} at {name}"
        )
    where = tuple(index.get(axis, slice(None)) for axis in range(value.ndim))
    value[where] = clean[where]
    return value


def _find_axes(name: str, module: nn.Module, each: str) -> list[int]:
    axes = getattr(module, "axes", "")
    for axis in each.split():
        if axis not in axes.split():
            raise ValueError(f"{name} has no axis called {axis!r}; its axes are {axes or 'not named'}")
    return [axes.split().index(axis) for axis in each.split()]
