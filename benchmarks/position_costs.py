"""Absolute, relative and Gaussian attention: formula, counted, measured: `python benchmarks/position_costs.py`.

One layer with a single head, as question (b.2) of the ETH sheet has it. FLOPs are of a forward pass; memory and time
are of a forward and a backward pass, with gradients to the input and all parameters. The memory of the formula is that
of the table of weights, that of the count is all that is kept for the backward pass, and that of the measurement is the
most held at once. All take turns in one process; the time is the best of all turns.
"""

import argparse
import platform
from collections.abc import Callable

import torch
from gaussian import peak_bytes, take_turns
from torch._subclasses.fake_tensor import FakeTensorMode

from headwork.inspection import cost
from headwork.inspection.position_costs import KINDS, Kind, Size, count, formula, make_layer

MIB = 2**20
SIDES = (8, 16, 32, 64)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--d-model", type=int, default=128)
    parser.add_argument("--batch", type=int, default=4)
    asked = parser.parse_args()
    print(f"{platform.processor() or platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}")
    for side in SIDES:
        size = Size(grid=(side, side), d_model=asked.d_model, batch=asked.batch)
        # beyond 32 x 32 the tables of all pairs do not fit, and only what has none is run
        run = [kind for kind in KINDS if side <= 32 or kind in ("absolute", "gaussian")]
        print(f"\n{side} x {side}, batch {asked.batch}, d_model {asked.d_model}, one head")
        show(size, run, asked.turns)


def show(size: Size, run: list[Kind], n_turns: int) -> None:
    runs: dict[str, Callable[[], object]] = {kind: forward_and_backward(kind, size) for kind in run}
    memory = {kind: peak_bytes(step) for kind, step in runs.items()}
    seconds = take_turns(runs, n_turns)
    print(f"{'':<26}{'parameters':>18}{'MFLOPs forward':>22}{'memory (MiB)':>28}{'time':>19}")
    by = ("formula  counted", "formula    counted", "formula  counted measured", "measured (ms)")
    print(f"{'':<26}{by[0]:>18}{by[1]:>22}{by[2]:>28}{by[3]:>19}")
    for kind in KINDS:
        expected = formula(kind, size)
        with FakeTensorMode():
            counted = count(kind, size)
            layer, inputs = make_layer(kind, size)
            kept = cost(layer, *inputs).activation_bytes
        measured = (
            f"{memory[kind] / MIB:>9.1f}{1e3 * seconds[kind]:>12.2f} {seconds[kind] / seconds['gaussian']:>5.1f}x"
            if kind in runs
            else f"{'(not run)':>28}"
        )
        print(
            f"{kind:<26}{expected.parameters:>9,}{counted.parameters:>9,}"
            f"{expected.flops / 1e6:>11,.2f}{counted.flops / 1e6:>11,.2f}"
            f"{4 * expected.weights / MIB:>10.2f}{kept / MIB:>9.1f}{measured}"
        )


def forward_and_backward(kind: Kind, size: Size) -> Callable[[], object]:
    torch.manual_seed(0)
    layer, inputs = make_layer(kind, size)
    x = inputs[0].requires_grad_()
    upstream = torch.randn_like(x)
    wanted = [x, *layer.parameters()]
    return lambda: torch.autograd.grad(layer(*(x for _ in inputs)), wanted, upstream)


if __name__ == "__main__":
    main()
