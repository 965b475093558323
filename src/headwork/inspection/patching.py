"""Write into a model while it runs: replace what passes a named point."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial

import torch
from torch import Tensor, nn

from headwork.checks import check_type
from headwork.inspection.outputs import choose_tensors, tensors_in, with_tensor, without_fast_path
from headwork.inspection.recording import KeepOutput, check_not_compiled, named_points

Edit = Callable[[Tensor], Tensor | None] | Tensor | float
"""What to put in a tensor's place: a function of the tensor, another tensor, or a number for all of its entries."""
HookEdit = Callable[[Tensor, tuple[object, ...]], object]
"""From a copy of what a module returned, and from what it was called with, to the new tensor (None: the copy)."""


@contextmanager
def patch(model: nn.Module, edits: Mapping[str, Edit]) -> Iterator[None]:
    """Replace what passes the named points while the block runs; names and `*` are those of `record`.

    A function gets a copy of the tensor and returns another of the same shape, dtype and device; or it writes into the
    copy and returns None. If it changes nothing, the output stays the same bit for bit. Gradients pass through. Edits
    of the same point apply in the order of the dictionary, those of an inner block after those of an outer one, and a
    recording sees the result, whichever was opened first. A pattern that matches no point is an error, and so is one
    whose points the model never passed inside the block.

    >>> attention = hw.layers.MultiHeadAttention(d_model=8, n_heads=2)
    >>> x = torch.randn(1, 5, 8)
    >>> with hw.patch(attention, {"heads": lambda heads: 0 * heads}):
    ...     y = attention(x, x)
    >>> torch.equal(y, attention.out.bias.expand(1, 5, 8))
    True
    """
    check_type(Mapping, "a mapping from names of points to edits", edits=edits)
    for pattern, edit in edits.items():
        if not (callable(edit) or isinstance(edit, Tensor | float | int)):
            raise TypeError(f"the edit of {pattern!r} must be a function, a tensor or a number, got {edit!r}")
    with edit_outputs(model, {pattern: partial(_apply, edit) for pattern, edit in edits.items()}, action="patch"):
        yield


@contextmanager
def edit_outputs(model: nn.Module, edits: Mapping[str, HookEdit], *, action: str) -> Iterator[None]:
    """`patch`, for functions that also want the inputs of the module; `action` is its name in errors."""
    points = named_points(model)
    passed: set[str] = set()
    with ExitStack() as hooks:
        hooks.enter_context(without_fast_path(model))
        for pattern, edit in edits.items():
            chosen = choose_tensors(points, pattern)
            check_not_compiled(points, (name for name, _ in chosen), action)
            for name, place in chosen:
                hook = _EditOutput(name, place, edit, partial(passed.add, pattern))
                hooks.callback(points[name].register_forward_hook(hook, with_kwargs=True).remove)
                _move_recordings_to_end(points[name])
        yield
    for pattern in edits:
        if pattern not in passed:
            raise ValueError(
                f"{action} changed nothing at {pattern!r}: the model did not pass it inside the with block. "
                "Call the model there, and name points that it passes (hw.record shows them)"
            )


class _EditOutput:
    """The hook of an edit."""

    def __init__(self, name: str, place: str, edit: HookEdit, note_pass: Callable[[], None]) -> None:
        self.name, self.place, self.edit, self.note_pass = name, place, edit, note_pass

    def __call__(
        self, module: nn.Module, inputs: tuple[object, ...], keywords: dict[str, object], output: object
    ) -> object:
        self.note_pass()
        value = self._find(output)
        copy = value.clone()
        before = None if copy.is_inference() else copy._version  # inference tensors do not count their changes
        new = self.edit(copy, (*inputs, *keywords.values()))
        if new is None or new is copy:
            unchanged = torch.equal(copy, value) if before is None else copy._version == before
            return None if unchanged else with_tensor(output, self.place, copy)
        return with_tensor(output, self.place, self._checked(new, value))

    def _find(self, output: object) -> Tensor:
        found = dict(tensors_in(output))
        if self.place not in found:
            several = ", ".join(self.name + place for place in found)
            hint = f": name one of its tensors, {several}" if several else ""
            asked = "" if not self.place else f", no {self.name}{self.place}"
            kind = type(output).__name__
            raise TypeError(f"only tensors can be patched, and {self.name} returns a {kind}{asked}{hint}")
        return found[self.place]

    def _checked(self, new: object, old: Tensor) -> Tensor:
        if not isinstance(new, Tensor):
            raise TypeError(
                f"what is put at {self.name}{self.place} must be a tensor or None, got {type(new).__name__}"
            )
        for what, given, wanted in (
            ("shape", tuple(new.shape), tuple(old.shape)),
            ("dtype", new.dtype, old.dtype),
            ("device", new.device, old.device),
        ):
            if given != wanted:
                raise ValueError(f"what is put at {self.name}{self.place} must have the {what} {wanted}, got {given}")
        return new


def _apply(edit: Edit, value: Tensor, inputs: tuple[object, ...]) -> object:
    if isinstance(edit, Tensor):
        return edit
    return edit(value) if callable(edit) else torch.full_like(value, edit)


def _move_recordings_to_end(module: nn.Module) -> None:
    """Hooks run in the order of this dictionary."""
    for key, hook in list(module._forward_hooks.items()):
        if isinstance(hook, KeepOutput):
            module._forward_hooks[key] = module._forward_hooks.pop(key)
