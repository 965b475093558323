"""What somebody's objects have: arguments, weights, numbers. Beside worker.py, and like it without headwork."""

import contextlib
import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

SIMPLE = (int, float, str, bool, type(None))


def parameters_of(function: Any, method: bool = False) -> list[dict[str, Any]] | None:
    """What a call takes: name, kind, whether there is a default, and the annotation as text."""
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):
        return None
    found = list(signature.parameters.values())[1 if method else 0 :]
    return [
        {
            "name": p.name,
            "kind": p.kind.name,
            "optional": p.default is not p.empty or p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD),
            "default": p.default if isinstance(p.default, SIMPLE) else None,
            "annotation": "" if p.annotation is p.empty else getattr(p.annotation, "__name__", str(p.annotation)),
        }
        for p in found
    ]


def first_line(value: Any) -> int | None:
    try:
        return inspect.getsourcelines(value)[1]
    except (OSError, TypeError):
        return None


def tensors_in(value: Any, depth: int = 0) -> Iterator[Tensor]:
    """Every tensor of an answer, whatever it is wrapped in."""
    if isinstance(value, Tensor):
        yield value
    elif depth < 4:
        inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, tuple | list) else ()
        for v in inner or getattr(value, "__dict__", {}).values():
            yield from tensors_in(v, depth + 1)


def add_forward(kind: type[nn.Module]) -> None:
    """A model with `encode` and `decode` and no forward of its own is given one: decode(encode(source), target)."""
    if kind.forward is not nn.Module.forward or not (hasattr(kind, "encode") and hasattr(kind, "decode")):
        return
    encode, decode = (parameters_of(getattr(kind, m), method=True) or [] for m in ("encode", "decode"))
    last = next((m for m in ("project", "projection", "generate_logits") if callable(getattr(kind, m, None))), None)

    def role(name: str) -> str:
        if "mask" in name.lower():
            return "src_mask" if re.search(r"src|source|enc|mem", name.lower()) else "tgt_mask"
        return "tgt" if re.search(r"tgt|trg|target|dec", name.lower()) else "memory"

    def wanted(p: dict[str, Any]) -> bool:
        return not p["optional"] or "mask" in p["name"].lower()

    def forward(self: Any, src: Tensor, tgt: Tensor, src_mask: Any = None, tgt_mask: Any = None) -> Any:
        sources = [src_mask if "mask" in p["name"].lower() else src for p in encode if wanted(p)]
        given = {"tgt": tgt, "src_mask": src_mask, "tgt_mask": tgt_mask, "memory": self.encode(*sources)}
        result = self.decode(*(given[role(p["name"])] for p in decode if wanted(p)))
        return result if last is None else getattr(self, last)(result)

    kind.forward = forward


def fill_lazy(made: nn.Module, width: int = 12) -> None:
    """Layers that learn their width from their first input (nn.LazyLinear) are given one: vectors of the usual width, or ids."""
    if not any(isinstance(p, nn.parameter.UninitializedParameter) for p in made.parameters()):
        return
    n_required = sum(not p["optional"] for p in parameters_of(made.forward) or [])
    for given in (torch.zeros(2, 5, width), torch.zeros(2, 5, dtype=torch.long)):
        for n in range(n_required, 0, -1):
            with contextlib.suppress(Exception), torch.no_grad():
                made(*([given] * n), *([None] * (n_required - n)))
                return


def plain_tensors(made: nn.Module) -> dict[str, Tensor]:
    """Matrices that a module keeps without registering them: no optimizer sees them."""
    return {
        f"{path}.{name}".lstrip("."): value
        for path, module in made.named_modules()
        for name, value in vars(module).items()
        if isinstance(value, Tensor) and value.is_floating_point() and value.ndim > 1 and value.is_leaf
    }


def weights_of(made: Any) -> dict[str, Tensor]:
    """Parameters by name; of an object that is no module, its tensors and the parameters of its modules."""
    if isinstance(made, nn.Module):
        own: dict[str, Tensor] = dict(made.named_parameters())
        return own or plain_tensors(made)
    return dict(_arrays(made, ""))


GRADIENT = re.compile(r"d_?[WwBb](_?\w{1,3})?|grads?(_.*)?|.*_grads?")


def _arrays(value: Any, path: str, depth: int = 0) -> Iterator[tuple[str, Tensor]]:
    """Tensors and arrays of numbers in an object, in what it is made of, and in lists; gradients are left out."""
    inner = dict(enumerate(value)) if isinstance(value, list | tuple) else getattr(value, "__dict__", {})
    for name, own in inner.items():
        place = f"{path}.{name}".lstrip(".")
        if GRADIENT.fullmatch(str(name)):
            continue
        if isinstance(own, nn.Module):
            yield from ((f"{place}.{n}", p) for n, p in own.named_parameters())
        elif isinstance(own, Tensor):
            if own.is_floating_point() and own.is_leaf:
                yield place, own
        elif type(own).__module__ == "numpy":
            if getattr(own, "ndim", 0) > 0 and own.dtype.kind == "f":
                yield place, torch.from_numpy(own)  # the same memory
        elif depth < 5 and (isinstance(own, list | tuple) or type(own).__module__ not in ("builtins", "numpy.random")):
            yield from _arrays(own, place, depth + 1)


def numbers_of(made: Any) -> dict[str, Any]:
    attributes = getattr(made, "__dict__", {})
    return {n: v for n, v in attributes.items() if isinstance(v, int | float) and not n.startswith("_")}
