"""The smallest case that shows a mistake, with whole numbers."""

from collections.abc import Iterator

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


def _rows(t: Tensor) -> str:
    if t.ndim > 1:
        return "[" + " ".join(_rows(row) for row in t) + "]"
    return "[" + " ".join(f"{float(v):.3g}" if t.dtype != torch.bool else str(bool(v)) for v in t) + "]"
