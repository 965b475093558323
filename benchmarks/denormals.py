"""What numbers below the smallest normal one cost, and what flushing them saves: `python benchmarks/denormals.py`.

Each case is timed in processes of its own: with denormal numbers flushed before PyTorch starts its threads, as the
command line does; flushed after, which does not reach the threads; and kept. Intel processors are 100 times slower
with such numbers, AMD's hardly feel them: there the three columns are alike but for noise.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from headwork import functional as hf
from headwork.functional.processor import processor_name

MODES = ("before", "after", "kept")


def gaussian(weights: Callable[..., tuple[Tensor, Tensor]]) -> Callable[[], object]:
    """Gaussian attention, 32 x 32, batch 2, width 400, 9 heads, forward and backward."""
    x = torch.randn(2, 32, 32, 400, requires_grad=True)
    centre, alpha = (2 * torch.randn(9, 2)).requires_grad_(), torch.rand(9).add_(0.2).requires_grad_()
    gradient = torch.randn(2, 9, 32, 32, 400)

    def run() -> object:
        mixed = hf.mix_along_axes(x, *weights((32, 32), centre, alpha))
        return torch.autograd.grad(mixed, (x, centre, alpha), gradient)

    return run


def plain_axis_weights(grid: tuple[int, int], centre: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor]:
    """As PyTorch's softmax leaves them, denormal numbers and all."""
    axes = []
    for n, middle in zip(grid, centre.T, strict=True):
        miss = torch.arange(n)[None, None] - torch.arange(n)[None, :, None] - middle[:, None, None]
        axes.append(torch.softmax(-alpha[:, None, None] * miss.square(), -1))
    return axes[0], axes[1]


def sharp(attend: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Callable[[], object]:
    """Attention whose queries are 20 times as long as usual, 4 x 8 heads, 256 tokens, forward and backward."""
    q, k, v = (torch.randn(4, 8, 256, 32) for _ in range(3))
    inputs = [t.requires_grad_() for t in (20 * q, k, v)]
    gradient = torch.randn(4, 8, 256, 32)
    return lambda: torch.autograd.grad(attend(*inputs), inputs, gradient)


def adam(average: float) -> Callable[[], object]:
    """A step of AdamW over 4 million weights without a gradient, whose averages have faded to this number."""
    weight = torch.randn(4_000_000, requires_grad=True)
    optimiser = torch.optim.AdamW([weight], fused=True)
    weight.grad = torch.zeros_like(weight)
    optimiser.step()
    state = optimiser.state[weight]

    def run() -> None:
        state["exp_avg"].fill_(average)
        state["exp_avg_sq"].fill_(average)
        optimiser.step()

    return run


def plain_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, -1) @ v


CASES: dict[str, Callable[[], Callable[[], object]]] = {
    "Gaussian, headwork": lambda: gaussian(hf.gaussian_axis_weights),
    "Gaussian, plain softmax": lambda: gaussian(plain_axis_weights),
    "sharp, headwork's readable path": lambda: sharp(hf.scaled_dot_product_attention),
    "sharp, plain softmax": lambda: sharp(plain_attention),
    "sharp, PyTorch's fused kernel": lambda: sharp(F.scaled_dot_product_attention),
    "AdamW, averages of 1e-20": lambda: adam(1e-20),
    "AdamW, averages of 1e-40": lambda: adam(1e-40),
}


def seconds(case: str, mode: str, n_turns: int) -> float:
    """In a child: the best of all turns."""
    if mode == "before":
        torch.set_flush_denormal(True)
    torch.manual_seed(0)
    torch.randn(1000, 1000) @ torch.randn(1000, 1000)  # starts the threads
    if mode == "after":
        torch.set_flush_denormal(True)
    run, best = CASES[case](), float("inf")
    for _ in range(n_turns):
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return best


def denormal_share() -> tuple[float, float]:
    """Of the row weights of the Gaussian case, by a plain softmax and by ours."""
    torch.manual_seed(0)
    centre, alpha = 2 * torch.randn(9, 2), torch.rand(9).add_(0.2)
    tiny = torch.finfo(torch.float32).tiny
    found = [of((32, 32), centre, alpha)[0] for of in (plain_axis_weights, hf.gaussian_axis_weights)]
    plain, ours = (float(((weights > 0) & (weights < tiny)).float().mean()) for weights in found)
    return plain, ours


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--child", nargs=2, metavar=("CASE", "MODE"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(seconds(*arguments.child, arguments.turns)))
        return
    plain, ours = denormal_share()
    print(f"{processor_name()}, {torch.get_num_threads()} threads, torch {torch.__version__}")
    print(f"denormal row weights of the Gaussian heads: {plain:.1%} by a plain softmax, {ours:.1%} by headwork\n")
    print("| milliseconds | flushed before the threads | flushed after | kept |\n|---|---|---|---|")
    for case in CASES:
        row = []
        for mode in MODES:
            command = [sys.executable, __file__, "--turns", str(arguments.turns), "--child", case, mode]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            row.append(f"{1e3 * json.loads(done.stdout):.1f}")
        print(f"| {case} | {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
