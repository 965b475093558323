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


def matrix_products() -> list[Contestant]:
    """Square matrix products in float32, large enough to run at full speed: the peak that others are measured by."""
    products = []
    for size in (1024, 1536):
        a, b, out = torch.randn(size, size), torch.randn(size, size), torch.empty(size, size)
        products.append(Contestant(f"{size}^3", lambda a=a, b=b, out=out: torch.mm(a, b, out=out), 2.0 * size**3))
    return products


CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
"""On a machine that others keep busy, the processor's time of one thread says more than the wall clock."""


def contest(
    title: str, contestants: list[Contestant], n_turns: int, clock: Callable[[], float] = time.perf_counter
) -> None:
    """Interleave the contestants and the matrix products; the first contestant is ours.

    A ratio above 1 means that the other one is slower. The peak is that of the same turns: the machine's speed moves.
    """
    products = matrix_products()
    everybody = [*contestants, *products]
    best = dict.fromkeys((c.name for c in everybody), float("inf"))
    for c in everybody:
        c.run()
    for turn in range(n_turns):
        for c in everybody if turn % 2 else reversed(everybody):
            start = clock()
            c.run()
            best[c.name] = min(best[c.name], clock() - start)
    peak = max(c.flops / best[c.name] for c in products)
    print(f"\n{title}; peak {peak / 1e9:.0f} GFLOP/s")
    ours = best[contestants[0].name]
    for c in contestants:
        share = c.flops / best[c.name] / peak
        print(f"  {c.name:<34} {1e3 * best[c.name]:9.2f} ms   {best[c.name] / ours:5.2f}x   {share:6.1%} of peak")
