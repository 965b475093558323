"""Gaussian attention against the table of all pairs, as the paper computes it: `python benchmarks/gaussian.py`.

Forward + backward, gradients to x, the centres and the precisions; width 400, 9 heads. All take turns in one process;
the figure is the best of all turns. Beside them stands the value projection of the paper's layer
(width 400 -> 9 x 400), without which no layer is complete.
"""

import argparse
import math
import platform
import time
from collections.abc import Callable

import torch
from einops import einsum
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from headwork.functional import gaussian_attention

D, N_HEADS = 400, 9


def by_table(x: Tensor, centre: Tensor, alpha: Tensor) -> Tensor:
    """As in the paper's code: a table of the five features of each pair, a product with each head, softmax, einsum."""
    row, column = torch.arange(x.shape[1]).float(), torch.arange(x.shape[2]).float()
    down = (row[None, :] - row[:, None])[:, None, :, None].expand(len(row), len(column), len(row), len(column))
    across = (column[None, :] - column[:, None])[None, :, None, :].expand_as(down)
    features = torch.stack([down, across, down**2, across**2, down * across], -1)
    of_head = torch.stack([2 * alpha * centre[:, 0], 2 * alpha * centre[:, 1], -alpha, -alpha, 0 * alpha], -1)
    scores = einsum(features, of_head, "r c i j f, head f -> head r c i j")
    weights = scores.flatten(3).softmax(-1).reshape(scores.shape)
    return einsum(weights, x, "head r c i j, batch i j d -> batch head r c d")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=7)
    n_turns = parser.parse_args().turns
    print(f"{platform.processor() or platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}")
    ours: dict[int, tuple[float, float]] = {}
    for side, batch in ((16, 8), (32, 2), (64, 1)):
        runs = contestants(side, batch)
        seconds = take_turns(runs, n_turns)
        memory = {name: peak_bytes(run) for name, run in runs.items()}
        ours[side] = seconds["headwork"] / batch, memory["headwork"] / batch
        print(f"\n{side} x {side}, batch {batch}")
        for name in runs:
            print(
                f"  {name:<17} {1e3 * seconds[name]:9.1f} ms  {seconds[name] / seconds['headwork']:6.2f}x   "
                f"{memory[name] / 2**20:8.0f} MiB  {memory[name] / memory['headwork']:5.2f}x"
            )
    for what, index in (("time", 0), ("memory", 1)):
        growth = math.log(ours[64][index] / ours[16][index]) / math.log(64**2 / 16**2)
        print(f"growth of {what} from 16 x 16 to 64 x 64: N^{growth:.2f}")


def contestants(side: int, batch: int) -> dict[str, Callable[[], object]]:
    torch.manual_seed(0)
    x = torch.randn(batch, side, side, D, requires_grad=True)
    centre = (2 * torch.randn(N_HEADS, 2)).requires_grad_()
    alpha = torch.rand(N_HEADS).add_(0.2).requires_grad_()
    value = torch.randn(D, N_HEADS * D, requires_grad=True)
    gradient, of_value = torch.randn(batch, N_HEADS, side, side, D), torch.randn(batch, side, side, N_HEADS * D)
    runs: dict[str, Callable[[], object]] = {
        "headwork": lambda: torch.autograd.grad(gaussian_attention(x, centre, alpha), (x, centre, alpha), gradient),
        "value projection": lambda: torch.autograd.grad(x @ value, (x, value), of_value),
    }
    if side < 64:
        runs["table"] = lambda: torch.autograd.grad(by_table(x, centre, alpha), (x, centre, alpha), gradient)
    return runs


def take_turns(runs: dict[str, Callable[[], object]], n_turns: int) -> dict[str, float]:
    best = dict.fromkeys(runs, math.inf)
    for _ in range(n_turns):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def peak_bytes(run: Callable[[], object]) -> int:
    """The most memory held at once beyond what was there, from the allocator's own record."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        run()
    held = peak = 0
    for event in recorded.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            peak = max(peak, held)
    return peak


if __name__ == "__main__":
    main()
