"""The tensors in what any module returns: one, or those in a tuple, a list or a dict, each with its name.

`encoder.layers.0.self_attn[0]` is the first thing that PyTorch's attention returns, `output[logits]` what a model of
Hugging Face's returns under that name.
"""

import copy
import re
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn

from headwork.checks import check_type, nearest

ELEMENT = re.compile(r"(.+?)((?:\[\w+\])+)")
"""The name of a module, and of a tensor in what it returns."""
HAS_FAST_PATH = (nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerEncoder)


def tensors_in(output: object) -> Iterator[tuple[str, Tensor]]:
    """Each tensor with its place: nothing for a tensor alone, `[0]` in a tuple, `[logits]` in a dict.

    >>> [place for place, _ in tensors_in((torch.ones(1), {"a": torch.ones(1)}, None))]
    ['[0]', '[1][a]']
    """
    if isinstance(output, Tensor):
        yield "", output
    elif isinstance(output, Mapping | tuple | list):
        for key, value in output.items() if isinstance(output, Mapping) else enumerate(output):
            for place, tensor in tensors_in(value):
                yield f"[{key}]{place}", tensor


def with_tensor(output: Any, place: str, new: Tensor) -> Any:
    """The same output with another tensor at this place; what the module returned is not changed.

    >>> with_tensor((torch.zeros(1), None), "[0]", torch.ones(1))
    (tensor([1.]), None)
    """
    if not place:
        return new
    first, _, rest = place.removeprefix("[").partition("]")
    if isinstance(output, MutableMapping):
        made = copy.copy(output)
        key = next(key for key in output if str(key) == first)
        made[key] = with_tensor(output[key], rest, new)
        return made
    items = [with_tensor(item, rest, new) if number == int(first) else item for number, item in enumerate(output)]
    return type(output)(*items) if hasattr(output, "_fields") else type(output)(items)


def choose_points(names: Iterable[str], patterns: Iterable[str]) -> list[str]:
    """The names that match any of the patterns, in which `*` stands for anything; each pattern has to match one.

    >>> choose_points(["layers.0.attention", "layers.1.attention", "lm_head"], ["layers.*"])
    ['layers.0.attention', 'layers.1.attention']
    """
    names, patterns = list(names), list(patterns)
    for pattern in patterns:
        check_type(str, "the name of a point, or a pattern of names", name=pattern)
        if not any(fnmatchcase(name, pattern) for name in names):
            raise ValueError(f"no point is called {pattern!r}{nearest(pattern, names)}")
    return [name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)]


def choose_tensors(names: Iterable[str], pattern: str) -> list[tuple[str, str]]:
    """The modules that a pattern names, each with the place of the tensor in what it returns; "" if none is said.

    >>> choose_tensors(["layers.0.attn", "layers.1.attn"], "layers.*.attn[0]")
    [('layers.0.attn', '[0]'), ('layers.1.attn', '[0]')]
    """
    names = list(names)
    check_type(str, "the name of a point, or a pattern of names", name=pattern)
    found = ELEMENT.fullmatch(pattern)
    if found is None or any(fnmatchcase(name, pattern) for name in names):  # [01] is also a pattern
        return [(name, "") for name in choose_points(names, [pattern])]
    return [(name, found[2]) for name in choose_points(names, [found[1]])]


@contextmanager
def without_fast_path(model: nn.Module) -> Iterator[None]:
    """PyTorch's attention runs in evaluation as one kernel, beside its submodules; not while somebody looks at them.

    What comes out is the same but for rounding, and for padding: with `enable_nested_tensor` PyTorch's encoder gives
    zeros there in evaluation, and vectors in training and here.
    """
    was_enabled = torch.backends.mha.get_fastpath_enabled()
    if not was_enabled or not any(isinstance(module, HAS_FAST_PATH) for module in model.modules()):
        yield
        return
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(was_enabled)
