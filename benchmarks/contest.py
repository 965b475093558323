"""Contestants take turns in one process; each is judged by its best turn, and ratios are printed."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Contestant:
    """Something to be timed, with the FLOPs it needs."""

    name: str
    run: Callable[[], object]
    flops: float


def matrix_peak(n_turns: int = 20) -> float:
    """FLOPs per second of the best matrix product in float32, over shapes like those of a Transformer layer."""
    best = 0.0
    for rows, inner, columns in ((1024, 1024, 1024), (2048, 2048, 2048), (1024, 512, 2048), (4096, 768, 768)):
        a, b = torch.randn(rows, inner), torch.randn(inner, columns)
        out = torch.empty(rows, columns)
        best = max(best, 2 * rows * inner * columns / _best_time(lambda: torch.mm(a, b, out=out), n_turns))  # noqa: B023
    return best


def contest(title: str, contestants: list[Contestant], n_turns: int, peak: float) -> None:
    """Interleave the contestants; the first is ours. A ratio above 1 means that the other one is slower."""
    best = dict.fromkeys((c.name for c in contestants), float("inf"))
    for c in contestants:
        c.run()
    for turn in range(n_turns):
        order = contestants if turn % 2 else contestants[::-1]
        for c in order:
            best[c.name] = min(best[c.name], _time(c.run))
    print(f"\n{title}")
    ours = best[contestants[0].name]
    for c in contestants:
        share = c.flops / best[c.name] / peak
        print(f"  {c.name:<34} {1e3 * best[c.name]:9.3f} ms   {best[c.name] / ours:5.2f}x   {share:6.1%} of peak")


def _best_time(run: Callable[[], object], n_turns: int) -> float:
    run()
    return min(_time(run) for _ in range(n_turns))


def _time(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start
