r"""A layer of n heads has n (2 D_i D_hid + D_i D_o + D_o D_out) + D_out parameters; narrower heads cost nothing more.

Each head has its own $W_q, W_k \in \mathbb{R}^{D_i \times D_{hid}}$ and $W_v \in \mathbb{R}^{D_i \times D_o}$. The
output matrix $W_{out} \in \mathbb{R}^{N_h D_o \times D_{out}}$ has $D_o D_{out}$ entries for each head, and there is
one bias of $D_{out}$ for all:

$$N_h\,(2 D_i D_{hid} + D_i D_o + D_o D_{out}) + D_{out}$$

At fixed widths this grows with the number of heads. With the usual $D_{hid} = D_o = d / N_h$ and $D_i = D_{out} = d$
the heads cancel: $4d^2 + d$, however many there are.
"""

from dataclasses import dataclass

from torch import nn

from headwork.lab.plots import MEASURED, PREDICTED, Figure, panels
from headwork.lab.toolkit import Claim, Experiment, Verdict, same, seeded
from headwork.layers import MultiHeadAttention


@dataclass(frozen=True, kw_only=True)
class Setup(Experiment):
    """Layers with several numbers of heads, once with heads of fixed widths and once with widths d / n_heads."""

    n_heads: tuple[int, ...] = (1, 2, 3, 4, 6, 8, 12)
    d_in: int = 24
    d_hid: int = 5
    d_o: int = 7
    d_out: int = 11
    bias: bool = False
    """Of queries, keys and values: the sheet has none."""
    shares_keys: bool = False
    """Whether all heads have the keys and values of one."""


@dataclass(frozen=True)
class Result:
    """The numbers that a layer holds, by its number of heads; and those of PyTorch's layer."""

    setup: Setup
    of_fixed_widths: tuple[int, ...]
    of_divided_widths: tuple[int, ...]
    of_pytorch: tuple[int, ...]


@seeded
def run(setup: Setup) -> Result:
    return Result(
        setup,
        tuple(_count(_fixed_widths(setup, n)) for n in setup.n_heads),
        tuple(_count(_divided_widths(setup, n)) for n in setup.n_heads),
        tuple(_count(nn.MultiheadAttention(setup.d_in, n)) for n in setup.n_heads),
    )


def _fixed_widths(setup: Setup, n_heads: int) -> nn.Module:
    kv_heads = 1 if setup.shares_keys else n_heads
    return MultiHeadAttention(
        setup.d_in,
        n_heads,
        d_head=setup.d_hid,
        d_value=setup.d_o,
        d_out=setup.d_out,
        n_kv_heads=kv_heads,
        bias=setup.bias,
        out_bias=True,
    )


def _divided_widths(setup: Setup, n_heads: int) -> nn.Module:
    kv_heads = 1 if setup.shares_keys else n_heads
    return MultiHeadAttention(setup.d_in, n_heads, n_kv_heads=kv_heads, bias=setup.bias, out_bias=True)


def _count(layer: nn.Module) -> int:
    return sum(parameter.numel() for parameter in layer.parameters())


def predict(setup: Setup, n_heads: int) -> int:
    of_head = 2 * setup.d_in * setup.d_hid + setup.d_in * setup.d_o + setup.d_o * setup.d_out
    return n_heads * of_head + setup.d_out


def verdict(result: Result) -> Verdict:
    setup, d = result.setup, result.setup.d_in
    fixed = zip(setup.n_heads, result.of_fixed_widths, strict=True)
    divided = zip(setup.n_heads, result.of_divided_widths, strict=True)
    of_pytorch = 4 * d**2 + d + 3 * d
    return Verdict(
        checks=(
            *(
                same(
                    f"parameters of {n} heads of fixed widths",
                    predict(setup, n),
                    seen,
                    near={"without b_out": predict(setup, n) - setup.d_out, "one head more": predict(setup, n + 1)},
                )
                for n, seen in fixed
            ),
            *(
                same(
                    f"parameters of {n} heads of width d / {n}",
                    4 * d**2 + d,
                    seen,
                    near={"without the bias": 4 * d**2, "without W_out": 3 * d**2 + d},
                )
                for n, seen in divided
            ),
            same(
                "parameters of PyTorch's layer, with biases for q, k and v",
                of_pytorch,
                max(result.of_pytorch),
                near={"without these biases": 4 * d**2 + d},
            ),
        ),
        why="Every head has three matrices of its own and its own rows of the output matrix; the bias is shared.",
    )


def figure(result: Result) -> Figure:
    setup, heads = result.setup, result.setup.n_heads
    drawing, (left, right) = panels(2, title="More heads cost parameters only if they are not made narrower")
    left.plot(heads, [predict(setup, n) for n in heads], **PREDICTED)
    left.plot(heads, result.of_fixed_widths, **MEASURED)
    left.set_title(f"D_hid = {setup.d_hid}, D_o = {setup.d_o}")
    right.plot(heads, [4 * setup.d_in**2 + setup.d_in for _ in heads], **PREDICTED | {"label": "predicted: 4 d^2 + d"})
    right.plot(heads, result.of_divided_widths, **MEASURED)
    right.set_title(f"D_hid = D_o = d / n_heads, d = {setup.d_in}")
    for ax, largest in ((left, max(result.of_fixed_widths)), (right, 2 * max(result.of_divided_widths))):
        ax.set(xlabel="heads", ylabel="parameters", xticks=heads, ylim=(0, 1.1 * largest))
        ax.legend(frameon=False, loc="upper left")
    return drawing


CLAIM = Claim(
    __name__,
    __doc__,
    document="ETH",
    question="1(a.1)",
    also=("C182 1(c) iii",),
    setup=Setup(),
    small=Setup(n_heads=(1, 2, 4), d_in=8, d_hid=3, d_o=2, d_out=5),
    run=run,
    verdict=verdict,
    figure=figure,
    broken={
        "biases in queries, keys and values": {"bias": True},
        "heads that share their keys and values": {"shares_keys": True},
    },
    confidence="Exact: whole numbers.",
)
