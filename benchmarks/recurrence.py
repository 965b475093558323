"""Training time of an LSTM beside a Transformer layer: question 1.4(a) of the NYU sheet.

    OMP_NUM_THREADS=1 python -m benchmarks.recurrence

PyTorch's `nn.LSTM` and Headwork's `EncoderLayer` with causal attention, both of width d. A feed-forward network of
width 2d gives both 8 d^2 weights, apart from biases and norms. A step is a forward and a backward pass over one batch,
with gradients to the input and all weights. Time is the processor time of one thread, the best of all turns. FLOPs are
of a forward pass, the attention products included. Products in order are those that wait for another one in a forward
pass, which more processors cannot shorten.
"""

import argparse
import platform
from collections.abc import Callable

import torch
from torch import Tensor, nn

from headwork import choices
from headwork.lab.measuring import best_times
from headwork.layers import EncoderLayer

LENGTHS = (64, 128, 256, 512, 1024)
CHAIN = 6
"""Products in order in a Transformer layer: projections, scores, mixing, output, and the two of the network."""


def step(layer: nn.Module, x: Tensor) -> Callable[[], object]:
    """A forward and a backward pass."""

    def run() -> None:
        layer.zero_grad(set_to_none=True)
        out = layer(x, causal=True) if isinstance(layer, EncoderLayer) else layer(x)[0]
        out.square().mean().backward()

    return run


def flops(d: int, n: int) -> tuple[int, int]:
    """For each token of n, forward: of the LSTM, and of the layer, in which a query sees (n + 1)/2 keys."""
    return 16 * d**2, 16 * d**2 + 2 * d * (n + 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--d-model", type=int, default=256)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--lengths", type=int, nargs="+", default=list(LENGTHS))
    parser.add_argument("--turns", type=int, default=5)
    asked = parser.parse_args()
    torch.manual_seed(0)
    d = asked.d_model
    lstm = nn.LSTM(d, d, batch_first=True)
    layer = EncoderLayer(
        d,
        heads=choices.Heads(n_heads=4),
        feed_forward=choices.FeedForward(d_ff=2 * d),
        norm_order="pre",
    )
    weights = [sum(p.numel() for p in module.parameters()) for module in (lstm, layer)]
    print(f"{platform.processor() or platform.machine()}, one thread, torch {torch.__version__}")
    print(f"d = {d}, {weights[0]:,} weights (LSTM) and {weights[1]:,} (Transformer layer)\n")
    print(
        "| texts | tokens | LSTM, us per token | Transformer layer, us per token | time of the LSTM | its FLOPs | "
        "products in order |"
    )
    print("|---|---|---|---|---|---|---|")
    for batch in asked.batches:
        for n in asked.lengths:
            x = torch.randn(batch, n, d, requires_grad=True)
            first, second = best_times([step(lstm, x), step(layer, x)], rounds=asked.turns)
            of_lstm, of_layer = flops(d, n)
            times = f"{1e6 * first / (batch * n):.1f} | {1e6 * second / (batch * n):.1f} | {first / second:.2f}x"
            print(f"| {batch} | {n:,} | {times} | {of_lstm / of_layer:.2f}x | {n:,} against {CHAIN} |", flush=True)


if __name__ == "__main__":
    main()
