"""The smallest case that shows a mistake, with whole numbers."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from headwork.checking.judging import Explanation, close
from headwork.checking.option import Case
from headwork.checking.runner import ProgramDiedError, ProgramError


def smallest_case(explanation: Explanation) -> tuple[str, Tensor, Tensor] | None:
    """What was put in, and the two answers: the program's and the right one."""
    subject, reading = explanation.subject, explanation.reading
    right_how = {k: v for k, v in explanation.how.items() if k not in {m.option for m in explanation.mistakes}}
    if explanation.how.get("causal"):
        right_how["causal"] = "past"
    smaller = reading.facts.get("smaller")
    cases: list[Case] = list(smaller()) if smaller is not None else []
    first = subject.cases(reading, 0)
    for case in [*cases, *pieces(first), first, subject.cases(reading, 1)]:
        try:
            yours = reading.run(case).get("output")
            right = subject.expected(case, reading, explanation.weights, right_how)
        except (ProgramError, ProgramDiedError, RuntimeError, KeyError, IndexError, ValueError):
            continue
        if yours is not None and yours.shape == right.shape and not close(yours, right, 1e-3, forgive_nan=False):
            return describe(case), yours, right
    return None


def pieces(case: Case) -> Iterator[Case]:
    """The first sentences and tokens of a case."""
    x = case.get("x")
    if x is None or x.ndim != 3 or "q" in case:
        return
    visible = case.get("visible")
    for b in range(1, min(2, x.shape[0]) + 1):
        for n in range(1, x.shape[1]):
            piece = {**case, "x": x[:b, :n]}
            for name in ("memory", "values", "ids"):
                if isinstance(case.get(name), Tensor):
                    piece[name] = case[name][:b, : n + 1]
            if visible is not None:
                n_key = n if visible.shape[-1] == x.shape[1] else n + 1
                piece["visible"] = visible[:b, :, :n, :n_key]
            if "n" in case:
                piece |= {"n": n, "positions": torch.arange(n)}
            yield piece


def describe(case: Case) -> str:
    """The inputs: in full where they are few, by their shapes where they are not."""
    parts = []
    unused = (
        {"memory", "values"}
        if case.get("roles") == ("x",)
        else {"values"}
        if case.get("roles") == ("x", "memory")
        else set()
    )
    for name, value in case.items():
        if isinstance(value, Tensor) and name not in unused:
            parts.append(f"{name} = {numbers(value)}" if value.numel() <= 8 else f"{name} {list(value.shape)}")
    return ", ".join(parts)


def numbers(t: Tensor, most: int = 12) -> str:
    """A tensor as short text: axes of size 1 left out, three digits.

    >>> numbers(torch.tensor([[[1.0, 0.5]]]))
    '[1 0.5]'
    """
    t = t.detach().squeeze()
    if t.ndim == 0:
        return f"{t.item():.3g}" if t.dtype.is_floating_point else str(t.item())
    if t.numel() > most:
        while t.ndim > 2:
            t = t[0]
        t = t[:3, :4] if t.ndim == 2 else t[:8]
        return _rows(t) + " ..."
    return _rows(t)


def pair(yours: Tensor, right: Tensor, most: int = 12) -> tuple[str, str]:
    """Two answers as short text, the program's and the right one: where they are long, a row in which they differ most."""
    yours, right = yours.detach().squeeze(), right.detach().squeeze()
    if yours.ndim == 0 or yours.numel() <= most or yours.shape != right.shape:
        return numbers(yours), numbers(right)
    apart = (yours - right).abs().nan_to_num(nan=float("inf"))
    if yours.ndim == 1:
        start = max(0, int(apart.argmax()) - 3)
        return numbers(yours[start : start + 8]) + " ...", numbers(right[start : start + 8]) + " ..."
    row = int(apart.flatten(0, -2).amax(-1).argmax())
    index = [int(i) for i in np.unravel_index(row, yours.shape[:-1])]  # torch's own imports sympy first
    both = yours.flatten(0, -2)[row], right.flatten(0, -2)[row]
    start = max(0, min(int(apart.flatten(0, -2)[row].argmax()) - 3, both[0].numel() - 8))
    digits = 3 if _rows(both[0][start : start + 8]) != _rows(both[1][start : start + 8]) else 6
    place = f"{index} of {list(yours.shape)}: "
    return tuple(place + _rows(t[start : start + 8], digits) for t in both)  # type: ignore[return-value]


def _rows(t: Tensor, digits: int = 3) -> str:
    if t.ndim > 1:
        return "[" + " ".join(_rows(row, digits) for row in t) + "]"
    return "[" + " ".join(f"{float(v):.{digits}g}" if t.dtype != torch.bool else str(bool(v)) for v in t) + "]"
